"""Clients that return: what they show is left alone, what they may need is added (docs/protocol.md#coming-back)."""

from __future__ import annotations

import pytest

from tests.spec.by_hand import (
    DRAINED_S,
    GRID_S,
    LOGGED_S,
    ORDER_TIMEOUT_S,
    REMOVED_S,
    RETURN_S,
    TYPES,
    pending,
    start,
    states,
    told,
    wait,
    with_listener,
)
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Held, Server, make_resource
from tests.support.texts import joined, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, alias_of
from xds.protocol.dialect import Variant
from xds.protocol.events import AckWaitTimedOut, Send

A, B = site("a"), site("b")


def route_of(client: Client) -> str:
    """Where new requests go."""
    return client.texts(ROUTE)["r1"]


def test_clients_that_return_at_different_times_share_one_decision(server: Server) -> None:
    push(server, A)
    clients = [Client(server, Variant.SOTW, name, peer=name) for name in ("one", "two")]
    for each in clients:
        start(each)
    for each in clients:
        each.disconnect()
    push(server, B)
    decided = []
    for each in clients:
        each.reconnect()
        each.settle()
        decided.append(len(server.cache.releases.advances))
        wait(server, 1.5, each)
    assert decided[0] == decided[1] > 0
    assert route_of(clients[0]) == route_of(clients[1]) == "b"


@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
@pytest.mark.parametrize("pushes", [1, 3])
def test_a_returning_client_is_served_in_order(server: Server, client: Client, pushes: int, restarted: bool) -> None:
    """However many pushes it missed. What they removed stays until its end in the log, in a new process as well."""
    push(server, A)
    start(client)
    client.disconnect()
    for number in range(pushes):
        push(server, joined(B, {SECRET: {"s": f"@{number}"}}))
    if restarted:
        server.restart()
    client.reconnect()
    client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    for send in client.pending(ROUTE):
        assert send.response.resource_set.resources["r1"].body == b"r1=a", "answered at once, from what is released"
    while client.pending(ENDPOINT):
        client.ack(ENDPOINT)
    client.settle()
    assert route_of(client) == "b"
    wait(server, LOGGED_S - GRID_S - 1, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, 2, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_returning_client_may_request_its_types_in_any_order(server: Server, client: Client) -> None:
    """On split streams routes may be asked for before clusters: they wait for them all the same."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, B)
    client.reconnect((ROUTE, LISTENER, ENDPOINT, CLUSTER))
    while client.inbox:
        client.ack()
        assert route_of(client) in client.texts(CLUSTER)
    wait(server, LOGGED_S, client)
    assert route_of(client) == "b"
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_a_client_that_requests_only_routes_does_not_wait(server: Server, client: Client) -> None:
    """Nothing says that it takes clusters here: the types that it may still ask for are awaited for ``return_s``."""
    push(server, A)
    client.subscribe(ROUTE, "r1")
    client.settle()
    client.disconnect()
    push(server, B)
    client.reconnect()
    client.settle()
    assert route_of(client) == "a"
    server.elapse(RETURN_S)
    client.settle()
    assert route_of(client) == "b"


def test_static_listeners_get_their_route_at_once_on_a_stream_of_its_own(server: Server, variant: Variant) -> None:
    """It was inferred that such a client returns, since it requests no listeners: each start took 2 s longer."""
    push(server, A)
    push(server, B)
    client = Client(server, variant, type_url=ROUTE)
    client.subscribe(ROUTE, "r1")
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b"}


def return_while_a_cluster_warms(client: Client, *names: str) -> None:
    """Reconnect as Envoy does while a cluster warms: without a CDS request. Everything that is sent is ACKed.

    ``names``: the assignments that it requests.
    """
    client.connect()
    for held in client.types.values():
        held.nonce, held.nonces = "", set()
    client.types[ENDPOINT].names = set(names)
    for url in (ENDPOINT, LISTENER, ROUTE):
        client._resume(url, client.types[url])
    client.settle()


@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
def test_a_request_for_clusters_is_waited_for(server: Server, client: Client, restarted: bool) -> None:
    """A client that requests the assignment of a cluster of the newest set or the log takes clusters here.

    Its trees wait for its CDS request, `order_timeout_s` at most.
    """
    push(server, A)
    start(client)
    client.disconnect()
    if restarted:
        server.restart()
    push(server, joined(A, B))
    return_while_a_cluster_warms(client, "a")
    server.elapse(ORDER_TIMEOUT_S - 1)
    client.settle()
    assert route_of(client) == "a"
    server.elapse(2)
    client.settle()
    assert route_of(client) == "b"
    assert [event for event in client.events if isinstance(event, AckWaitTimedOut)]


@pytest.mark.parametrize(
    ("cluster", "is_proof"), [("@2", True), ("hc:8", False), ("sds:s", False)], ids=["plain", "checked", "with-secret"]
)
def test_an_acked_assignment_proves_its_cluster_while_clusters_are_not_requested(
    server: Server, client: Client, cluster: str, is_proof: bool
) -> None:
    """The client would not request it if it lacked the cluster. Health checks and secrets come after the assignment."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, joined(A, B, {CLUSTER: {"b": cluster}, SECRET: {"s": "1"}}))
    return_while_a_cluster_warms(client, "a", "b")
    assert route_of(client) == ("b" if is_proof else "a")


def test_an_assignment_of_two_clusters_proves_none_of_them(server: Server, client: Client) -> None:
    """The client may have requested it for the other one, which it has and a push removed."""
    push(server, joined(A, {CLUSTER: {"other": "eds:b"}, ENDPOINT: {"b": "1"}}))
    start(client)
    client.disconnect()
    push(server, joined(A, B))
    return_while_a_cluster_warms(client, "a", "b")
    assert route_of(client) == "a"


def test_a_client_that_requests_all_its_types_ends_no_wait(server: Server, client: Client) -> None:
    """``AckWaitTimedOut`` is for operators: something was served without proof. Here nothing was."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, B)
    client.reconnect()
    wait(server, ORDER_TIMEOUT_S, client)
    assert route_of(client) == "b"
    assert not [event for event in client.events if isinstance(event, AckWaitTimedOut)]


def test_a_client_that_missed_nothing_is_sent_nothing_again(server: Server, delta: Client) -> None:
    """Nothing changed while it was away; a wildcard is answered all the same, with nothing (rule 64)."""
    push(server, A)
    start(delta, (CLUSTER, LISTENER, ROUTE))
    delta.reconnect()
    assert told(delta) == [("clusters", (), ()), ("listeners", (), ())]


def test_a_shown_version_that_a_later_push_takes_back_is_sent_again(server: Server, delta: Client) -> None:
    """A rejected response may have brought the client the version between, which it does not show."""
    push(server, A)
    start(delta)
    delta.disconnect()
    push(server, with_listener(B, "r1 @2"))
    delta.reconnect()
    assert [send.response.names for send in delta.pending(LISTENER)] == [()], "it waits for the new cluster"
    delta.ack(LISTENER)
    push(server, A)
    assert [send.response.names for send in delta.pending(LISTENER)] == [tuple(A[LISTENER])]


def test_a_client_that_left_amid_a_swap_is_served_in_order(server: Server, client: Client) -> None:
    """What it shows is neither the one nor the other: the label of a mixed set names none."""
    push(server, A)
    start(client)
    push(server, B)
    client.ack(CLUSTER)
    client.disconnect()
    client.reconnect()
    if client.pending(CLUSTER):
        client.ack(CLUSTER)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    client.settle()
    assert route_of(client) == "b"
    wait(server, LOGGED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


# -- what lingers over a reconnect -------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
def test_lingering_resources_keep_their_end_over_a_reconnect(server: Server, client: Client, restarted: bool) -> None:
    """However often the connection is cut: the end is in the log of the group, and a new process computes the same."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    client.settle()
    for _ in range(6):
        wait(server, 100, client)
        client.disconnect()
        if restarted:
            server.restart()
        client.reconnect()
    client.settle()
    wait(server, 44, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, 2, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_lingering_resources_stay_for_the_removal_delay_of_each_connection(server: Server, client: Client) -> None:
    """Its end in the log may be over when the client returns: retries and paused requests look the clusters up."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, with_listener(A, "r1 @2"))
    push(server, with_listener(B, "r1 @2"))
    server.elapse(643)
    client.reconnect()
    client.settle()
    wait(server, 14, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}


def test_removals_released_for_a_group_are_not_kept_for_a_returning_client(server: Server, client: Client) -> None:
    """The operator has said that nothing uses it. What the client has of it stays until it has everything newest."""
    push(server, A)
    start(client)
    push(server, with_listener(B, "r1 @2"))
    client.settle()
    client.disconnect()
    server.cache.end_removals("default", server.now)
    client.reconnect()
    client.settle()
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def test_resources_that_the_log_lacks_linger_for_the_drain_time(server: Server, delta: Client) -> None:
    """In Delta a client shows such clusters: nobody knows since when it drains."""
    push(server, site("b", listener="to:b"))
    delta.types = {
        CLUSTER: Held(wildcard=True, resources={"a": b"a=@1"}, versions={"a": "of another server"}),
        LISTENER: Held(wildcard=True),
    }
    delta.reconnect()
    delta.settle()
    wait(server, DRAINED_S - GRID_S - 1, delta)
    assert set(delta.texts(CLUSTER)) == {"a", "b"}
    wait(server, GRID_S + 1, delta)
    assert delta.texts(CLUSTER) == {"b": "@1"}


def test_a_new_process_keeps_however_many_names_linger(server: Server, client: Client) -> None:
    """In SotW the set that a client shows was never pushed: it is sent all that the log has as removed."""
    for number in range(4):
        push(server, joined(A, {CLUSTER: {f"x{number}-{each}": "static" for each in range(20)}}))
        if not number:
            start(client)
        client.settle()
    push(server, with_listener(B, "r1 @2"))
    client.settle()
    assert len(client.texts(CLUSTER)) == 82
    client.disconnect()
    server.restart()
    push(server, site("c"))
    client.reconnect()
    client.ack(CLUSTER)
    assert route_of(client) in client.texts(CLUSTER)
    client.settle()
    assert (route_of(client), len(client.texts(CLUSTER))) == ("c", 83)


def test_a_rejected_cluster_lingers_in_its_earlier_version(server: Server, sotw: Client) -> None:
    """In SotW a removed cluster that some node rejected is sent in the last version that none rejected."""
    push(server, joined(A, {CLUSTER: {f"x{each}": "static" for each in range(18)}}))
    start(sotw)
    changed = {CLUSTER: {f"x{each}": "static @2" for each in range(18)}}
    push(server, joined(with_listener(B, "r1 @2"), changed))
    sotw.nack(CLUSTER, "Error adding/updating cluster(s) x17: wrong")
    push(server, joined(with_listener(B, "r1 @2"), changed, {CLUSTER: {"y": "static"}}))
    sotw.settle()
    assert route_of(sotw) == "b"
    sotw.disconnect()
    server.restart()
    rejected = make_resource(CLUSTER, "x17", "static @2", references=())
    server.cache.note_refused(CLUSTER, {"x17": [rejected.version]})
    push(server, site("c"))
    sotw.reconnect()
    sotw.ack(CLUSTER)
    assert {"a", "b", "c", "y"} < sotw.texts(CLUSTER).keys()
    assert {sotw.texts(CLUSTER)[each] for each in ("x16", "x17")} == {"static @2", "static"}
    sotw.settle()
    assert route_of(sotw) == "c"


def test_resources_removed_while_the_client_was_away_linger(server: Server, client: Client) -> None:
    """The drain of a client that was away begins when it has taken the new listener."""
    push(server, A)
    start(client)
    client.disconnect()
    push(server, with_listener(B, "r1 @2"))
    server.elapse(500)
    client.reconnect()
    wait(server, 600, client)
    assert set(client.texts(CLUSTER)) == {"a", "b"}
    wait(server, REMOVED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


# -- what it shows that nobody knows -----------------------------------------------------------------------------------


def test_a_client_of_another_server_gets_no_removal_before_it_shows_its_clusters(
    server: Server, connect: Connect
) -> None:
    """Content of another server is unknown content."""
    other = Server()
    push(other, site("foreign", route="r9"), label="of elsewhere")
    client = Client(other, connect().variant)
    client.subscribe(ROUTE, "r1", "r9")
    start(client, (CLUSTER, LISTENER))
    client.disconnect()
    push(server, B)
    client.server = server
    client.reconnect((LISTENER, ROUTE, CLUSTER))
    client.ack(CLUSTER)
    if client.variant is Variant.DELTA:
        assert set(client.texts(CLUSTER)) == {"b", "foreign"}, "it is not told as removed yet"
    else:
        assert set(client.texts(CLUSTER)) == {"b"}, "SotW can only be sent what is known"
    wait(server, 2 * DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}
    assert client.texts(LISTENER) == B[LISTENER]
    assert states(client) == {"synced"}


@pytest.mark.parametrize("label", ["2", "2+00000000", "3", "blue"])
def test_only_a_whole_label_names_a_set(server: Server, sotw: Client, label: str) -> None:
    """In SotW: with the hash of what was served. Any other label names nothing, so the newest set is sent."""
    for text in ("@1", "@2", "@3"):
        push(server, joined(A, {LISTENER: {"svc": f"r1 {text}"}}))
    sotw.types = {url: Held(version_info=label) for url in (LISTENER, CLUSTER)}
    sotw.subscribe(LISTENER)
    sotw.subscribe(CLUSTER)
    wait(server, ORDER_TIMEOUT_S + 1, sotw)
    assert sotw.texts(LISTENER) == {"svc": "r1 @3"}
    assert sotw.texts(CLUSTER) == {"a": "@1"}
    assert not sotw.stream._require_client().lingering


@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
def test_a_client_that_shows_the_newest_label_is_sent_neither_clusters_nor_listeners(
    server: Server, sotw: Client, restarted: bool
) -> None:
    """In SotW it has the newest set: clusters that are sent again would warm again. It is in step at once."""
    push(server, A)
    push(server, B)
    start(sotw)
    sotw.disconnect()
    if restarted:
        server.restart()
    sotw.reconnect()
    assert {alias_of(send.type_url) for send in sotw.settle()} == {"endpoints", "routes"}
    assert states(sotw) == {"synced"}
    wait(server, RETURN_S, sotw)
    assert CLUSTER not in sotw.stream._require_client().lingering.names
    push(server, site("c"))
    sotw.settle()
    assert route_of(sotw) == "c"


def test_a_client_with_another_label_is_sent_all_clusters_of_the_log(server: Server, sotw: Client) -> None:
    """In SotW it may hold any cluster that its group had: it gets the newest ones and all that pushes removed."""
    for name in ("a", "b", "c"):
        push(server, site(name))
    sotw.request(type_url=CLUSTER, version_info="of another server")
    assert [set(send.response.names) for send in sotw.pending(CLUSTER)] == [{"a", "b", "c"}]


def test_a_callers_own_label_names_a_set_where_it_is_there_once(server: Server, sotw: Client) -> None:
    """The server serves a caller's own label as it was given, and it may repeat."""
    push(server, A, label="blue")
    push(server, B, label="green")
    push(server, site("c"), label="green")
    sotw.request(type_url=CLUSTER, version_info="green")
    assert set(sotw.pending()[0].response.names) == {"a", "b", "c"}, "several sets: it may be the earlier one"
    push(server, site("d"), label="red")
    other = Client(server, Variant.SOTW, "other", peer="other")
    other.request(type_url=CLUSTER, version_info="red")
    assert not other.pending()


def test_a_client_whose_revision_is_not_retained_ends_in_step(server: Server, client: Client) -> None:
    """Nothing is missed, whatever it shows."""
    push(server, A)
    start(client)
    client.disconnect()
    for number in range(20):
        push(server, joined(B, {CLUSTER: {"b": f"@{number}"}}))
    client.reconnect()
    wait(server, 2 * DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@19"}
    assert route_of(client) == "b"


def test_unknown_names_are_reported_as_removed_when_lingering_ends(server: Server, delta: Client) -> None:
    """In Delta: an unknown cluster in `initial_resource_versions` is not reported as removed before lingering ends.

    Trap 9. Nothing is said of its assignment meanwhile.
    """
    push(server, {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}})
    push(server, {CLUSTER: {"a": "@2"}, ENDPOINT: {"a": "1"}})
    shown = {"a": make_resource(CLUSTER, "a", "@1").version, "x": "unheard of"}
    delta.request(type_url=CLUSTER, resource_names_subscribe=["*", "a", "x"], initial_resource_versions=shown)
    delta.request(type_url=ENDPOINT, resource_names_subscribe=["a", "x"], initial_resource_versions={"x": "unheard of"})
    wait(server, 1, delta)
    wait(server, 500, delta)
    assert not [event for event in delta.events if isinstance(event, Send) and event.response.removed]
    wait(server, DRAINED_S - 500, delta)
    removed = [(alias_of(e.type_url), e.response.removed) for e in delta.events if isinstance(e, Send)]
    assert ("clusters", ("x",)) in removed
    assert states(delta) == {"synced"}


def test_an_unknown_assignment_is_reported_as_missing_at_once(server: Server, delta: Client) -> None:
    """In Delta, where no cluster lingers that may need it."""
    push(server, {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}})
    delta.request(type_url=ENDPOINT, resource_names_subscribe=["a", "x"], initial_resource_versions={"x": "unheard of"})
    assert told(delta) == [("endpoints", ("a",), ("x",))]


@pytest.mark.parametrize("url", [ENDPOINT, SECRET])
def test_assignments_and_secrets_are_answered_from_the_newest_set_or_the_log(
    server: Server, client: Client, url: str
) -> None:
    """Every requested one, at once: a cluster that warms waits for it, and a cluster that lingers needs it."""
    push(server, {url: {"a": "1", "b": "1", "c": "1"}})
    client.subscribe(url, "a", "b", "c")
    client.settle()
    client.disconnect()
    server.restart()
    push(server, {url: {"a": "1", "b": "2"}})
    client.reconnect()
    assert [sorted(send.response.names) for send in client.pending(url)] == [["a", "b", "c"]]
    client.settle()
    assert client.texts(url) == {"a": "1", "b": "2", "c": "1"}


def test_separate_streams_return_in_any_order(server: Server, connect: Connect) -> None:
    """On separate streams too, routes wait for the clusters of a client that has `return_s` to request them."""
    push(server, A, source="api")
    names = {ENDPOINT: ("a", "b"), ROUTE: ("r1",)}
    streams = {url: connect(type_url=url) for url in TYPES}
    for url, stream in streams.items():
        stream.subscribe(url, *names.get(url, ()))
    for stream in streams.values():
        stream.settle()
    for stream in streams.values():
        stream.disconnect()
    push(server, B, source="api")
    for url in (ROUTE, LISTENER, CLUSTER, ENDPOINT):
        streams[url].reconnect()
        streams[url].settle()
        assert url == ENDPOINT or route_of(streams[ROUTE]) == "a"
    wait(server, 60, *streams.values())
    assert route_of(streams[ROUTE]) == "b"
    assert streams[CLUSTER].texts(CLUSTER) == {"b": "@1"}
    assert not pending(streams[CLUSTER])
