"""Pushes by the client library: inputs, options, results, errors."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest
from envoy_data_plane.envoy.config.cluster import v3 as cluster
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.server import ServerProcess
from xds.client import (
    AbsentError,
    AsyncClient,
    Client,
    InvalidInputError,
    NotTakenError,
    UnreachableServerError,
    WriteConflictError,
    check_taken,
)
from xds.codec import schema
from xds.embed import Server

CLUSTER_TYPE = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def a_cluster(name: str, timeout: str = "1s") -> dict[str, Any]:
    return {"@type": CLUSTER_TYPE, "name": name, "type": "STATIC", "connect_timeout": timeout}


def protobuf_cluster(name: str) -> Any:
    """A message of google.protobuf, as the packages that protoc generates have them."""
    return schema.require("envoy.config.cluster.v3.Cluster")(name=name, connect_timeout=timedelta(seconds=2))


def test_a_snapshot_of_dictionaries_protobuf_and_envoy_data_plane_messages(client: Any, group: str) -> None:
    resources = [a_cluster("a"), protobuf_cluster("b"), cluster.Cluster(name="c")]
    pushed = client.apply(group, resources, message="all kinds", author="tests")
    assert (pushed.group, pushed.revision, pushed.changed) == (group, 1, True)
    assert pushed.changes["clusters"].added == ("a", "b", "c")
    found = client.snapshot(group)
    assert [each["name"] for each in found.resources] == ["a", "b", "c"]
    assert found.resources[1]["connect_timeout"] == "2s"
    assert found.etag == pushed.etag
    (line,) = client.history(group)
    assert (line.message, line.author, line.resources) == ("all kinds", "tests", 3)
    assert line.time is not None and line.time.tzinfo is not None


def test_a_snapshot_that_was_read_can_be_pushed(client: Any, group: str) -> None:
    client.apply(group, [a_cluster("a"), a_cluster("b")])
    again = client.apply(group, client.snapshot(group).resources)
    assert not again.changed and again.revision == 1


def test_a_wrapper_message_carries_name_aliases_and_ttl(client: Any, group: str) -> None:
    host = schema.require("envoy.config.route.v3.VirtualHost")(name="r/h", domains=["*"])
    wrapper: Any = schema.require("envoy.service.discovery.v3.Resource")(name="r/h", aliases=["r/x"])
    wrapper.resource.type_url = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
    wrapper.resource.value = host.SerializeToString()
    wrapper.ttl.FromMilliseconds(1500)
    client.apply(group, [wrapper])
    (found,) = client.snapshot(group).resources
    assert found["@type"].endswith("discovery.v3.Resource")
    assert (found["aliases"], found["ttl"]) == (["r/x"], "1.500s")


def test_a_message_type_that_the_server_does_not_know_travels_as_bytes(client: Any, group: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="flags.proto", package="acme", syntax="proto3")
    kind = file.message_type.add(name="Flag")
    kind.field.add(name="name", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    flag = message_factory.GetMessageClass(pool.FindMessageTypeByName("acme.Flag"))(name="dark")
    wrapper = {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": "dark",
        "resource": {"@type": "type.googleapis.com/acme.Flag", "@value_base64": "CgRkYXJr"},
    }
    client.apply(group, [wrapper])
    assert not client.put(group, "acme.Flag", "dark", flag).changed


def test_a_value_that_is_no_resource_is_named(client: Any, group: str) -> None:
    with pytest.raises(TypeError, match=r"resources\[1\] is neither a dictionary nor a message: int"):
        client.apply(group, [a_cluster("a"), 3])
    with pytest.raises(TypeError, match="give a list"):
        client.apply(group, a_cluster("a"))
    with pytest.raises(TypeError, match="unknown option 'mesage'"):
        client.apply(group, [], mesage="typo")


def test_findings_of_an_invalid_push(client: Any, group: str) -> None:
    wrong = {**a_cluster("a"), "lb_polcy": "RANDOM"}
    with pytest.raises(InvalidInputError) as caught:
        client.apply(group, [a_cluster("ok"), wrong, a_cluster("b", "soon")])
    first, second = caught.value.findings
    assert (caught.value.status, first.index, second.index) == (422, 1, 2)
    assert first.hint and "lb_policy" in first.detail + first.hint
    assert str(first).startswith("clusters/a ") or "lb_polcy" in str(first)
    assert first.resource in str(first) and str(first).endswith(f"{first.detail}; {first.hint}")
    head, *lines = str(caught.value).splitlines()
    assert head and lines == [f"  {first}", f"  {second}"], "a traceback tells what is wrong, and where"
    assert caught.value.request_id
    with pytest.raises(AbsentError):
        client.group(group)


def test_one_resource(client: Any, group: str) -> None:
    client.apply(group, [a_cluster("a")])
    name = "xdstp://x/y z?%"
    put = client.put(group, "clusters", "b", {"name": "b", "type": "STATIC", "connect_timeout": "1s"})
    assert put.changes["clusters"].added == ("b",)
    assert client.resource(group, "clusters", "b")["name"] == "b"
    assert client.delete(group, "clusters", "b").changes["clusters"].removed == ("b",)
    with pytest.raises(AbsentError, match="b"):
        client.resource(group, "clusters", "b")
    with pytest.raises(AbsentError):
        client.resource(group, "clusters", name)


def test_preconditions(client: Any, group: str) -> None:
    first = client.apply(group, [a_cluster("a")], if_match=0)
    with pytest.raises(WriteConflictError) as caught:
        client.apply(group, [], if_match=0)
    assert caught.value.status == 412
    client.apply(group, [a_cluster("b")], if_match=first.revision)
    with pytest.raises(WriteConflictError):
        client.apply(group, [a_cluster("c")], if_match=first.etag)


def test_a_repeated_key_gets_the_first_answer(client: Any, group: str) -> None:
    first = client.apply(group, [a_cluster("a")], idempotency_key="k1")
    client.apply(group, [a_cluster("b")])
    assert client.apply(group, [a_cluster("a")], idempotency_key="k1") == first
    with pytest.raises(InvalidInputError):
        client.apply(group, [a_cluster("z")], idempotency_key="k1")


def test_a_dry_run_changes_nothing(client: Any, group: str) -> None:
    planned = client.apply(group, [a_cluster("a")], dry_run=True)
    assert planned.dry_run and planned.changes["clusters"].added == ("a",)
    with pytest.raises(AbsentError):
        client.group(group)
    assert client.validate([a_cluster("a")]).valid
    with pytest.raises(InvalidInputError):
        client.validate([{"@type": CLUSTER_TYPE}])


def test_waiting_for_nobody_is_not_taken(client: Any, group: str) -> None:
    pushed = client.apply(group, [a_cluster("a")], wait_s=1)
    assert pushed.progress is not None and pushed.progress.synced == 0
    unwaited = client.apply(group, [a_cluster("b")])
    with pytest.raises(NotTakenError, match="wait_s"):
        check_taken(unwaited)


def test_a_transaction(client: Any, group: str) -> None:
    other = f"{group}-b"
    entry = {"Kind": "service-resolver", "Name": group, "ConnectTimeout": "3s"}
    done = client.transact(
        [
            {"group": group, "snapshot": [a_cluster("a")], "if_match": 0},
            {"group": other, "put": [protobuf_cluster("x")]},
        ],
        put_entries=[entry],
    )
    assert [each.group for each in done.results] == [group, other]
    assert done.config_entries.changes[0].name == group
    done = client.transact([{"group": other, "delete": [("clusters", "x")]}])
    assert done.results[0].changes["clusters"].removed == ("x",)
    with pytest.raises(InvalidInputError) as caught:
        client.transact([{"group": other, "put": [a_cluster("ok")]}, {"group": group, "put": [a_cluster("b", "x")]}])
    assert caught.value.findings[0].pointer.startswith("/changes/1/put/0")
    with pytest.raises(TypeError, match="member of each change"):
        client.transact([], if_match=1)


def test_undo_rollback_and_differences(client: Any, group: str) -> None:
    client.apply(group, [a_cluster("a")])
    with pytest.raises(AbsentError, match="no revision before 1"):
        client.undo(group)
    client.apply(group, [a_cluster("a", "2s"), a_cluster("b")])
    changed = {each.name: each.change for each in client.difference(group, 2)}
    assert changed == {"a": "changed", "b": "added"}
    undone = client.undo(group, message="too much")
    assert undone.revision == 3 and undone.changes["clusters"].removed == ("b",)
    back = client.rollback(group, 2)
    assert back.revision == 4
    lines = list(client.history(group))
    assert [line.revision for line in lines] == [4, 3, 2, 1]
    assert (lines[1].kind, lines[1].content_of, lines[1].message) == ("rollback", 1, "too much")
    assert client.snapshot(group, revision=1).resources[0]["connect_timeout"] == "1s"


def test_no_server_and_a_foreign_server(server: ServerProcess) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(UnreachableServerError, match="cannot reach"):
        client.group("x")
    wrong = {
        f"http://127.0.0.1:{server.grpc_port}": "this is a gRPC port (HTTP/2), perhaps that of xDS; the admin API is at http://127.0.0.1:18080",
        f"https://127.0.0.1:{server.http_port}": "the server speaks plain HTTP there; use http://",
    }
    for url, told in wrong.items():
        with Client(url) as client, pytest.raises(UnreachableServerError, match=re.escape(told)):
            client.group("x")
    with pytest.raises(ValueError, match="not a server URL"):
        Client("ftp://x")


def test_all_clients_offer_the_same() -> None:
    def public(kind: type) -> dict[str, tuple[str, ...]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: tuple(inspect.signature(method).parameters) for name, method in methods if name[0] != "_"}

    assert public(Client) == public(AsyncClient)
    assert public(AsyncClient).items() - public(Server).items() == {("close", ("self",))}
    assert public(Server).keys() - public(AsyncClient).keys() == {"regroup"}
    assert {"apply", "events", "nodes"} <= public(Client).keys()


async def test_methods_show_the_arguments_and_the_text_of_their_calls() -> None:
    with Client("http://127.0.0.1:1") as blocking:
        async with AsyncClient("http://127.0.0.1:1") as asynchronous:
            for method in (blocking.put, asynchronous.put):
                assert list(inspect.signature(method).parameters) == ["group", "type", "name", "resource", "options"]
                assert (inspect.getdoc(method) or "").startswith("Add or replace one resource")
