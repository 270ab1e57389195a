"""The client library and the fleet: groups, nodes, NACKs, events, endpoints, config entries, credentials."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.client.test_pushes import CLUSTER_TYPE, a_cluster
from tests.support.grpc_stream import GrpcStream, sotw, sotw_ack
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from xds.client import (
    AccessError,
    AsyncClient,
    Client,
    NotTakenError,
    UnreachableServerError,
    WriteConflictError,
    check_taken,
)
from xds.proto import wire_pb2


def nack(response: Any, words: str) -> bytes:
    request = wire_pb2.DiscoveryRequest.FromString(sotw_ack(response))
    request.version_info = ""
    request.error_detail.code, request.error_detail.message = 3, words
    return request.SerializeToString()


def test_groups(client: Any, group: str) -> None:
    made = client.configure_group(group, selector='node.cluster == "x"', priority=3, if_match=0)
    assert (made.selector, made.priority, made.revision, made.time) == ('node.cluster == "x"', 3, 0, None)
    changed = client.configure_group(group, listener_drain_s=5, if_match=made.settings_etag)
    assert (changed.selector, changed.listener_drain_s) == ("", 5.0)
    assert group in [each.group for each in client.groups()]
    assert client.delete_group(group).group == group


def test_a_push_that_a_proxy_takes_and_one_that_it_rejects(grpc_port: int, client: Any, group: str) -> None:
    client.apply(group, [a_cluster("a")])
    with GrpcStream(grpc_port) as stream:
        stream.send(sotw(CLUSTER_TYPE, node_id=group, cluster=group))
        stream.send(sotw_ack(stream.receive()))
        wait_until(lambda: client.node(group).types["clusters"].state == "synced", "the ACK")
        answering = Thread(target=lambda: stream.send(sotw_ack(stream.receive())))
        answering.start()
        taken = check_taken(client.apply(group, [a_cluster("b")], wait_s=20))
        answering.join()
        assert taken.progress is not None and taken.progress.synced == 1
        answering = Thread(target=lambda: stream.send(nack(stream.receive(), "not this one")))
        answering.start()
        with pytest.raises(NotTakenError, match=f"1 nodes rejected it; {group}: not this one") as caught:
            check_taken(client.apply(group, [a_cluster("c")], wait_s=20))
        answering.join()
        assert caught.value.outcome.revision == 3
        (refused,) = client.nacks(group=group, state="open", since="1h")
        assert (refused.node, refused.type, refused.message) == (group, "clusters", "not this one")
        (node,) = client.nodes(group=group, state="nacked")
        assert node.streams[0].variant == "sotw" and node.types["clusters"].error == "not this one"
        assert list(client.nodes(text="NOT this", group=group, order="trouble")) == [node]
        counts = client.node_counts(group=group)
        assert (counts.total, counts.connected, counts.by_state["nacked"]) == (1, 1, 1)
        told = client.timeline(group, limit=2)
        assert [(each.kind, each.revision, each.text) for each in told.items] == [
            ("nacked", 3, "not this one"),
            ("sent", 3, "push"),
        ]
        assert told.truncated
        assert client.disconnect(group) == 1


def test_events_continue_after_the_last_one(client: Any, group: str) -> None:
    client.apply(group, [a_cluster("a")])
    client.apply(group, [a_cluster("b")])
    feed = (each for each in client.events(kinds=["push"], group=group, after="0") if each.kind != "lagged")
    first, second = next(feed), next(feed)
    assert (first.kind, first.revision, second.revision) == ("push", 1, 2)
    assert next(client.events(group=group, after=first.id)).id == second.id


async def test_events_survive_a_lost_server(tmp_path: Path) -> None:
    """The reader reconnects, and an event of the restarted server arrives."""
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path))
        async with AsyncClient(f"http://127.0.0.1:{server.http_port}") as client:
            feed = (each async for each in client.events(kinds=["push"], after="0") if each.kind != "lagged")
            await client.apply("g", [a_cluster("a")])
            assert (await anext(feed)).revision == 1
            following = asyncio.ensure_future(anext(feed))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await client.apply("g", [a_cluster("b")])
            async with asyncio.timeout(90):
                assert (await following).revision == 2


def test_events_of_no_server_raise() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(UnreachableServerError):
        next(client.events())


def test_endpoints(client: Any, group: str) -> None:
    eds = {"@type": CLUSTER_TYPE, "name": "web", "type": "EDS", "connect_timeout": "1s",
           "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}}}  # fmt: skip
    loads = {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "web"}
    client.apply(group, [eds, loads])
    put = client.change_endpoints(group, "web", put=["127.0.0.1:81", {"address": "127.0.0.1:82", "weight": 2}])
    assert [each.address for each in put.endpoints] == ["127.0.0.1:81", "127.0.0.1:82"]
    assert (put.owner.kind, put.changed, put.endpoints[1].weight) == ("hand", True, 2)
    less = client.change_endpoints(group, "web", remove=["127.0.0.1:81"], drain_s=0, if_match=put.etag)
    assert [each.address for each in less.endpoints] == ["127.0.0.1:82"]
    (listed,) = client.assignments(group, live=True)
    assert (listed.name, listed.endpoints_n) == ("web", 1)
    client.set_endpoints(group, "web", client.assignment(group, "web").assignment, dry_run=True)
    with pytest.raises(WriteConflictError, match="without a serving endpoint"):
        client.reset_endpoints(group, "web", drain_s=0)
    client.reset_endpoints(group, "web", drain_s=0, allow_empty=True)
    assert client.assignment(group, "web").owner.kind == "pushed"


def test_config_entries(client: Any, group: str) -> None:
    done = client.put_config_entries([{"Kind": "service-resolver", "Name": group, "ConnectTimeout": "3s"}])
    assert done.changes[0].change == "added"
    entry = client.config_entry("service-resolver", group)
    assert entry.entry["ConnectTimeout"] == "3s"
    client.put_config_entry("service-resolver", group, {"ConnectTimeout": "4s"}, if_match=entry.etag, message="longer")
    assert client.config_entry("service-resolver", group).message == "longer"
    assert group in [each.name for each in client.config_entries("service-resolver")]
    client.roll_back_config_entries(done.revision)
    assert client.delete_config_entry("service-resolver", group).changed


def test_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(b"s3cret").hexdigest()
    settings = tmp_path / "xds.yaml"
    settings.write_text(f"auth: {{tokens: [{{name: reader, sha256: {digest}, scopes: [read]}}]}}\n")
    with ServerProcess(tmp_path, ["--config", str(settings), "--store", "memory"], token="s3cret") as server:
        url = f"http://127.0.0.1:{server.http_port}"
        with Client(url) as client, pytest.raises(AccessError) as caught:
            list(client.groups())
        assert caught.value.status == 401
        with Client(url, token="s3cret") as client:
            assert list(client.groups()) == []
            with pytest.raises(AccessError, match="write:group/g"):
                client.apply("g", [a_cluster("a")])
        token_file = tmp_path / "token"
        token_file.write_text("s3cret\n")
        monkeypatch.setenv("XDS_ADDR", url)
        monkeypatch.setenv("XDS_TOKEN_FILE", str(token_file))
        with Client() as client:
            assert list(client.nodes()) == []
