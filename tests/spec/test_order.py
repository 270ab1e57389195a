"""DESIGN 3.2: make before break, gated on ACKs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.spec.conftest import Connect
from tests.support.sansio import Client, Content, Server, make_resource
from xds.model.resource import Reference, Resource
from xds.model.resource_type import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    RUNTIME,
    SCOPED_ROUTE,
    SECRET,
    VIRTUAL_HOST,
    alias_of,
)
from xds.protocol.draft import Variant
from xds.protocol.events import Acked, WaitEnded

ORDER_TIMEOUT_S = 30.0
OFFER_TIMEOUT_S = 5.0


def site(cluster: str, **more: str) -> dict[str, dict[str, str]]:
    """A listener, a route, and the cluster it leads to."""
    content = {
        CLUSTER: {cluster: "1"},
        ENDPOINT: {cluster: "1"},
        LISTENER: {"l": f"for {cluster}"},
        ROUTE: {"r": f"to {cluster}"},
    }
    for alias, text in more.items():
        content[{"runtime": RUNTIME, "secret": SECRET}[alias]] = {alias: text}
    return content


def start(client: Client, urls: Iterable[str] = (CLUSTER, ENDPOINT, LISTENER, ROUTE)) -> Client:
    """Ask for the site as Envoy does, and take all of it."""
    names = {ENDPOINT: ("a", "b", "c"), ROUTE: ("r",), SECRET: ("secret",), RUNTIME: ("runtime",)}
    for url in urls:
        client.subscribe(url, *names.get(url, ()))
    client.settle()
    return client


def pending(client: Client) -> list[str]:
    """Aliases of the types of all responses that wait to be read."""
    return [alias_of(send.type_url) for send in client.pending()]


def versions(client: Client) -> list[tuple[str, str]]:
    """Alias and version_info of all responses that wait to be read."""
    return [(alias_of(send.type_url), send.response.version_info) for send in client.pending()]


def test_endpoints_secrets_and_runtimes_never_wait(server: Server, client: Client) -> None:
    """ "EDS, SDS and RTDS never wait"."""
    server.push(site("a", secret="1", runtime="1"))
    start(client, (RUNTIME, SECRET, CLUSTER, ENDPOINT, LISTENER, ROUTE))
    server.push(site("b", secret="2", runtime="2"))
    assert pending(client) == ["runtimes", "secrets", "clusters", "endpoints"]


def test_endpoints_flow_while_everything_else_waits(server: Server, client: Client) -> None:
    """ "EDS, SDS and RTDS follow the newest meanwhile"."""
    server.push(site("a", secret="1"))
    start(client, (CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET))
    server.push(site("b", secret="1"))
    client.ack(ENDPOINT)
    server.push({**site("b", secret="2"), ENDPOINT: {"b": "2"}})
    assert pending(client) == ["clusters", "secrets", "endpoints"]
    assert [send.response.names for send in client.pending(ENDPOINT)] == [("b",)]


@pytest.mark.parametrize("changed", ["2", "1"], ids=["cluster-and-assignment", "cluster-only"])
def test_the_assignment_goes_out_right_behind_its_changed_cluster(server: Server, client: Client, changed: str) -> None:
    """ "The assignment of every new or changed EDS cluster goes out right behind its CDS, even unchanged" (rule 43)."""
    server.push({CLUSTER: {"a": "1", "b": "1"}, ENDPOINT: {"a": "1", "b": "1"}})
    start(client, (CLUSTER, ENDPOINT))
    server.push({CLUSTER: {"a": "2", "b": "1"}, ENDPOINT: {"a": changed, "b": "1"}})
    assert pending(client) == ["clusters", "endpoints"]
    assert client.pending(ENDPOINT)[0].response.names == ("a",)


def test_the_assignment_of_an_unchanged_cluster_is_not_sent(server: Server, client: Client) -> None:
    """ "An identical cluster re-sent does not warm" (real_clients 0.1)."""
    server.push({CLUSTER: {"a": "1"}, ENDPOINT: {"a": "1"}})
    start(client, (CLUSTER, ENDPOINT))
    server.push({CLUSTER: {"a": "1", "x": "1"}, ENDPOINT: {"a": "1"}})
    assert pending(client) == ["clusters"]


def test_the_assignment_goes_out_behind_a_cluster_changed_while_away(server: Server, delta: Client) -> None:
    """Rule 43: "in delta after reconnect it may NOT [ask], so the server must re-push EDS of every changed cluster"."""
    server.push({CLUSTER: {"a": "1", "b": "1"}, ENDPOINT: {"a": "1", "b": "1"}})
    start(delta, (CLUSTER, ENDPOINT))
    delta.disconnect()
    server.push({CLUSTER: {"a": "2", "b": "1"}, ENDPOINT: {"a": "1", "b": "1"}})
    delta.reconnect()
    assert [(alias_of(send.type_url), send.response.names) for send in delta.pending()] == [
        ("clusters", ("a",)),
        ("endpoints", ("a",)),
    ]


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "unanswered"])
def test_the_assignment_goes_out_behind_a_cluster_that_changes_back(
    server: Server, delta: Client, refused: bool
) -> None:
    """Rules 18 and 43: a cluster of a refused response may be active, and warms when it changes back.

    Only Delta: a SotW client asks again.
    """
    server.push({CLUSTER: {"a": "1"}, ENDPOINT: {"a": "1"}})
    start(delta, (CLUSTER, ENDPOINT))
    server.push({CLUSTER: {"a": "2", "b": "1"}, ENDPOINT: {"a": "1"}})
    delta.ack(ENDPOINT)
    if refused:
        delta.nack(CLUSTER)
    server.push({CLUSTER: {"a": "1"}, ENDPOINT: {"a": "1"}})
    server.elapse(OFFER_TIMEOUT_S + 1)
    server.elapse(OFFER_TIMEOUT_S + 1)
    assert "a" in delta.pending(CLUSTER)[-1].response.names
    assert [send.response.names for send in delta.pending(ENDPOINT)] == [("a",)]


def test_the_repeated_request_of_a_warming_cluster_is_answered_once(server: Server, sotw: Client) -> None:
    """Rule 43: "In SotW Envoy re-requests EDS after CDS": the request equals its last ACK."""
    server.push({CLUSTER: {"a": "1"}, ENDPOINT: {"a": "1"}})
    sotw.subscribe(CLUSTER)
    sotw.subscribe(ENDPOINT, "a")
    sotw.ack(ENDPOINT)
    sotw.ack(CLUSTER)
    sotw.repeat(ENDPOINT)
    assert not sotw.pending()
    server.push({CLUSTER: {"a": "2"}, ENDPOINT: {"a": "1"}})
    sotw.ack(ENDPOINT)
    sotw.repeat(ENDPOINT)
    assert pending(sotw) == ["clusters"]


@pytest.mark.parametrize("url", [LISTENER, ROUTE, SCOPED_ROUTE, EXTENSION_CONFIG, VIRTUAL_HOST])
def test_what_refers_to_clusters_waits_for_the_cds_ack(server: Server, client: Client, url: str) -> None:
    """ "LDS, RDS, SRDS, VHDS and ECDS wait for the CDS ACK"."""
    if url == VIRTUAL_HOST and client.variant is Variant.SOTW:
        return  # VHDS is Delta only (rule 1)
    server.push({CLUSTER: {"a": "1"}, url: {"x": "1"}})
    client.subscribe(CLUSTER)
    client.subscribe(url, "x")
    client.settle()
    server.push({CLUSTER: {"a": "1", "b": "1"}, url: {"x": "2"}})
    assert pending(client) == ["clusters"]
    client.ack(CLUSTER)
    assert pending(client) == [alias_of(url)]


def test_routes_wait_for_the_listeners_of_the_same_push(server: Server, client: Client) -> None:
    """ "RDS also for LDS of the same push"."""
    server.push({LISTENER: {"l": "1"}, ROUTE: {"r": "1"}})
    start(client, (LISTENER, ROUTE))
    server.push({LISTENER: {"l": "2"}, ROUTE: {"r": "2"}})
    assert pending(client) == ["listeners"]
    client.ack()
    assert pending(client) == ["routes"]


def test_types_that_a_push_does_not_touch_are_not_waited_for(server: Server, client: Client) -> None:
    """Rule 47: "Without a parent change, types can be pushed independently"."""
    server.push(site("a"))
    start(client)
    server.push({**site("a"), ROUTE: {"r": "another way to a"}})
    assert pending(client) == ["routes"]


def test_types_that_the_client_does_not_ask_for_are_not_waited_for(server: Server, client: Client) -> None:
    """A client of routes only is not held by clusters that it never asked for."""
    server.push(site("a"))
    start(client, (ROUTE,))
    server.push(site("b"))
    assert pending(client) == ["routes"]


def test_clusters_go_out_as_the_union_and_then_as_pushed(server: Server, client: Client) -> None:
    """ "The union's version_info is <new>~union, so that the last response is exactly the pushed version"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    assert versions(client)[0] == ("clusters", "2~union")
    client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    client.settle()
    assert client.texts(CLUSTER) == {"b": "1"}
    acked = [e.response.version_info for e in client.events if isinstance(e, Acked) and e.type_url == CLUSTER]
    assert acked == ["1", "2~union", "2"]
    assert all(status.state == "synced" for status in client.stream.status())


@pytest.mark.parametrize("last", [LISTENER, ROUTE])
def test_clusters_are_removed_when_all_that_could_refer_to_them_is_acked(
    server: Server, client: Client, last: str
) -> None:
    """ "Removals of clusters ... wait for the ACKs of all types that could refer to them"."""
    server.push(site("a"))
    start(client)
    server.push({**site("b"), **({ROUTE: {"r": "to a"}} if last == LISTENER else {})})
    client.ack(CLUSTER)
    client.ack(ENDPOINT)
    assert pending(client) == ["listeners"]
    if last == ROUTE:
        client.ack(LISTENER)
        assert pending(client) == ["routes"]
    server.elapse(3600)
    assert not client.pending(CLUSTER), "never for a timeout alone"
    client.ack(last)
    assert versions(client)[0] == ("clusters", "2")
    client.settle()
    assert client.texts(CLUSTER) == {"b": "1"}


def test_routes_are_removed_after_listeners_in_delta(server: Server, delta: Client) -> None:
    """ "Removals of ... routes ... wait": the listener that named the route is replaced first."""
    server.push({LISTENER: {"l": "r1"}, ROUTE: {"r": "1"}})
    start(delta, (LISTENER, ROUTE))
    server.push({LISTENER: {"l": "r2"}, ROUTE: {"r2": "1"}})
    assert pending(delta) == ["listeners"]
    delta.ack()
    assert [send.response.removed for send in delta.pending(ROUTE)] == [("r",)]


def test_secrets_and_endpoints_are_removed_last_in_delta(server: Server, delta: Client) -> None:
    """ "Removals of ... endpoints ... and secrets wait for the ACKs of all types that could refer to them"."""
    server.push(site("a", secret="1"))
    start(delta, (CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET))
    server.push({**site("b"), SECRET: {}})
    removals: list[str] = []
    while delta.inbox:
        send = delta.ack()
        if send.response.removed:
            removals.append(alias_of(send.type_url))
    assert removals[-1] == "endpoints"
    assert set(removals) == {"clusters", "secrets", "endpoints"}
    assert delta.texts(ENDPOINT) == {"b": "1"}
    assert delta.texts(SECRET) == {}


def test_listeners_are_replaced_within_one_response(server: Server, sotw: Client) -> None:
    """ "Listeners are replaced within one LDS response (old and new on one address ... would be refused)"."""
    server.push({LISTENER: {"old": "1"}})
    start(sotw, (LISTENER,))
    server.push({LISTENER: {"new": "1"}})
    assert [send.response.names for send in sotw.pending()] == [("new",)]
    assert versions(sotw) == [("listeners", "2")]


def test_without_removals_a_type_is_one_response(server: Server, client: Client) -> None:
    """ "Without removals a type is one response"."""
    server.push(site("a"))
    start(client)
    before = len([event for event in client.events if isinstance(event, Acked)])
    server.push({**site("a"), CLUSTER: {"a": "2", "b": "1"}, LISTENER: {"l": "2"}, ROUTE: {"r": "2"}})
    client.settle()
    acked = [e.response.version_info for e in client.events if isinstance(e, Acked)][before:]
    assert "2~union" not in acked
    assert len(acked) == 4  # clusters, the assignment that warms them, listeners, routes


def test_a_request_during_a_transition_is_answered_at_once(server: Server, client: Client) -> None:
    """ "Each type has a released snapshot per client; requests are answered from it at once, never gated"."""
    server.push({**site("a"), ROUTE: {"r": "to a", "q": "to a"}})
    start(client)
    server.push({**site("b"), ROUTE: {"r": "to b", "q": "to b"}})
    client.subscribe(ROUTE, "q")
    client.ack(ROUTE)
    assert client.texts(ROUTE)["q"] == "to a"
    client.settle()
    assert client.texts(ROUTE) == {"r": "to b", "q": "to b"}


def test_a_name_that_only_the_coming_content_has_is_answered_when_it_is_released(
    server: Server, client: Client
) -> None:
    """What waits for its turn is not told as missing."""
    server.push(site("a"))
    start(client)
    server.push({**site("b"), ROUTE: {"r": "to b", "new": "to b"}})
    client.subscribe(ROUTE, "new")
    assert not client.pending(ROUTE)
    client.settle()
    assert client.texts(ROUTE) == {"r": "to b", "new": "to b"}


def test_a_transition_is_pinned_to_its_snapshot(server: Server, client: Client) -> None:
    """ "A transition is pinned to its snapshot; later pushes coalesce into one next"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    server.push({**site("c"), LISTENER: {"l": "never"}})
    server.push(site("c"))
    client.ack(CLUSTER)
    client.ack(ENDPOINT)
    assert client.pending(LISTENER)[0].response.version_info == "2"
    client.settle()
    sent = [e.response.version_info for e in client.events if isinstance(e, Acked) and e.type_url == LISTENER]
    assert sent == ["1", "2", "4"]
    assert client.texts(CLUSTER) == {"c": "1"}
    assert client.texts(LISTENER) == {"l": "for c"}


def test_clusters_not_yet_retired_stay_in_the_next_union(server: Server, client: Client) -> None:
    """ "Clusters not yet retired stay in the next union"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(CLUSTER)
    client.ack(ENDPOINT)
    server.push(site("c"))
    server.elapse(OFFER_TIMEOUT_S + 1)  # the client does not answer LDS: the next transition begins
    client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b", "c"}
    client.settle()
    assert client.texts(CLUSTER) == {"c": "1"}


def test_a_wait_ends_after_the_order_timeout(server: Server, client: Client) -> None:
    """ "A wait ends after order_timeout = 30 s; ... an event and a counter tell"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(ENDPOINT)
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert pending(client) == ["clusters"]
    server.elapse(2)
    assert pending(client) == ["clusters", "listeners"]
    assert [e.type_url for e in client.events if isinstance(e, WaitEnded)] == [CLUSTER]


def test_an_ended_wait_does_not_retire_anything(server: Server, client: Client) -> None:
    """ "Removals ... never for a timeout alone": the client took the listener, but never the route."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(ENDPOINT)
    for _ in range(5):
        server.elapse(ORDER_TIMEOUT_S + 1)
    client.ack(LISTENER)
    for _ in range(5):
        server.elapse(ORDER_TIMEOUT_S + 1)
    assert versions(client) == [("clusters", "2~union"), ("routes", "2")]
    assert set(client.pending(CLUSTER)[0].response.names) >= ({"a", "b"} if client.variant is Variant.SOTW else {"b"})


def test_an_ack_resumes_the_wait(server: Server, client: Client) -> None:
    """ "That type is then not waited for on this stream until it ACKs again"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(ENDPOINT)
    server.elapse(ORDER_TIMEOUT_S + 1)
    client.settle()
    server.push(site("c"))
    assert "listeners" not in pending(client)
    client.ack(CLUSTER)
    assert "listeners" in pending(client)


def test_a_type_that_was_given_up_is_not_waited_for_in_the_next_push(server: Server, client: Client) -> None:
    """ "...not waited for on this stream until it ACKs again"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(ENDPOINT)
    server.elapse(ORDER_TIMEOUT_S + 1)
    for url in (LISTENER, ROUTE):
        client.ack(url)
    server.push(site("c"))
    server.elapse(OFFER_TIMEOUT_S + 1)
    assert "listeners" in pending(client)


def test_a_cluster_nack_holds_what_waits_and_nothing_else(server: Server, client: Client) -> None:
    """ "A CDS NACK holds the waiting types and the removals only (endpoints keep flowing)"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(ENDPOINT)
    client.nack(CLUSTER)
    server.elapse(10 * ORDER_TIMEOUT_S)
    assert not client.pending()
    server.push({**site("b"), ENDPOINT: {"a": "2", "b": "1"}})
    assert pending(client) == ["endpoints"]


def test_the_hold_ends_when_a_later_cds_is_acked(server: Server, client: Client) -> None:
    """ "The hold ends when a later CDS is ACKed"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(ENDPOINT)
    client.nack(CLUSTER)
    server.push({**site("b"), CLUSTER: {"b": "fixed"}})
    assert "listeners" not in pending(client)
    client.settle()
    assert client.texts(CLUSTER) == {"b": "fixed"}
    assert client.texts(ROUTE) == {"r": "to b"}


def test_the_hold_ends_when_the_content_is_again_the_last_acked_one(server: Server, client: Client) -> None:
    """ "...or the CDS content is again the last ACKed one"."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(ENDPOINT)
    client.nack(CLUSTER)
    server.push({**site("a"), ROUTE: {"r": "another way to a"}})
    client.settle()
    assert client.texts(CLUSTER) == {"a": "1"}
    assert client.texts(ROUTE) == {"r": "another way to a"}


def test_a_nack_of_another_type_holds_nothing(server: Server, client: Client) -> None:
    """Only a refused CDS holds: RDS goes on after a refused LDS."""
    server.push(site("a"))
    start(client)
    server.push({**site("a"), LISTENER: {"l": "bad"}, ROUTE: {"r": "2"}})
    client.nack(LISTENER)
    assert pending(client) == ["routes"]


def test_on_nack_proceed_lets_the_waiting_types_go(server: Server, client: Client) -> None:
    """ "Per group on_nack: hold | proceed"."""
    server.push(site("a"), on_nack="proceed")
    start(client)
    server.push(site("b"), on_nack="proceed")
    client.ack(ENDPOINT)
    client.nack(CLUSTER)
    assert pending(client) == ["listeners"]
    client.settle()
    assert client.texts(ROUTE) == {"r": "to b"}
    assert not client.pending(CLUSTER), "nothing is removed while the refused clusters may be needed"


def test_a_cluster_that_never_warms_does_not_lock_out_the_push_that_fixes_it(server: Server, client: Client) -> None:
    """The CDS ACK never comes, then a push repairs the cluster."""
    server.push(site("a"))
    start(client)
    server.push({**site("b"), CLUSTER: {"b": "never warms"}})
    client.ack(ENDPOINT)
    server.push(site("b"))
    server.elapse(OFFER_TIMEOUT_S + 1)
    server.elapse(OFFER_TIMEOUT_S + 1)
    sent = client.pending(CLUSTER)
    assert len(sent) == 2
    fixed = sent[1].response.resource_set.resources
    assert fixed["b"].body == b"b=1"
    client.inbox.popleft()  # superseded
    client.settle()
    assert client.texts(CLUSTER) == {"b": "1"}
    assert client.texts(ROUTE) == {"r": "to b"}


def test_a_new_cluster_that_never_warms_is_not_in_the_union_of_the_push_that_drops_it(
    server: Server, client: Client
) -> None:
    """What was offered but never ACKed must not come back with the push that takes it away."""
    server.push(site("a"))
    start(client)
    server.push({**site("a"), CLUSTER: {"a": "1", "sick": "1"}})
    server.push({**site("a"), CLUSTER: {"a": "2"}})
    server.elapse(OFFER_TIMEOUT_S + 1)
    server.elapse(OFFER_TIMEOUT_S + 1)
    assert list(client.pending(CLUSTER)[-1].response.names) == ["a"]


@pytest.mark.parametrize("pushes", [1, 3])
def test_a_reconnecting_client_is_served_in_order(server: Server, client: Client, pushes: int) -> None:
    """ "On reconnect the old side is the retained revision that the client names"."""
    server.push(site("a"))
    start(client)
    client.disconnect()
    for number in range(pushes):
        server.push({**site("b"), SECRET: {"secret": str(number)}})
    client.reconnect()
    client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    while client.pending(ENDPOINT):
        client.ack(ENDPOINT)
    for send in client.pending(ROUTE):
        assert send.response.resource_set.resources["r"].body == b"r=to a", "answered at once, from what is released"
    client.settle()
    assert (client.texts(CLUSTER), client.texts(LISTENER)) == ({"b": "1"}, {"l": "for b"})
    assert client.texts(ROUTE) == {"r": "to b"}


def test_a_returning_client_may_ask_for_its_types_in_any_order(server: Server, client: Client) -> None:
    """On split streams routes may be asked for before clusters: they wait for them all the same."""
    server.push(site("a"))
    start(client)
    client.disconnect()
    server.push(site("b"))
    client.reconnect((ROUTE, LISTENER, ENDPOINT, CLUSTER))
    assert not [send for send in client.pending(ROUTE) if send.response.version_info == "2"]
    client.settle()
    assert client.texts(ROUTE) == {"r": "to b"}
    assert client.texts(CLUSTER) == {"b": "1"}


def test_a_returning_client_that_asks_for_routes_only_is_not_kept_waiting(server: Server, client: Client) -> None:
    """The types it may still ask for are awaited for ``return_s``, no longer."""
    server.push(site("a"))
    client.subscribe(ROUTE, "r")
    client.settle()
    client.disconnect()
    server.push(site("b"))
    client.reconnect()
    client.settle()
    assert client.texts(ROUTE) == {"r": "to a"}
    server.elapse(server.rules.return_s)
    client.settle()
    assert client.texts(ROUTE) == {"r": "to b"}


def test_a_client_that_comes_back_to_what_it_left_is_sent_nothing_anew(server: Server, delta: Client) -> None:
    """Nothing changed while it was away; a wildcard is answered all the same, with nothing (rule 64)."""
    server.push(site("a"))
    start(delta, (CLUSTER, LISTENER, ROUTE))
    delta.reconnect()
    assert pending(delta) == ["clusters", "listeners"]
    assert all(not send.response.names and not send.response.removed for send in delta.pending())


def test_a_client_whose_revision_is_not_retained_ends_in_step(server: Server, client: Client) -> None:
    """ "Where it is no longer retained there is no guarantee" of the order; nothing is missed."""
    server.push(site("a"))
    start(client)
    client.disconnect()
    for number in range(20):
        server.push({**site("b"), CLUSTER: {"b": f"x{number}"}})
    client.reconnect()
    client.settle()
    assert client.texts(CLUSTER) == {"b": "x19"}
    assert client.texts(ROUTE) == {"r": "to b"}


def test_a_client_that_left_in_the_middle_of_a_transition_is_served_in_order(server: Server, client: Client) -> None:
    """It names a union: both its sides may be in use."""
    server.push(site("a"))
    start(client)
    server.push(site("b"))
    client.ack(CLUSTER)
    client.disconnect()
    client.reconnect()
    client.ack(CLUSTER) if client.pending(CLUSTER) else None
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    client.settle()
    assert client.texts(CLUSTER) == {"b": "1"}
    assert client.texts(ROUTE) == {"r": "to b"}


def separate(name: str, text: str, url: str = CLUSTER) -> Resource:
    """A cluster whose assignment is asked for on a stream of its own."""
    references = (Reference(ENDPOINT, name, "api"),) if url == CLUSTER else ()
    return make_resource(url, name, text, references=references)


def split_site(cluster: str) -> list[Resource]:
    return [
        separate(cluster, "1"),
        separate(cluster, "1", ENDPOINT),
        separate("l", f"for {cluster}", LISTENER),
        separate("r", f"to {cluster}", ROUTE),
    ]


def split_streams(connect: Connect) -> dict[str, Client]:
    """A stream per type, all of one client."""
    streams = {url: connect(type_url=url) for url in (CLUSTER, ENDPOINT, LISTENER, ROUTE)}
    start(streams[CLUSTER], (CLUSTER,))
    streams[ENDPOINT].subscribe(ENDPOINT, "a")
    streams[ENDPOINT].settle()
    start(streams[LISTENER], (LISTENER,))
    start(streams[ROUTE], (ROUTE,))
    return streams


def test_split_streams_of_a_client_share_the_gate(server: Server, connect: Connect) -> None:
    """ "The gate belongs to the client (peer address and node id), so split streams are ordered too"."""
    server.push_resources(split_site("a"))
    streams = split_streams(connect)
    server.push_resources(split_site("b"))
    assert not streams[LISTENER].pending()
    streams[CLUSTER].settle()
    assert not streams[LISTENER].pending(), "the CDS ACK does not say that clusters are warm"
    endpoints = connect(type_url=ENDPOINT)
    endpoints.subscribe(ENDPOINT, "b")
    assert not streams[LISTENER].pending()
    endpoints.settle()
    assert streams[LISTENER].pending()
    streams[LISTENER].settle()
    assert set(streams[CLUSTER].texts(CLUSTER)) == {"a", "b"}
    streams[ROUTE].settle()
    streams[CLUSTER].settle()
    assert streams[CLUSTER].texts(CLUSTER) == {"b": "1"}


def test_streams_of_other_clients_are_not_waited_for(server: Server, connect: Connect) -> None:
    """Another peer, or another node behind one peer, has a gate of its own."""
    server.push(site("a"))
    slow, peer, node = connect(), connect(peer="elsewhere"), connect("another node")
    for client in (slow, peer, node):
        start(client)
    server.push(site("b"))
    for client in (peer, node):
        client.settle()
        assert client.texts(ROUTE) == {"r": "to b"}
    assert slow.texts(ROUTE) == {"r": "to a"}


def test_a_stream_that_ends_is_not_waited_for(server: Server, connect: Connect) -> None:
    """A CDS stream that dies in the middle of a transition does not hold the others."""
    server.push(site("a"))
    clusters, rest = connect(), connect()
    start(clusters, (CLUSTER,))
    start(rest, (LISTENER, ROUTE))
    server.push(site("b"))
    assert not rest.pending()
    clusters.disconnect()
    rest.wake()
    assert rest.pending() or rest.stream.deadline() is not None


def test_a_node_that_vanishes_from_every_group_keeps_what_it_has(server: Server, client: Client) -> None:
    """ "A node that vanishes from every group keeps its last answer, is sent nothing and shown as orphaned"."""
    server.push(site("a"))
    start(client)
    server.drop()
    client.subscribe(ENDPOINT, "b")
    server.elapse(3600)
    assert not [send for send in client.pending() if send.type_url != ENDPOINT]
    assert client.stream.group == ""
    client.settle()
    server.push(site("b"))
    assert versions(client)[0] == ("clusters", "1~union")
    client.settle()
    assert client.texts(CLUSTER) == {"b": "1"}


@pytest.mark.parametrize("better", ["node", "edge"])
def test_a_move_to_a_better_group_is_a_transition_like_any_other(server: Server, connect: Connect, better: str) -> None:
    """DESIGN 4.1: the group named like node.id, then node.cluster, then default."""
    server.push(site("a"))
    client = start(connect("node", cluster="edge"))
    assert client.stream.group == "default"
    server.push(site("b"), group=better)
    assert client.stream.group == better
    client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    assert not client.pending(ROUTE)
    client.settle()
    assert client.texts(CLUSTER) == {"b": "1"}
    assert client.texts(ROUTE) == {"r": "to b"}
    server.drop(better)
    client.settle()
    assert client.stream.group == "default"
    assert client.texts(ROUTE) == {"r": "to a"}


def test_groups_do_not_see_each_others_pushes(server: Server, connect: Connect) -> None:
    """A push wakes its own group only."""
    server.push(site("a"))
    server.push(site("b"), group="edge")
    one = start(connect("one", peer="1"))
    other = start(connect("other", cluster="edge", peer="2"))
    server.push(site("c"))
    assert one.pending()
    assert not other.pending()
    assert other.texts(CLUSTER) == {"b": "1"}


def test_everything_at_once_when_the_order_is_off() -> None:
    """The end-to-end test of the order must bite: without it, all goes out together."""
    server = Server(ordered=False)
    server.push(site("a"))
    client = start(Client(server, Variant.SOTW))
    server.push(site("b"))
    assert versions(client) == [("clusters", "2"), ("endpoints", "2"), ("listeners", "2"), ("routes", "2")]


def test_no_route_points_to_a_cluster_the_client_lacks(server: Server, client: Client) -> None:
    """Rule 48: "a client must not see LDS of snapshot N+1 with CDS of N", whatever is pushed in between."""
    contents: list[Content] = [site(name) for name in ("a", "b", "c", "a", "c")]
    server.push(contents[0])
    start(client)
    for content in contents[1:]:
        server.push(content)
        for _ in range(2):
            if client.inbox:
                client.ack()
            for text in client.texts(ROUTE).values():
                assert text.removeprefix("to ") in client.texts(CLUSTER)
    while client.inbox:
        client.ack()
        for text in client.texts(ROUTE).values():
            assert text.removeprefix("to ") in client.texts(CLUSTER)
    assert client.texts(CLUSTER) == {"c": "1"}
