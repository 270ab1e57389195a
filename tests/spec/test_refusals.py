"""Resources that refer to a rejected one are held; all others are sent without it.

See docs/internals/design.md#rejections.
"""

from __future__ import annotations

import pytest

from tests.spec.by_hand import DRAINED_S, ORDER_TIMEOUT_S, REMOVED_S, pending, start, told, wait, with_listener
from tests.spec.conftest import Connect
from tests.support.envoy_like import EnvoyLike
from tests.support.personas import assert_in_step, live, spend
from tests.support.sansio import Client, Server
from tests.support.texts import TARGET, Site, joined, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE
from xds.protocol.dialect import Variant
from xds.protocol.events import Nacked, Send

A, B = site("a"), site("b")
NAMES = ("a", "b", "c", "d")


def of_cluster(*names: str) -> str:
    """How Envoy refuses clusters."""
    return "Error adding/updating cluster(s) " + ", ".join(f"{name}: wrong" for name in names)


# -- what a refused cluster holds --------------------------------------------------------------------------------------


def test_a_rejected_cluster_holds_the_trees_that_lead_to_it_and_no_others(server: Server, client: Client) -> None:
    """Endpoints and other trees are sent."""
    other = site("a", name="other", route="r2")
    push(server, joined(A, other))
    client.subscribe(ROUTE, "r1", "r2")
    start(client)
    client.unsubscribe(ENDPOINT, "b", "c")
    bad = joined(other, B)
    push(server, bad)
    client.nack(CLUSTER, of_cluster("b"))
    server.elapse(10 * ORDER_TIMEOUT_S)
    assert not client.pending()
    push(server, joined(bad, {ENDPOINT: {"a": "2"}, ROUTE: {"r2": "a @2"}}))
    assert [(alias, names) for alias, names, _ in told(client)] == [("endpoints", ("a",)), ("routes", ("r2",))]
    client.settle()
    assert client.texts(ROUTE) == {"r1": "a", "r2": "a @2"}


def test_a_rejected_cluster_is_held_though_its_assignment_is_there(server: Server, variant: Variant) -> None:
    """Another cluster has the same assignment, which was ACKed for that one."""
    client = live(server, variant, A)
    push(server, joined(A, {CLUSTER: {"x": "bad eds:a"}, ROUTE: {"r1": "x"}}))
    spend(100, client)
    assert client.serving()[ROUTE] == {"r1": "a"}
    assert not client.lost


@pytest.mark.parametrize(
    ("later", "clusters", "routes"),
    [
        (joined(B, {CLUSTER: {"b": "@fixed"}}), {"b": "@fixed"}, {"r1": "b"}),
        (joined(A, {ROUTE: {"r1": "a @2"}}), {"a": "@1"}, {"r1": "a @2"}),
    ],
    ids=["the repair", "the roll-back, with other news"],
)
def test_the_hold_ends_when_a_later_push_is_accepted_or_leads_there_no_more(
    server: Server, client: Client, later: Site, clusters: dict[str, str], routes: dict[str, str]
) -> None:
    push(server, A)
    start(client)
    push(server, B)
    client.ack(ENDPOINT)
    client.nack(CLUSTER)
    push(server, later)
    if later[CLUSTER].keys() == {"b"}:
        assert not client.pending(ROUTE)
    wait(server, REMOVED_S, client)
    assert client.texts(CLUSTER) == clusters
    assert client.texts(ROUTE) == routes


def test_a_rejected_assignment_holds_the_trees_that_lead_to_its_cluster(server: Server, client: Client) -> None:
    """Envoy takes the cluster for warm, but it has no endpoints."""
    push(server, A)
    start(client)
    push(server, B)
    client.nack(ENDPOINT)
    client.ack(CLUSTER)
    server.elapse(10 * ORDER_TIMEOUT_S)
    assert not client.pending()
    push(server, joined(B, {ENDPOINT: {"b": "2"}}))
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b"}


def test_on_nack_proceed_holds_nothing(server: Server, client: Client) -> None:
    """Earlier clusters stay all the same, for old connections."""
    push(server, A, on_nack="proceed")
    start(client)
    push(server, B, on_nack="proceed")
    client.ack(ENDPOINT)
    client.nack(CLUSTER, of_cluster("b"))
    assert pending(client) == ["routes"]
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b"}
    assert not client.pending(CLUSTER)
    assert client.texts(CLUSTER) == {"a": "@1"}


# -- what a refused listener, route or filter holds --------------------------------------------------------------------


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
def test_a_cluster_in_use_stays_as_it_was_while_the_assignment_that_it_is_to_get_is_rejected(
    server: Server, variant: Variant, split: bool
) -> None:
    """Envoy would warm the new version until ``initial_fetch_timeout``, and then use it without endpoints."""
    source = "api" if split else "ads"
    before = site("a", text="static")
    client = live(server, variant, before, split=split)
    refused = joined(before, {CLUSTER: {"c": "eds:x"}, ENDPOINT: {"x": "bad"}})
    push(server, refused, source=source)
    spend(1, client)
    push(server, joined(refused, {CLUSTER: {"a": "eds:x @2"}}), source=source)
    spend(100, client)
    assert client.serving()[CLUSTER]["a"] == "static"
    assert not client.lost
    repaired = joined(refused, {CLUSTER: {"a": "eds:x @2"}, ENDPOINT: {"x": "1"}})
    push(server, repaired, source=source)
    spend(100, client)
    assert client.serving()[CLUSTER] == repaired[CLUSTER]
    assert not client.lost


def test_a_member_stays_while_the_aggregate_that_has_it_is_not_replaced(server: Server, variant: Variant) -> None:
    """The push that removes the member changes the aggregate, and the client rejects that change."""
    before = joined(site("d", text="of:a"), {CLUSTER: {"a": "@1"}, ENDPOINT: {"a": "1"}})
    client = live(server, variant, before)
    after = site("d")
    push(server, joined(after, {CLUSTER: {"d": "bad"}}))
    spend(DRAINED_S, client)
    assert client.serving()[CLUSTER] == before[CLUSTER]
    push(server, after)
    spend(DRAINED_S, client)
    assert_in_step(client, after)


def test_a_rejected_listener_holds_its_own_routes_only(server: Server, client: Client) -> None:
    """A route never overtakes the listener that adds its authorisation, nor a changed listener that is rejected."""
    other = site("a", name="other", route="r2")
    push(server, joined(A, other))
    client.subscribe(ROUTE, "r1", "r2")
    start(client)
    content = joined(A, other, {LISTENER: {TARGET: "r1 authz"}, ROUTE: {"r1": "a /admin", "r2": "a @2"}})
    push(server, content)
    assert [(alias, names) for alias, names, _ in told(client) if alias == "routes"] == [("routes", ("r2",))]
    client.nack(LISTENER, f"Error adding/updating listener(s) {TARGET}: wrong")
    client.settle()
    server.elapse(10 * ORDER_TIMEOUT_S)
    client.settle()
    assert client.texts(ROUTE) == {"r1": "a", "r2": "a @2"}


def test_a_rejected_listener_does_not_hold_the_routes_of_its_earlier_version(server: Server, variant: Variant) -> None:
    """Another listener names these routes now. The earlier version serves the newer routes too."""
    client = live(server, variant, A)
    content = joined(A, {LISTENER: {TARGET: "r2 bad", "web": "r1"}, ROUTE: {"r1": "a @2", "r2": "a"}})
    push(server, content)
    spend(10, client)
    assert client.serving()[LISTENER] == {TARGET: "r1", "web": "r1"}
    assert client.serving()[ROUTE] == {"r1": "a @2"}
    for text in ("a @3", "b"):
        content = joined(content, B, {LISTENER: content[LISTENER], ROUTE: {**content[ROUTE], "r1": text}})
        push(server, content)
        spend(10, client)
        assert client.serving()[ROUTE] == {"r1": text}
    assert not client.lost
    repaired = joined(content, {LISTENER: {TARGET: "r2"}})
    push(server, repaired)
    spend(DRAINED_S, client)
    assert_in_step(client, repaired)


@pytest.mark.parametrize("listeners", [{"web": "r1", "new": "r1 bad"}, {TARGET: "r2 bad", "web": "r2"}])
def test_a_rejected_listener_does_not_hold_the_routes_of_its_newest_version(
    server: Server, variant: Variant, listeners: dict[str, str]
) -> None:
    """No listener of the client uses them, except others that are not refused."""
    client = live(server, variant, joined(A, {ROUTE: {"r2": "a"}, LISTENER: {"web": "r2"}}))
    content = joined(A, {LISTENER: {"web": "r2"} | listeners, ROUTE: {"r1": "a @2", "r2": "a @2"}})
    push(server, content)
    spend(10, client)
    push(server, joined(content, {ROUTE: {"r1": "a @3", "r2": "a @3"}}))
    spend(10, client)
    used = client.serving()[ROUTE]
    assert used == dict.fromkeys(used, "a @3")
    assert not client.lost


def test_a_rejected_route_that_is_in_use_holds_nothing(server: Server, client: Client) -> None:
    """Envoy keeps the route configuration that it has; the listener is not taken back for that."""
    push(server, A)
    start(client)
    push(server, joined(with_listener(A, "r1 @2"), {ROUTE: {"r1": "a bad"}}))
    client.ack(LISTENER)
    client.nack(ROUTE)
    assert not client.pending()
    assert client.texts(LISTENER) == {TARGET: "r1 @2"}


# -- full-state sets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [CLUSTER, LISTENER])
def test_a_rejected_full_state_set_waits_until_content_changes(server: Server, sotw: Client, url: str) -> None:
    """Then the resources that the client's message names are sent as they were last accepted."""
    texts = dict.fromkeys(NAMES, "@1")
    push(server, {url: texts})
    start(sotw, (url,))
    push(server, {url: {**dict.fromkeys(NAMES, "@2"), "b": "bad"}})
    sotw.nack(url, f"Error adding/updating {'cluster' if url == CLUSTER else 'listener'}(s) b: wrong")
    server.elapse(3600)
    assert not sotw.pending()
    push(server, {url: {"a": "@3", "b": "bad", "c": "@2", "d": "@2"}})
    sotw.settle()
    assert sotw.texts(url) == {"a": "@3", "b": "@1", "c": "@2", "d": "@2"}


def test_a_full_state_set_that_is_rejected_again_loses_half_of_its_suspects(server: Server, sotw: Client) -> None:
    """The client's message names no resource."""
    push(server, {CLUSTER: dict.fromkeys(NAMES, "@1")})
    start(sotw, (CLUSTER,))
    texts = {**dict.fromkeys(NAMES, "@2"), "c": "malformed"}
    push(server, {CLUSTER: texts})
    refused = 0
    for text in range(10):
        while sotw.pending():
            if any(body.endswith(b"malformed") for body in bodies(sotw.pending()[0])):
                sotw.nack(CLUSTER, "cannot be read")
                refused += 1
            else:
                sotw.ack(CLUSTER)
        push(server, {CLUSTER: {**texts, "a": f"@{text}"}})
    assert sotw.texts(CLUSTER) == {"a": "@8", "b": "@2", "c": "@1", "d": "@2"}
    assert refused <= 4


def test_the_last_suspect_of_a_full_state_set_is_not_sent_again_with_later_pushes(server: Server, sotw: Client) -> None:
    """A set with it was rejected, and one without it is accepted. The client's messages name no resource."""
    push(server, {CLUSTER: {"a": "@1", "b": "@1"}})
    start(sotw, (CLUSTER,))
    refused = 0
    for text in range(5):
        push(server, {CLUSTER: {"a": f"@{text + 2}", "b": "malformed"}})
        while sotw.pending():
            if b"b=malformed" in bodies(sotw.pending()[0]):
                sotw.nack(CLUSTER, "cannot be read")
                refused += 1
            else:
                sotw.ack(CLUSTER)
    assert sotw.texts(CLUSTER) == {"a": "@6", "b": "@1"}
    assert refused == 2


def bodies(send: Send) -> list[bytes]:
    """The bodies of the resources in a response."""
    response = send.response
    return [response.resource_set.resources[name].body for name in response.names]


# -- parts, and Delta --------------------------------------------------------------------------------------------------


def refuse(client: Client, bad: str) -> list[tuple[str, ...]]:
    """Answer whatever comes of endpoints, refusing responses with one name in a bad version; returns their names."""
    seen = []
    while client.pending(ENDPOINT):
        send = client.pending(ENDPOINT)[0]
        seen.append(send.response.names)
        if bad in send.response.names and send.response.resource_set.resources[bad].body.endswith(b"bad"):
            client.nack(ENDPOINT)
        else:
            client.ack(ENDPOINT)
    return seen


def test_partial_types_are_sent_without_suspects_which_are_tried_in_halves(server: Server, client: Client) -> None:
    """In all of Delta, and for partial types in SotW."""
    push(server, {ENDPOINT: dict.fromkeys(NAMES, "1")})
    client.subscribe(ENDPOINT, *NAMES)
    client.settle()
    content = {ENDPOINT: {**dict.fromkeys(NAMES, "2"), "b": "bad"}}
    push(server, content)
    seen = refuse(client, "b")
    assert [len(names) for names in seen] == [4, 2, 1, 2, 1]
    assert client.texts(ENDPOINT) == {**content[ENDPOINT], "b": "1"}
    server.elapse(3600)
    assert not client.pending(), "what was refused alone is left out until its content changes"


def test_news_does_not_wait_for_suspects(server: Server, client: Client) -> None:
    """New content is sent again and again, and the suspects in between."""
    push(server, {ENDPOINT: dict.fromkeys(NAMES, "1")})
    client.subscribe(ENDPOINT, *NAMES)
    client.settle()
    push(server, {ENDPOINT: {"a": "2", "b": "bad", "c": "2", "d": "1"}})
    push(server, {ENDPOINT: {"a": "2", "b": "bad", "c": "2", "d": "2"}}, wake=False)
    client.nack()
    client.wake()
    seen = refuse(client, "b")
    assert ("d",) in seen[:2]
    assert client.texts(ENDPOINT) == {"a": "2", "b": "1", "c": "2", "d": "2"}


def test_a_rejection_of_what_was_accepted_before_makes_nothing_suspect(server: Server, client: Client) -> None:
    content = {CLUSTER: {"a": "@1", "b": "@1"}, ENDPOINT: {"a": "1", "b": "1"}}
    push(server, content)
    start(client, (CLUSTER, ENDPOINT))
    push(server, {**content, CLUSTER: {"a": "@2", "b": "@2"}})
    client.ack(CLUSTER)
    client.nack(ENDPOINT)
    push(server, {CLUSTER: {"a": "@2", "b": "@2"}, ENDPOINT: {"a": "2", "b": "2"}})
    assert told(client) == [("endpoints", ("a", "b"), ())]


def test_rejected_resources_are_shown(server: Server, client: Client) -> None:
    """Operators see the resource that is wrong, not only that the response was."""
    push(server, {ENDPOINT: dict.fromkeys(NAMES, "1")})
    client.subscribe(ENDPOINT, *NAMES)
    client.settle()
    push(server, {ENDPOINT: {**dict.fromkeys(NAMES, "2"), "d": "bad"}})
    refuse(client, "d")
    assert [event.guilty for event in client.events if isinstance(event, Nacked)][-1] == ("d",)


def test_a_rejected_resource_is_tried_again_when_its_content_changes(server: Server, client: Client) -> None:
    """A change of other resources is not a reason."""
    push(server, {ENDPOINT: {"a": "1", "b": "bad"}})
    client.subscribe(ENDPOINT, "a", "b")
    refuse(client, "b")
    push(server, {ENDPOINT: {"a": "2", "b": "bad"}})
    assert told(client) == [("endpoints", ("a",), ())]
    client.settle()
    push(server, {ENDPOINT: {"a": "2", "b": "2"}})
    assert told(client) == [("endpoints", ("b",), ())]


@pytest.mark.parametrize("url", [CLUSTER, LISTENER])
@pytest.mark.parametrize("before", [{"a": "@1"}, {"a": "@1", "b": "@1"}])
def test_a_rejected_resource_is_tried_again_though_the_client_missed_the_roll_back(
    server: Server, client: Client, url: str, before: dict[str, str]
) -> None:
    """A bad push, a roll-back, and the push again, while the server has not come to the client in between."""
    push(server, {url: before})
    start(client, (url,))
    bad = {url: {"a": "@1", "b": "bad"}}
    push(server, bad)
    client.nack(url, "Error adding/updating resource(s) b: wrong")
    client.settle()
    push(server, {url: before}, wake=False)
    push(server, bad)
    assert any("b" in each.response.names for each in client.settle())


@pytest.mark.parametrize("url", [CLUSTER, ENDPOINT])
def test_rejections_are_remembered_while_a_client_is_away(server: Server, connect: Connect, url: str) -> None:
    """By node id: a new connection is not a reason to send rejected content again."""
    client = connect()
    content: Site = {url: {"a": "@1", "b": "@1"}}
    push(server, content)
    client.subscribe(url, "a", "b")
    client.settle()
    push(server, joined(content, {url: {"b": "bad"}}))
    client.nack(url, of_cluster("b"))
    client.settle()
    client.reconnect()
    assert not [body for send in client.pending() for body in bodies(send) if body.endswith(b"bad")]
    client.settle()
    assert client.texts(url) == {"a": "@1", "b": "@1"}
    push(server, joined(content, {url: {"b": "@2"}}))
    client.settle()
    assert client.texts(url) == {"a": "@1", "b": "@2"}


@pytest.mark.parametrize("url", [CLUSTER, ENDPOINT])
def test_resources_rejected_on_several_connections_stay_rejected(server: Server, client: Client, url: str) -> None:
    """Of a node, the refused versions are remembered. One that was only suspect is sent once more at most."""
    rejected: list[bytes] = []

    def answer() -> None:
        for _ in range(50):
            if not client.pending():
                return
            bad = [body for body in bodies(client.pending()[0]) if body.endswith(b"bad")]
            rejected.extend(bad)
            if bad:
                client.nack(url, of_cluster("b"))
            else:
                client.ack(url)
        raise AssertionError("the server never stops sending")

    push(server, {url: {"a": "@1", "b": "@1"}})
    client.subscribe(url, "a", "b")
    answer()
    push(server, {url: {"a": "@2", "b": "bad"}})
    client.nack(url, "Proto constraint validation failed")  # one of the two
    client.disconnect()
    push(server, {url: {"a": "@1", "b": "@2 bad"}})
    for _ in range(3):
        client.reconnect()
        answer()
    assert rejected.count(b"b=@2 bad") == 1 and rejected.count(b"b=bad") <= 1
    assert client.texts(url) == {"a": "@1", "b": "@1"}


@pytest.mark.parametrize("url", [CLUSTER, LISTENER])
def test_a_rejected_name_is_not_answered_until_its_content_changes(server: Server, client: Client, url: str) -> None:
    """gRPC subscribes to clusters and listeners by name: what is left out is no news, and is not missing."""
    push(server, {url: {"a": "@1", "b": "bad"}})
    client.subscribe(url, "a", "b")
    client.nack(url, of_cluster("b"))
    client.settle()
    push(server, {url: {"a": "@2", "b": "bad"}})
    client.settle()
    assert client.texts(url) == {"a": "@2"}
    push(server, {url: {"a": "@2", "b": "@2"}})
    client.settle()
    assert client.texts(url) == {"a": "@2", "b": "@2"}


def test_a_rejected_resource_lingers_in_its_accepted_version(server: Server, client: Client) -> None:
    """Nobody will repair it: what lingers with it does not wait until the client asks for it no more."""
    push(server, A)
    start(client)
    push(server, joined(A, {ROUTE: {"r1": "a bad"}}))
    client.nack(ROUTE, "no such thing")
    push(server, {CLUSTER: {"b": "@1"}, ENDPOINT: {"b": "1"}, LISTENER: {TARGET: "to:b"}})
    client.settle()
    wait(server, DRAINED_S, client)
    assert client.texts(CLUSTER) == {"b": "@1"}


def version_of(server: Server, url: str, name: str) -> str:
    """The version of a resource as it is pushed now."""
    snapshot = server.cache.get("default")
    assert snapshot is not None
    return snapshot.get(url).resources[name].version


@pytest.mark.parametrize("url", [CLUSTER, ENDPOINT])
def test_rejections_are_loaded_after_a_restart(server: Server, connect: Connect, url: str) -> None:
    """The new process does not send again what a node rejected before the restart."""
    client = connect()
    content: Site = {url: {"a": "@1", "b": "@1"}}
    push(server, content)
    client.subscribe(url, "a", "b")
    client.settle()
    bad = joined(content, {url: {"b": "bad"}})
    push(server, bad)
    client.nack(url, of_cluster("b"))
    client.settle()
    client.disconnect()
    server.restart()
    server.clients.rejected["node"] = {url: {"b": (version_of(server, url, "b"),)}}
    client.reconnect()
    assert not [body for send in client.pending() for body in bodies(send) if body.endswith(b"bad")]
    client.settle()
    assert client.texts(url) == {"a": "@1", "b": "@1"}
    # Accepted in another version, then pushed as it was refused: that is worth another try, as without a restart.
    push(server, joined(content, {url: {"b": "@2"}}))
    client.settle()
    client.reconnect()
    client.settle()
    push(server, bad)
    assert [body for send in client.pending() for body in bodies(send) if body.endswith(b"bad")]


def test_a_type_that_was_never_accepted_is_remembered_of_a_client_that_is_back(
    server: Server, connect: Connect
) -> None:
    """It shows a version of its clusters and none of its listeners, all of which it refused."""
    client = connect()
    content: Site = {CLUSTER: {"a": "@1"}, LISTENER: {"l": "bad"}}
    push(server, content)
    client.subscribe(CLUSTER)
    client.settle()
    client.subscribe(LISTENER)
    client.nack(LISTENER, "Error adding/updating listener(s) l: wrong")
    assert client.texts(LISTENER) == {}
    client.disconnect()
    server.restart()
    server.clients.rejected["node"] = {LISTENER: {"l": (version_of(server, LISTENER, "l"),)}}
    client.reconnect((CLUSTER, LISTENER))
    assert not [body for send in client.pending() for body in bodies(send) if body.endswith(b"bad")]
    client.settle()
    push(server, {CLUSTER: {"a": "@1"}, LISTENER: {"l": "@2"}})
    client.settle()
    assert client.texts(LISTENER) == {"l": "@2"}


@pytest.mark.parametrize("dialect", list(Variant), ids=lambda dialect: dialect.value)
def test_a_listener_goes_back_at_once_on_a_separate_stream(server: Server, dialect: Variant) -> None:
    """The stream on which its route configuration is refused tells the one that has the listeners."""
    push(server, A, source="api")
    client = EnvoyLike(server, dialect, split=True)
    client.start()
    push(server, {**site("a", route="r2"), ROUTE: {"r2": "a bad"}}, source="api")
    client.run()  # no time passes
    assert client.serving()[LISTENER] == {TARGET: "r1"}
    assert client.serving()[ROUTE] == {"r1": "a"}


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
def test_content_that_a_returning_client_shows_stays_accepted_when_it_rejects_the_next_push(
    server: Server, variant: Variant, split: bool
) -> None:
    """It serves on with the endpoints that it showed, so routes to the cluster need not wait for a repair."""
    source = "api" if split else "ads"
    before, after = site("a", "b"), site("a", "b")
    before[ROUTE], after[ROUTE] = {"r1": "b"}, {"r1": "b a"}
    client = live(server, variant, before, split=split)
    client.disconnect()
    push(server, {**before, ENDPOINT: {"a": "bad", "b": "1"}}, source=source)
    client.reconnect()
    spend(3, client)
    push(server, {**after, ENDPOINT: {"a": "bad", "b": "1"}}, source=source)
    spend(60, client)
    assert client.serving()[ROUTE] == {"r1": "b a"}
    assert not client.lost
    push(server, after, source=source)
    spend(DRAINED_S, client)
    assert_in_step(client, after)


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("url", [ROUTE, EXTENSION_CONFIG])
def test_a_listener_that_went_back_stays_there_when_the_rejected_name_is_dropped(
    server: Server, variant: Variant, split: bool, url: str
) -> None:
    """Envoy ends the subscription with the listener; the refusal is not forgotten with it."""
    source = "api" if split else "ads"
    client = live(server, variant, site("a"), split=split)
    bad = joined(site("a"), {LISTENER: {TARGET: "r2"}, ROUTE: {"r2": "a bad"}})
    if url == EXTENSION_CONFIG:
        bad = joined(site("a"), {LISTENER: {TARGET: "r1 ecds:f"}, EXTENSION_CONFIG: {"f": "bad"}})
    good = {**bad, url: {"r2": "a"} if url == ROUTE else {"f": "@1"}}
    server.history = []
    push(server, bad, source=source)
    spend(3 * DRAINED_S, client)
    sent = [event for _, event in server.history if isinstance(event, Send) and event.type_url == LISTENER]
    assert len(sent) == 2, "the new listener, and the one before again"
    assert client.serving()[LISTENER] == {TARGET: "r1"}
    push(server, good, source=source)
    spend(2 * DRAINED_S, client)
    assert client.serving()[LISTENER] == good[LISTENER]
    assert_in_step(client, good)
