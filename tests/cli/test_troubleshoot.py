"""``xds troubleshoot`` with a real Envoy: each step of a request, and the command to run next."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.server.load_client import reporting, told
from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap
from tests.support.envoy import EnvoyProcess
from tests.support.pki import CertificateAuthority
from tests.support.process import wait_until

NODE, GROUP = "edge-1", "edge"
PORT = 9  # nothing is sent there


@pytest.fixture(scope="module")
def proxy(remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvoyProcess]:
    """An Envoy in sync with the usual resources."""
    remote.server.push(GROUP, r.web_resources("web", PORT))
    bootstrap = EnvoyBootstrap(remote.server.grpc_port, node_id=NODE, node_cluster=GROUP, load_reports=True)
    with EnvoyProcess(tmp_path_factory.mktemp("envoy"), bootstrap) as envoy:
        envoy.wait_live()
        remote.server.wait_synced(GROUP, NODE)
        yield envoy


def steps(remote: Remote, cluster: str, code: int) -> dict[str, dict[str, str]]:
    ran = remote.xds("troubleshoot", NODE, "--to", cluster, "-o", "json")
    assert ran.code == code, ran.out + ran.err
    return {item["step"]: item for item in ran.json()["items"]}


def push(remote: Remote, *documents: Any) -> None:
    remote.server.push(GROUP, list(documents))
    remote.server.wait_synced(GROUP, NODE)


def test_everything_is_well(remote: Remote, proxy: EnvoyProcess) -> None:
    push(remote, *r.web_resources("web", PORT))
    found = steps(remote, "web", 0)
    assert list(found) == ["node", "listener", "route", "cluster", "endpoints", "certificates", "load"]
    assert {found[step]["state"] for step in ("node", "listener", "route", "cluster", "endpoints")} == {"ok"}
    assert found["route"]["detail"] == "routes/web"
    assert found["endpoints"]["detail"] == "1 of unknown health"
    shown = remote.xds("troubleshoot", NODE, "--to", "web").out
    assert shown.startswith("STEP") and "✓ ok" in shown


def test_no_route_names_the_cluster(remote: Remote, proxy: EnvoyProcess) -> None:
    push(remote, *r.web_resources("web", PORT), r.static_cluster("spare", PORT))
    found = steps(remote, "spare", 1)
    assert (found["route"]["state"], found["cluster"]["state"]) == ("failed", "ok")
    assert found["route"]["detail"] == "no route that it holds names spare"
    assert found["route"]["next"] == "xds describe cluster spare -g edge"
    assert found["listener"]["detail"] == "none of its 1 listeners leads to spare"


def test_a_cluster_that_it_does_not_hold(remote: Remote, proxy: EnvoyProcess) -> None:
    push(remote, *r.web_resources("web", PORT))
    found = steps(remote, "nowhere", 1)
    assert found["cluster"]["detail"] == "it does not hold nowhere"
    assert found["cluster"]["next"] == f"xds explain {NODE} clusters nowhere"
    assert "endpoints" not in found
    assert found["load"]["detail"] == "it reports load, but none of nowhere yet"


def test_a_node_that_reports_no_load(remote: Remote) -> None:
    remote.server.push("silent", r.web_resources("web", PORT))
    with Proxy(remote.server.grpc_port, "silent-1", "silent") as silent:
        silent.answer()
        remote.server.wait_synced("silent", "silent-1")
        ran = remote.xds("troubleshoot", "silent-1", "--to", "quiet")
        assert "no load reports: does its bootstrap have load_stats_config?" in ran.out


def test_a_node_that_no_group_matches(remote: Remote) -> None:
    with Proxy(remote.server.grpc_port, "lost-1", "lost"):
        wait_until(lambda: remote.server.get("/nodes", group="")["items"], "it is connected")
        ran = remote.xds("troubleshoot", "lost-1", "--to", "web", "-o", "json")
    (route,) = [item for item in ran.json()["items"] if item["step"] == "route"]
    assert route["next"] == "xds explain lost-1 routes"


def test_no_endpoint_takes_requests(remote: Remote, proxy: EnvoyProcess) -> None:
    cluster, _, listener, route = r.web_resources("web", PORT)
    empty = r.load_assignment("web")
    push(remote, cluster, {**empty, "@type": r.cluster_load_assignment("web")["@type"]}, listener, route)
    found = steps(remote, "web", 1)
    assert (found["endpoints"]["state"], found["endpoints"]["detail"]) == ("failed", "none takes requests")
    assignment = r.cluster_load_assignment("web", PORT, PORT + 1)
    assignment["endpoints"][0]["lb_endpoints"][0]["health_status"] = "DRAINING"
    push(remote, cluster, assignment, listener, route)
    found = steps(remote, "web", 0)
    assert (found["endpoints"]["state"], found["endpoints"]["detail"]) == ("warning", "1 of 2 take requests")


def test_certificates_on_the_way(remote: Remote, proxy: EnvoyProcess, tmp_path: Path) -> None:
    own = CertificateAuthority(tmp_path).issue("edge", ("edge.example",), datetime.timedelta(days=2, hours=1))
    secret = r.tls_secret("edge", own.path.read_text(), own.key_path.read_text())
    cluster, assignment, _, route = r.web_resources("web", PORT)
    listener = r.listener("web", r.rds("web"), transport_socket=r.downstream_tls("edge"))
    push(remote, cluster, assignment, listener, route, secret)
    found = steps(remote, "web", 0)
    assert found["certificates"]["state"] == "warning"
    assert "secrets/edge (edge.example) expires in 2d" in found["certificates"]["detail"]


@pytest.mark.parametrize(
    ("errors", "state", "detail"),
    [
        (0, "ok", "0% of 10 requests of this node fail"),
        (1, "warning", "9% of 11 requests of this node fail"),
        (10, "failed", "50% of 20 requests of this node fail"),
    ],
)
def test_the_requests_of_the_node_itself(remote: Remote, errors: int, state: str, detail: str) -> None:
    name = f"failing-{errors}"
    remote.server.push(name, [r.static_cluster(name, PORT)])
    with ExitStack() as stack:
        stack.enter_context(Proxy(remote.server.grpc_port, name, name)).answer()
        for node, failed in ((name, errors), (f"{name}-other", 100)):
            load = told(name, total_successful_requests=10, total_error_requests=failed)
            stack.enter_context(reporting(remote.server.grpc_port, node, load))
        wait_until(lambda: reporters_n(remote, name) == 2, "two reports")
        ran = remote.xds("troubleshoot", name, "--to", name, "-o", "json")
    (step,) = [item for item in ran.json()["items"] if item["step"] == "load"]
    assert (step["state"], step["detail"]) == (state, detail)
    assert step["next"] == ("" if state == "ok" else f"xds load {name} --by node")


def test_a_node_without_requests_is_shown_by_its_latest_report(remote: Remote) -> None:
    remote.server.push("idle", [r.static_cluster("idle", PORT)])
    with ExitStack() as stack:
        stack.enter_context(Proxy(remote.server.grpc_port, "idle", "idle")).answer()
        load = told("idle", interval_s=2.5, total_successful_requests=0)
        stack.enter_context(reporting(remote.server.grpc_port, "idle", load))
        wait_until(lambda: reporters_n(remote, "idle") == 1, "the report")
        ran = remote.xds("troubleshoot", "idle", "--to", "idle")
    assert "no requests of this node in its latest report (2.5 s)" in ran.out


def reporters_n(remote: Remote, cluster: str) -> int:
    """How many nodes have reported the load of a cluster: there is nothing to ask for before the first has."""
    answer = remote.server.request("GET", f"/api/v1/load/{cluster}", params={"by": "node"})
    return len(answer.json()["reporters"]) if answer.status_code == 200 else 0


def test_a_node_that_is_gone_or_unknown(remote: Remote) -> None:
    ran = remote.xds("troubleshoot", "nobody", "--to", "web")
    assert ran.code == 1 and "nobody is unknown" in ran.out and "xds nodes" in ran.out
    assert ran.err == "xds: failed: node (nobody is unknown)\n"
