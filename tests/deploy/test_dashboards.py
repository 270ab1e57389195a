"""Every expression of the dashboards and alerts gives data in a real Prometheus that scrapes a server."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from bench.kubernetes.programs import prometheus
from tests.cli.proxy import Proxy
from tests.deploy.test_monitoring import ALERTS, BOARDS, queries, rules
from tests.deploy.watched_server import steer, wait_told, watched_server
from tests.support import resources as r
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, free_port, wait_until
from tests.support.server import ServerProcess
from xds.fleet.convergence import STALE_AFTER_S

Json = dict[str, Any]

CONFIGURATION = REPOSITORY / "deploy" / "prometheus" / "prometheus.yml"
SCRAPE_S = 1
ALL = ".*"  # the value of variables for "all"
STALE_DEADLINE_S = 2 * STALE_AFTER_S
# What a fleet without a policy sees of the load of its proxies.
WITHOUT_POLICY = {"Errors by cluster", "Drops by cluster", "Load reports", "Requests in progress"}

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600), pytest.mark.xdist_group("prometheus")]


class Prometheus:
    """A Prometheus with the configuration and the alerts of the repository, with the lines that TLS and tokens need.

    Only the target, the files and the interval differ.
    """

    def __init__(self, directory: Path, port: int, running: ExitStack) -> None:
        text = re.sub(r"# (scheme|tls_config|authorization): ", r"\1: ", CONFIGURATION.read_text())
        token = directory / "xds.token"
        token.write_text("unused, for the server has no tokens")
        for name, file in (("xds-ca.pem", directory / "test-ca.pem"), ("xds.token", token)):
            assert f"/etc/prometheus/{name}" in text
            text = text.replace(f"/etc/prometheus/{name}", str(file))
        document = yaml.safe_load(text)
        assert document["scrape_configs"][0]["scheme"] == "https"
        document["global"] = dict.fromkeys(document["global"], f"{SCRAPE_S}s")
        document["rule_files"] = [str(ALERTS)]
        document["scrape_configs"][0]["static_configs"] = [{"targets": [f"{LOOPBACK}:{port}"]}]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(document))
        self._url = f"http://{LOOPBACK}:{(own := free_port())}"
        flags = {
            "config.file": directory / "prometheus.yml",
            "storage.tsdb.path": directory / "tsdb",
            "web.listen-address": f"{LOOPBACK}:{own}",
        }
        argv = [str(prometheus()), *(f"--{name}={value}" for name, value in flags.items())]
        self._begun = time.time()
        self._process = running.enter_context(ChildProcess("prometheus", argv, directory))
        self._process.wait_until(self._is_ready, "Prometheus is ready")

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self._url}/-/ready", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def has(self, expression: str) -> bool:
        """Whether an expression, or a list of the values of a label, has had data since the start."""
        if expression.startswith("label_values("):
            series, label = expression.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            return bool(self._ask(f"label/{label}/values", {"match[]": series}))
        range_s = {"start": str(self._begun), "end": str(time.time()), "step": str(SCRAPE_S)}
        found: Json = self._ask("query_range", {"query": expression, **range_s})
        return any(value != "NaN" for series in found["result"] for _, value in series["values"])

    def alerts(self) -> set[str]:
        """The alerts that fire or wait to."""
        return {each["labels"]["alertname"] for each in self._ask("alerts", {})["alerts"]}

    def _ask(self, path: str, query: dict[str, str]) -> Any:
        answer = httpx.get(f"{self._url}/api/v1/{path}", params=query, trust_env=False)
        assert answer.is_success, f"{query}: {answer.text}"
        return answer.json()["data"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, set[str]]]:
    """Prometheus after a minute of a server, and the queries of load.json that had data without a policy."""
    with ExitStack() as running:
        directory = tmp_path_factory.mktemp("watched")
        server = watched_server(directory, running)
        seen = Prometheus(directory, server.http_port, running)
        _push_twice(server, seen, running)
        load = dict(queries("load"))
        wait_until(lambda: all(seen.has(filled(load[title])) for title in WITHOUT_POLICY), "the load without a policy")
        before = {title for title, expression in load.items() if seen.has(filled(expression))}
        steer(server)
        wait_told(server)
        wait_until(partial(seen.has, "xds_server_nodes_stale"), "a node is stale", STALE_DEADLINE_S)
        yield seen, before


def _push_twice(server: ServerProcess, seen: Prometheus, running: ExitStack) -> None:
    """Push to a proxy that answers, take it back, and wait until Prometheus has seen each."""
    server.push("quick", [r.static_cluster("a")])
    proxy = running.enter_context(Proxy(server.grpc_port, "quick", "quick"))
    proxy.answer()
    for number, name in enumerate("bc", 1):
        server.push("quick", [r.static_cluster(name)])
        proxy.answer()
        series = f'xds_server_convergence_seconds_count{{group="quick"}} >= {number}'
        wait_until(partial(seen.has, series), "the push is taken")
    answer = server.request("POST", "/api/v1/groups/quick/rollback", json={"to": 1})
    assert answer.is_success, answer.text


def filled(expression: str) -> str:
    """The expression with "all" for its variables."""
    return expression.replace("$group", ALL).replace("$cluster", ALL)


def without_threshold(expression: str) -> str:
    """What an alert compares: the expression up to a comparison that stands in no brackets."""
    depth = 0
    for at, character in enumerate(expression):
        depth += (character in "({") - (character in ")}")
        if depth == 0 and character in "<>=":
            return expression[:at]
    return expression


def every_query() -> list[tuple[str, str, str]]:
    return [(board, title, filled(expression)) for board in BOARDS for title, expression in queries(board)]


@pytest.mark.parametrize(("board", "title", "expression"), every_query(), ids=lambda one: one[:40])
def test_a_query_of_a_dashboard_has_data(
    board: str, title: str, expression: str, watched: tuple[Prometheus, set[str]]
) -> None:
    seen, _ = watched
    wait_until(partial(seen.has, expression), f"{board}: {title}: {expression}")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_what_an_alert_compares_has_data(rule: Json, watched: tuple[Prometheus, set[str]]) -> None:
    seen, _ = watched
    expression = without_threshold(rule["expr"])
    assert expression != rule["expr"]
    wait_until(partial(seen.has, expression), f"{rule['alert']}: {expression}")


def test_the_load_is_seen_without_a_policy(watched: tuple[Prometheus, set[str]]) -> None:
    _, before = watched
    assert before >= WITHOUT_POLICY | {"group", "cluster"}


def test_alerts_of_the_server_are_raised(watched: tuple[Prometheus, set[str]]) -> None:
    """What is wrong with this server, and nothing that is not."""
    seen, _ = watched
    wait_until(lambda: {"XdsConfigurationRefused", "XdsSourceFailing", "XdsNodesStale"} <= seen.alerts(), "alerts")
    assert not seen.alerts() & {"XdsServerDown", "XdsServerFault", "XdsNoNodes", "XdsStoreLost", "XdsPushesFail"}
