"""Content refers to a cluster only once that is proved to be warm: that nothing speaks against it proves nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.spec.by_hand import GRID_S, ORDER_TIMEOUT_S, REMOVED_S, RETURN_S, TYPES, pending, start, wait
from tests.support.envoy_like import FETCH_S, EnvoyLike
from tests.support.personas import GrpcLike, assert_in_step, live, spend, spend_warming
from tests.support.sansio import Client, Server
from tests.support.texts import TARGET, Site, assignment_of, joined, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from xds.protocol.dialect import Variant
from xds.protocol.events import AckWaitTimedOut, HoldChanged

A, B = site("a"), joined(site("a"), site("b"))
SOON_S = 1.0
BEFORE_S = REMOVED_S - GRID_S - SOON_S  # a removal ends soon after
SPLIT = pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])


def without(content: Site, url: str, *names: str) -> Site:
    """The site without these resources of a type."""
    return {**content, url: {name: text for name, text in content[url].items() if name not in names}}


LATE = without(B, ENDPOINT, "b")  # the route leads to a cluster whose assignment is not there yet


def pushed(client: EnvoyLike, content: Site, seconds: float = SOON_S) -> str:
    """Push a site; what the route of the target says some time later."""
    push(client.server, content, source="api" if client.split else "ads")
    spend(seconds, client)
    assert not client.lost, client.lost
    return client.serving()[ROUTE]["r1"]


# -- what was refused, taken back, and pushed again --------------------------------------------------------------------

REFUSED: Mapping[str, tuple[Site, Site]] = {
    "assignment": ({ENDPOINT: {"b": "bad"}}, {ENDPOINT: {"b": "bad @2"}}),
    "cluster": ({CLUSTER: {"b": "bad"}}, {CLUSTER: {"b": "bad @2"}}),
    "secret": (
        {CLUSTER: {"b": "sds:s"}, SECRET: {"s": "bad"}},
        {CLUSTER: {"b": "sds:s"}, SECRET: {"s": "bad @2"}},
    ),
    "another assignment": (
        {CLUSTER: {"b": "eds:x"}, ENDPOINT: {"x": "bad"}},
        {CLUSTER: {"b": "eds:y"}, ENDPOINT: {"y": "bad"}},
    ),
}


@SPLIT
@pytest.mark.parametrize("lingers", [True, False], ids=["lingering", "removed"])
@pytest.mark.parametrize("kind", REFUSED)
def test_the_hold_of_a_rejected_cluster_outlives_a_roll_back(
    server: Server, variant: Variant, kind: str, lingers: bool, split: bool
) -> None:
    """Bad push, roll back, repaired push, still bad: the route is held as it was by the first bad push."""
    client = live(server, variant, A, split=split)
    bad, still_bad = REFUSED[kind]
    assert pushed(client, joined(B, bad)) == "a"
    assert pushed(client, A, SOON_S if lingers else REMOVED_S) == "a"
    assert pushed(client, joined(B, still_bad), 2 * ORDER_TIMEOUT_S) == "a"
    push(server, B, source="api" if split else "ads")
    spend_warming(client)
    spend(SOON_S, client)
    assert not client.lost
    assert client.serving()[ROUTE] == {"r1": "b"}


@SPLIT
def test_the_wait_for_a_repaired_cluster_begins_with_the_repair(server: Server, variant: Variant, split: bool) -> None:
    """It was refused for longer than content waits for a cluster that cannot be proved."""
    client = live(server, variant, A, split=split)
    assert pushed(client, joined(B, {CLUSTER: {"b": "bad"}}), ORDER_TIMEOUT_S + SOON_S) == "a"
    assert pushed(client, joined(B, {CLUSTER: {"b": "hc:20"}}), 20 - SOON_S) == "a"
    spend(ORDER_TIMEOUT_S, client)
    assert client.serving()[ROUTE]["r1"] == "b"
    assert not client.lost


def test_the_repair_after_a_roll_back_is_sent_behind_its_assignment(server: Server, client: Client) -> None:
    """The cluster lingers, so its assignment alone is sent; its ACK is the proof."""
    push(server, A)
    start(client)
    push(server, joined(B, {ENDPOINT: {"b": "bad"}}))
    client.nack(ENDPOINT)
    client.settle()
    push(server, A)
    client.settle()
    push(server, B)
    assert pending(client) == ["endpoints"]
    client.ack(ENDPOINT)
    assert pending(client) == ["routes"]


def test_a_cluster_that_a_refused_response_removed_is_waited_for(server: Server, client: Client) -> None:
    """Its assignment is ACKed, because another cluster has it too."""
    content = {**A, CLUSTER: {"a": "eds:x", "b": "eds:x", "c": "eds:x"}, ENDPOINT: {"x": "1"}, ROUTE: {"r1": "a b"}}
    push(server, content)
    client.subscribe(ENDPOINT, "x")
    start(client, (CLUSTER, LISTENER, ROUTE))
    push(server, without({**content, ROUTE: {"r1": "a"}}, CLUSTER, "b"))
    wait(server, BEFORE_S, client)
    server.elapse(2 * SOON_S)
    client.nack(CLUSTER)
    push(server, content)
    assert pending(client) == ["clusters", "endpoints"]
    client.settle()
    assert client.texts(ROUTE) == {"r1": "a b"}


def test_a_cluster_that_a_response_without_an_answer_removed_is_waited_for(server: Server, variant: Variant) -> None:
    """The ACK is withheld, because another cluster warms. The assignment is ACKed, because a third one has it too."""
    content = {**A, CLUSTER: {"a": "eds:x", "b": "eds:x hc:8"}, ENDPOINT: {"x": "1", "c": "1"}, ROUTE: {"r1": "a b"}}
    client = live(server, variant, content)
    less = without({**content, ROUTE: {"r1": "a"}}, CLUSTER, "b")
    assert pushed(client, less, BEFORE_S) == "a"
    client.cold.add("c")
    assert pushed(client, joined(less, {CLUSTER: {"c": "@1"}}), ORDER_TIMEOUT_S) == "a"
    assert set(client.active) == {"a"}
    assert pushed(client, joined(content, {CLUSTER: {"c": "@1"}})) == "a"
    assert set(client.warming) == {"b", "c"}
    client.warm("c")
    spend(8, client)
    assert client.serving()[ROUTE] == {"r1": "a b"}
    assert not client.lost, client.lost


def test_a_proved_cluster_is_not_waited_for_when_it_is_pushed_again(server: Server, client: Client) -> None:
    """It lingers, with the endpoints that the client ACKed."""
    push(server, A)
    start(client)
    push(server, B)
    client.settle()
    push(server, A)
    client.settle()
    push(server, joined(B, {ENDPOINT: {"b": "bad"}}))
    assert sorted(pending(client)) == ["endpoints", "routes"]


# -- live assignments, of which a new process does not know the removed ones -------------------------------------------

OF_MEMBER: Site = {CLUSTER: {"b": "@1", "c": "of:m", "m": "@1"}, LISTENER: {TARGET: "r1"}, ROUTE: {"r1": "c"}}
OWN: Site = {CLUSTER: {"b": "@2", "c": "@1"}, LISTENER: {TARGET: "r1"}, ROUTE: {"r1": "c"}}
AWAY: Site = {CLUSTER: {"b": "@3"}, LISTENER: {TARGET: "r1"}, ROUTE: {"r1": "b"}}


def serve(server: Server, content: Site) -> None:
    """Push a site. The assignments of its clusters are observed, and no others."""
    named = {each for item in content[CLUSTER].items() if (each := assignment_of(*item))}
    before = server.cache.observed("default").keys()
    server.observe(dict.fromkeys(named, "1"), wake=False)
    push(server, content, wake=False)
    server.observe({}, gone=before - named)


@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
def test_a_returning_client_keeps_a_removed_cluster_whose_assignment_was_observed(
    server: Server, variant: Variant, restarted: bool
) -> None:
    """Not the aggregate that the cluster was before, whose member had an observed assignment as well."""
    serve(server, OF_MEMBER)
    client = EnvoyLike(server, variant)
    client.start()
    for content in (OWN, AWAY):
        serve(server, content)
        spend(SOON_S + REMOVED_S * (content is OWN), client)
    client.disconnect()
    if restarted:
        server.restart()
        server.observe({"b": "1"})
    client.reconnect()
    spend(SOON_S, client)
    assert client.serving()[CLUSTER]["c"] == "@1"
    assert not client.lost


def test_a_new_version_is_waited_for_if_the_one_before_never_served(server: Server) -> None:
    """In SotW a client gets what the log has, such as an aggregate whose member never gets its assignment."""
    serve(server, OF_MEMBER)
    serve(server, AWAY)
    client = EnvoyLike(server, Variant.SOTW)
    client.start()
    client.disconnect()
    server.restart()
    serve(server, joined(AWAY, {CLUSTER: {"b": "@4"}}))
    client.reconnect()
    spend(FETCH_S + SOON_S, client)
    assert client.serving()[CLUSTER]["c"] == "of:m"
    serve(server, OWN)
    spend(SOON_S, client)
    assert client.serving()[ROUTE]["r1"] == "c"
    assert not client.lost


# -- an assignment that does not exist yet -----------------------------------------------------------------------------


@SPLIT
def test_a_cluster_is_cold_until_its_assignment_is_pushed(server: Server, variant: Variant, split: bool) -> None:
    client = live(server, variant, A, split=split)
    assert pushed(client, LATE, ORDER_TIMEOUT_S - 1) == "a"
    push(server, B, source="api" if split else "ads")
    spend_warming(client)
    spend(SOON_S, client)
    assert client.serving()[ROUTE] == {"r1": "b"}
    spend(REMOVED_S, client)
    assert_in_step(client, B)


@SPLIT
def test_a_cluster_is_cold_until_its_assignment_is_observed(server: Server, variant: Variant, split: bool) -> None:
    """A source begins to read a service when a cluster of it is pushed."""
    client = live(server, variant, A, split=split)
    assert pushed(client, LATE) == "a"
    server.observe({"b": "1"})
    spend_warming(client)
    spend(SOON_S, client)
    assert not client.lost
    assert client.serving()[ROUTE] == {"r1": "b"}


@SPLIT
def test_an_assignment_without_endpoints_counts_as_present(server: Server, variant: Variant, split: bool) -> None:
    """The cluster is known to be empty, so that a failover goes on to the next one."""
    client = live(server, variant, joined(A, {CLUSTER: {"d": "of:a"}}), split=split)
    push(server, joined(LATE, {CLUSTER: {"d": "of:b,a"}, ROUTE: {"r1": "d"}}), source="api" if split else "ads")
    spend(SOON_S, client)
    assert client.serving()[ROUTE] == {"r1": "a"}
    server.observe({"b": ""})
    spend_warming(client)
    spend(SOON_S, client)
    assert not client.lost
    assert client.serving()[ROUTE] == {"r1": "d"}


def test_a_wait_for_a_missing_assignment_ends_with_an_event(server: Server, client: Client) -> None:
    push(server, A)
    start(client)
    push(server, LATE)
    client.settle()
    held = [event.held for event in client.events if isinstance(event, HoldChanged)]
    assert [each.waits_for for each in held[-1]] == [("b",)]
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert not client.pending()
    server.elapse(2)
    assert pending(client) == ["routes"]
    assert [event.type_url for event in client.events if isinstance(event, AckWaitTimedOut)] == [CLUSTER]


def test_a_cluster_whose_wait_ended_is_not_waited_for_again(server: Server, client: Client) -> None:
    """Until its assignment exists: then the ACK of that is waited for."""
    push(server, A)
    start(client)
    push(server, LATE)
    client.settle()
    server.elapse(ORDER_TIMEOUT_S + 1)
    client.settle()
    assert client.stream.deadline() is None
    push(server, joined(LATE, {ROUTE: {"r1": "a b"}}))
    assert pending(client) == ["routes"]
    client.settle()
    push(server, joined(B, {ROUTE: {"r1": "b @2"}}))
    assert pending(client) == ["endpoints"]
    client.ack(ENDPOINT)
    assert pending(client) == ["routes"]


def test_trees_that_lead_to_other_clusters_do_not_wait(server: Server, client: Client) -> None:
    push(server, A)
    start(client)
    push(server, joined(LATE, {ROUTE: {"r1": "a @2"}}))
    client.ack(CLUSTER)
    assert "routes" in pending(client)
    client.settle()
    assert client.texts(ROUTE) == {"r1": "a @2"}


@SPLIT
@pytest.mark.parametrize("changed", ["eds:y", "eds:y @2"])
@pytest.mark.parametrize("before", ["@1", "static"])
def test_a_cluster_in_use_stays_as_it_was_while_the_assignment_that_it_is_to_get_does_not_exist(
    server: Server, variant: Variant, before: str, changed: str, split: bool
) -> None:
    """Envoy would go on with the new version, without endpoints."""
    client = live(server, variant, joined(A, {CLUSTER: {"a": before}}), split=split)
    assert pushed(client, joined(A, {CLUSTER: {"a": changed}}), ORDER_TIMEOUT_S - 1) == "a"
    assert client.serving()[CLUSTER] == {"a": before}
    server.observe({"y": "1"})
    spend(SOON_S, client)
    assert not client.lost
    assert client.serving()[CLUSTER] == {"a": changed}


def test_a_cluster_in_use_gets_its_next_version_after_the_order_timeout(server: Server, client: Client) -> None:
    push(server, A)
    start(client)
    push(server, joined(A, {CLUSTER: {"a": "eds:y"}}))
    assert not client.pending()
    server.elapse(ORDER_TIMEOUT_S + 1)
    assert "clusters" in pending(client)


def test_a_client_that_names_its_clusters_waits_for_the_assignment(server: Server) -> None:
    """gRPC subscribes to a cluster only after the route, and takes a placeholder for no endpoints."""
    push(server, A)
    client = GrpcLike(server)
    client.start()
    push(server, LATE)
    spend(SOON_S, client)
    assert client.texts(ROUTE) == {"r1": "a"}
    server.observe({"b": "1"})
    spend(SOON_S, client)
    assert not client.lost
    assert client.in_use == {"b"}


@SPLIT
def test_assignments_that_a_client_does_not_request_here_are_not_waited_for(
    server: Server, variant: Variant, split: bool
) -> None:
    """Another server has them. On separate streams, the first request for one may come a moment after the ACK."""
    source = "api" if split else "ads"
    push(server, A, source=source)
    client = EnvoyLike(server, variant, elsewhere=True, split=split)
    client.start()
    push(server, LATE, source=source)
    spend(RETURN_S + 1 if split else SOON_S, client)
    assert client.serving()[ROUTE] == {"r1": "b"}


def test_a_missing_assignment_is_waited_for_though_the_client_has_just_returned(
    server: Server, variant: Variant
) -> None:
    """The push came while it was away."""
    client = live(server, variant, A)
    client.disconnect()
    push(server, LATE)
    client.reconnect()
    spend(SOON_S, client)
    assert not client.lost
    assert client.serving()[ROUTE] == {"r1": "a"}
    server.observe({"b": "1"})
    spend(SOON_S, client)
    assert not client.lost
    assert client.serving()[ROUTE] == {"r1": "b"}


@SPLIT
@pytest.mark.parametrize("is_new_server", [False, True], ids=["cut", "restart"])
def test_a_cluster_that_a_returning_client_shows_stays_as_it_was_while_its_next_assignment_does_not_exist(
    server: Server, variant: Variant, split: bool, is_new_server: bool
) -> None:
    """It requests assignments after its clusters. That it has not yet does not mean that another server has them."""
    client = live(server, variant, A, split=split)
    client.disconnect()
    push(server, joined(A, {CLUSTER: {"a": "eds:y"}}), source="api" if split else "ads")
    if is_new_server:
        server.restart()
    client.reconnect()
    spend(ORDER_TIMEOUT_S - 1, client)
    assert not client.lost
    assert client.serving()[CLUSTER] == {"a": "@1"}
    server.observe({"y": "1"})
    spend(SOON_S, client)
    assert not client.lost
    assert client.serving()[CLUSTER] == {"a": "eds:y"}


def test_an_assignment_missing_at_the_start_is_waited_for_by_a_later_push(server: Server, variant: Variant) -> None:
    """Nothing led to the cluster when the client went live."""
    client = live(server, variant, joined(LATE, {ROUTE: {"r1": "a"}}))
    spend(10 * ORDER_TIMEOUT_S, client)
    assert pushed(client, LATE) == "a"
    assert pushed(client, B) == "b"


def test_a_missing_secret_of_a_new_cluster_is_waited_for(server: Server, client: Client) -> None:
    """Envoy withholds the CDS ACK for its fetch timeout only, and the cluster then has no connections."""
    push(server, A)
    start(client, (*TYPES, SECRET))
    push(server, joined(B, {CLUSTER: {"b": "sds:s"}}))
    client.settle()
    assert client.texts(ROUTE) == {"r1": "a"}
    push(server, joined(B, {CLUSTER: {"b": "sds:s"}, SECRET: {"s": "@1"}}))
    client.settle()
    assert client.texts(ROUTE) == {"r1": "b"}


def test_listeners_wait_for_a_missing_assignment(server: Server, client: Client) -> None:
    """With an inline route."""
    push(server, A)
    start(client)
    push(server, joined(LATE, {LISTENER: {TARGET: "to:b"}}))
    client.settle()
    assert client.texts(LISTENER) == {TARGET: "r1"}
    server.observe({"b": "1"})
    client.settle()
    assert client.texts(LISTENER) == {TARGET: "to:b"}


# -- what changes under a proved cluster -------------------------------------------------------------------------------

WITH_SECRET = joined(A, {CLUSTER: {"a": "sds:s"}, SECRET: {"s": "@1"}})
PARTS = pytest.mark.parametrize("part", [(SECRET, "s"), (ENDPOINT, "a")], ids=["secret", "assignment"])
CHANGES: Mapping[str, Site] = {
    "route": {ROUTE: {"r1": "a @2"}},
    "listener": {LISTENER: {TARGET: "r1 @2"}},
    "new listener": {LISTENER: {"new": "r1"}},
}


@PARTS
@pytest.mark.parametrize("answer", ["unanswered", "refused"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("pushes", [0, 1], ids=["started", "pushed to"])
def test_a_changed_part_of_a_proved_cluster_holds_nothing(
    server: Server, client: Client, part: tuple[str, str], answer: str, change: str, pushes: int
) -> None:
    """A proof is a fact about a cluster that was sent; what changes under it afterwards does not undo it."""
    content, (url, name) = WITH_SECRET, part
    push(server, content)
    start(client, (*TYPES, SECRET))
    if pushes:
        content = joined(content, {CLUSTER: {"a": "sds:s @2"}})
        push(server, content)
        client.settle()
    push(server, joined(content, {url: {name: "@2"}}))
    assert url in {send.type_url for send in client.pending()}
    if answer == "refused":
        client.nack(url)
    push(server, joined(content, {url: {name: "@2"}}, CHANGES[change]))
    assert set(CHANGES[change]) <= {send.type_url for send in client.pending()}


@SPLIT
@PARTS
def test_a_part_of_a_proved_cluster_without_an_answer_holds_nothing(
    server: Server, variant: Variant, part: tuple[str, str], split: bool
) -> None:
    """Also on separate streams, of a client that answers nothing for a while."""
    client, (url, name) = live(server, variant, WITH_SECRET, split=split), part
    client.be_slow()
    changed = joined(WITH_SECRET, {url: {name: "@2"}})
    assert pushed(client, changed) == "a"
    assert pushed(client, joined(changed, {ROUTE: {"r1": "a @2"}})) == "a @2"


def test_a_changed_secret_holds_the_routes_to_a_cluster_that_newly_names_it(server: Server, client: Client) -> None:
    """The cluster is new in the same push, so it is proved by the ACK of this version of the secret."""
    push(server, WITH_SECRET)
    start(client, (*TYPES, SECRET))
    push(server, joined(WITH_SECRET, B, {CLUSTER: {"a": "sds:s", "b": "sds:s"}, SECRET: {"s": "@2"}}))
    client.ack(CLUSTER)
    client.ack(ENDPOINT)
    assert "routes" not in pending(client)
    client.ack(SECRET)
    assert "routes" in pending(client)
