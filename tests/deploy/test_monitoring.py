"""The alert rules and the dashboard: what they ask for is what a running server answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.proxy import METHOD, Proxy
from tests.deploy.alert_cases import CASES, AlertCase
from tests.server.load_client import V3, report, reporter, told
from tests.support import resources as r
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, REPOSITORY, wait_until
from tests.support.server import ServerProcess
from xds.model.resource_type import ENDPOINT
from xds.proto import wire_pb2
from xds.steering.core.assignment import ReasonCode

Json = dict[str, Any]

pytestmark = pytest.mark.xdist_group("monitoring")  # they share one server

ALERTS = REPOSITORY / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = REPOSITORY / "deploy" / "grafana" / "load.json"
GROUP = "default"
STREAM_DEADLINE_S = 100.0
SERIES = re.compile(r"\b((?:xds|process)_\w+|up\b)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!=|=|!~)"([^"]*)"')
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


class Served(NamedTuple):
    """The samples of a scrape, by the name of the series."""

    samples: dict[str, list[tuple[dict[str, str], float]]]

    def labels(self, name: str) -> set[str]:
        return {label for labels, _ in self.samples[name] for label in labels}

    def select(self, selector: str) -> list[tuple[dict[str, str], float]]:
        """The samples of ``name{matchers}``, each with ``=`` or ``=~``."""
        found = SERIES.fullmatch(selector)
        assert found is not None
        wanted = {
            name: value if sign == "=~" else re.escape(value) for name, sign, value in MATCHER.findall(found[2] or "")
        }
        return [
            one
            for one in self.samples.get(found[1], ())
            if all(re.fullmatch(value, one[0].get(name, "")) for name, value in wanted.items())
        ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A scrape of a server with a policy whose cluster has too little capacity, errors, drops and a silent node.

    A source cannot be read, one node rejects its clusters, one requests what does not exist, and a backup was made.
    """
    stop = Event()
    with ExitStack() as running:
        directory = tmp_path_factory.mktemp("server")
        (directory / "xds.yaml").write_text(yaml.safe_dump({"sources": {"gone": {"kind": "files", "paths": ["gone"]}}}))
        flags = ["--store", "memory", "--lrs-interval", "1s", "--config", str(directory / "xds.yaml")]
        server = running.enter_context(ServerProcess(directory, flags))
        server.push(GROUP, [r.steered_cluster("web"), r.zoned_load_assignment("web", {"z1": [1], "z2": [2]})])
        reporting = Thread(target=_report, args=(server.grpc_port, stop))
        reporting.start()
        running.callback(reporting.join)
        running.callback(stop.set)
        silent = running.enter_context(Proxy(server.grpc_port, "silent", GROUP, zone="z1"))
        silent.answer()
        server.push("edge", [r.steered_cluster("web"), r.zoned_load_assignment("web", {"z1": [1]})])
        refusing = running.enter_context(Proxy(server.grpc_port, "refusing", "edge"))
        refusing.refusal = "no good"
        refusing.answer()
        _subscribe(running, server.grpc_port, "absent")
        certificate = CertificateAuthority(directory).issue("pushed")
        chain, key = certificate.path.read_text(), certificate.key_path.read_text()
        tls = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
        secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
        server.push("secrets", [{"@type": secret, "name": "pushed", "tls_certificate": tls}])
        assert server.request("GET", "/api/v1/backup").status_code == 200
        rate = {"per_locality_rps": 50}
        policy = {"capacity": {"rates": [rate]}, "interval_s": 1, "stale_after_s": 5, "fallback_after_s": 60}
        answer = server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=policy)
        assert answer.status_code == 200, answer.text
        found: list[Served] = []

        def is_told() -> bool:
            found.append(_scrape(server))
            reasons = {labels["reason"] for labels, _ in found[-1].select("xds_assignment_reasons")}
            seen = ("xds_server_nodes_nacked", "xds_server_missing_resources")
            return {"overload", "partial_reports"} <= reasons and all(found[-1].samples[name] for name in seen)

        wait_until(is_told, "the policy is overloaded, and a node is silent", 60.0, detail=lambda: found[-1].samples)
        yield found[-1]


def _report(port: int, stop: Event) -> None:
    """A node of zone z1 that reports each second: 150 requests, some failed, and drops."""

    def messages() -> Iterator[bytes]:
        first = reporter("edge-1")
        while not stop.is_set():
            web = told("web", 1.0, total_successful_requests=120, total_error_requests=30, total_issued_requests=150)
            web.dropped_requests.add(category="lb", dropped_count=10)
            web.total_dropped_requests = 10
            yield report(web, node=first)
            first = b""
            stop.wait(1.0)

    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        try:
            for _ in channel.stream_stream(V3)(messages(), timeout=STREAM_DEADLINE_S):
                pass
        except grpc.RpcError:
            assert stop.is_set()


def _subscribe(running: ExitStack, port: int, name: str) -> None:
    """Request a ClusterLoadAssignment of this name, on a stream of its own."""
    channel = running.enter_context(grpc.insecure_channel(f"{LOOPBACK}:{port}"))
    call = channel.stream_stream(METHOD.format("v3"), request_serializer=wire_pb2.DiscoveryRequest.SerializeToString)
    node = wire_pb2.Node(id="asking", cluster="edge").SerializeToString()
    request = wire_pb2.DiscoveryRequest(node=node, type_url=ENDPOINT, resource_names=[name])
    over = Event()
    stream = call((one for one in (request, None) if one is not None or over.wait()), timeout=STREAM_DEADLINE_S)
    running.callback(stream.cancel)
    running.callback(over.set)


def _scrape(server: ServerProcess) -> Served:
    text = httpx.get(f"http://{LOOPBACK}:{server.http_port}/metrics", trust_env=False).text
    samples: dict[str, list[tuple[dict[str, str], float]]] = {"up": [({}, 1.0)]}  # by Prometheus itself
    for family in text_string_to_metric_families(text):
        for name in (family.name, f"{family.name}_total"):
            samples.setdefault(name, [])
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return Served(samples)


def rules() -> list[Json]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries() -> list[tuple[str, str]]:
    """Title and expression of each query of the dashboard, with its variables replaced."""
    board = json.loads(DASHBOARD.read_text())
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


@pytest.mark.parametrize(("title", "expression"), queries(), ids=lambda one: one[:40])
def test_a_query_of_the_dashboard_uses_series_and_labels_that_are_served(
    title: str, expression: str, served: Served
) -> None:
    check_expression(expression, served)


def test_the_dashboard_is_well_formed() -> None:
    board = json.loads(DASHBOARD.read_text())
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
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}" and panel["description"]
        for each in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", each["expr"])) <= variables
            assert each["legendFormat"]


@pytest.mark.parametrize("folder", ["deploy/prometheus", "deploy/grafana"])
def test_the_operations_page_names_the_files(folder: str) -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    assert all(f"{folder}/{path.name}" in text for path in Path(REPOSITORY / folder).iterdir())
