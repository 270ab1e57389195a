"""Node states as folded from events."""

from __future__ import annotations

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.fleet import Fleet
from xds.fleet.node_selection import NodeFilter
from xds.fleet.node_state import NodeState
from xds.fleet.state import Sync, TypeState
from xds.model.resource_type import CLUSTER, V2_URLS
from xds.model.snapshot import Snapshot


def node(fleet: Fleet, node_id: str = "n1") -> NodeState:
    found = fleet.node(node_id)
    assert found is not None
    return found


def type_of(fleet: Fleet, alias: str, node_id: str = "n1") -> TypeState:
    return {state.type: state for state in node(fleet, node_id).types}[alias]


def test_a_node_is_shown_with_identity_stream_and_types(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("clusters", "*")
    client.ack(response(resource_set("clusters", "7", c1="a", c2="b")))

    state = node(fleet)
    assert (state.cluster, state.group, str(state.locality), state.user_agent) == (
        "edge",
        "default",
        "r/z",
        "envoy 1.40.0",
    )
    [stream] = state.streams
    assert (stream.service, stream.variant, stream.peer) == ("ADS", "sotw", "ipv4:127.0.0.1:1")
    clusters = type_of(fleet, "clusters")
    assert (clusters.state, clusters.version_sent, clusters.version_acked) == (Sync.SYNCED, "7", "7")
    assert clusters.wildcard


def test_pending_until_the_ack(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("clusters", "*")
    assert type_of(fleet, "clusters").state is Sync.PENDING
    client.ack(response(resource_set("clusters", "1", c1="a")))
    client.send(response(resource_set("clusters", "2", c1="b")))
    clusters = type_of(fleet, "clusters")
    assert (clusters.state, clusters.version_sent, clusters.version_acked) == (Sync.PENDING, "2", "1")


def test_nacked_says_why_and_ends_with_the_next_ack(fleet: Fleet) -> None:
    client = Client(fleet)
    client.ack(response(resource_set("clusters", "1", c1="a")))
    client.nack(response(resource_set("clusters", "2", c1="bad")), "bad cluster")
    clusters = type_of(fleet, "clusters")
    assert (clusters.state, clusters.error, clusters.version_acked) == (Sync.NACKED, "bad cluster", "1")
    client.ack(response(resource_set("clusters", "3", c1="good")))
    clusters = type_of(fleet, "clusters")
    assert (clusters.state, clusters.error, clusters.version_acked) == (Sync.SYNCED, "", "3")


def test_the_revision_is_the_newest_with_the_acked_content(fleet: Fleet) -> None:
    kept = resource_set("clusters", "1", c1="a")
    changed = resource_set("endpoints", "2", c1="a")
    client = Client(fleet)
    client.ack(response(kept))
    client.ack(response(changed))
    for revision, sets in ((1, [kept]), (2, [kept, changed])):
        fleet.published(Snapshot("default", revision, {each.type.type_url: each for each in sets}))
    assert (type_of(fleet, "clusters").revision, type_of(fleet, "endpoints").revision) == (2, 2)


def test_names_and_missing_names(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("endpoints", "a", "b", "c", missing=("b", "c"))
    assert type_of(fleet, "endpoints").missing == ("b", "c")
    client.ack(response(resource_set("endpoints", "1", a="1")))
    client.ack(response(resource_set("endpoints", "2", a="1", b="1"), names=("b",)))
    endpoints = type_of(fleet, "endpoints")
    assert (endpoints.subscribed, endpoints.names, endpoints.missing) == (3, ("a", "b", "c"), ("c",))
    assert fleet.census(0).missing == {"endpoints": 1}


def test_many_names_are_counted_and_some_are_shown(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("endpoints", *(f"c{number:04}" for number in range(1000)))
    endpoints = type_of(fleet, "endpoints")
    assert (endpoints.subscribed, len(endpoints.names), endpoints.names[0]) == (1000, 100, "c0000")


def test_unsubscribing_everything_is_not_subscribed(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("endpoints", "c1")
    client.ack(response(resource_set("endpoints", "1", c1="a")))
    client.subscribe("endpoints")
    assert type_of(fleet, "endpoints").state is Sync.NOT_SUBSCRIBED


def test_a_node_that_lost_its_group_is_orphaned(fleet: Fleet) -> None:
    client = Client(fleet)
    client.ack(response(resource_set("clusters", "1", c1="a")))
    client.follow("")
    assert type_of(fleet, "clusters").state is Sync.ORPHANED
    client.follow("other")
    assert (type_of(fleet, "clusters").state, node(fleet).group) == (Sync.SYNCED, "other")


def test_split_streams_are_merged_and_the_worst_state_wins(fleet: Fleet) -> None:
    one, other = Client(fleet), Client(fleet)
    endpoints = resource_set("endpoints", "1", c1="a", c2="b")
    one.subscribe("endpoints", "c1")
    other.subscribe("endpoints", "c2")
    one.ack(response(endpoints, names=("c1",)))
    other.send(response(endpoints, names=("c2",)))
    assert type_of(fleet, "endpoints").state is Sync.PENDING
    other.nack(response(endpoints, names=("c2",)))
    assert type_of(fleet, "endpoints").state is Sync.NACKED
    assert type_of(fleet, "endpoints").names == ("c1", "c2")
    other.close()
    assert type_of(fleet, "endpoints").state is Sync.SYNCED


def test_a_node_that_left_is_kept_with_its_state(fleet: Fleet) -> None:
    client = Client(fleet)
    client.ack(response(resource_set("clusters", "1", c1="a")))
    client.close()
    state = node(fleet)
    assert not state.connected
    assert [each.version_acked for each in state.types] == ["1"]
    assert fleet.connected() == frozenset()


def test_nodes_that_left_are_bounded_in_number_and_time() -> None:
    fleet = Fleet(disconnected_kept_s=60, disconnected_limit=2)
    for number in range(4):
        Client(fleet, f"n{number}").close()
    assert fleet.ids_after() == ["n2", "n3"]
    fleet.stream_opened(999, "peer", "ADS", "sotw", 5000.0)
    assert not fleet.ids_after()


def test_events_of_an_unknown_stream_are_dropped(fleet: Fleet) -> None:
    client = Client(fleet)
    client.close()
    client.ack(response(resource_set("clusters", "1", c1="a")))
    assert not node(fleet).types


def test_heartbeats_change_nothing(fleet: Fleet) -> None:
    client = Client(fleet)
    served = resource_set("endpoints", "1", c1="a")
    client.ack(response(served))
    beat = response(served)
    object.__setattr__(beat, "heartbeat", True)
    client.send(beat)
    assert type_of(fleet, "endpoints").state is Sync.SYNCED


def test_nodes_are_counted_by_group(fleet: Fleet) -> None:
    Client(fleet, "a", "edge")
    Client(fleet, "b", "edge")
    Client(fleet, "c", "")
    assert fleet.nodes_by_group() == {"edge": 2, "": 1}
    assert [node.id for node in fleet.listed(fleet.ids_after(), NodeFilter(group="edge"), 1.0)] == ["a", "b"]


def test_a_type_is_the_same_in_whichever_api_it_is_asked_for(fleet: Fleet) -> None:
    old = V2_URLS[CLUSTER]
    client = Client(fleet, api="v2")
    client.subscribe(old, "*")
    client.ack(response(resource_set(old, "1", c1="a")))
    state = type_of(fleet, "clusters")
    assert (state.type_url, state.state, state.version_acked) == (old, Sync.SYNCED, "1")
    assert node(fleet).streams[0].api == "v2"

    today = Client(fleet)
    today.ack(response(resource_set("clusters", "1", c1="a")))
    assert [state.type for state in node(fleet).types] == ["clusters"]
    client.nack(response(resource_set(old, "2", c1="bad")), "no")
    assert type_of(fleet, "clusters").state is Sync.NACKED
    assert fleet.census(0).nacked == {("clusters", "default"): 1}
    assert fleet.apis("default") == {"", "v2"}


def test_nacks_are_found_by_alias_whichever_api_the_client_speaks(fleet: Fleet) -> None:
    for url in (CLUSTER, V2_URLS[CLUSTER]):
        Client(fleet, url).nack(response(resource_set(url, "1", c1="bad")))
    assert {record.node for record in fleet.nack_log.select(type="clusters")} == {CLUSTER, V2_URLS[CLUSTER]}
    for url in (CLUSTER, V2_URLS[CLUSTER]):
        assert [record.node for record in fleet.nack_log.select(type=url)] == [url]
    assert not list(fleet.nack_log.select(type="endpoints"))
