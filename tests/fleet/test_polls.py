"""Nodes that poll: how long they are taken for present, what is shown of them, and that they are bounded."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.fleet import Fleet
from xds.fleet.node_state import NodeState
from xds.fleet.polls import MISSED_POLLS, SHORTEST_INTERVAL_S, Poll
from xds.fleet.state import Sync, TypeState
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.sotw import Fetched
from xds.snapshots.interest import Interest

NODE = Node("n1", "edge", metadata={"role": "x" * 100_000})


def poll(
    fleet: Fleet, now: float, held: str = "", content: ResourceSet | None = None, node: Node = NODE, group: str = "edge"
) -> None:
    """One poll of ``content``, all of it; by default of clusters in version 1."""
    content = content if content is not None else resource_set("clusters", "1", c1="a")
    type_url = content.type.type_url
    fetched = Fetched(type_url, content.version_info, (), held != content.version_info, content, Interest(True))
    fleet.polled(node, group, Poll(type_url, held, fetched if group else None), now)


def poll_at(fleet: Fleet, times: Iterable[float], alias: str = "clusters") -> float:
    """Poll at these times; the last of them."""
    now = 0.0
    for now in times:
        poll(fleet, now, content=resource_set(alias, "1", c1="a"))
    return now


def known(fleet: Fleet, node_id: str = "n1") -> NodeState:
    found = fleet.node(node_id)
    assert found is not None
    return found


def type_of(fleet: Fleet, alias: str = "clusters") -> TypeState:
    return {state.type: state for state in known(fleet).types}[alias]


def goes_after(fleet: Fleet, last: float) -> float:
    """How long after its last poll the node is gone, to a tenth of a second."""
    node = known(fleet)
    return next(tenth / 10 for tenth in range(1, 100_000) if not node.is_present(last + tenth / 10))


# Gone


@pytest.mark.parametrize(
    ("times", "interval_s"),
    [
        ((0,), SHORTEST_INTERVAL_S),
        ((0, 1, 2, 3), SHORTEST_INTERVAL_S),
        ((0, 30), 30),
        ((0, 600), 600),
        ((0, 30, 60, 90), 30),
        ((0, 30, 75, 110), 45),  # jitter: the longest
        ((0, 30, 30.1, 60, 60.1), 30),  # several subscriptions of one type, each with its own poller
        ((0, 0.1, 0.2, 30, 30.1, 60, 60.1), 30),
        ((0, 60, *range(61, 300)), SHORTEST_INTERVAL_S),  # polls more often now
        ((0, 1, 2, 1800), 3 * SHORTEST_INTERVAL_S),  # it was away
        ((0, 1, 2, 1800, *range(1801, 1860)), SHORTEST_INTERVAL_S),
        ((0, 1, *range(60, 600, 60)), 60),  # polls less often now
    ],
)
def test_a_client_is_gone_after_three_missed_polls(fleet: Fleet, times: tuple[float, ...], interval_s: float) -> None:
    last = poll_at(fleet, times)
    assert goes_after(fleet, last) == pytest.approx(MISSED_POLLS * interval_s, abs=0.5)


def test_a_client_is_there_while_it_polls_any_type(fleet: Fleet) -> None:
    poll_at(fleet, (0, 30), "endpoints")
    last = poll_at(fleet, range(0, 100), "clusters")
    assert goes_after(fleet, last) == pytest.approx(90, abs=0.11)
    last = poll_at(fleet, range(100, 130), "clusters")
    assert [state.type for state in known(fleet).types] == ["clusters"], "endpoints are no longer polled"
    assert goes_after(fleet, last) == pytest.approx(15, abs=0.11)


def test_a_node_that_went_shows_its_last_state_and_is_forgotten_in_time() -> None:
    fleet = Fleet(disconnected_kept_s=60)
    poll_at(fleet, (0, 1, 2))
    assert not known(fleet).is_present(50) and type_of(fleet).version_sent == "1"
    poll(fleet, 70, node=Node("n2"))
    assert fleet.ids_after() == ["n2"]


# What is shown


def test_a_poll_shows_the_version_and_whether_the_client_has_it(fleet: Fleet) -> None:
    first, second = resource_set("clusters", "1", c1="a"), resource_set("clusters", "2", c1="b")
    fleet.published(Snapshot("edge", 8, {CLUSTER: second}))
    poll(fleet, 1, content=first)
    assert (type_of(fleet).state, type_of(fleet).version_sent, type_of(fleet).version_acked) == (Sync.PENDING, "1", "")
    poll(fleet, 2, held="1", content=first)
    assert (type_of(fleet).state, type_of(fleet).version_acked, type_of(fleet).since) == (Sync.SYNCED, "1", 2)
    poll(fleet, 3, held="1", content=second)
    assert (type_of(fleet).state, type_of(fleet).version_sent, type_of(fleet).version_acked) == (Sync.PENDING, "2", "1")
    poll(fleet, 4, held="2", content=second)
    poll(fleet, 5, held="2", content=second)
    assert (type_of(fleet).state, type_of(fleet).revision, type_of(fleet).since) == (Sync.SYNCED, 8, 4)
    assert (known(fleet).group, known(fleet).cluster, known(fleet).last_seen) == ("edge", "edge", 5)
    assert not fleet.connected() and not fleet.nodes_by_group(), "no push waits for it"


def test_after_a_restart_a_client_that_has_the_current_version_is_in_sync_at_once(fleet: Fleet) -> None:
    poll(fleet, 1, held="1")
    assert (type_of(fleet).state, type_of(fleet).version_acked) == (Sync.SYNCED, "1")


def test_a_client_without_a_group_is_orphaned(fleet: Fleet) -> None:
    poll(fleet, 1, group="")
    assert (known(fleet).group, type_of(fleet).state) == ("", Sync.ORPHANED)
    poll(fleet, 2)
    assert (known(fleet).group, type_of(fleet).state) == ("edge", Sync.PENDING)


# Beside and after streams


def test_a_client_that_takes_one_type_by_polls_shows_it_beside_its_streams(fleet: Fleet) -> None:
    client = Client(fleet, group="edge")
    client.subscribe("clusters", "*")
    poll(fleet, client.now, content=resource_set("endpoints", "1", c1="a"))
    state = known(fleet)
    assert state.connected and state.polls is not None and [each.type for each in state.polls.types] == ["endpoints"]
    assert [each.type for each in state.types] == ["clusters"]
    client.close()
    assert [each.type for each in known(fleet).types] == ["clusters", "endpoints"]


def test_a_node_moves_from_streams_to_polls_and_back(fleet: Fleet) -> None:
    """A poll that names the current version resolves the NACK of a stream, as an ACK does."""
    client = Client(fleet, group="edge")
    client.subscribe("clusters", "*")
    client.subscribe("listeners", "*")
    client.nack(response(resource_set("clusters", "1", c1="bad")))
    client.close()
    now, repaired = client.now, resource_set("clusters", "2", c1="good")
    poll(fleet, now + 1, content=repaired)
    assert [record.state for record in fleet.nack_log.select()] == ["open"]
    assert [each.type for each in known(fleet).types] == ["clusters"], "what it polls, not what its streams had"
    poll(fleet, now + 2, held="2", content=repaired)
    assert [record.state for record in fleet.nack_log.select()] == ["resolved"]
    again = Client(fleet, group="edge")
    again.subscribe("clusters", "*")
    again.ack(response(repaired))
    state = known(fleet)
    assert state.connected and state.polls is None and state.first_seen == 1001
    again.close()
    assert not known(fleet).is_present(again.now)
    poll(fleet, again.now + 1, content=repaired)
    assert known(fleet).is_present(again.now + 1)


def test_a_poll_of_refused_content_resolves_nothing(fleet: Fleet) -> None:
    client = Client(fleet, group="edge")
    client.subscribe("clusters", "*")
    bad = resource_set("clusters", "1", c1="bad")
    client.nack(response(bad))
    client.close()
    poll(fleet, client.now, content=bad)
    poll(fleet, client.now + 1, held="0", content=bad)
    assert [record.state for record in fleet.nack_log.select()] == ["open"]
    other = Client(fleet, group="edge")  # a stream decides while there is one
    other.subscribe("clusters", "*")
    poll(fleet, other.now, held="2", content=resource_set("clusters", "2", c1="good"))
    assert [record.state for record in fleet.nack_log.select()] == ["open"]


def test_a_node_that_polls_and_reports_load_is_connected_until_both_end(fleet: Fleet) -> None:
    fleet.reporter_opened(NODE, "edge", 0)
    poll_at(fleet, (0, 1, 2))
    assert known(fleet).connected and type_of(fleet).state is Sync.PENDING
    fleet.reporter_closed("n1", 3)
    assert not known(fleet).connected and known(fleet).is_present(3) and not known(fleet).is_present(50)


# Without ADS


def test_nodes_that_take_clusters_or_listeners_without_ads(fleet: Fleet) -> None:
    """Those that show it, and do so now: not a node on ADS, one that has gone, or one that takes endpoints alone."""
    Client(fleet, "ads", "edge").subscribe("clusters", "*")
    for node, service in (("split", "CDS"), ("endpoints", "EDS"), ("silent", "CDS")):
        client = Client(fleet, node, "edge")
        [stream] = [each for each in fleet._streams.values() if each.id == client.id]
        stream.service = service
        if node != "silent":
            client.subscribe("clusters" if service == "CDS" else "endpoints", "*")
    poll(fleet, 0, node=Node("went"))
    poll(fleet, 1000, node=Node("polls"))
    poll(fleet, 1000, node=Node("ads"), content=resource_set("listeners", "1", l="a"))
    poll(fleet, 1000, node=Node("elsewhere"), group="other")
    assert fleet.without_ads("edge", 1001) == ["split", "polls"]


# Bounds


def test_polls_under_many_ids_evict_each_other_alone() -> None:
    """Not nodes with streams, nor those that were connected, whose NACKs are resolved when they are forgotten."""
    fleet = Fleet(disconnected_limit=3)
    Client(fleet, "streams")
    left = Client(fleet, "left")
    left.nack(response(resource_set("clusters", "1", c1="bad")))
    left.close()
    for number in range(100):
        poll(fleet, left.now, node=Node(f"n{number}"))
    assert fleet.ids_after() == ["left", "n97", "n98", "n99", "streams"]
    assert [record.state for record in fleet.nack_log.select()] == ["open"]
    poll(fleet, left.now, node=Node("n97"))
    poll(fleet, left.now, node=Node("n100"))
    assert fleet.node("n97") is not None and fleet.node("n98") is None, "the one that polled least recently"


def test_nothing_is_kept_of_a_poll_whose_size_the_client_chooses(fleet: Fleet) -> None:
    long = "x" * 100_000
    node = Node("n1", long, Locality(long, long, long), {"a": long}, long, frozenset({long}), long, long)
    poll(fleet, 1, held=long, node=node)
    poll(fleet, 2, held=long, node=node)
    assert len(repr(fleet.identity("n1"))) + len(repr(known(fleet))) < 5_000
    fleet.reporter_opened(Node("n4", long), "edge", 3)
    fleet.reporter_closed("n4", 4)
    assert len(repr(fleet.identity("n4"))) < 5_000, "as of a stream that ended"
