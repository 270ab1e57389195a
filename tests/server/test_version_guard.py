"""A server whose database does not answer turns away clients with newer content, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

import grpc
import httpx
import pytest
from starlette.applications import Starlette

from tests.server.conftest import DELTA, SOTW, Harness, RawStream, Start, node
from tests.support.sansio import make_resource
from xds.model.resource import default_version_info
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.model.snapshot import build_snapshot
from xds.proto import wire_pb2
from xds.server.rest import rest_routes
from xds.server.version_guard import VersionGuard

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def push(server: Harness, label: str = "", endpoints: str = "e", **clusters: str) -> str:
    """Push clusters as a publisher does; the label of the type."""
    before = server.cache.pushed("default")
    revision = before.revision + 1 if before is not None else 1
    resources = [make_resource(CLUSTER, name, text) for name, text in clusters.items()]
    resources.append(make_resource(ENDPOINT, "c1", endpoints))

    def built(versions: Mapping[str, str]) -> Any:
        return build_snapshot("default", revision, resources, versions, before)

    digests = {each.type.type_url: each.digest for each in built({CLUSTER: "", ENDPOINT: ""})}
    labels = {url: label or default_version_info(revision, digest) for url, digest in digests.items()}
    snapshot = built(labels)
    server.cache.set(snapshot, now_s=monotonic())
    server.fleet.published(snapshot)
    server.server.wake(["default"])
    return labels[CLUSTER]


class Servers:
    """Two servers of one database; pushes after ``cut`` are not seen by ``old``, whose database is silent."""

    def __init__(self, old: Harness, new: Harness) -> None:
        self.old, self.new = old, new
        self.is_cut = False
        guard = VersionGuard(old.cache, old.server.clients, lambda: self.is_cut)
        old.server.deps.guard = guard

    def push(self, label: str = "", endpoints: str = "e", **clusters: str) -> str:
        if not self.is_cut:
            push(self.old, label, endpoints, **clusters)
        return push(self.new, label, endpoints, **clusters)

    async def shown(self, type_url: str = CLUSTER) -> Mapping[str, str]:
        """The versions that a Delta client of ``new`` has."""
        stream = await self.new.stream(DELTA)
        await stream.request(type_url, ["c1"] if type_url == ENDPOINT else [])
        return {each.name: each.version for each in (await stream.receive()).resources}

    async def return_in_sotw(self, label: str) -> RawStream:
        stream = await self.old.stream(SOTW)
        request = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node(), version_info=label)
        await stream.send(request.SerializeToString())
        return stream

    async def return_in_delta(self, versions: Mapping[str, str], type_url: str = CLUSTER) -> RawStream:
        stream = await self.old.stream(DELTA)
        request = wire_pb2.DeltaDiscoveryRequest(type_url=type_url, node=node(), initial_resource_versions=versions)
        if type_url == ENDPOINT:
            request.resource_names_subscribe.extend(versions)
        await stream.send(request.SerializeToString())
        return stream


@pytest.fixture
async def servers(start: Start) -> Servers:
    servers = Servers(await start(), await start())
    servers.push(c1="a", c2="a")
    return servers


async def is_refused(stream: RawStream) -> bool:
    code, message = await stream.ended()
    assert (code, "newer configuration" in message) == (UNAVAILABLE, True), (code, message)
    return True


async def is_served(stream: RawStream, name: str = "c1") -> bool:
    """Whether a client is answered: a request for one more name always is, unless the stream has ended."""
    request = wire_pb2.DeltaDiscoveryRequest(type_url=ENDPOINT, node=node(), resource_names_subscribe=[name])
    await stream.send(request.SerializeToString())
    return (await stream.receive()).type_url in (CLUSTER, ENDPOINT)


async def test_a_sotw_client_with_a_newer_revision_is_refused(servers: Servers) -> None:
    known = servers.push(c1="b", c2="a")
    servers.is_cut = True
    newer = servers.push(c1="c", c2="a")
    assert await is_refused(await servers.return_in_sotw(newer))
    stream = await servers.return_in_sotw("1+00000000")  # of an older one: it is sent what is newest here
    assert (await stream.receive()).version_info.startswith("2+")
    known_stream = await servers.return_in_sotw(known)
    push(servers.old, "", "e", c1="d", c2="a")
    assert (await known_stream.receive()).version_info.startswith("3+")
    servers.is_cut = False
    assert (await (await servers.return_in_sotw("9+00000000")).receive()).version_info.startswith("3+")


@pytest.mark.parametrize("label", ["7", "release-9", "999", "v9+abcdef01"])
async def test_a_label_of_a_callers_own_is_no_revision(servers: Servers, label: str) -> None:
    servers.is_cut = True
    assert (await (await servers.return_in_sotw(label)).receive()).type_url == CLUSTER


async def test_numbers_of_a_caller_are_no_revisions(servers: Servers) -> None:
    servers.push(label="20261129", c1="b")
    servers.is_cut = True
    derived = "20261129+0123abcd"  # of an overlay, which adds the hash of its set
    assert (await (await servers.return_in_sotw(derived)).receive()).type_url == CLUSTER


async def test_a_delta_client_with_an_unknown_version_is_refused(servers: Servers) -> None:
    earlier = await servers.shown()
    for text in "bcdefghijklmnop":  # more versions than the removal log keeps of a name
        servers.push(c1=text, c2="a")
    servers.is_cut = True
    assert await is_served(await servers.return_in_delta(earlier))
    assert await is_served(await servers.return_in_delta(await servers.shown()))
    servers.push(c1="new", c2="a")
    assert await is_refused(await servers.return_in_delta(await servers.shown()))
    servers.push(c1="p", c2="a", c3="new")
    assert await is_refused(await servers.return_in_delta(await servers.shown()))
    servers.is_cut = False
    assert await is_served(await servers.return_in_delta({"c1": "0" * 20}))


async def test_pushed_endpoints_are_judged_and_live_ones_are_not(servers: Servers) -> None:
    servers.is_cut = True
    servers.push(endpoints="new", c1="a", c2="a")
    newer = await servers.shown(ENDPOINT)
    assert await is_refused(await servers.return_in_delta(newer, ENDPOINT))
    servers.old.cache.observe("default", {"c1": make_resource(ENDPOINT, "c1", "observed here")})
    assert await is_served(await servers.return_in_delta(newer, ENDPOINT))


async def test_versions_of_the_group_that_a_node_left_are_known(servers: Servers) -> None:
    versions = {"other": make_resource(CLUSTER, "other", "x").version}
    servers.is_cut = True
    assert await is_refused(await servers.return_in_delta(versions))
    other = build_snapshot("former", 1, [make_resource(CLUSTER, "other", "x")], {CLUSTER: "1"}, None)
    servers.old.cache.set(other, now_s=monotonic())
    clients = servers.old.server.clients
    clients.note_followed("n1", "former", other)
    clients.note_followed("n1", "default", other)
    assert await is_served(await servers.return_in_delta(versions))


async def test_a_poll_that_shows_a_newer_revision_is_refused(servers: Servers) -> None:
    servers.is_cut = True
    old = servers.old
    routes = rest_routes(old.cache, old.fleet, old.metrics, old.server.node_auth, guard=old.server.deps.guard)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=Starlette(routes=routes)), base_url="http://test")
    body = {"node": {"id": "n1"}, "version_info": "9+00000000"}
    assert (await client.post("/v3/discovery:clusters", json=body)).status_code == 503
    assert (await client.post("/v3/discovery:clusters", json={**body, "version_info": ""})).status_code == 200
    fetch = (await old.channel()).unary_unary("/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters")
    request = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node(), version_info="9+00000000")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await fetch(request.SerializeToString())
    assert refused.value.code() is UNAVAILABLE
