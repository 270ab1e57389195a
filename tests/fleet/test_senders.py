"""Who could send to a cluster, and who of them reports."""

from __future__ import annotations

from tests.steering.assigned import connect
from xds.fleet.fleet import Fleet
from xds.fleet.senders import Reporting
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.protocol.events import Identified, Subscribed

HERE, THERE = Locality("r", "a"), Locality("r", "b")
NOW, SETTLED_S = 100.0, 20.0


def follow(fleet: Fleet, stream: int, locality: Locality, url: str, *names: str, at: float = 0.0) -> str:
    """A node of one stream that follows all clusters, or those of these names."""
    node = f"n{stream}"
    fleet.stream_opened(stream, "peer", "ADS", "delta", at)
    subscribed = Subscribed(url, not names, frozenset(names), ())
    fleet.apply_events(stream, [Identified(Node(node, "edge", locality), "edge"), subscribed], at)
    return node


def test_nodes_are_counted_by_what_they_follow_and_whether_they_report() -> None:
    fleet = Fleet()
    old = follow(fleet, 1, HERE, CLUSTER)
    young = follow(fleet, 2, HERE, CLUSTER)
    follow(fleet, 3, HERE, CLUSTER)
    follow(fleet, 4, HERE, CLUSTER, at=NOW - 1)  # it may open its load stream yet
    follow(fleet, 5, THERE, CLUSTER, "web")
    follow(fleet, 6, THERE, CLUSTER, "other")
    follow(fleet, 7, THERE, ENDPOINT, "web-endpoints")
    senders = fleet.senders("edge", {old: 10.0, young: NOW - 5}, {}, NOW, SETTLED_S)
    assert senders.of("web", "web-endpoints") == {HERE: Reporting(2, 1, settled=1), THERE: Reporting(0, 2)}
    assert senders.of("none", "none")[THERE] == Reporting()


def test_nodes_with_a_load_stream_alone_are_apart() -> None:
    fleet = Fleet()
    for name, opened in (("n1", 10.0), ("n2", NOW - 1)):
        fleet.reporter_opened(Node(name, "edge", HERE), "edge", opened)
    both = follow(fleet, 3, HERE, CLUSTER)
    fleet.reporter_opened(Node(both, "edge", HERE), "edge", 10.0)
    senders = fleet.senders("edge", {"n1": 10.0, "n2": NOW - 1, both: 10.0}, {}, NOW, SETTLED_S)
    assert senders.apart == {HERE: Reporting(2, settled=1)}
    assert senders.of("web", "web") == {HERE: Reporting(1, settled=1)}


def test_a_node_between_two_load_streams_is_not_silent() -> None:
    """What it reported is still counted: it would be counted twice."""
    fleet = Fleet()
    steady, away = follow(fleet, 1, HERE, CLUSTER), follow(fleet, 2, HERE, CLUSTER)
    for ended, silent in ((NOW - 2.0, 0), (NOW - SETTLED_S, 1)):
        senders = fleet.senders("edge", {steady: 10.0}, {away: ended}, NOW, SETTLED_S)
        assert senders.of("web", "web") == {HERE: Reporting(1, silent, settled=1)}


def test_nodes_that_follow_nothing_are_there_and_send_nothing() -> None:
    fleet = Fleet()
    connect(fleet, HERE, "edge")
    assert fleet.senders("edge", {}, {}, NOW, SETTLED_S).of("web", "web") == {HERE: Reporting()}
    assert fleet.senders("other", {}, {}, NOW, SETTLED_S).of("web", "web") == {}
