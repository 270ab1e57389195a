"""The lines of a group. While a careful rollout runs, some of its nodes are served the head, and the others the base.

A node is on one line: a function of the rollout and the node, so that it is the same after a restart and on each
server. The lines have removal logs of their own, because their nodes may have different content. For a removal log a
change of line is a push at the time of the change: what the nodes had and the line lacks was removed then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from xds.model.node import Node
from xds.model.snapshot import Snapshot
from xds.snapshots.overlay import OverlaidSets
from xds.snapshots.removal_log import RemovalLog


class GroupLine(Enum):
    """What a node is served, and what it may have had.

    * ``HEAD``: the newest revision;
    * ``LEFT_HEAD``: the base, after the head of an earlier wave or of a rollout that was superseded;
    * ``BASE``: the base. After a roll-back it is what all have, and these nodes never had what was taken back.
    """

    HEAD = "head"
    LEFT_HEAD = "left_head"
    BASE = "base"

    __hash__ = object.__hash__  # that of `Enum` is ten times as slow, and a push looks up a view for each stream


@dataclass(frozen=True, slots=True)
class GroupSplit:
    """A rollout, as far as the cache has to know it. All functions are pure, and the caller does not change them.

    * ``base``: what nodes outside of the wave are served; the same object while it does not change. None after a
      roll-back: all are served the head;
    * ``in_wave``: whether a node is served the head;
    * ``had_head``: whether a node was in a wave, of this rollout or of one before that its connections may remember;
    * ``is_hidden``: whether a revision was served only to nodes in waves, none of which was the last one. Asked for
      revisions that are read from the store;
    * ``step``: another value whenever nodes change lines;
    * ``since_s``: when they did last, on the clock of the streams.
    """

    base: Snapshot | None
    in_wave: Callable[[Node], bool]
    had_head: Callable[[Node], bool]
    is_hidden: Callable[[int], bool]
    step: Hashable
    since_s: float

    def line(self, node: Node) -> GroupLine:
        """The line of a node."""
        if self.base is None:
            return GroupLine.HEAD if self.had_head(node) else GroupLine.BASE
        if self.in_wave(node):
            return GroupLine.HEAD
        return GroupLine.LEFT_HEAD if self.had_head(node) else GroupLine.BASE


@dataclass(slots=True)
class Content:
    """What is served to some lines. ``snapshot`` is ``pushed`` with the observed assignments."""

    pushed: Snapshot
    snapshot: Snapshot
    overlaid: OverlaidSets = field(default_factory=OverlaidSets)


Logs = dict[str, RemovalLog]  # by API version; there is always one for none


class Lines:
    """The contents and removal logs of one group. ``base`` is None while all nodes are served the head.

    ``log`` is its removal log, in which ``head`` is not noted yet. ``translate`` makes a snapshot of an API version.
    """

    __slots__ = ("_logs", "_translate", "base", "head", "split")

    def __init__(self, head: Content, log: RemovalLog, translate: Callable[[Snapshot, str], Snapshot]) -> None:
        self.head = head
        self.base: Content | None = None
        self.split: GroupSplit | None = None
        self._translate = translate
        self._logs: dict[GroupLine, Logs] = {GroupLine.HEAD: {"": log}}

    def line(self, node: Node | None) -> GroupLine:
        """The line of a node. What has no node is on the line of those that no wave has reached."""
        if self.split is None:
            return GroupLine.HEAD
        return self.split.line(node) if node is not None else GroupLine.BASE

    def content(self, line: GroupLine) -> Content:
        """What the nodes of a line are served."""
        return self.head if line is GroupLine.HEAD or self.base is None else self.base

    def contents(self) -> tuple[Content, ...]:
        """All that is served."""
        return (self.head,) if self.base is None else (self.head, self.base)

    def logs(self, line: GroupLine) -> Logs:
        """The removal logs of a line."""
        return self._logs[line]

    def all_logs(self) -> Iterator[RemovalLog]:
        """The removal logs of all lines."""
        for logs in self._logs.values():
            yield from logs.values()

    def change(self, split: GroupSplit | None, now_s: float, *, is_push: bool) -> bool:
        """Follow another rollout, or another step of it. Returns whether nodes may have changed lines.

        ``head`` and ``base`` are still those before; the caller notes the next ones (`note_pushes`). Without a push a
        wave only grows, so no node goes back.
        """
        before, self.split = self.split, split
        if (before.step if before is not None else None) == (split.step if split is not None else None):
            return False
        if self.base is not None:
            # Some nodes that have the base may be served the head now.
            self._note(self._logs[GroupLine.HEAD], self._noted(self.base), now_s, is_of_others=True)
        if split is None:
            self._logs = {GroupLine.HEAD: self._logs[GroupLine.HEAD]}
        else:
            self._logs.setdefault(GroupLine.BASE, self._copied_logs())
            if is_push:
                self._logs[GroupLine.LEFT_HEAD] = self._copied_logs()
        return True

    def note_pushes(
        self,
        now_s: float,
        retained: Sequence[tuple[float, Snapshot]] = (),
        *,
        is_base_new: bool = True,
        is_stored: bool = False,
    ) -> None:
        """Note what is served now in the removal logs, after the pushes ``retained`` that are read from the store.

        ``is_stored``: so is what is served.
        """
        split = self.split
        for line, logs in self._logs.items():
            for pushed_s, each in retained:
                if line is not GroupLine.BASE or split is None or not split.is_hidden(each.revision):
                    self._note(logs, each, pushed_s, is_stored=True)
            content = self.content(line)
            if content is self.head or is_base_new:
                is_of_others = line is GroupLine.LEFT_HEAD
                self._note(logs, self._noted(content), now_s, is_stored=is_stored, is_of_others=is_of_others)
        if is_stored and self.base is not None and split is not None and split.since_s > now_s:  # the wave grew later
            for content in (self.base, self.head):
                self._note(
                    self._logs[GroupLine.HEAD], self._noted(content), split.since_s, is_stored=True, is_of_others=True
                )

    def _copied_logs(self) -> Logs:
        return {api_version: log.copy() for api_version, log in self._logs[GroupLine.HEAD].items()}

    def _noted(self, content: Content) -> Snapshot:
        """What a removal log notes of a content: its revisions do not fall, so the base has that of the head."""
        snapshot = content.snapshot
        return snapshot if content is self.head else replace(snapshot, revision=self.head.snapshot.revision)

    def _note(
        self, logs: Logs, snapshot: Snapshot, at_s: float, *, is_stored: bool = False, is_of_others: bool = False
    ) -> None:
        for api_version, log in logs.items():
            translated = self._translate(snapshot, api_version)
            log.note_push(translated, at_s, is_stored=is_stored, is_of_others=is_of_others)
