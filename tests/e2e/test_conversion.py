"""A real Envoy behaves the same with its static bootstrap and with the converted configuration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import resources as r
from tests.support.bootstrap import static_bootstrap
from tests.support.envoy import ADMIN_TIMEOUT_S, EnvoyProcess, get
from tests.support.pki import CertificateAuthority, served_serial
from tests.support.process import LOOPBACK
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream
from xds.envoy.bootstrap import BootstrapOptions
from xds.envoy.convert import convert

Json = dict[str, Any]
StartUpstream = Callable[[str], Upstream]

VARYING = ("date", "x-envoy-upstream-service-time")
LISTENERS = ("http", "https", "tcp")


def static_tls() -> Json:
    """A transport socket whose certificate is the static secret ``cert``."""
    socket = r.downstream_tls("cert")
    del socket["typed_config"]["common_tls_context"]["tls_certificate_sds_secret_configs"][0]["sds_config"]
    return socket


def tcp_listener(cluster: str) -> Json:
    typed = {
        "@type": f"{r.TYPE}envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "tcp",
        "cluster": cluster,
    }
    chain = {"filters": [{"name": "tcp", "typed_config": typed}]}
    return {"name": "tcp", "address": r.address(0), "filter_chains": [chain]}


def bootstrap(ports: dict[str, int], secret: Json) -> Json:
    """Two routes to two clusters, one of them found by DNS; TLS with a static secret; a TCP proxy."""
    header = {"header": {"key": "x-configured", "value": "yes"}}
    routes = [r.route("b", "/b"), r.direct_route("gone", 410, "/gone"), r.route("a")]
    web: Json = {"route_config": {"name": "web", "virtual_hosts": [r.host("all", routes, ["svc.test"])]}}
    web["route_config"]["response_headers_to_add"] = [header]
    by_name = {**r.static_cluster("b"), "type": "STRICT_DNS", "dns_lookup_family": "V4_ONLY"}
    endpoint = {"endpoint": {"address": {"socket_address": {"address": "localhost", "port_value": ports["b"]}}}}
    by_name["load_assignment"] = {"cluster_name": "b", "endpoints": [{"lb_endpoints": [endpoint]}]}
    listeners = [
        r.listener("http", web),
        r.listener("https", r.inline_routes("secure", r.route("a")), transport_socket=static_tls()),
        tcp_listener("c"),
    ]
    document = static_bootstrap(
        [r.static_cluster("a", ports["a"]), by_name, r.static_cluster("c", ports["c"])], listeners
    )
    document["static_resources"]["secrets"] = [{key: value for key, value in secret.items() if key != "@type"}]
    return document


def told(answer: httpx.Response) -> tuple[int, str, list[tuple[str, str]]]:
    headers = sorted((name, value) for name, value in answer.headers.items() if name not in VARYING)
    return answer.status_code, answer.text, headers


def behaviour(envoy: EnvoyProcess, ca: CertificateAuthority) -> Json:
    """What a client sees at each of the listeners."""
    envoy.wait_live()
    port = {name: envoy.wait_listener(name) for name in LISTENERS}
    with httpx.Client(verify=ca.client_context(), trust_env=False, timeout=ADMIN_TIMEOUT_S) as client:
        secure = client.get(f"https://{LOOPBACK}:{port['https']}/")
    return {
        "a": told(get(port["http"])),
        "b": told(get(port["http"], path="/b/x")),
        "gone": told(get(port["http"], path="/gone")),
        "elsewhere": told(get(port["http"], host="other.test")),
        "secure": told(secure),
        "certificate": served_serial(port["https"], ca),
        "tcp": told(get(port["tcp"])),
    }


@pytest.mark.parametrize("split", [False, True], ids=["plain", "split"])
def test_envoy_behaves_as_before(tmp_path: Path, running: ExitStack, upstream: StartUpstream, split: bool) -> None:
    ca = CertificateAuthority(tmp_path)
    certificate = ca.issue("web")
    secret = r.tls_secret("cert", certificate.pem, certificate.key_pem)
    given = bootstrap({name: upstream(name).port for name in "abc"}, secret)
    with EnvoyProcess(tmp_path, given, name="static") as envoy:
        before = behaviour(envoy, ca)
    assert [before[name][1] for name in ("a", "b", "secure", "tcp")] == ["a", "b", "a", "c"]
    assert ("x-configured", "yes") in before["a"][2]
    assert before["certificate"] == certificate.serial

    server = running.enter_context(ServerProcess(tmp_path))
    converted = convert(given, options=BootstrapOptions("", "", LOOPBACK, server.grpc_port), split=split)
    pushed = server.push("test", converted.snapshot["resources"])
    assert pushed.get("warnings", []) == []
    assert ("endpoints" in pushed["versions"]) == ("routes" in pushed["versions"]) == split
    envoy = running.enter_context(EnvoyProcess(tmp_path, converted.bootstrap, name="dynamic"))
    assert behaviour(envoy, ca) == before
    server.wait_synced("test", "static")
    assert "LRS" in {stream["service"] for stream in server.nodes()["static"]["streams"]}
    assert envoy.fetch_timeouts() == {}
