"""The status service (CSDS): all connected nodes."""

from __future__ import annotations

import hashlib
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from tests.server.conftest import Harness, RawStream, Start, state_of, until, within
from tests.support.resources import CERTIFICATE_PEM, KEY_PEM
from xds.access.authorisation import Access
from xds.access.tokens import READ, XDS, Grant, Tokens
from xds.codec import schema
from xds.codec.resources import resource_from_bytes
from xds.model.resource_type import CLUSTER, SECRET
from xds.model.snapshot import build_snapshot
from xds.proto import wire_pb2
from xds.server import client_status

SERVICE = "/envoy.service.status.v3.ClientStatusDiscoveryService/"
FETCH, STREAM = SERVICE + "FetchClientStatus", SERVICE + "StreamClientStatus"


def request(**fields: Any) -> bytes:
    return schema.require("envoy.service.status.v3.ClientStatusRequest")(**fields).SerializeToString()


def decoded(data: bytes) -> list[Any]:
    answer: Any = schema.require("envoy.service.status.v3.ClientStatusResponse").FromString(data)
    return list(answer.config)


async def fetch(server: Harness, metadata: tuple[tuple[str, str], ...] = (), **fields: Any) -> list[Any]:
    call = (await server.channel()).unary_unary(FETCH)
    return decoded(await within(call(request(**fields), metadata=metadata)))


def statuses(config: Any) -> dict[str, tuple[str, str]]:
    def name(each: Any, field: str) -> str:
        kinds = each.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
        return str(kinds[getattr(each, field)].name)

    return {
        each.name: (name(each, "config_status"), name(each, "client_status")) for each in config.generic_xds_configs
    }


async def subscribed(server: Harness, node_id: str, **fields: Any) -> RawStream:
    stream = await server.stream()
    node = wire_pb2.Node(id=node_id, cluster="edge", **fields).SerializeToString()
    await stream.send(wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node).SerializeToString())
    return stream


async def test_client_status_shows_the_resources_of_a_node(server: Harness) -> None:
    stream = await subscribed(server, "n1")
    response = await stream.receive()
    (config,) = await fetch(server)
    assert (config.node.id, config.node.cluster) == ("n1", "edge")
    assert statuses(config) == {"c1": ("STALE", "REQUESTED"), "c2": ("STALE", "REQUESTED")}
    await stream.ack(response)
    await until(lambda: state_of(server).get("clusters") == "synced")
    (config,) = await fetch(server)
    assert statuses(config) == {"c1": ("SYNCED", "ACKED"), "c2": ("SYNCED", "ACKED")}
    first = config.generic_xds_configs[0]
    assert (first.type_url, first.version_info) == (CLUSTER, "1")
    assert first.xds_config.type_url == CLUSTER
    assert first.last_updated.seconds > 0


async def test_client_status_shows_rejected_and_missing_resources(server: Harness) -> None:
    stream = await subscribed(server, "n1")
    await stream.ack(await stream.receive())
    server.push({"c1": "b", "c2": "a", "c3": "a"})
    await stream.ack(await stream.receive(), error="no c1 of this kind")
    await until(lambda: state_of(server).get("clusters") == "nacked")
    (config,) = await fetch(server)
    found = statuses(config)
    assert found["c1"] == ("ERROR", "NACKED") and found["c2"] == ("SYNCED", "ACKED")
    error = config.generic_xds_configs[0]
    assert error.error_state.details == "no c1 of this kind"
    assert (error.version_info, error.error_state.version_info) == ("1", "2")
    named = await server.stream()
    await named.request(names=["c2", "nowhere"], node_id="n2")
    await named.ack(await named.receive(), names=["c2", "nowhere"])
    await until(lambda: state_of(server, "n2").get("clusters") == "synced")
    config = next(each for each in await fetch(server) if each.node.id == "n2")
    assert statuses(config) == {"c2": ("SYNCED", "ACKED"), "nowhere": ("NOT_SENT", "DOES_NOT_EXIST")}


async def test_nodes_are_chosen_by_matchers_and_contents_left_out(server: Harness) -> None:
    for node_id, value in (("edge-1", "web"), ("edge-2", "api"), ("side-1", "web")):
        metadata = Struct()
        metadata.update({"role": value, "zones": ["a"], "weight": 3, "canary": value == "api", "gone": None})
        stream = await subscribed(server, node_id, metadata=metadata)
        await stream.receive()

    async def chosen(*matchers: Any) -> list[str]:
        found = await fetch(server, node_matchers=matchers, exclude_resource_contents=True)
        assert not any(each.HasField("xds_config") for config in found for each in config.generic_xds_configs)
        return [config.node.id for config in found]

    def at(key: str, **value: Any) -> dict[str, Any]:
        return {"node_metadatas": [{"path": [{"key": key}], "value": value}]}

    assert await chosen() == ["edge-1", "edge-2", "side-1"]
    assert await chosen({"node_id": {"prefix": "edge-"}}) == ["edge-1", "edge-2"]
    assert await chosen({"node_id": {"exact": "EDGE-1", "ignore_case": True}}) == ["edge-1"]
    assert await chosen({"node_id": {"safe_regex": {"regex": "(edge|side)-1"}}}) == ["edge-1", "side-1"]
    assert await chosen({"node_id": {"exact": "edge-2"}}, {"node_id": {"suffix": "de-1"}}) == ["edge-2", "side-1"]
    assert await chosen({"node_id": {"prefix": "edge"}, **at("role", string_match={"exact": "web"})}) == ["edge-1"]
    assert await chosen(at("canary", bool_match=True)) == ["edge-2"]
    assert await chosen(at("weight", double_match={"range": {"start": 3, "end": 4}})) != []
    assert await chosen(at("weight", double_match={"range": {"start": 2, "end": 3}})) == []
    assert await chosen(at("zones", list_match={"one_of": {"string_match": {"exact": "a"}}})) != []
    assert len(await chosen(at("gone", null_match={}))) == 3
    assert await chosen(at("absent", present_match=True)) == []
    choice = [{"string_match": {"exact": "api"}}, {"bool_match": True}]
    assert await chosen(at("role", or_match={"value_matchers": choice})) == ["edge-2"]


@pytest.mark.parametrize(
    ("matcher", "words"),
    [
        ({"node_id": {}}, "/node_matchers/0/node_id: expected exact"),
        ({"node_id": {"safe_regex": {"regex": "("}}}, "/node_matchers/0/node_id/safe_regex: "),
        ({"node_metadatas": [{"value": {"bool_match": True}}]}, "/node_metadatas/0/path: a path needs keys"),
        ({"node_metadatas": [{"path": [{"key": "a"}]}]}, "/node_metadatas/0/value: expected a pattern"),
    ],
)
async def test_an_invalid_matcher_is_named(server: Harness, matcher: dict[str, Any], words: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fetch(server, node_matchers=[matcher])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in (caught.value.details() or "")


async def test_a_stream_answers_each_request(server: Harness) -> None:
    call = (await server.channel()).stream_stream(STREAM)()
    await within(call.write(request()))
    assert decoded(await within(call.read())) == []
    stream = await subscribed(server, "n1")
    await stream.receive()
    await within(call.write(request()))
    assert [each.node.id for each in decoded(await within(call.read()))] == ["n1"]
    await call.done_writing()
    assert await within(call.read()) is grpc.aio.EOF
    assert await within(call.code()) is grpc.StatusCode.OK


async def test_a_response_is_bounded(server: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = schema.require("envoy.config.cluster.v3.Cluster")
    bodies = [kind(name=f"c{number}", alt_stat_name="x" * 1000).SerializeToString() for number in range(100)]
    clusters = [resource_from_bytes(CLUSTER, body) for body in bodies]
    server.cache.set(build_snapshot("default", 2, clusters, {CLUSTER: "2"}))
    server.server.wake(["default"])
    stream = await subscribed(server, "n1")
    await stream.receive()
    monkeypatch.setattr(server.server._status, "_response_bytes", 50_000)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fetch(server)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "exclude_resource_contents" in (caught.value.details() or "")
    assert server.metrics.limit_hits["client_status_bytes"] == 1
    assert len((await fetch(server, exclude_resource_contents=True))[0].generic_xds_configs) == 100
    monkeypatch.setattr(client_status, "REQUEST_BYTES", 10)
    with pytest.raises(grpc.aio.AioRpcError, match="at most 10 are accepted"):
        await fetch(server, node_matchers=[{"node_id": {"exact": "a long enough name"}}])


async def test_secrets_are_redacted(server: Harness) -> None:
    secret = schema.require("envoy.extensions.transport_sockets.tls.v3.Secret")(name="s")
    message: Any = secret
    message.tls_certificate.certificate_chain.inline_string = CERTIFICATE_PEM
    message.tls_certificate.private_key.inline_string = KEY_PEM
    resource = resource_from_bytes(SECRET, message.SerializeToString())
    server.cache.set(build_snapshot("default", 2, [resource], {SECRET: "2"}))
    server.server.wake(["default"])
    stream = await server.stream()
    await stream.request(SECRET, ["s"])
    await stream.receive()
    (config,) = await fetch(server)
    shown: Any = type(message).FromString(config.generic_xds_configs[0].xds_config.value)
    assert shown.tls_certificate.private_key.inline_string == "[redacted]"
    assert b"MIIE" not in config.SerializeToString()


async def test_client_status_needs_the_scope_read(start: Start) -> None:
    def token(name: str, scope: str) -> tuple[str, Grant]:
        return hashlib.sha256(name.encode()).hexdigest(), Grant(name, frozenset({scope}))

    server = await start(access=Access(Tokens((token("reader", READ), token("proxy", XDS)))))
    assert await fetch(server, metadata=(("authorization", "Bearer reader"),)) == []
    for metadata, code in (
        ((), grpc.StatusCode.UNAUTHENTICATED),
        ((("authorization", "Bearer proxy"),), grpc.StatusCode.PERMISSION_DENIED),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await fetch(server, metadata=metadata)
        assert caught.value.code() is code
        call = (await server.channel()).stream_stream(STREAM)(metadata=metadata)
        await within(call.write(request()))
        assert await within(call.code()) is code
