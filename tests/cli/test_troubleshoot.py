"""``xds troubleshoot`` with a real Envoy: each step of a request, and the command to run next."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap
from tests.support.envoy import EnvoyProcess
from tests.support.pki import CertificateAuthority

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


def test_a_node_that_is_gone_or_unknown(remote: Remote) -> None:
    ran = remote.xds("troubleshoot", "nobody", "--to", "web")
    assert ran.code == 1 and "nobody is unknown" in ran.out and "xds nodes" in ran.out
    assert ran.err == "xds: failed: node (nobody is unknown)\n"
