"""The timeline of a node: what its group did, and what it did itself, as one list. Pure.

The steps of the group are its revisions and the waves of its rollouts; they stand once, for all nodes. What only this
node did are the moments that each server keeps (`xds.fleet.node_past`), and its NACK records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from xds.fleet.node_past import MomentKind, NodePast
from xds.fleet.state import NackRecord
from xds.rollouts.line_changes import LineOfNode
from xds.store.base import RevisionInfo

NAMES_SHOWN = 10


class TimelineKind(StrEnum):
    """What an item of a timeline is about."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    SENT = "sent"
    PUSHED = "pushed"
    LINE = "line"
    ACKED = "acked"
    NACKED = "nacked"
    RESOLVED = "resolved"
    MOVED = "moved"
    ORPHANED = "orphaned"


_FIRST = frozenset({TimelineKind.SENT, TimelineKind.PUSHED})  # of what happens at one time


@dataclass(frozen=True, slots=True)
class TimelineItem:
    """One item. Empty texts and None mean that a field does not apply."""

    time: float
    kind: TimelineKind
    group: str = ""
    revision: int | None = None
    type: str = ""
    text: str = ""
    by: str = ""
    previous: str = ""
    line: str = ""
    names: tuple[str, ...] = ()
    nack: int | None = None
    count: int = 0
    late_s: int = 0
    server: str = ""


@dataclass(frozen=True, slots=True)
class GroupPast:
    """What happened to a group, oldest first. ``heads`` are revisions that waves were served.

    ``lines`` are the changes of the node between the lines.
    """

    revisions: Sequence[RevisionInfo] = ()
    heads: Collection[int] = ()
    lines: Sequence[LineOfNode] = ()

    def revision_at(self, time: float) -> int | None:
        """The newest revision at a time; None if it is not known."""
        at = bisect_right(self.revisions, time, key=lambda info: info.meta.time_s)
        return self.revisions[at - 1].revision if at else None

    def is_nothing_new(self, info: RevisionInfo) -> bool:
        """Whether a revision takes a rollout back whose head the node never had: it keeps what it has."""
        served = {change.revision for change in self.lines if change.is_head and change.time_s <= info.meta.time_s}
        if not info.content_of or (info.content_of in self.heads and info.content_of not in served):
            return False
        between = [each for each in self.revisions if info.content_of < each.revision < info.revision]
        heads = [each.revision for each in between if each.revision in self.heads]
        others = [each for each in between if each.revision not in self.heads]
        if not heads or heads[-1] in served or not all(each.endpoints_only for each in others):
            return False
        return info.keeps_endpoints or not others


NO_PAST = GroupPast()


@dataclass(frozen=True, slots=True)
class _Story:
    """What the servers know of a node: when it was in which group, and when it was connected."""

    groups: Sequence[tuple[float, str]]  # since when it was in each, oldest first
    connections: Sequence[tuple[float, float]]

    def group_at(self, time: float) -> str:
        """Its group at a time."""
        at = bisect_right(self.groups, time, key=lambda pair: pair[0])
        return self.groups[max(at - 1, 0)][1]

    def stays(self, group: str) -> Iterator[tuple[float, float]]:
        """From when to when it was in a group."""
        ends = [*(since for since, _ in self.groups[1:]), float("inf")]
        return ((since, end) for (since, name), end in zip(self.groups, ends, strict=True) if name == group)

    def is_connected(self, time: float) -> bool:
        """Whether a server had a stream of it."""
        return any(opened <= time < closed for opened, closed in self.connections)


def groups_of(pasts: Mapping[str, NodePast]) -> list[str]:
    """The groups that a node was in, as far as the servers know: the present one first, then by its last stay."""
    return list(dict.fromkeys(group for _, group in reversed(_story(pasts).groups) if group))


def timeline(
    pasts: Mapping[str, NodePast], nacks: Iterable[NackRecord], groups: Mapping[str, GroupPast]
) -> list[TimelineItem]:
    """The items, newest first. ``pasts`` are by server, at least one; ``groups`` those of `groups_of`."""
    story = _story(pasts)
    began = story.groups[0][0]
    # Of what happens at one time, the later in this list happened the earlier.
    items = [item for record in nacks for item in _of_nack(record, groups.get(record.group, NO_PAST))]
    items += [item for group in groups for item in _of_group(group, groups[group], story) if item.time >= began]
    items += [item for server, past in pasts.items() for item in _of_moments(server, past, story, groups)]
    return sorted(items, key=lambda item: (item.time, item.kind not in _FIRST), reverse=True)


def _story(pasts: Mapping[str, NodePast]) -> _Story:
    began = min(past.known_since for past in pasts.values())
    moves = sorted(
        (moment.time, moment.group, moment.previous)
        for past in pasts.values()
        for moment in past.moments
        if moment.kind in (MomentKind.MOVED, MomentKind.ORPHANED)
    )
    latest = max(pasts.values(), key=lambda past: past.latest)
    first = moves[0][2] if moves else latest.group
    groups = [(began, first), *((time, group) for time, group, _ in moves)]
    connections = [span for past in pasts.values() for span in _connections(past)]
    return _Story(groups, connections)


def _connections(past: NodePast) -> Iterator[tuple[float, float]]:
    """From when to when a server had a stream of the node. A node that only polls, or only reports load, has none."""
    opened: float | None = None
    for moment in past.moments:
        if moment.kind is MomentKind.CONNECTED:
            opened = moment.time
        elif moment.kind is MomentKind.DISCONNECTED:
            # Its beginning may be among the moments that are not kept.
            yield past.known_since if opened is None else opened, moment.time
            opened = None
    if opened is not None:
        yield opened, float("inf")


def _of_moments(server: str, past: NodePast, story: _Story, groups: Mapping[str, GroupPast]) -> Iterator[TimelineItem]:
    for moment in past.moments:
        kind, group = TimelineKind(moment.kind.value), moment.group
        match moment.kind:
            case MomentKind.CONNECTED | MomentKind.DISCONNECTED:
                group = story.group_at(moment.time)
                revision = groups.get(group, NO_PAST).revision_at(moment.time)
                yield TimelineItem(moment.time, kind, group, revision, server=server)
            case MomentKind.ACKED:
                revision, text = moment.revision or None, f"{moment.late_s} s after it was sent"
                yield TimelineItem(
                    moment.time, kind, group, revision, moment.type, text, late_s=moment.late_s, server=server
                )
            case _:
                yield TimelineItem(moment.time, kind, group, previous=moment.previous, server=server)


def _of_group(group: str, past: GroupPast, story: _Story) -> Iterator[TimelineItem]:
    """The revisions and waves of a group while the node was in it."""
    for info in past.revisions:
        at, by = info.meta.time_s, info.meta.actor or info.meta.author
        if story.group_at(at) == group:
            is_new = info.revision not in past.heads and not past.is_nothing_new(info)
            is_sent = is_new and story.is_connected(at)
            kind = TimelineKind.SENT if is_sent else TimelineKind.PUSHED
            yield TimelineItem(at, kind, group, info.revision, text=_text(info), by=by)
    pushed_s = {info.revision: info.meta.time_s for info in past.revisions}
    for change in reversed(past.lines):  # of one time, the later first
        line = "head" if change.is_head else "base"
        for at in _times(change, pushed_s.get(change.revision, 0.0), story.stays(group)):
            yield TimelineItem(at, TimelineKind.LINE, group, change.revision, text=change.text, line=line)


def _times(change: LineOfNode, pushed_s: float, stays: Iterable[tuple[float, float]]) -> Iterator[float]:
    """When a change reached the node: a node that joins the group is served the head of its wave then."""
    if not change.is_head:
        yield from (change.time_s for joined, left in stays if joined <= change.time_s < left)
        return
    begins_s = max(change.time_s, pushed_s)  # a rollout begins with its push
    until_s = max(begins_s, change.until_s) if change.until_s is not None else float("inf")
    for joined, left in stays:
        at = max(begins_s, joined)
        if at <= until_s and at < left:
            yield at


def _text(info: RevisionInfo) -> str:
    """``rollback to 3: the cluster was wrong``."""
    of = f" to {info.content_of}" if info.content_of else ""
    return f"{info.kind}{of}: {info.meta.message}" if info.meta.message else f"{info.kind}{of}"


def _of_nack(record: NackRecord, past: GroupPast) -> Iterator[TimelineItem]:
    names = (record.guilty or (record.names if record.resources == 1 else ()))[:NAMES_SHOWN]
    revision = past.revision_at(record.first)
    yield TimelineItem(
        record.first,
        TimelineKind.NACKED,
        record.group,
        revision,
        record.type,
        record.message,
        names=names,
        nack=record.id,
        count=record.count,
    )
    if record.resolved is not None:
        yield TimelineItem(
            record.resolved, TimelineKind.RESOLVED, record.group, None, record.type, names=names, nack=record.id
        )
