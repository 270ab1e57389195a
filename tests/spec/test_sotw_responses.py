"""2.4 What goes in a SotW response."""

from __future__ import annotations

import pytest

from tests.spec.by_hand import REMOVED_S, start, wait
from tests.support.sansio import Client, Server, make_resource
from tests.support.texts import push, site
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
)
from xds.protocol.dialect import Variant

CUSTOM = "type.googleapis.com/example.Custom"
FULL = (CLUSTER, LISTENER)
PARTIAL = (ENDPOINT, ROUTE, SECRET, RUNTIME, EXTENSION_CONFIG, CUSTOM)


@pytest.mark.parametrize("url", [*FULL, SCOPED_ROUTE])
def test_rule_34_full_state_types_are_sent_whole(server: Server, sotw: Client, url: str) -> None:
    """Rule 34: every LDS and CDS response has every subscribed resource."""
    server.push({url: {"a": "1", "b": "1"}})
    sotw.subscribe(url)
    sotw.settle()
    server.push({url: {"a": "2", "b": "1"}})
    assert sorted(sotw.ack(url).response.names) == ["a", "b"]


@pytest.mark.parametrize("url", FULL)
def test_rule_34_absence_is_deletion(server: Server, sotw: Client, url: str) -> None:
    """Rule 34: an empty response deletes all resources of the type."""
    server.push({url: {"a": "1", "b": "1"}})
    sotw.subscribe(url)
    sotw.settle()
    server.push({url: {"b": "1"}})
    wait(server, REMOVED_S, sotw)  # clusters linger first (docs/internals/design.md#removals)
    assert sotw.texts(url) == {"b": "1"}
    server.push({url: {}})
    server.elapse(REMOVED_S)
    assert len(sotw.pending()) == 1
    sotw.settle()
    assert sotw.texts(url) == {}


@pytest.mark.parametrize("url", FULL)
def test_rule_34_the_removal_of_a_named_resource_is_reported(server: Server, sotw: Client, url: str) -> None:
    """A removal is a response without the resource, possibly without any resource.

    See docs/internals/clients.md#streams.
    """
    server.push({url: {"a": "1", "b": "1"}})
    sotw.subscribe(url, "a")
    sotw.settle()
    server.push({url: {"b": "1"}})
    wait(server, REMOVED_S, sotw)
    assert sotw.texts(url) == {}


@pytest.mark.parametrize("url", FULL)
def test_rule_34_a_wildcard_is_answered_though_there_is_nothing(server: Server, sotw: Client, url: str) -> None:
    """A wildcard request is answered by an empty response if there is nothing (docs/internals/clients.md#requests)."""
    server.push({SECRET: {"s": "1"}})
    sotw.subscribe(url)
    assert [send.response.names for send in sotw.pending()] == [()]


@pytest.mark.parametrize("url", PARTIAL)
def test_rule_35_partial_types_are_sent_as_changes(server: Server, sotw: Client, url: str) -> None:
    """Rule 35: one changed assignment does not repeat all others."""
    server.push({url: {"a": "1", "b": "1", "c": "1"}})
    sotw.subscribe(url, "a", "b")
    sotw.settle()
    server.push({url: {"a": "1", "b": "2", "c": "2"}})
    assert sotw.ack(url).response.names == ("b",)


@pytest.mark.parametrize("url", PARTIAL)
def test_rule_35_removal_from_a_partial_type_is_not_reported(server: Server, sotw: Client, url: str) -> None:
    """Rule 35: absence means nothing. The client deletes the resource with its parent."""
    server.push({url: {"a": "1", "b": "1"}})
    sotw.subscribe(url, "a", "b")
    sotw.settle()
    server.push({url: {"b": "1"}})
    assert not sotw.pending()
    server.push({url: {"a": "1", "b": "1"}})
    sotw.settle()
    assert sotw.texts(url) == {"a": "1", "b": "1"}


def test_rule_35_a_name_removed_and_brought_back_with_other_content_is_sent(server: Server, sotw: Client) -> None:
    """Rule 35: what silence left behind at the client is replaced when the name returns."""
    server.push({ENDPOINT: {"a": "1"}})
    sotw.subscribe(ENDPOINT, "a")
    sotw.settle()
    server.push({ENDPOINT: {}})
    server.push({ENDPOINT: {"a": "2"}})
    sotw.settle()
    assert sotw.texts(ENDPOINT) == {"a": "2"}


def test_rule_36_a_resource_requested_by_name_and_alias_is_sent_once(server: Server, client: Client) -> None:
    """Rule 36: "No name occurs twice in a response"."""
    server.push_resources([make_resource(CLUSTER, "a", "1", aliases=("alias", "other"))])
    client.subscribe(CLUSTER, "a", "alias", "other")
    assert client.pending()[0].response.names == ("a",)


@pytest.mark.parametrize("url", [*FULL, *PARTIAL])
def test_rule_37_only_a_change_of_content_is_sent(server: Server, client: Client, url: str) -> None:
    """Rule 37: hashes of resources are compared, not the labels of pushes."""
    server.push({url: {"a": "1"}}, label="one")
    client.subscribe(url, "a")
    client.settle()
    server.push_resources([make_resource(url, "a", "1")], label="two")
    assert not client.pending()


@pytest.mark.parametrize("url", FULL)
def test_rule_37_a_change_outside_the_subscription_is_not_sent(server: Server, client: Client, url: str) -> None:
    """Rule 37: content counts as changed for those clients only that subscribe to it."""
    server.push({url: {"a": "1", "b": "1"}})
    client.subscribe(url, "a")
    client.settle()
    server.push({url: {"a": "1", "b": "2"}})
    server.push({url: {"a": "1"}})
    assert not client.pending()
    assert [status.state for status in client.stream.status()] == ["synced"]


def test_rule_38_a_missing_assignment_is_answered_by_an_empty_one(server: Server, sotw: Client) -> None:
    """SotW cannot say "does not exist". Without an answer Envoy waits 15 s (docs/internals/clients.md#warming)."""
    server.push({ENDPOINT: {"a": "1"}})
    sotw.subscribe(ENDPOINT, "missing")
    message = sotw.ack_sotw(ENDPOINT)
    assert [resource.value for resource in message.resources] == [b"\n\x07missing"]


def test_rule_38_a_removed_assignment_is_never_replaced_by_an_empty_one(server: Server, sotw: Client) -> None:
    """Only for a name that is new on the stream, never because a push dropped it.

    See docs/internals/design.md#resource-types.
    """
    server.push({ENDPOINT: {"a": "1"}})
    sotw.subscribe(ENDPOINT, "a")
    sotw.settle()
    server.push({ENDPOINT: {}})
    server.elapse(3600)
    assert not sotw.pending()


def test_rule_38_a_client_that_shows_an_earlier_version_is_sent_no_empty_assignment(
    server: Server, sotw: Client
) -> None:
    """Nor where the client shows an earlier version: it may still hold endpoints.

    See docs/internals/design.md#resource-types.
    """
    server.push({ENDPOINT: {"b": "1"}})
    sotw.request(type_url=ENDPOINT, version_info="of another time", resource_names=["a"])
    assert not sotw.pending()


@pytest.mark.parametrize("url", [ROUTE, SECRET, RUNTIME, EXTENSION_CONFIG])
def test_rule_38_other_missing_names_are_left_to_the_clients_timer(server: Server, sotw: Client, url: str) -> None:
    """Rule 38: "SotW cannot report a missing name; client timers decide"."""
    server.push({CLUSTER: {"c": "1"}})
    sotw.subscribe(url, "missing")
    assert not sotw.pending()


@pytest.mark.parametrize("url", FULL)
def test_rule_39_missing_names_are_reported_as_resource_errors(server: Server, sotw: Client, url: str) -> None:
    """Rule 39: no name is both a resource and an error. LDS and CDS still have all existing resources."""
    server.push({url: {"a": "1", "b": "1"}})
    sotw.subscribe(url, "a", "missing")
    message = sotw.ack_sotw(url)
    errors = [(e.resource_name.name, e.error_detail.code) for e in message.resource_errors]
    assert errors == [("missing", 5)]
    assert len(message.resources) == 1


def told_missing(client: Client, url: str) -> list[str]:
    """The names in the next response's resource_errors."""
    message = client.ack_sotw(url)
    assert {error.error_detail.code for error in message.resource_errors} <= {5}
    sent = set(client.types[url].resources)
    names = [error.resource_name.name for error in message.resource_errors]
    assert sent.isdisjoint(names), "a name must not be in both lists"
    return names


@pytest.mark.parametrize("url", FULL)
def test_rule_39_a_missing_name_is_reported_once(server: Server, sotw: Client, url: str) -> None:
    """Rule 39: once each time that it is requested or removed."""
    server.push({url: {"a": "1"}})
    sotw.subscribe(url, "a", "missing")
    assert told_missing(sotw, url) == ["missing"]
    server.push({url: {"a": "2"}})
    assert told_missing(sotw, url) == []
    sotw.subscribe(url, "also")
    assert told_missing(sotw, url) == ["also"]
    server.push({url: {"a": "2", "missing": "1"}})
    assert told_missing(sotw, url) == []
    server.push({url: {"a": "3"}})
    wait(server, REMOVED_S, sotw)
    server.push({url: {"a": "4", "also": "1"}})
    sotw.settle()
    sotw.unsubscribe(url, "missing")
    sotw.settle()
    sotw.subscribe(url, "missing")
    assert told_missing(sotw, url) == ["missing"]


def test_rule_39_a_deletion_is_reported(server: Server, sotw: Client) -> None:
    """Listeners go at once: the response that lacks one says that it does not exist, the next one no more."""
    server.push({LISTENER: {"a": "1", "b": "1"}})
    sotw.subscribe(LISTENER, "a", "b")
    sotw.settle()
    server.push({LISTENER: {"a": "1"}})
    assert told_missing(sotw, LISTENER) == ["b"]
    server.push({LISTENER: {"a": "2"}})
    assert told_missing(sotw, LISTENER) == []


@pytest.mark.parametrize("url", [ROUTE, SECRET, CUSTOM])
def test_rule_39_partial_types_report_errors_to_clients_that_read_them(server: Server, url: str) -> None:
    """A88: gRPC fails a call at once whose route configuration does not exist, instead of after its timer of 15 s."""
    server.push({url: {"a": "1"}})
    grpc = Client(server, Variant.SOTW, user_agent="gRPC C-core linux Python")
    grpc.subscribe(url, "missing")
    assert told_missing(grpc, url) == ["missing"]
    grpc.subscribe(url, "a", "other")
    assert told_missing(grpc, url) == ["other"]
    assert grpc.texts(url) == {"a": "1"}
    server.push({url: {"a": "2"}})
    assert told_missing(grpc, url) == []
    server.push({url: {"a": "2", "missing": "1"}})
    assert told_missing(grpc, url) == []
    assert grpc.texts(url) == {"a": "2", "missing": "1"}
    grpc.unsubscribe(url, "other")
    grpc.subscribe(url, "other")
    assert told_missing(grpc, url) == ["other"]
    assert not grpc.pending()


def test_rule_39_missing_names_are_reported_beside_sent_resources(server: Server, sotw: Client) -> None:
    """Rule 22: to a client that goes by its timer no response is sent for that alone."""
    server.push({ROUTE: {"a": "1"}})
    sotw.subscribe(ROUTE, "missing")
    assert not sotw.pending()
    sotw.subscribe(ROUTE, "a", "other")
    assert told_missing(sotw, ROUTE) == ["other"]


def test_rule_39_assignments(server: Server) -> None:
    """An empty assignment says it for a name that is new; for one of a client that is back only this does."""
    server.push({ENDPOINT: {"a": "1"}})
    new = Client(server, Variant.SOTW, "new", user_agent="gRPC Go")
    new.subscribe(ENDPOINT, "missing")
    message = new.ack_sotw(ENDPOINT)
    assert (len(message.resources), len(message.resource_errors)) == (1, 0)
    back = Client(server, Variant.SOTW, "back", user_agent="gRPC Go")
    back.request(type_url=ENDPOINT, version_info="of another time", resource_names=["missing"])
    message = back.ack_sotw(ENDPOINT)
    assert (len(message.resources), [error.resource_name.name for error in message.resource_errors]) == (0, ["missing"])


def test_rule_39_held_content_is_not_missing(server: Server) -> None:
    """A route that waits for a cluster exists: it is told when it goes out."""
    grpc = Client(server, Variant.SOTW, user_agent="gRPC Go")
    push(server, site("a"))
    start(grpc)
    push(server, site("b", route="r2"))
    grpc.subscribe(ROUTE, "r2")
    assert not grpc.pending(ROUTE)
    grpc.settle()
    assert grpc.texts(ROUTE)["r2"] == "b"


def test_rule_39_delta_has_removals_instead(server: Server) -> None:
    """Rules 39 and 57: no name is in both lists, so Delta uses `removed_resources` alone."""
    server.push({ROUTE: {"a": "1"}})
    delta = Client(server, Variant.DELTA, user_agent="gRPC Go")
    delta.subscribe(ROUTE, "missing")
    message = delta.ack_delta(ROUTE)
    assert (list(message.removed_resources), len(message.resource_errors)) == (["missing"], 0)


def test_rule_39_a_wildcard_has_no_resource_errors(server: Server, sotw: Client) -> None:
    """Rule 39: a wildcard requests no name that could be missing."""
    server.push({CLUSTER: {}})
    sotw.subscribe(CLUSTER)
    assert not sotw.ack_sotw(CLUSTER).resource_errors


def test_rule_40_a_change_of_one_type_does_not_affect_another(server: Server, sotw: Client) -> None:
    """Rule 40: "An accidental empty LDS or CDS response is an outage"."""
    server.push({CLUSTER: {"c": "1"}, LISTENER: {"l": "1"}})
    sotw.subscribe(CLUSTER)
    sotw.ack()
    sotw.subscribe(LISTENER)
    sotw.settle()
    server.push({CLUSTER: {"c": "2"}, LISTENER: {"l": "1"}})
    assert [send.type_url for send in sotw.pending()] == [CLUSTER]


def test_rule_41_resources_are_never_wrapped(server: Server, sotw: Client) -> None:
    """Rule 41: a client may advertise that it reads wrapped resources. None needs them, so they are never sent."""
    server.push_resources([make_resource(CLUSTER, "a", "1", ttl_s=9.0)])
    sotw.subscribe(CLUSTER)
    assert [resource.type_url for resource in sotw.ack_sotw(CLUSTER).resources] == [CLUSTER]
