"""2.6 Delta specifics."""

from __future__ import annotations

import pytest

from tests.spec.by_hand import DRAINED_S, GRID_S, REMOVED_S, RETURN_S, wait
from tests.support.sansio import Client, Server, make_resource
from xds.model.resource import content_version
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SECRET,
    VIRTUAL_HOST,
)
from xds.proto import wire_pb2
from xds.protocol.dialect import Variant
from xds.protocol.events import Acked, Event, Nacked, Send, Stale, Synced

CUSTOM = "type.googleapis.com/example.Custom"
NAMED = (CLUSTER, LISTENER, ENDPOINT, ROUTE, SECRET)
REFUSED = wire_pb2.Status(code=13, message="no")


def sends(events: list[Event]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Names and removed names of the responses among events."""
    return [(event.response.names, event.response.removed) for event in events if isinstance(event, Send)]


def version(name: str, text: str) -> str:
    """The version of a resource made of a text."""
    return make_resource(CLUSTER, name, text).version


def test_rule_50_a_spontaneous_request_needs_no_nonce(server: Server, delta: Client) -> None:
    """Rule 50: a request has a nonce only as an ACK or NACK."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    delta.subscribe(ENDPOINT, "a")
    delta.settle()
    assert sends(delta.request(type_url=ENDPOINT, resource_names_subscribe=["b"])) == [(("b",), ())]
    assert not [event for event in delta.events if isinstance(event, Stale)]


def test_rule_50_a_spontaneous_request_that_carries_a_nonce_is_accepted(server: Server, delta: Client) -> None:
    """Rule 50: some clients send one all the same."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    delta.subscribe(ENDPOINT, "a")
    nonce = delta.ack().nonce
    events = delta.request(type_url=ENDPOINT, resource_names_subscribe=["b"], response_nonce=nonce)
    assert sends(events) == [(("b",), ())]


@pytest.mark.parametrize("nonce", ["of-another-stream", "older"])
def test_rule_51_a_stale_nonce_does_not_drop_the_request(server: Server, delta: Client, nonce: str) -> None:
    """Rule 51: "A stale nonce does not drop a Delta request: its subscription changes apply"."""
    server.push({ENDPOINT: {"a": "1", "b": "1", "c": "1"}})
    delta.subscribe(ENDPOINT, "a")
    older = delta.ack().nonce
    delta.subscribe(ENDPOINT, "b")
    delta.settle()
    used = older if nonce == "older" else nonce
    fields = {"resource_names_subscribe": ["c"], "resource_names_unsubscribe": ["a"], "response_nonce": used}
    assert sends(delta.request(type_url=ENDPOINT, **fields)) == [(("c",), ())]
    assert len([event for event in delta.events if isinstance(event, Stale)]) == 1


def test_rule_51_a_stale_nack_changes_interest_and_nothing_else(server: Server, delta: Client) -> None:
    """Rule 51: a late NACK is not one of the present response."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    delta.subscribe(ENDPOINT, "a")
    old = delta.ack().nonce
    server.push({ENDPOINT: {"a": "2", "b": "1"}})
    delta.request(type_url=ENDPOINT, response_nonce=old, error_detail=REFUSED, resource_names_subscribe=["b"])
    assert not [event for event in delta.events if isinstance(event, Nacked)]
    delta.ack()
    delta.settle()
    assert [status.names for status in delta.stream.status()] == [frozenset(["a", "b"])]


@pytest.mark.parametrize("refused", [False, True], ids=["ack", "nack"])
def test_rule_52_an_answer_and_a_change_of_interest_share_a_message(
    server: Server, delta: Client, refused: bool
) -> None:
    """Rule 52: "ACK or NACK and a subscription change may share one message"."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    delta.subscribe(ENDPOINT, "a")
    nonce = delta.read()[0].nonce
    error = {"error_detail": REFUSED} if refused else {}
    fields = {"resource_names_subscribe": ["b"], "resource_names_unsubscribe": ["a"], "response_nonce": nonce}
    events = delta.request(type_url=ENDPOINT, **fields, **error)
    assert [type(event) for event in events if isinstance(event, Acked | Nacked)] == [Nacked if refused else Acked]
    assert sends(events) == [(("b",), ())]


@pytest.mark.parametrize("url", NAMED)
def test_rule_53_resubscribing_to_a_known_name_is_answered(server: Server, delta: Client, url: str) -> None:
    """Rule 53: even if the server knows that the client has the latest version."""
    server.push({url: {"a": "1", "b": "1"}})
    delta.subscribe(url, "a", "b")
    delta.settle()
    assert sends(delta.request(type_url=url, resource_names_subscribe=["a"])) == [(("a",), ())]
    delta.settle()


def test_rule_53_resubscribing_to_a_name_known_through_the_wildcard_is_answered(server: Server, delta: Client) -> None:
    """Rule 53, for a wildcard client."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    delta.subscribe(CLUSTER)
    delta.settle()
    assert sends(delta.request(type_url=CLUSTER, resource_names_subscribe=["a"])) == [(("a",), ())]


def test_rule_53_resubscribing_to_the_wildcard_is_answered_with_everything(server: Server, delta: Client) -> None:
    """Rule 53, for the name "*"."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    delta.subscribe(CLUSTER)
    delta.settle()
    ((names, removed),) = sends(delta.request(type_url=CLUSTER, resource_names_subscribe=["*"]))
    assert (sorted(names), removed) == (["a", "b"], ())


def test_what_is_refused_after_resubscribing_to_the_wildcard_is_not_sent_again_with_a_push_of_another_type(
    server: Server, delta: Client
) -> None:
    """Found by `tests/property/test_engine.py`: nothing of it counted as new, so nothing of it counted as refused."""
    clusters = {"a": "1", "b": "1"}
    server.push({CLUSTER: clusters, LISTENER: {}})
    delta.subscribe(CLUSTER)
    delta.settle()
    delta.subscribe(CLUSTER, "*")
    delta.nack()
    server.push({CLUSTER: clusters, LISTENER: {"l": "1"}})
    assert [len(send.response.names) for send in delta.pending()] == [1]  # one half is tried


def test_rule_53_resubscribing_while_in_flight_is_answered_after_the_ack(server: Server, delta: Client) -> None:
    """Rule 53 with one response in flight."""
    server.push({ENDPOINT: {"a": "1"}})
    delta.subscribe(ENDPOINT, "a")
    delta.subscribe(ENDPOINT, "a")
    assert len(delta.pending()) == 1
    delta.ack()
    assert [len(send.response.names) for send in delta.pending()] == [1]  # one half is tried


@pytest.mark.parametrize(
    ("url", "after_s"), [(CLUSTER, 2 * DRAINED_S), (LISTENER, RETURN_S), (CUSTOM, 0.0)], ids=["cds", "lds", "custom"]
)
def test_rule_54_initial_versions_suppress_the_unchanged_send_the_changed_and_remove_the_vanished(
    server: Server, delta: Client, url: str, after_s: float
) -> None:
    """Rule 54: versions show what the client has.

    The server does not know what "gone" was: a cluster stays as long as old connections may
    (docs/internals/design.md#removals). Listeners are removed when the client has had time to request its clusters.
    """
    server.push({url: {"same": "1", "changed": "2", "added": "1"}})
    initial = {"same": version("same", "1"), "changed": version("changed", "1"), "gone": version("gone", "1")}
    delta.request(type_url=url, initial_resource_versions=initial)
    wait(server, after_s, delta)
    given = [name for names, _ in sends(delta.events) for name in names]
    assert sorted(given) == ["added", "changed"]
    assert [removed for _, removed in sends(delta.events) if removed] == [("gone",)]


def test_rule_54_initial_versions_do_not_subscribe(server: Server, delta: Client) -> None:
    """Rule 54: only `resource_names_subscribe` subscribes."""
    server.push({ENDPOINT: {"a": "2", "b": "2"}})
    initial = {"a": version("a", "1"), "b": version("b", "1")}
    delta.request(type_url=ENDPOINT, resource_names_subscribe=["a"], initial_resource_versions=initial)
    assert delta.pending()[0].response.names == ("a",)
    delta.ack()
    server.push({ENDPOINT: {"a": "2", "b": "3"}})
    assert not delta.pending()


def test_rule_54_initial_versions_count_in_the_first_message_only(server: Server, delta: Client) -> None:
    """Rule 54: those in later messages of the type are ignored."""
    server.push({CLUSTER: {"a": "1"}})
    delta.subscribe(CLUSTER)
    delta.settle()
    events = delta.request(type_url=CLUSTER, initial_resource_versions={"a": "other", "x": "1"})
    assert sends(events) == []


def test_rule_55_names_removed_while_away_are_reported_as_removed(server: Server, delta: Client) -> None:
    """Rule 55: a Delta client with a wildcard learns of such a removal in no other way."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    delta.subscribe(CLUSTER)
    delta.settle()
    delta.disconnect()
    server.push({CLUSTER: {"a": "1"}})
    delta.reconnect()
    wait(server, 2 * DRAINED_S, delta)
    assert delta.texts(CLUSTER) == {"a": "1"}


def test_rule_55_shown_names_that_the_server_never_had_are_reported_as_removed(server: Server, delta: Client) -> None:
    """Rule 55, at a server that has lost its history: when what lingers ends."""
    server.push({CLUSTER: {"a": "1"}})
    delta.request(type_url=CLUSTER, initial_resource_versions={"a": version("a", "1"), "x": "unheard of"})
    wait(server, 2 * DRAINED_S, delta)
    assert sends(delta.events)[-1] == ((), ("x",))


def test_rule_55_versions_are_content_hashes(server: Server, delta: Client) -> None:
    """Rule 55: they are the same on all replicas and after a restart."""
    server.push({CLUSTER: {"a": "1"}}, label="one")
    delta.subscribe(CLUSTER)
    message = delta.ack_delta(CLUSTER)
    elsewhere = Server()
    elsewhere.push({CLUSTER: {"b": "0"}}, label="other")
    elsewhere.push({CLUSTER: {"a": "1"}}, label="another")
    other = Client(elsewhere, delta.variant)
    other.subscribe(CLUSTER)
    assert message.resources[0].version == other.ack_delta(CLUSTER).resources[0].version == content_version(b"a=1")


@pytest.mark.parametrize("url", [CLUSTER, LISTENER, ROUTE, EXTENSION_CONFIG, RUNTIME, CUSTOM])
def test_rule_56_subscribed_names_at_their_current_version_are_skipped(server: Server, delta: Client, url: str) -> None:
    """Rule 56: `initial_resource_versions` names them too."""
    resources = [make_resource(url, name, text) for name, text in (("a", "1"), ("b", "2"))]
    server.push_resources(resources)
    initial = {"a": resources[0].version, "b": make_resource(url, "b", "1").version}
    delta.request(type_url=url, resource_names_subscribe=["a", "b"], initial_resource_versions=initial)
    wait(server, RETURN_S, delta)
    assert sends(delta.events) == [(("b",), ())]


@pytest.mark.parametrize("url", [ENDPOINT, SECRET])
def test_rule_56_requested_assignments_and_secrets_are_answered_at_their_current_version_too(
    server: Server, delta: Client, url: str
) -> None:
    """Rule 56: their cluster may be warming, and waits for them."""
    server.push({url: {"a": "1", "b": "1"}})
    initial = {"a": version("a", "1"), "b": version("b", "1")}
    events = delta.request(type_url=url, resource_names_subscribe=["a", "b"], initial_resource_versions=initial)
    assert sends(events) == [(("a", "b"), ())]
    delta.settle()
    assert len(sends(delta.events)) == 1


def test_rule_56_a_client_that_missed_nothing_is_in_step_without_a_response(server: Server, delta: Client) -> None:
    """Rule 56: it is shown as in step all the same."""
    server.push({CLUSTER: {"a": "1"}})
    events = delta.request(
        type_url=CLUSTER, resource_names_subscribe=["a"], initial_resource_versions={"a": version("a", "1")}
    )
    assert sends(events) == []
    assert [event.version_info for event in events if isinstance(event, Synced)] == ["1"]


@pytest.mark.parametrize("url", [*NAMED, RUNTIME])
def test_rule_57_a_missing_name_is_answered_as_removed(server: Server, delta: Client, url: str) -> None:
    """Rule 57: "A subscribed name that does not exist is reported in `removed_resources`"."""
    server.push({url: {"a": "1"}})
    delta.subscribe(url, "a", "missing")
    assert sends(delta.events) == [(("a",), ("missing",))]
    delta.settle()
    assert sends(delta.request(type_url=url, resource_names_subscribe=["missing"])) == [((), ("missing",))]


@pytest.mark.parametrize("url", [*NAMED, RUNTIME])
def test_rule_57_a_missing_name_stays_subscribed(server: Server, delta: Client, url: str) -> None:
    """Rule 57: the resource is sent when it is created."""
    server.push({url: {}})
    delta.subscribe(url, "late")
    delta.settle()
    server.push({url: {"late": "1"}})
    delta.settle()
    assert delta.texts(url) == {"late": "1"}


def test_rule_57_a_missing_virtual_host_is_reported_by_its_alias(server: Server, delta: Client) -> None:
    """A `Resource` with name and alias and no body gives a 404 at once (docs/internals/clients.md#vhds)."""
    server.push({ROUTE: {"r": "1"}, VIRTUAL_HOST: {"r/a.com": "1"}})
    delta.subscribe(VIRTUAL_HOST, "r/nowhere.com")
    message = delta.ack_delta(VIRTUAL_HOST)
    [told] = message.resources
    assert (told.name, list(told.aliases), told.HasField("resource")) == ("r/nowhere.com", ["r/nowhere.com"], False)
    assert not message.removed_resources


def test_rule_57_a_missing_filter_configuration_is_not_reported(server: Server, delta: Client) -> None:
    """A missing ECDS name is not reported at all (docs/internals/design.md#resource-types)."""
    server.push({CLUSTER: {"c": "1"}})
    delta.subscribe(EXTENSION_CONFIG, "missing")
    assert not delta.pending()


@pytest.mark.parametrize("url", NAMED)
def test_rule_58_a_removed_resource_stays_subscribed(server: Server, delta: Client, url: str) -> None:
    """Rule 58: it is sent again when it is pushed again."""
    server.push({url: {"a": "1"}})
    delta.subscribe(url, "a")
    delta.settle()
    server.push({url: {}})
    wait(server, REMOVED_S + GRID_S, delta)
    assert delta.texts(url) == {}
    server.push({url: {"a": "1"}})
    delta.settle()
    assert delta.texts(url) == {"a": "1"}


def test_rule_59_unsubscribing_needs_no_answer_and_unknown_names_are_ignored(server: Server, delta: Client) -> None:
    """Rule 59: "Unsubscribing needs no response, unless the wildcard still covers the name"."""
    server.push({ENDPOINT: {"a": "1"}})
    delta.subscribe(ENDPOINT, "a")
    delta.settle()
    assert sends(delta.request(type_url=ENDPOINT, resource_names_unsubscribe=["a", "never-asked-for"])) == []


def test_rule_59_a_name_that_the_wildcard_still_covers_is_answered(server: Server, delta: Client) -> None:
    """Rule 59: the client drops the resource when it unsubscribes, so the response has the resource."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    delta.subscribe(CLUSTER, "*", "a")
    delta.settle()
    assert sends(delta.request(type_url=CLUSTER, resource_names_unsubscribe=["a"])) == [(("a",), ())]


def test_rule_59_a_name_that_the_wildcard_does_not_have_is_answered_as_removed(server: Server, delta: Client) -> None:
    """Rule 59: the response names it in `removed_resources`."""
    server.push({CLUSTER: {"a": "1"}})
    delta.subscribe(CLUSTER, "*", "missing")
    delta.settle()
    assert sends(delta.request(type_url=CLUSTER, resource_names_unsubscribe=["missing"])) == [((), ("missing",))]


def test_rule_60_names_stay_when_the_wildcard_goes(server: Server, delta: Client) -> None:
    """Rule 60: the other resources are not reported as removed, because the client has just dropped them."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    delta.subscribe(CLUSTER, "*", "a")
    delta.settle()
    assert sends(delta.request(type_url=CLUSTER, resource_names_unsubscribe=["*"])) == []
    server.push({CLUSTER: {"a": "2", "b": "2"}})
    assert delta.pending()[0].response.names == ("a",)


def test_rule_61_a_legacy_wildcard_stays_when_a_name_is_added(server: Server, delta: Client) -> None:
    """Rule 61: unlike in SotW, until `*` is unsubscribed."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    delta.request(type_url=CLUSTER)
    delta.settle()
    delta.request(type_url=CLUSTER, resource_names_subscribe=["a"])
    delta.settle()
    server.push({CLUSTER: {"a": "1", "b": "2"}})
    assert delta.ack().response.names == ("b",)
    delta.request(type_url=CLUSTER, resource_names_unsubscribe=["*"])
    server.push({CLUSTER: {"a": "1", "b": "3"}})
    assert not delta.pending()


def test_rule_62_unsubscribing_the_last_name_leaves_nothing(server: Server, delta: Client) -> None:
    """Rule 62: "Unsubscribing the last name leaves an empty subscription, not a wildcard"."""
    server.push({CLUSTER: {"a": "1"}})
    delta.subscribe(CLUSTER, "a")
    delta.settle()
    delta.request(type_url=CLUSTER, resource_names_unsubscribe=["a"])
    delta.request(type_url=CLUSTER)
    server.push({CLUSTER: {"a": "2", "b": "1"}})
    assert not delta.pending()


def test_rule_63_subscribe_comes_before_unsubscribe(server: Server, delta: Client) -> None:
    """Rule 63: a first request that subscribes to `*` and unsubscribes it subscribes to nothing."""
    server.push({CLUSTER: {"a": "1", "b": "1"}})
    delta.request(type_url=CLUSTER, resource_names_subscribe=["*"], resource_names_unsubscribe=["*"])
    assert not delta.pending()
    assert sends(delta.request(type_url=CLUSTER, resource_names_subscribe=["b"])) == [(("b",), ())]


@pytest.mark.parametrize("url", [CLUSTER, LISTENER])
@pytest.mark.parametrize("names", [[], ["*"]], ids=["legacy", "star"])
def test_rule_64_a_wildcard_is_answered_though_there_is_nothing(
    server: Server, delta: Client, url: str, names: list[str]
) -> None:
    """Rule 64: Envoy finishes its initialisation with the empty response."""
    server.push({SECRET: {"s": "1"}})
    events = delta.request(type_url=url, resource_names_subscribe=names)
    assert sends(events) == [((), ())]
    delta.ack()
    assert not delta.pending()


def test_rule_65_resources_carry_name_and_version(server: Server, delta: Client) -> None:
    """Rule 65: "A `Resource` carries name and version; `system_version_info` is informational"."""
    server.push({CLUSTER: {"a": "1"}}, label="v9")
    delta.subscribe(CLUSTER)
    message = delta.ack_delta(CLUSTER)
    assert message.system_version_info == "v9"
    assert [(r.name, r.version) for r in message.resources] == [("a", version("a", "1"))]


def test_rule_66_a_resource_is_found_by_its_alias(server: Server, delta: Client) -> None:
    """Rule 66: "Subscriptions match names and aliases"."""
    host = make_resource(VIRTUAL_HOST, "r/site", "1", aliases=("r/a.com", "r/b.com"))
    server.push_resources([make_resource(ROUTE, "r", "1"), host])
    delta.subscribe(VIRTUAL_HOST, "r/a.com")
    message = delta.ack_delta(VIRTUAL_HOST)
    assert [(r.name, list(r.aliases)) for r in message.resources] == [("r/site", ["r/a.com", "r/b.com"])]
    server.push_resources(
        [make_resource(ROUTE, "r", "1"), make_resource(VIRTUAL_HOST, "r/site", "2", aliases=("r/a.com",))]
    )
    delta.subscribe(ROUTE, "r")
    delta.settle()
    assert delta.stream.status()[-1].missing == ()


def test_rule_67_a_locator_is_a_name(server: Server, client: Client) -> None:
    """Rule 67: a locator without dynamic parameters stands for its name."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    locators = [wire_pb2.ResourceLocator(name="a")]
    field = "resource_locators" if client.variant is Variant.SOTW else "resource_locators_subscribe"
    client.request(type_url=ENDPOINT, **{field: locators})
    assert client.pending()[0].response.names == ("a",)


def test_rule_68_known_is_what_the_client_acked(server: Server, delta: Client) -> None:
    """Rule 68: the server computes the next difference from the last ACK, so a rejected change is part of it."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    delta.subscribe(ENDPOINT, "a", "b")
    delta.settle()
    server.push({ENDPOINT: {"a": "2", "b": "1"}})
    delta.nack()
    assert [status.state for status in delta.stream.status()] == ["nacked"]
    server.push({ENDPOINT: {"a": "2", "b": "2"}})
    assert delta.ack().response.names == ("b",)
    assert [status.state for status in delta.stream.status()] == ["nacked"]
    server.push({ENDPOINT: {"a": "3", "b": "2"}})
    assert delta.ack().response.names == ("a",)
    assert [status.state for status in delta.stream.status()] == ["synced"]


def test_rule_69_one_response_per_type_is_in_flight(server: Server, delta: Client) -> None:
    """Rule 69: this bounds the memory of a stream."""
    server.push({ENDPOINT: {"a": "1"}, SECRET: {"s": "1"}})
    delta.subscribe(ENDPOINT, "a")
    delta.subscribe(SECRET, "s")
    for number in range(5):
        server.push({ENDPOINT: {"a": f"x{number}"}, SECRET: {"s": f"x{number}"}})
    assert [send.type_url for send in delta.pending()] == [ENDPOINT, SECRET]


def test_rule_70_every_type_is_served_in_both_variants(server: Server, client: Client) -> None:
    """Rule 70: gRPC clients use SotW ADS, Envoy uses all variants."""
    urls = (CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, RUNTIME, EXTENSION_CONFIG)
    server.push({url: {"a": "1"} for url in urls})
    for url in urls:
        client.subscribe(url, "a")
    client.settle()
    assert {url: client.texts(url) for url in urls} == {url: {"a": "1"} for url in urls}
