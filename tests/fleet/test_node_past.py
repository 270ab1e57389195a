"""What a node keeps of its past: only what differs from its group, in bounded memory, and at no cost for a push."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.event_log import DEFAULT_KINDS
from xds.fleet.fleet import Fleet
from xds.fleet.node_past import KEPT_MOMENTS, LATE_S, NOTHING, Moment, MomentKind, MomentWriter, NodePast
from xds.model.snapshot import Snapshot
from xds.protocol.events import Acked

MOST_BYTES = 512  # of the past of a node
CONNECTED, DISCONNECTED, ACKED_LATE, MOVED, ORPHANED = MomentKind


def past(fleet: Fleet, node: str = "n1") -> NodePast:
    found = fleet.past(node)
    assert found is not None
    return found


def kinds(fleet: Fleet) -> list[MomentKind]:
    return [moment.kind for moment in past(fleet).moments]


def synced(fleet: Fleet, group: str = "default", now: float = 1000.0) -> Client:
    client = Client(fleet, group=group, now=now)
    client.subscribe("clusters", "*")
    client.ack(response(resource_set("clusters", "1", c="a")))
    return client


def test_a_node_in_step_keeps_nothing_of_pushes(fleet: Fleet) -> None:
    client = synced(fleet)
    for number in range(2, 50):
        client.ack(response(resource_set("clusters", str(number), c=str(number))))
    assert past(fleet) == NodePast("default", 1001.0, (Moment(1001.0, CONNECTED),))
    assert fleet._nodes["n1"].past is NOTHING


def test_connections(fleet: Fleet) -> None:
    first = synced(fleet)
    other = Client(fleet)  # a second stream of the node
    first.close()
    assert kinds(fleet) == [CONNECTED]
    other.close()
    synced(fleet, now=2000.0)
    assert kinds(fleet) == [CONNECTED, DISCONNECTED, CONNECTED]
    assert [moment.time for moment in past(fleet).moments] == [1001.0, other.now, 2001.0]
    assert fleet.past("nobody") is None


def test_a_late_ack(fleet: Fleet) -> None:
    client = synced(fleet)
    late = resource_set("clusters", "2", c="b")
    fleet.published(Snapshot("default", 2, {late.type.type_url: late}))
    sent = response(late)
    client.send(sent)
    client.now += LATE_S - 2
    client.apply_events(Acked(sent.resource_set.type.type_url, sent.nonce, sent))
    assert kinds(fleet) == [CONNECTED], "not late yet"
    client.send(sent)
    client.now += 60
    client.apply_events(Acked(sent.resource_set.type.type_url, sent.nonce, sent))
    assert past(fleet).moments[-1] == Moment(client.now, ACKED_LATE, "default", "", "clusters", 2, 61)


def test_the_first_response_to_a_node_that_waited_long_is_no_late_ack(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("clusters", "*")
    client.now += 3600  # no group matched
    client.ack(response(resource_set("clusters", "1", c="a")))
    assert kinds(fleet) == [CONNECTED]


def test_moves_are_kept_once_for_all_streams(fleet: Fleet) -> None:
    streams = [synced(fleet, "blue"), synced(fleet, "blue")]
    for group in ("green", "", "", "green"):
        for stream in streams:
            stream.follow(group)
    assert [(moment.kind, moment.group, moment.previous) for moment in past(fleet).moments[1:]] == [
        (MOVED, "green", "blue"),
        (ORPHANED, "", "green"),
        (MOVED, "green", "green"),
    ]
    for stream in streams:
        stream.close()
    synced(fleet, "red", 2000.0)
    assert (MOVED, "red", "green") in {(each.kind, each.group, each.previous) for each in past(fleet).moments}
    assert past(fleet).group == "red"


def test_it_takes_at_most_half_a_kilobyte(fleet: Fleet) -> None:
    for number in range(200):
        client = synced(fleet, f"group-{number}", 1000.0 * (number + 1))
        client.follow(f"other-{number}")
        client.close()
    kept = fleet._nodes["n1"].past
    assert sys.getsizeof(kept) <= MOST_BYTES
    found = past(fleet)
    assert found.is_cut and len(found.moments) == KEPT_MOMENTS and found.moments[-1].kind is DISCONNECTED
    assert not past_of_one_connection().is_cut


def past_of_one_connection() -> NodePast:
    fleet = Fleet()
    synced(fleet).close()
    return past(fleet)


def test_a_moment_is_read_as_it_was_written() -> None:
    writer = MomentWriter()
    moments = [
        Moment(1.5, CONNECTED),
        Moment(2.0, ACKED_LATE, "g", "", "clusters", 2**63, 65_535),
        Moment(3.0, MOVED, "\u00fc", "g"),
        Moment(4.0, ORPHANED, "", "\u00fc"),
        Moment(5.0, DISCONNECTED),
    ]
    kept = NOTHING
    for moment in moments:
        kept = writer.added(kept, moment)
    assert writer.read(kept) == moments
    assert writer.read(writer.added(NOTHING, Moment(1.0, ACKED_LATE, late_s=10**9)))[0].late_s == 65_535


def test_names_are_bounded() -> None:
    writer = MomentWriter()
    for number in range((1 << 16) + 10):
        kept = writer.added(NOTHING, Moment(1.0, MOVED, f"g{number}", "g0"))
    assert writer.read(kept) == [Moment(1.0, MOVED, "", "g0")]


@pytest.mark.parametrize("is_watched", [False, True], ids=["nobody looks", "a page is open"])
def test_a_push_costs_no_call_for_it(fleet: Fleet, is_watched: bool) -> None:
    """The functions that are entered for one push and its ACK, by one stream: those of the push alone."""
    client = synced(fleet)
    sent = response(resource_set("clusters", "2", c="b"))
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "/xds/" in frame.f_code.co_filename:
            calls[frame.f_code.co_name] += 1

    with fleet.events.watching(DEFAULT_KINDS if is_watched else ()):
        if is_watched:
            fleet.past("n1")
            fleet.events.call_on_next(lambda: None)
        sys.setprofile(count)
        client.ack(sent)
        sys.setprofile(None)
    applied = {"apply_events": 2, "apply_shared": 2}
    assert calls == {**applied, "_sent": 1, "_acked": 1, "_mark_synced": 1, "__bool__": 1}, calls
