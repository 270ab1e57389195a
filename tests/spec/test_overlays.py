"""An overlay of a locality replaces resources of the pushed snapshot and never alters it.

See docs/internals/design.md#overlays.
"""

from __future__ import annotations

import pytest

from tests.spec.by_hand import REMOVED_S, wait
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server
from tests.support.texts import Site, push
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import ResourceSet
from xds.protocol.requests import Request
from xds.protocol.sotw import fetch
from xds.snapshots.cache import View

SITE = {CLUSTER: {"web": "1"}, ENDPOINT: {"web": "1", "other": "1"}, LISTENER: {"l": "1"}, ROUTE: {"r": "1"}}


def start(client: Client) -> Client:
    """Subscribe to all of the site, and ACK."""
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "web", "other")
    client.subscribe(LISTENER)
    client.subscribe(ROUTE, "r")
    client.settle()
    return client


def served(server: Server, zone: str) -> View:
    found = server.cache.resolve(Node("node", locality=Locality(zone=zone)))
    assert found is not None
    return found


def endpoints(server: Server, zone: str) -> ResourceSet:
    return served(server, zone).snapshot.get(ENDPOINT)


def pushed(server: Server) -> ResourceSet:
    found = server.cache.get("default")
    assert found is not None
    return found.get(ENDPOINT)


def test_nodes_of_a_locality_get_its_overlay_and_others_the_pushed_content(server: Server, connect: Connect) -> None:
    server.push(SITE)
    near, far, nowhere = (start(connect(f"node-{zone}", peer=zone, zone=zone)) for zone in ("za", "zb", ""))
    server.lay_over({"za": {"web": "+a"}, "zb": {"web": "+b"}})
    for client in (near, far, nowhere):
        client.settle()
    assert near.texts(ENDPOINT) == {"web": "1+a", "other": "1"}
    assert far.texts(ENDPOINT) == {"web": "1+b", "other": "1"}
    assert nowhere.texts(ENDPOINT) == {"web": "1", "other": "1"}


def test_an_overlay_sends_only_resources_that_differ(server: Server, connect: Connect) -> None:
    server.push(SITE)
    client, other = start(connect(zone="za")), start(connect("other", peer="other", zone="zb"))
    server.lay_over({"za": {"web": "+a"}})
    (send,) = client.pending()
    assert send.type_url == ENDPOINT
    assert send.response.names == ("web",)
    assert other.pending() == []


def test_a_sub_zone_counts_to_its_zone(server: Server, connect: Connect) -> None:
    server.push(SITE)
    server.lay_over({"za": {"web": "+a"}})
    assert start(connect(zone="za/rack-1")).texts(ENDPOINT)["web"] == "1+a"


def test_the_pushed_snapshot_is_not_altered(server: Server) -> None:
    before = server.push(SITE)
    server.lay_over({"za": {"web": "+a"}})
    assert server.cache.get("default") is before
    assert pushed(server).resources["web"].body == b"web=1"
    assert pushed(server).version_info == "1"


def test_the_version_info_is_that_of_the_push_and_the_hash_of_the_served_set(server: Server) -> None:
    """docs/protocol.md#overlays: "`version_info` is that of the push with `+<8 hex of the served set>`"."""
    server.push(SITE, label="blue")
    server.lay_over({"za": {"web": "+a"}})
    found = endpoints(server, "za")
    assert found.version_info == f"blue+{found.digest.hex()[:8]}"
    assert served(server, "za").snapshot.get(CLUSTER).version_info == "blue"


def test_everything_else_is_shared(server: Server) -> None:
    server.push(SITE)
    server.lay_over({"za": {"web": "+a"}, "zb": {"web": "+b"}})
    one, other, plain = (served(server, zone).snapshot for zone in ("za", "zb", ""))
    for url in (CLUSTER, LISTENER, ROUTE):
        assert one.get(url) is other.get(url) is plain.get(url)
    assert one.get(ENDPOINT).resources["other"] is plain.get(ENDPOINT).resources["other"]


def test_all_nodes_of_a_locality_share_one_view_and_one_response(server: Server, connect: Connect) -> None:
    server.push(SITE)
    first, second = start(connect("one", peer="one", zone="za")), start(connect("two", peer="two", zone="za"))
    server.lay_over({"za": {"web": "+a"}})
    assert first.stream.view is second.stream.view
    assert first.pending()[0].body is second.pending()[0].body


def test_an_overlay_without_changes_serves_the_pushed_snapshot(server: Server) -> None:
    server.push(SITE)
    server.lay_over({"za": {"web": "", "missing": "+a"}})
    assert endpoints(server, "za") is pushed(server)


def test_an_overlay_without_pushed_endpoints_serves_the_pushed_snapshot(server: Server) -> None:
    server.push({CLUSTER: {"web": "1"}})
    server.lay_over({"za": {"web": "+a"}})
    assert len(endpoints(server, "za")) == 0


def test_a_push_is_overlaid_in_the_same_step(server: Server, connect: Connect) -> None:
    """No node of the locality sees the pushed weights between."""
    server.push(SITE)
    client = start(connect(zone="za"))
    server.lay_over({"za": {"web": "+a"}})
    client.settle()
    seen = []
    for text in "234":
        server.push({**SITE, ENDPOINT: {"web": text, "other": "1"}})
        while client.inbox:
            client.ack()
            seen.append(client.texts(ENDPOINT)["web"])
    assert set(seen) == {"2+a", "3+a", "4+a"}


def test_a_new_cluster_is_overlaid_from_its_first_assignment(server: Server, connect: Connect) -> None:
    server.push(SITE)
    client = start(connect(zone="za"))
    server.lay_over({"za": {"fresh": "+a"}})
    server.push({**SITE, CLUSTER: {"web": "1", "fresh": "1"}, ENDPOINT: {**SITE[ENDPOINT], "fresh": "1"}})
    client.settle()
    client.subscribe(ENDPOINT, "web", "other", "fresh")
    client.settle()
    assert client.texts(ENDPOINT)["fresh"] == "1+a"


def moved(*clusters: str) -> Site:
    """The site, with its routes to other clusters."""
    loads = dict.fromkeys(clusters, "1")
    return {CLUSTER: loads, ENDPOINT: {**loads, "other": "1"}, LISTENER: {"l": "r"}, ROUTE: {"r": " ".join(clusters)}}


def test_an_overlay_does_not_wait_for_a_transition(server: Server, connect: Connect) -> None:
    """EDS flows freely: the CDS that nobody ACKed holds routes and removals, not weights."""
    push(server, moved("web"))
    client = start(connect(zone="za"))
    push(server, moved("web", "new"))
    client.read(CLUSTER)
    while client.pending(ENDPOINT):
        client.ack(ENDPOINT)
    server.lay_over({"za": {"web": "+a"}})
    client.ack(ENDPOINT)
    assert client.texts(ENDPOINT)["web"] == "1+a"
    assert not client.pending(ROUTE)


def test_a_change_of_the_overlay_ends_no_transition(server: Server, connect: Connect) -> None:
    """Make before break goes on as it was: the old cluster stays until the routes have left it, and longer."""
    push(server, moved("web"))
    client = start(connect(zone="za"))
    client.subscribe(ENDPOINT, "new")
    push(server, moved("new"))
    cds, message = client.read(CLUSTER)
    client.hold(message)
    assert set(client.texts(CLUSTER)) == {"web", "new"}
    server.lay_over({"za": {"new": "+a"}})
    assert not client.pending(ROUTE)
    client.reply(cds)
    client.settle()
    assert client.texts(ROUTE) == {"r": "new"}
    assert set(client.texts(CLUSTER)) == {"web", "new"}
    wait(server, REMOVED_S, client)
    client.want(ENDPOINT, ["new"])
    client.settle()
    assert set(client.texts(CLUSTER)) == {"new"}
    assert client.texts(ENDPOINT) == {"new": "1+a"}


def test_an_overlay_that_ends_brings_the_pushed_weights_back(server: Server, connect: Connect) -> None:
    server.push(SITE)
    server.lay_over({"za": {"web": "+a"}})
    client = start(connect(zone="za"))
    server.lay_over({})
    client.settle()
    assert client.texts(ENDPOINT)["web"] == "1"
    assert client.stream.view is served(server, "")


def test_an_overlay_outlives_its_group(server: Server) -> None:
    """It is told before the group is there at a start, and when the group comes back."""
    server.lay_over({"za": {"web": "+a"}})
    server.push(SITE)
    assert endpoints(server, "za").resources["web"].body == b"web=1+a"
    server.drop()
    server.push(SITE)
    assert endpoints(server, "za").resources["web"].body == b"web=1+a"


def test_an_overlay_names_the_sources_that_are_served_something_else(server: Server) -> None:
    server.push(SITE)
    held = {Locality(zone=zone): server.overlay({"web": "+a"}) for zone in ("za", "zb")}
    assert server.cache.overlay("default", held) == set(held)
    kept = served(server, "zb")
    changed = server.cache.overlay("default", {**held, Locality(zone="za"): server.overlay({"web": "+2"})})
    assert changed == {Locality(zone="za")}
    assert served(server, "zb") is kept
    assert server.cache.overlay("default", {}) == set(held)


@pytest.mark.parametrize("pushes", [0, 1, 3])
@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
def test_a_client_that_returns_is_sent_its_overlaid_assignments_at_once(
    server: Server, connect: Connect, pushes: int, restarted: bool
) -> None:
    """All that it requests, whatever overlays it had before it left."""
    server.push(SITE)
    server.lay_over({"za": {"web": "+a"}})
    client = start(connect(zone="za"))
    client.disconnect()
    for count in range(pushes):
        server.lay_over({"za": {"web": f"+{count}"}})
        server.push({**SITE, ENDPOINT: {**SITE[ENDPOINT], "third": f"{count}"}})
        served(server, "za")
    if restarted:
        server.restart()
        server.lay_over({"za": {"web": f"+{pushes - 1}" if pushes else "+a"}})
    client.reconnect()
    assert [set(send.response.names) for send in client.pending(ENDPOINT)] == [{"web", "other"}]
    client.settle()
    assert client.texts(ENDPOINT) == {"web": f"1+{pushes - 1}" if pushes else "1+a", "other": "1"}


def test_two_views_of_one_connection_do_not_take_turns(server: Server, connect: Connect) -> None:
    """Streams that name one node in two localities are two clients: each in step with its own."""
    server.push(SITE)
    server.lay_over({"za": {"web": "+a"}, "zb": {"web": "+b"}})
    one, other = start(connect(zone="za")), start(connect(zone="zb"))
    server.push({**SITE, CLUSTER: {"web": "2"}})
    for _ in range(3):
        one.settle()
        other.settle()
    assert one.texts(ENDPOINT)["web"] == "1+a"
    assert other.texts(ENDPOINT)["web"] == "1+b"


def test_streams_that_name_one_node_in_two_ways_do_not_take_turns(server: Server, connect: Connect) -> None:
    """On one connection, with one id, and yet of two groups: each is in step with its own."""
    for group, text in (("blue", "1"), ("green", "2")):
        server.push({CLUSTER: {"web": text}}, group)
    server.select(("blue", "node.metadata.role == blue"), ("green", "node.metadata.role == green"))
    clients = [connect(metadata={"role": group}) for group in ("blue", "green")]
    for client in clients:
        client.subscribe(CLUSTER)
        client.settle()
    server.push({CLUSTER: {"web": "3"}}, "blue")
    for client in clients:
        client.settle()
    assert [client.texts(CLUSTER)["web"] for client in clients] == ["3", "2"]


def test_streams_of_one_client_share_a_transition_however_its_metadata_is_ordered(server: Server) -> None:
    first, again = (Node("n", metadata=dict(pairs)) for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)]))
    assert first.fingerprint == again.fingerprint != Node("n", metadata={"a": 1}).fingerprint


def test_a_fetch_is_answered_for_the_locality_of_its_node(server: Server) -> None:
    server.push(SITE)
    server.lay_over({"za": {"web": "+a"}})
    for zone, body in (("za", b"web=1+a"), ("zb", b"web=1")):
        found = fetch(served(server, zone), Request(ENDPOINT, frozenset({"web"})))
        assert [resource.body for resource in found.resources] == [body]
        assert found.version_info.startswith("1+") and found.version_info.count("+") == 1
