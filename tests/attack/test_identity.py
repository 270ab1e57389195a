"""One proxy asks for the private key of another, on every way into the server.

A server with client certificates on both ports, three certificates of one authority: edge-1, edge-2, an operator's. The
secret is in the group ``edge-1``; edge-2 tries to have it.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.pki import Certificate, CertificateAuthority
from tests.support.process import LOOPBACK, wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.model.resource_type import CLUSTER, SECRET, V2_URLS
from xds.proto import wire_pb2

KEY = b"THE-KEY-OF-EDGE-1"
WAIT_S = 10.0
DENIED, OK = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.OK
V3, V2 = (
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/",
    "/envoy.service.discovery.v2.AggregatedDiscoveryService/",
)
SDS = "/envoy.service.secret.v3.SecretDiscoveryService/"
LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
ID = "spiffe://corp.example/proxy/{}"

RULES = {"principal": ID.format("{id}"), "node": {"id": "{id}"}, "groups": ["{id}", "shared"]}
OPERATOR = {"uri": "spiffe://corp.example/operators/*", "name": "operators", "scopes": ["admin"]}


@dataclass(frozen=True)
class Site:
    """The server, and how each certificate connects to it."""

    server: ServerProcess
    authority: CertificateAuthority
    certificates: dict[str, Certificate]

    def channel(self, name: str) -> Any:
        """A gRPC connection of its own."""
        shown = self.certificates[name]
        credentials = grpc.ssl_channel_credentials(
            self.authority.pem.encode(), shown.key_pem.encode(), shown.pem.encode()
        )
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.secure_channel(f"localhost:{self.server.grpc_port}", credentials, options)

    def http(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """A request to the HTTP port."""
        context = self.authority.client_context()
        context.load_cert_chain(self.certificates[name].path, self.certificates[name].key_path)
        request = urllib.request.Request(
            f"https://{LOOPBACK}:{self.server.http_port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S, context=context) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


def secret(name: str, value: bytes) -> dict[str, Any]:
    return {"@type": SECRET, "name": name, "generic_secret": {"secret": {"inline_string": value.decode()}}}


def begin(tmp_path: Path, running: ExitStack, mode: str) -> Site:
    authority = CertificateAuthority(tmp_path)
    own = authority.issue("server")
    certificates = {name: authority.issue(name, [ID.format(name), f"{name}.corp"]) for name in ("edge-1", "edge-2")}
    certificates["ann"] = authority.issue("ann", ["spiffe://corp.example/operators/ann"])
    tls = {"certificate": str(own.path), "private_key": str(own.key_path), "client_ca": str(authority.path)}
    settings = {
        "server": {"grpc": {"tls": tls}, "http": {"tls": tls}},
        "auth": {"certificates": [OPERATOR], "nodes": {"mode": mode, "rules": [RULES]}},
    }
    config = tmp_path / "xds.json"  # of which YAML is a superset
    config.write_text(json.dumps(settings))
    context = authority.client_context()
    context.load_cert_chain(certificates["ann"].path, certificates["ann"].key_path)
    flags = ["--store", "memory", "--config", str(config)]
    server = running.enter_context(ServerProcess(tmp_path, flags, tls=context))
    server.push("edge-1", [secret("key", KEY), static_cluster("private", 80)])
    server.push("shared", [secret("common", b"common"), static_cluster("shared", 80)])
    assert server.request("PUT", "/api/v1/groups/shared", json={"selector": 'node.cluster == "fleet"'}).is_success
    return Site(server, authority, certificates)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as running:
        yield begin(tmp_path_factory.mktemp("enforce"), running, "enforce")


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as running:
        yield begin(tmp_path_factory.mktemp("audit"), running, "audit")


# -- the doors ---------------------------------------------------------------------------------------------------------


class Stream:
    """One stream: what came on it, and how it ended."""

    def __init__(self, channel: Any, method: str) -> None:
        self._requests: list[bytes] = []
        self._inbox: Any = None
        self._call = channel.stream_stream(method)(iter(self._next, b""), timeout=WAIT_S)
        self.came = b""

    def _next(self) -> bytes:
        wait_until(lambda: bool(self._requests), "a request to send", WAIT_S)
        return self._requests.pop(0)

    def send(self, message: Any) -> Stream:
        self._requests.append(message.SerializeToString())
        return self

    def read(self) -> bytes:
        """The next response."""
        data: bytes = next(self._call)
        self.came += data
        return data

    def end(self) -> grpc.StatusCode:
        """Half-close, and read to the end."""
        self._requests.append(b"")
        return self.ended()

    def ended(self) -> grpc.StatusCode:
        """Read to the end that the server makes."""
        try:
            while True:
                self.read()
        except StopIteration:
            return OK
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code


def sotw(node_id: str, names: tuple[str, ...] = ("key",), type_url: str = SECRET, **fields: Any) -> Any:
    node = wire_pb2.Node(id=node_id, cluster=fields.pop("cluster", "")).SerializeToString()
    return wire_pb2.DiscoveryRequest(type_url=type_url, resource_names=names, node=node, **fields)


def delta(node_id: str, names: tuple[str, ...] = ("key",), **fields: Any) -> Any:
    node = wire_pb2.Node(id=node_id, cluster=fields.pop("cluster", "")).SerializeToString()
    return wire_pb2.DeltaDiscoveryRequest(type_url=SECRET, resource_names_subscribe=names, node=node, **fields)


Asked = tuple[bool, bytes]  # was it refused for what it is, and all that came
Attack = Callable[[Site, str, str], Asked]


def stream_attack(method: str, message: Callable[[str], Any]) -> Attack:
    def attack(site: Site, certificate: str, node_id: str) -> Asked:
        with site.channel(certificate) as channel:
            stream = Stream(channel, method).send(message(node_id))
            code = stream.end()
            return code is DENIED, stream.came

    return attack


def fetch(site: Site, certificate: str, node_id: str) -> Asked:
    with site.channel(certificate) as channel:
        try:
            return False, channel.unary_unary(f"{SDS}FetchSecrets")(sotw(node_id).SerializeToString(), timeout=WAIT_S)
        except grpc.RpcError as error:
            return error.code() is DENIED, b""


def rest_attack(path: str) -> Attack:
    def attack(site: Site, certificate: str, node_id: str) -> Asked:
        body = {"node": {"id": node_id}, "resource_names": ["key"]}
        status, answer = site.http(certificate, "POST", path, body)
        return status == 403, answer

    return attack


def second_stream(site: Site, certificate: str, node_id: str) -> Asked:
    """Behind a stream of its own on the same connection, which was let in."""
    with site.channel(certificate) as channel:
        first = Stream(channel, f"{V3}StreamAggregatedResources")
        first.send(sotw(certificate, ("common",), cluster="fleet"))
        assert b"common" in first.read()
        second = Stream(channel, f"{V3}DeltaAggregatedResources").send(delta(node_id))
        code = second.end()
        assert first.end() is OK
        return code is DENIED, first.came + second.came


def returning(site: Site, certificate: str, node_id: str) -> Asked:
    """With a version that it says it has."""
    label = site.server.versions("edge-1")["secrets"]
    with site.channel(certificate) as channel:
        stream = Stream(channel, f"{V3}StreamAggregatedResources")
        code = stream.send(sotw(node_id, version_info=label, response_nonce="1")).end()
        return code is DENIED, stream.came


SECRET_V2 = V2_URLS[SECRET]
DOORS: dict[str, Attack] = {
    "ADS": stream_attack(f"{V3}StreamAggregatedResources", sotw),
    "ADS v2": stream_attack(f"{V2}StreamAggregatedResources", lambda node_id: sotw(node_id, type_url=SECRET_V2)),
    "Delta": stream_attack(f"{V3}DeltaAggregatedResources", delta),
    "SDS": stream_attack(f"{SDS}StreamSecrets", sotw),
    "SDS Delta": stream_attack(f"{SDS}DeltaSecrets", delta),
    "Fetch": fetch,
    "REST": rest_attack("/v3/discovery:secrets"),
    "REST v2": rest_attack("/v2/discovery:secrets"),
    "second stream": second_stream,
    "returning": returning,
}
every_door = pytest.mark.parametrize("door", DOORS)


@every_door
def test_a_proxy_cannot_read_the_key_of_another(site: Site, door: str) -> None:
    refused, came = DOORS[door](site, "edge-2", "edge-1")
    assert (refused, KEY in came) == (True, False)


@every_door
def test_the_owner_of_a_node_id_may_use_it(site: Site, door: str) -> None:
    """So that what is refused above is refused for who asks."""
    refused, came = DOORS[door](site, "edge-1", "edge-1")
    assert (refused, KEY in came) == (False, True)


def test_load_reports_name_no_cluster_of_another(site: Site) -> None:
    node = wire_pb2.Node(id="edge-1").SerializeToString()
    asked = wire_pb2.LoadStatsRequest(node=node)
    with site.channel("edge-2") as channel:
        stream = Stream(channel, LRS).send(asked)
        assert (stream.end(), stream.came) == (DENIED, b"")
    with site.channel("edge-1") as channel:
        stream = Stream(channel, LRS).send(asked)
        assert b"private" in stream.read()
        assert stream.end() is OK


@pytest.mark.parametrize("method", ["StreamAggregatedResources", "DeltaAggregatedResources"])
def test_a_live_stream_is_not_moved_to_where_it_may_not_go(site: Site, method: str) -> None:
    """An operator errs with a selector: the stream ends with the reason, and nothing of the other group was sent."""
    message = sotw if method.startswith("Stream") else delta
    selector = {"selector": 'node.cluster == "fleet" and node.id == "edge-2"', "priority": 9}
    with site.channel("edge-2") as channel:
        stream = Stream(channel, V3 + method).send(message("edge-2", ("common", "key"), cluster="fleet"))
        assert b"common" in stream.read()
        assert site.server.request("PUT", "/api/v1/groups/edge-1", json=selector).is_success
        try:
            assert (stream.ended(), KEY in stream.came) == (DENIED, False)
            again = Stream(channel, V3 + method).send(message("edge-2", ("common", "key"), cluster="fleet"))
            assert (again.end(), again.came) == (DENIED, b"")
        finally:
            assert site.server.request("PUT", "/api/v1/groups/edge-1", json={"selector": ""}).is_success


def test_a_live_load_report_stream_neither(site: Site) -> None:
    node = wire_pb2.Node(id="edge-2", cluster="fleet").SerializeToString()
    selector = {"selector": 'node.cluster == "fleet" and node.id == "edge-2"', "priority": 9}
    with site.channel("edge-2") as channel:
        stream = Stream(channel, LRS).send(wire_pb2.LoadStatsRequest(node=node))
        assert b"shared" in stream.read()
        assert site.server.request("PUT", "/api/v1/groups/edge-1", json=selector).is_success
        try:
            assert (stream.ended(), b"private" in stream.came) == (DENIED, False)
        finally:
            assert site.server.request("PUT", "/api/v1/groups/edge-1", json={"selector": ""}).is_success


def test_another_node_later_on_the_stream_changes_nothing(site: Site) -> None:
    with site.channel("edge-2") as channel:
        stream = Stream(channel, f"{V3}StreamAggregatedResources").send(sotw("edge-2", ("common",), cluster="fleet"))
        stream.read()
        stream.send(sotw("edge-1", ("key",), CLUSTER)).send(sotw("edge-1", ("key", "common")))
        assert stream.end() is OK
        assert KEY not in stream.came


def test_a_refusal_is_logged_and_an_event(site: Site) -> None:
    before = site.server.metrics().get('xds_server_streams_refused_total{reason="node"}', 0)
    with site.channel("edge-2") as channel:
        call = channel.unary_unary(f"{SDS}FetchSecrets")
        with pytest.raises(grpc.RpcError) as told:
            call(sotw("edge-1").SerializeToString(), timeout=WAIT_S)
    reason = "rule 1: node.id 'edge-1' does not match 'edge-2'"
    assert told.value.details() == f"{ID.format('edge-2')} may not be node 'edge-1': {reason}"
    assert site.server.metrics()['xds_server_streams_refused_total{reason="node"}'] == before + 1
    wait_until(lambda: "stream.refused" in site.server.process.log(), "a line in the log", WAIT_S)


def test_a_proxys_certificate_is_no_administrators(site: Site) -> None:
    """A client certificate alone gives no rights at the HTTP port."""
    for method, path, body in (
        ("PUT", "/api/v1/groups/default/snapshot", {"resources": []}),
        ("GET", "/api/v1/groups/edge-1/snapshot?show_secrets=true", None),
        ("GET", "/api/v1/nodes", None),
        ("POST", "/api/v1/groups/edge-1/rollback", {"to": 1}),
        ("GET", "/metrics", None),
    ):
        status, answer = site.http("edge-2", method, path, body)
        assert (status, KEY in answer) == (403, False), path
    status, answer = site.http("edge-2", "GET", "/api/v1/whoami")
    who = {"name": ID.format("edge-2"), "principal": ID.format("edge-2"), "scopes": ["xds"], "authenticated": True}
    assert status == 200
    assert json.loads(answer) == {**who, "principals": [ID.format("edge-2"), "dns:edge-2.corp", "cn:edge-2"]}
    assert json.loads(site.http("ann", "GET", "/api/v1/whoami")[1])["name"] == "operators"


def test_a_client_may_list_services_but_not_connected_nodes(site: Site) -> None:
    from grpc_channelz.v1 import channelz_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with site.channel("edge-2") as channel:
        reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        assert b"SecretDiscoveryService" in Stream(channel, reflection).send(asked).read()
        with pytest.raises(grpc.RpcError, match="lacks the scope read"):
            channel.unary_unary("/grpc.channelz.v1.Channelz/GetServers")(
                channelz_pb2.GetServersRequest().SerializeToString(), timeout=WAIT_S
            )
    with site.channel("ann") as channel:
        found = channel.unary_unary("/grpc.channelz.v1.Channelz/GetServers")(b"", timeout=WAIT_S)
        assert len(channelz_pb2.GetServersResponse.FromString(found).server) == 1


def test_a_client_without_a_certificate_is_refused(site: Site) -> None:
    with grpc.secure_channel(
        f"localhost:{site.server.grpc_port}", grpc.ssl_channel_credentials(site.authority.pem.encode())
    ) as channel:
        code = Stream(channel, f"{V3}StreamAggregatedResources").send(sotw("edge-1")).end()
        assert code is grpc.StatusCode.UNAVAILABLE
    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        urllib.request.urlopen(
            f"https://{LOOPBACK}:{site.server.http_port}/livez", context=site.authority.client_context(), timeout=WAIT_S
        )


@every_door
def test_in_audit_mode_a_client_is_allowed_and_counted(audited: Site, door: str) -> None:
    """In audit mode, operators see what the rules would refuse before it is refused."""
    before = audited.server.metrics()["xds_server_node_audits_total"]
    refused, came = DOORS[door](audited, "edge-2", "edge-1")
    assert (refused, KEY in came) == (False, True)
    assert audited.server.metrics()["xds_server_node_audits_total"] > before


def test_in_audit_mode_load_reports_and_moves_are_allowed_and_counted(audited: Site) -> None:
    def counted() -> float:
        return audited.server.metrics()["xds_server_node_audits_total"]

    before = counted()
    node = wire_pb2.Node(id="edge-1").SerializeToString()
    with audited.channel("edge-2") as channel:
        stream = Stream(channel, LRS).send(wire_pb2.LoadStatsRequest(node=node))
        assert b"private" in stream.read()
        assert stream.end() is OK
    assert counted() > before
    before = counted()
    selector = {"selector": 'node.cluster == "fleet" and node.id == "edge-2"', "priority": 9}
    with audited.channel("edge-2") as channel:
        stream = Stream(channel, f"{V3}StreamAggregatedResources")
        stream.send(sotw("edge-2", ("common", "key"), cluster="fleet"))
        assert b"common" in stream.read()
        assert counted() == before
        assert audited.server.request("PUT", "/api/v1/groups/edge-1", json=selector).is_success
        try:
            assert KEY in stream.read()
        finally:
            assert audited.server.request("PUT", "/api/v1/groups/edge-1", json={"selector": ""}).is_success
    assert counted() > before


def test_in_audit_mode_a_breach_is_logged_and_an_event(audited: Site) -> None:
    fetch(audited, "edge-2", "edge-1")
    log = audited.server.process.log()
    assert "node.audited" in log
    assert ID.format("edge-2") in log
    assert "stream.refused" not in log
    assert audited.server.metrics()['xds_server_streams_refused_total{reason="node"}'] == 0
