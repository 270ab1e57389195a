"""The alert rules and the dashboard: what they ask for is what a running server answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alert_cases import CASES, AlertCase
from tests.deploy.watched_server import MATCHER, SERIES, Served, steer, wait_told, watched_server
from tests.support.process import REPOSITORY
from xds.steering.core.assignment import ReasonCode

Json = dict[str, Any]

pytestmark = pytest.mark.xdist_group("monitoring")  # they share one server

ALERTS = REPOSITORY / "deploy" / "prometheus" / "alerts.yaml"
BOARDS = {path.stem: path for path in sorted((REPOSITORY / "deploy" / "grafana").glob("*.json"))}
GROUPING = re.compile(r"\bby \(([^)]*)\)")
# Labels that Prometheus adds.
ADDED = {"job", "instance"}
INCREASE = re.compile(r"\b(?:increase|rate)\((xds_server_\w+(?:\{[^}]*\})?)\[")
# No sample within a minute.
UNSEEN = {"xds_server_nodes_stale": {"type", "group"}}
LOAD_ALERTS = {
    "XdsZoneFull",
    "XdsOverload",
    "XdsAssignmentNotFollowed",
    "XdsPartialReports",
    "XdsClusterErrors",
    "XdsClusterDrops",
}
SOURCE_ALERTS = {"XdsSourceFailing", "XdsSourceSilent", "XdsSourceHeld", "XdsSourceLeftOut", "XdsSourceBehind"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A scrape of `watched_server` with a policy."""
    with ExitStack() as running:
        server = watched_server(tmp_path_factory.mktemp("server"), running)
        steer(server)
        yield wait_told(server)


def rules() -> list[Json]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries(name: str) -> list[tuple[str, str]]:
    """Title and expression of each query of a dashboard."""
    board = json.loads(BOARDS[name].read_text())
    found = [(panel["title"], each["expr"]) for panel in board["panels"] for each in panel["targets"]]
    found += [(one["name"], one["expr"]) for one in board["annotations"]["list"]]
    found += [(one["name"], one["definition"]) for one in board["templating"]["list"] if one["type"] == "query"]
    return found


def check_expression(expression: str, served: Served) -> None:
    """Each series exists, and has the labels that the expression selects and groups by."""
    used = SERIES.findall(expression)
    assert used, expression
    known: set[str] = set(ADDED)
    for name, matchers in used:
        assert name in served.samples, name
        labels = served.labels(name)
        known |= labels
        if labels:  # a family without samples, such as nodes that refuse something, tells no labels
            assert {label for label, _, _ in MATCHER.findall(matchers)} <= labels | ADDED, (name, matchers)
    for grouping in GROUPING.findall(expression):
        if all(served.labels(name) for name, _ in used):
            assert {label.strip() for label in grouping.split(",")} <= known, expression


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_series_and_labels_that_are_served(rule: Json, served: Served) -> None:
    check_expression(rule["expr"], served)
    assert {"severity"} <= set(rule["labels"])
    assert {"summary", "description"} <= set(rule["annotations"])
    texts = " ".join(rule["annotations"].values())
    if rule["alert"] in LOAD_ALERTS | SOURCE_ALERTS:
        grouped = {label.strip() for each in GROUPING.findall(rule["expr"]) for label in each.split(",")}
        labels = grouped or {label for name, _ in SERIES.findall(rule["expr"]) for label in served.labels(name)}
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    for name, _, value in MATCHER.findall(rule["expr"]):
        assert name != "reason" or "xds_assignment" not in rule["expr"] or value in set(ReasonCode)


@pytest.mark.parametrize("selector", [one for rule in rules() for one in INCREASE.findall(rule["expr"])])
def test_a_counter_of_an_alert_is_there_before_it_counts(selector: str, served: Served) -> None:
    """Prometheus sees no increase in a series that begins with 1: the first event would raise no alert."""
    assert served.select(selector), selector


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_a_case_of_an_alert_has_the_series_as_they_are_served(case: AlertCase, served: Served) -> None:
    """`tests/deploy/test_alerts.py` evaluates the alerts over these series."""
    for series in {one for each in (case.fires, *case.silent) for one in each}:
        name, _, matchers = series.partition("{")
        assert name in served.samples, name
        labels = {label: value for label, _, value in MATCHER.findall(matchers)}
        told = served.labels(name) if served.samples[name] else UNSEEN[name]
        assert labels.keys() == told, series
        if "reason" in labels and name == "xds_assignment_reasons":
            assert labels["reason"] in set(ReasonCode)


def test_there_are_alerts_for_load_and_sources() -> None:
    assert {rule["alert"] for rule in rules()} >= LOAD_ALERTS | SOURCE_ALERTS


def test_a_source_that_cannot_be_read_is_seen(served: Served) -> None:
    assert served.select('xds_server_source_failing{source="gone",kind="files"}')[0][1] == 1


def test_load_alerts_fire_on_their_conditions(served: Served) -> None:
    """The scenario of the scrape is one in which four of them fire, by the figures of one moment."""
    capacity = {labels["target"]: value for labels, value in served.select("xds_assignment_capacity_rps")}
    load = {labels["target"]: value for labels, value in served.select("xds_assignment_load_rps")}
    assert load["r/z1"] / capacity["r/z1"] > 0.9
    assert [value for _, value in served.select('xds_assignment_reasons{reason="overload"}')] == [1]
    nodes = {
        state: sum(value for _, value in served.select(f'xds_assignment_nodes{{state="{state}"}}'))
        for state in ("reporting", "silent")
    }
    assert nodes == {"reporting": 1, "silent": 1}
    ended = served.select('xds_lrs_requests_total{cluster="web"}')
    failed = served.select('xds_lrs_requests_total{cluster="web",outcome="error"}')
    assert sum(value for _, value in failed) / sum(value for _, value in ended) > 0.05
    assert sum(value for _, value in served.select('xds_lrs_dropped_total{cluster="web",category="lb"}')) > 0


@pytest.mark.parametrize(
    ("title", "expression"), [each for name in BOARDS for each in queries(name)], ids=lambda one: one[:40]
)
def test_a_query_of_a_dashboard_uses_series_and_labels_that_are_served(
    title: str, expression: str, served: Served
) -> None:
    check_expression(expression, served)


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_well_formed(name: str) -> None:
    board = json.loads(BOARDS[name].read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for at in (panel["gridPos"],)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "no panel covers another"
    assert max(x for x, _ in cells) < 24
    variables = {one["name"] for one in board["templating"]["list"]}
    # Without it, "all" is the list of the values that the variable has: nothing, where there is none yet.
    assert all(one["allValue"] == ".*" for one in board["templating"]["list"] if one.get("includeAll"))
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}" and panel["description"]
        for each in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", each["expr"])) <= variables
            assert each["legendFormat"]


@pytest.mark.parametrize("folder", ["deploy/prometheus", "deploy/grafana"])
def test_the_operations_page_names_the_files(folder: str) -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    assert all(f"{folder}/{path.name}" in text for path in Path(REPOSITORY / folder).iterdir())
