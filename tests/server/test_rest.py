"""REST xDS on an ASGI application."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tests.codec.cases import CASES, T
from tests.server.conftest import Harness, Start
from xds.access.authorisation import Access
from xds.codec import schema
from xds.codec.resources import decode_resource
from xds.envoy.translation import V2, translate_to_v2
from xds.fleet.event_log import EventLog
from xds.fleet.fleet import Fleet
from xds.model.node import NODE_BYTES
from xds.model.resource import Resource, content_version
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, V2_URLS
from xds.model.snapshot import build_snapshot
from xds.protocol.requests import StreamLimits
from xds.server.counters import Metrics
from xds.server.identity import NodeAuthorizer
from xds.server.refusals import RefusalRecorder
from xds.server.rest import BODY_LIMIT, RenderedJson, rest_routes
from xds.snapshots.cache import SnapshotCache


def real(type_url: str, name: str, **fields: Any) -> Resource:
    """A resource with a body of its type."""
    kind = schema.message_class(type_url)
    assert kind is not None
    named = {"cluster_name": name} if type_url == ENDPOINT else {"name": name}
    body = kind(**named, **fields).SerializeToString(deterministic=True)
    return Resource(type_url, name, body, content_version(body))


class Poller:
    def __init__(self, client: httpx.AsyncClient, cache: SnapshotCache, fleet: Fleet, metrics: Metrics) -> None:
        self.client = client
        self.cache = cache
        self.fleet = fleet
        self.metrics = metrics

    def push(self, *resources: Resource) -> None:
        before = self.cache.get("default")
        revision = before.revision + 1 if before is not None else 1
        versions = {resource.type_url: str(revision) for resource in resources}
        self.cache.set(build_snapshot("default", revision, resources, versions, before), now_s=monotonic())

    async def poll(self, what: str = "clusters", **fields: Any) -> httpx.Response:
        return await self._post(f"/v3/discovery:{what}", fields)

    async def poll_v2(self, what: str = "clusters", **fields: Any) -> httpx.Response:
        return await self._post(f"/v2/discovery:{what}", fields)

    async def _post(self, path: str, fields: dict[str, Any]) -> httpx.Response:
        return await self.client.post(path, content=json.dumps({"node": {"id": "n1"}, **fields}))


@pytest.fixture
async def poller() -> AsyncIterator[Poller]:
    cache, metrics = SnapshotCache("test", nonce_prefix="t", translations={V2: translate_to_v2}), Metrics()
    fleet, events = Fleet(), EventLog()
    door = NodeAuthorizer(Access(), events, metrics, RefusalRecorder(events, metrics))
    app = Starlette(routes=rest_routes(cache, fleet, metrics, door, StreamLimits(names_per_request=10)))
    transport = httpx.ASGITransport(app)
    headers = {"content-type": "application/json; charset=utf-8"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        yield Poller(client, cache, fleet, metrics)


async def test_a_poll_is_answered_in_json_with_proto_field_names(poller: Poller) -> None:
    poller.push(real(CLUSTER, "c1", alt_stat_name="s"), real(CLUSTER, "c2"))
    answer = await poller.poll()
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    document = answer.json()
    assert (document["type_url"], document["version_info"][:2]) == (CLUSTER, "1+")
    assert document["resources"] == [
        {"@type": CLUSTER, "name": "c1", "alt_stat_name": "s"},
        {"@type": CLUSTER, "name": "c2"},
    ]


@pytest.mark.parametrize(
    ("what", "case"),
    [
        ("clusters", "cluster with tls and http2"),
        ("endpoints", "endpoints"),
        ("listeners", "api listener"),
        ("routes", "route with weights"),
        ("scoped-routes", "scoped route"),
        ("secrets", "secret"),
        ("runtime", "runtime"),
    ],
)
async def test_rule_74_the_v2_api_is_polled_in_its_own_types(poller: Poller, what: str, case: str) -> None:
    pushed = decode_resource(CASES[case])
    poller.push(pushed)
    answer = await poller.poll_v2(what, resource_names=[pushed.name])
    document = answer.json()
    [resource] = document["resources"]
    assert document["type_url"] == resource["@type"] == V2_URLS[pushed.type_url]
    assert decode_resource(resource).name == pushed.name
    assert "v3." not in answer.text
    assert (await poller.poll_v2(what, resource_names=[pushed.name], **_held(document))).status_code == 304


def _held(document: dict[str, Any]) -> dict[str, Any]:
    return {"version_info": document["version_info"]}


async def test_a_v2_listener_has_the_v2_messages_that_are_packed_in_it(poller: Poller) -> None:
    poller.push(decode_resource(CASES["api listener"]))
    [listener] = (await poller.poll_v2("listeners")).json()["resources"]
    manager = listener["api_listener"]["api_listener"]
    assert manager["@type"] == f"{T}envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
    assert [each["@type"] for each in (await poller.poll("listeners")).json()["resources"]] == [LISTENER]


async def test_a_v2_poll_lacks_resources_that_v2_cannot_express(poller: Poller) -> None:
    newer = decode_resource(
        {"@type": CLUSTER, "name": "new", "dns_lookup_family": "ALL", "type": "STRICT_DNS", "connect_timeout": "1s"}
    )
    poller.push(real(CLUSTER, "old"), newer)
    first = (await poller.poll_v2()).json()
    assert [each["name"] for each in first["resources"]] == ["old"]
    poller.push(real(CLUSTER, "old"), newer, real(V2_URLS[CLUSTER], "own"))
    assert [each["name"] for each in (await poller.poll_v2(**_held(first))).json()["resources"]] == ["own"]
    assert [each["name"] for each in (await poller.poll()).json()["resources"]] == ["old", "new"]


async def test_rule_77_holds_for_v2(poller: Poller) -> None:
    assert (await poller.poll_v2()).status_code == 404
    poller.push(real(CLUSTER, "c1"))
    answer = await poller.poll_v2("listeners")
    assert (answer.status_code, answer.json()["resources"]) == (200, [])
    assert (await poller.poll_v2("extension_configs")).status_code == 404  # v2 has no such type
    assert (await poller.poll_v2(type_url=CLUSTER)).status_code == 200  # the path decides


async def test_rule_75_the_version_held_is_answered_304(poller: Poller) -> None:
    poller.push(real(CLUSTER, "c1"))
    version = (await poller.poll()).json()["version_info"]
    again = await poller.poll(version_info=version)
    assert (again.status_code, again.content) == (304, b"")
    poller.push(real(CLUSTER, "c2"))
    assert (await poller.poll(version_info=version)).status_code == 200


async def test_rule_76_one_more_name_is_not_304(poller: Poller) -> None:
    poller.push(real(ENDPOINT, "a"), real(ENDPOINT, "b"))
    first = (await poller.poll("endpoints", resource_names=["a"])).json()
    more = await poller.poll("endpoints", resource_names=["a", "b"], version_info=first["version_info"])
    assert [each["cluster_name"] for each in more.json()["resources"]] == ["a", "b"]


async def test_rule_77_no_snapshot_is_404_and_no_resources_is_200(poller: Poller) -> None:
    answer = await poller.poll()
    assert (answer.status_code, answer.content) == (404, b"")
    poller.push(real(CLUSTER, "c1"))
    answer = await poller.poll("listeners")
    assert (answer.status_code, answer.json()["resources"]) == (200, [])


async def test_camel_case_and_the_rest_of_a_node(poller: Poller) -> None:
    poller.push(real(ENDPOINT, "a"))
    node = {
        "id": "n1",
        "cluster": "edge",
        "locality": {"region": "r", "subZone": "s"},
        "userAgentName": "envoy",
        "userAgentBuildVersion": {"version": {"majorNumber": 1, "minorNumber": 40}},
        "metadata": {"team": "web"},
        "extensions": [{"name": "x"}] * 500,
    }
    answer = await poller.poll("endpoints", node=node, resourceNames=["a"], typeUrl=ENDPOINT)
    assert [each["cluster_name"] for each in answer.json()["resources"]] == ["a"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"node": 7}',
        b'{"node": {"id": 7}}',
        b'{"node": {"id": "n1"}, "resource_names": "c1"}',
        b'{"node": {"id": "n1"}, "resource_names": [1]}',
        b'{"node": {"id": "n1", "locality": []}}',
    ],
)
async def test_an_unreadable_poll_is_answered_400(poller: Poller, body: bytes) -> None:
    poller.push(real(CLUSTER, "c1"))
    answer = await poller.client.post("/v3/discovery:clusters", content=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


async def test_limits(poller: Poller) -> None:
    poller.push(real(CLUSTER, "c1"))
    assert (await poller.poll(resource_names=[str(number) for number in range(11)])).status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(BODY_LIMIT // 65536 + 2):
            yield b" " * 65536

    assert (await poller.client.post("/v3/discovery:clusters", content=endless())).status_code == 413
    assert poller.metrics.limit_hits == {"names_per_request": 1, "receive_bytes": 1}
    assert (await poller.client.post("/v3/discovery:unknown", content=b"{}")).status_code == 404
    assert (await poller.client.get("/v3/discovery:clusters")).status_code == 405


def test_rendered_json_is_kept_and_bounded() -> None:
    rendered = RenderedJson(limit=1000)
    resources = [real(CLUSTER, f"c{number}") for number in range(100)]
    assert rendered.render(resources[0]) is rendered.render(resources[0])
    for resource in resources:
        rendered.render(resource)
    assert rendered.size <= 1000


async def test_a_client_that_polls_is_a_node(poller: Poller) -> None:
    """With its group and version. No push waits for it."""
    await poller.poll(node={"id": "n1", "cluster": "edge"})
    node = poller.fleet.node("n1")
    assert node is not None and node.group == "" and [each.state for each in node.types] == ["orphaned"]
    poller.push(real(CLUSTER, "c1"))
    version = (await poller.poll(node={"id": "n1", "cluster": "edge"})).json()["version_info"]
    node = poller.fleet.node("n1")
    assert node is not None
    [clusters] = node.types
    assert (node.cluster, node.group, clusters.state) == ("edge", "default", "pending")
    await poller.poll(version_info=version)
    await poller.poll("endpoints", resource_names=["a"], version_info="x" * 10_000)
    node = poller.fleet.node("n1")
    assert node is not None
    clusters, endpoints = node.types
    assert (clusters.type, clusters.state, clusters.version_acked) == ("clusters", "synced", version)
    assert (endpoints.type, endpoints.state, endpoints.version_acked) == ("endpoints", "pending", "")
    assert node.is_present(node.last_seen + 14) and not node.is_present(node.last_seen + 16)
    assert not poller.fleet.connected() and not poller.fleet.nodes_by_group()


async def test_a_refused_poll_makes_no_node(poller: Poller) -> None:
    poller.push(real(CLUSTER, "c1"))
    await poller.poll(node={"id": ""})
    await poller.poll(node={"id": "n" * 5_000})
    await poller.poll("endpoints", resource_names=[f"c{number}" for number in range(11)])
    assert not poller.fleet.ids_after()


async def test_a_poll_is_answered_as_a_stream(start: Start) -> None:
    server: Harness = await start()
    server.push({"c1": "a"})
    app = Starlette(routes=rest_routes(server.cache, server.fleet, server.metrics, server.server.node_auth))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.post("/v3/discovery:clusters", json={"node": {"id": "n1"}})
    assert answer.json()["version_info"].startswith("1+")


async def test_a_large_node_is_refused_before_it_is_read_and_counted(poller: Poller) -> None:
    poller.push(real(CLUSTER, "c1"))
    answer = await poller.poll(node={"id": "n1", "metadata": {"x": "y" * 2 * NODE_BYTES}})
    assert answer.status_code == 413
    assert (
        f"a node of {len(answer.request.content)} bytes; at most {NODE_BYTES} are accepted" in answer.json()["detail"]
    )
    assert poller.metrics.limit_hits["node_bytes"] == 1
    endless = b'{"node":{"id":"n1"},"resource_names":[' + b'"n",' * 100_000
    assert (await poller.client.post("/v3/discovery:clusters", content=endless)).status_code == 413


@pytest.mark.parametrize("spelt", ["resource_names", "resourceNames"])
async def test_long_lists_of_names_do_not_count_as_node(poller: Poller, spelt: str) -> None:
    poller.push(real(ENDPOINT, "c1"))
    names = ["c1", *("]" * 40_000 + f'"{number}' for number in range(8))]
    assert (await poller.poll("endpoints", **{spelt: names})).status_code == 200


@pytest.mark.parametrize("media", ["", "text/plain", "application/x-www-form-urlencoded", "application/x-protobuf"])
async def test_only_json_is_read(poller: Poller, media: str) -> None:
    """What a page can send without asking."""
    poller.push(real(CLUSTER, "c1"))
    answer = await poller.client.post(
        "/v3/discovery:clusters", content=b'{"node": {"id": "n1"}}', headers={"content-type": media}
    )
    assert (answer.status_code, answer.json()["detail"]) == (415, "send application/json")
