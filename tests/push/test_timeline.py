"""The timeline of a node, from what servers have seen of it and the history of its groups."""

from __future__ import annotations

from dataclasses import replace

from xds.fleet.node_past import Moment, MomentKind, NodePast
from xds.fleet.state import NackRecord, NackState
from xds.push.timeline import GroupPast, TimelineItem, groups_of, timeline
from xds.rollouts.line_changes import LineOfNode
from xds.store.base import Meta, RevisionInfo

CONNECTED, DISCONNECTED, ACKED, MOVED, ORPHANED = MomentKind


def pushed(
    revision: int, time: float, group: str = "edge", message: str = "", kind: str = "push", content_of: int = 0
) -> RevisionInfo:
    return RevisionInfo(group, revision, Meta("me", message, time), {}, 1, kind=kind, content_of=content_of)


def told(items: list[TimelineItem]) -> list[tuple[float, str, str, int | None]]:
    """Oldest first: time, kind, group and revision."""
    return [(item.time, item.kind.value, item.group, item.revision) for item in reversed(items)]


HISTORY = GroupPast([pushed(1, 10.0), pushed(2, 110.0, message="why"), pushed(3, 130.0), pushed(4, 150.0)])


def test_a_push_while_it_is_connected_was_sent() -> None:
    past = NodePast("edge", 100.0, (Moment(100.0, CONNECTED), Moment(120.0, DISCONNECTED), Moment(140.0, CONNECTED)))
    items = timeline({"": past}, (), {"edge": HISTORY})
    assert told(items) == [
        (100.0, "connected", "edge", 1),
        (110.0, "sent", "edge", 2),
        (120.0, "disconnected", "edge", 2),
        (130.0, "pushed", "edge", 3),
        (140.0, "connected", "edge", 3),
        (150.0, "sent", "edge", 4),
    ]
    assert (items[-2].text, items[-2].by) == ("push: why", "me")


def test_a_node_that_only_polls_is_sent_no_push() -> None:
    """It has moments, such as a move, and no stream."""
    past = NodePast("edge", 100.0, (Moment(105.0, MOVED, "edge", "blue"),))
    kinds = {kind for _, kind, _, _ in told(timeline({"": past}, (), {"edge": HISTORY}))}
    assert kinds == {"moved", "pushed"}


def test_a_connection_whose_beginning_is_no_longer_kept() -> None:
    past = NodePast("edge", 50.0, (Moment(105.0, MOVED, "edge", "blue"), Moment(120.0, DISCONNECTED)), is_cut=True)
    items = told(timeline({"": past}, (), {"edge": HISTORY}))
    assert (110.0, "sent", "edge", 2) in items
    assert (130.0, "pushed", "edge", 3) in items


def test_groups_by_the_time_in_which_it_was_there() -> None:
    past = NodePast(
        "blue", 100.0, (Moment(100.0, CONNECTED), Moment(120.0, ORPHANED, "", "edge"), Moment(140.0, MOVED, "blue"))
    )
    blue = GroupPast([pushed(7, 105.0, "blue"), pushed(8, 145.0, "blue", kind="rollback", content_of=6)])
    assert groups_of({"": past}) == ["blue", "edge"]
    items = timeline({"": past}, (), {"edge": HISTORY, "blue": blue})
    assert told(items) == [
        (100.0, "connected", "edge", 1),
        (110.0, "sent", "edge", 2),
        (120.0, "orphaned", "", None),
        (140.0, "moved", "blue", None),
        (145.0, "sent", "blue", 8),
    ]
    assert items[0].text == "rollback to 6"


def test_several_servers_are_merged_by_time() -> None:
    a = NodePast("edge", 100.0, (Moment(100.0, CONNECTED), Moment(120.0, DISCONNECTED)))
    b = NodePast("edge", 121.0, (Moment(121.0, CONNECTED), Moment(160.0, ACKED, "edge", "", "clusters", 4, 10)))
    items = timeline({"a": a, "b": b}, (), {"edge": HISTORY})
    assert [(item.time, item.kind.value, item.server) for item in items] == [
        (160.0, "acked", "b"),
        (150.0, "sent", ""),
        (130.0, "sent", ""),
        (121.0, "connected", "b"),
        (120.0, "disconnected", "a"),
        (110.0, "sent", ""),
        (100.0, "connected", "a"),
    ]
    assert (items[0].revision, items[0].text, items[0].late_s) == (4, "10 s after it was sent", 10)


def test_what_only_a_wave_was_served() -> None:
    past = NodePast("edge", 100.0, (Moment(100.0, CONNECTED),))
    lines = [LineOfNode(135.0, True, 3, "wave 2 of 3"), LineOfNode(149.0, False, 2, "edge-1 rejected it")]
    items = timeline({"": past}, (), {"edge": GroupPast(HISTORY.revisions, {3}, lines)})
    assert told(items)[2:5] == [
        (130.0, "pushed", "edge", 3),
        (135.0, "line", "edge", 3),
        (149.0, "line", "edge", 2),
    ]
    assert [(item.line, item.text) for item in items if item.line] == [
        ("base", "edge-1 rejected it"),
        ("head", "wave 2 of 3"),
    ]


def test_the_wave_of_a_rollout_that_supersedes_another_one_comes_after_its_end() -> None:
    """Both are one step, and so at one time."""
    past = NodePast("edge", 100.0, (Moment(100.0, CONNECTED),))
    first = [LineOfNode(131.0, True, 3, "wave 1 of 2", 150.5), LineOfNode(150.5, False, 2, "superseded")]
    lines = [*first, LineOfNode(150.5, True, 4, "wave 1 of 2")]
    items = timeline({"": past}, (), {"edge": GroupPast(HISTORY.revisions, {3, 4}, lines)})
    assert [(item.line, item.revision) for item in items if item.line] == [("head", 4), ("base", 2), ("head", 3)]


def test_a_roll_back_sends_nothing_to_a_node_that_never_had_the_head() -> None:
    past = {"": NodePast("edge", 100.0, (Moment(100.0, CONNECTED),))}
    endpoints = replace(pushed(4, 140.0), endpoints_only=True)
    back = replace(pushed(5, 150.0, kind="rollback", content_of=2), keeps_endpoints=True)
    revisions = [*HISTORY.revisions[:3], endpoints, back]
    in_wave = [LineOfNode(131.0, True, 3, "wave 1 of 2", 149.9), LineOfNode(149.9, False, 2, "edge-1 rejected it")]

    def last(group: GroupPast) -> TimelineItem:
        return timeline(past, (), {"edge": group})[0]

    assert (last(GroupPast(revisions, {3})).kind, last(GroupPast(revisions, {3})).revision) == ("pushed", 5)
    assert last(GroupPast(revisions, {3}, in_wave)).kind == "sent"
    assert last(GroupPast(revisions)).kind == "sent"  # revision 3 was for all
    with_endpoints = [*revisions[:-1], replace(back, keeps_endpoints=False)]
    assert last(GroupPast(with_endpoints, {3})).kind == "sent"
    superseded = [*HISTORY.revisions[:3], pushed(4, 140.0), replace(back, content_of=3)]
    assert last(GroupPast(superseded, {3, 4})).kind == "sent"  # it takes back 4, but 3 was not served before


def test_a_node_that_joins_a_group_amid_a_rollout_is_served_its_line_then() -> None:
    moments = (Moment(100.0, CONNECTED), Moment(136.0, MOVED, "edge", "blue"))
    open_still = GroupPast(HISTORY.revisions, {3}, [LineOfNode(135.0, True, 3, "wave 1 of 2")])
    past = {"": NodePast("edge", 100.0, moments)}
    assert (136.0, "line", "edge", 3) in told(timeline(past, (), {"edge": open_still}))
    ended = GroupPast(HISTORY.revisions, {3}, [LineOfNode(131.0, True, 3, "wave 1 of 2", 135.5)])
    assert "line" not in {kind for _, kind, _, _ in told(timeline(past, (), {"edge": ended}))}
    new = {"": NodePast("edge", 140.0, (Moment(140.0, CONNECTED),))}
    assert told(timeline(new, (), {"edge": open_still}))[:2] == [
        (140.0, "connected", "edge", 3),
        (140.0, "line", "edge", 3),
    ]


def test_a_nack_and_its_end() -> None:
    past = NodePast("edge", 100.0, (Moment(100.0, CONNECTED),))
    about = ("edge-1", "edge", "clusters", "", "2", "n", 13, "no such port")
    record = NackRecord(7, *about, 111.0, 112.0, ("a", "b"), 2, 3, NackState.RESOLVED, 131.0, ("b",))
    items = timeline({"": past}, [record], {"edge": HISTORY})
    assert told(items)[2:5] == [
        (111.0, "nacked", "edge", 2),
        (130.0, "sent", "edge", 3),
        (131.0, "resolved", "edge", None),
    ]
    (nacked,) = (item for item in items if item.kind == "nacked")
    assert (nacked.text, nacked.names, nacked.nack, nacked.count, nacked.type) == (
        "no such port",
        ("b",),
        7,
        3,
        "clusters",
    )


def test_nothing_is_told_of_the_time_before_the_moments_that_are_kept() -> None:
    past = NodePast("edge", 5.0, (Moment(120.0, DISCONNECTED), Moment(140.0, CONNECTED)), is_cut=True)
    assert told(timeline({"": past}, (), {"edge": HISTORY})) == [
        (120.0, "disconnected", "edge", 2),
        (130.0, "pushed", "edge", 3),
        (140.0, "connected", "edge", 3),
        (150.0, "sent", "edge", 4),
    ]


def test_a_node_that_only_polls() -> None:
    assert told(timeline({"": NodePast("edge", 120.0)}, (), {"edge": HISTORY})) == [
        (130.0, "pushed", "edge", 3),
        (150.0, "pushed", "edge", 4),
    ]
    assert timeline({"": NodePast("", 120.0)}, (), {}) == []
