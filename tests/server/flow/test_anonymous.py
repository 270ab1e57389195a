"""Which anonymous connections are closed when there are too many, or for too long."""

from __future__ import annotations

from collections import Counter

import pytest

from xds.server.flow.anonymous import AnonymousConnections, AnonymousLimits, source_of

LIMITS = AnonymousLimits(seconds=10, per_source=3, total=6, grace_s=2, patience_s=1)


class Peer:
    """A connection that is read since ``read_since``."""

    def __init__(self, source: str = "a", read_since: float | None = 0.0) -> None:
        self.source = source
        self.read_since = read_since
        self.is_going_away = False
        self.is_closed = False

    def go_away(self) -> None:
        assert not self.is_going_away
        self.is_going_away = True

    def abort(self) -> None:
        self.is_closed = True


def added(
    peers: list[Peer], now: float = 5.0, limits: AnonymousLimits = LIMITS
) -> tuple[AnonymousConnections, Counter[str]]:
    hits: Counter[str] = Counter()
    connections = AnonymousConnections(limits, hits)
    for peer in peers:
        connections.add(peer, now)
    return connections, hits


def closed(peers: list[Peer]) -> list[int]:
    return [number for number, peer in enumerate(peers) if peer.is_closed]


def test_the_oldest_of_a_source_makes_room() -> None:
    peers = [Peer("b"), *(Peer("a") for _ in range(5))]
    connections, hits = added(peers)
    assert (closed(peers), hits["anonymous_connections"], len(connections)) == ([1, 2], 2, 4)


def test_one_that_had_no_time_yet_is_not_closed() -> None:
    """A fleet that connects at once: it waits to be read, or has just begun to be."""
    peers = [Peer(read_since=None), *(Peer(read_since=4.5) for _ in range(4))]
    assert (added(peers)[1].total(), closed(peers)) == (0, [])


def test_beyond_the_total_the_newest_connection_of_the_largest_source_is_closed() -> None:
    peers = [*(Peer("a", None) for _ in range(5)), Peer("b", None), Peer("c", None)]
    connections, _ = added(peers)
    assert (closed(peers), len(connections)) == ([4], 6)


def test_time_ends_it_gracefully_and_then_by_force() -> None:
    peers = [Peer(read_since=0.0), Peer(read_since=3.0), Peer(read_since=None)]
    connections, hits = added(peers)
    for now in (9.9, 10.0, 11.0):
        connections.expire(now)
    assert [peer.is_going_away for peer in peers] == [True, False, False]
    connections.expire(12.0)
    assert (closed(peers), hits, len(connections)) == ([0], {"anonymous_seconds": 1}, 2)
    connections.close()
    assert closed(peers) == [0, 1, 2]


def test_one_that_has_shown_a_credential_is_left_alone() -> None:
    peers = [Peer() for _ in range(3)]
    connections, hits = added(peers)
    for _ in range(2):
        connections.remove(peers[0])
    connections.add(Peer(), 5.0)
    connections.expire(100.0)
    assert (closed(peers), hits.total()) == ([1, 2], 3)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (("10.0.0.1", 4711), "10.0.0.1"),
        (("::ffff:10.0.0.1", 4711, 0, 0), "10.0.0.1"),
        (("2001:db8:0:1:2::3", 4711, 0, 0), "20010db800000001"),
        (("2001:db8:0:1:ffff::", 4711, 0, 0), "20010db800000001"),
        (("fe80::1%eth0", 4711, 0, 2), "fe80000000000000"),
        ("/run/xds.sock", ""),
        (None, ""),
    ],
)
def test_the_source_of_an_address(address: object, source: str) -> None:
    assert source_of(address) == source
