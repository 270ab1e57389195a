"""What a node has been through, in a bounded number of bytes. Pure.

A node that is in step with its group keeps nothing of a push: what the push was stands once, in the history of the
group. The node keeps only what differs: that it disconnected, moved, or ACKed late. What it rejected is a NACK record.
So a push costs a node in step no memory, and no call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct

LATE_S = 10.0  # an ACK that takes longer is late
KEPT_MOMENTS = 20  # of a node: the latest
NOTHING = b""  # shared by all nodes that have been through nothing

# Time, kind, the numbers of two names, a revision, and seconds: 23 bytes.
_MOMENT = Struct("<dBHHQH")
_NAMES_LIMIT = 1 << 16
_SECONDS_LIMIT = (1 << 16) - 1


class MomentKind(StrEnum):
    """What happened to a node. ``acked``: it ACKed a response late."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    ACKED = "acked"
    MOVED = "moved"
    ORPHANED = "orphaned"


_KINDS = tuple(MomentKind)
_PLACES: Mapping[MomentKind, int] = {kind: place for place, kind in enumerate(_KINDS)}


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened to a node at ``time`` (epoch seconds).

    * ``group``: the group that it moved to, or that it was in; ``previous``: the group that it moved from;
    * ``type``: the alias of the ACKed type; ``revision``: the ACKed revision, 0 if it is not known;
    * ``late_s``: how long the ACK took.
    """

    time: float
    kind: MomentKind
    group: str = ""
    previous: str = ""
    type: str = ""
    revision: int = 0
    late_s: int = 0


@dataclass(frozen=True, slots=True)
class NodePast:
    """What a node has been through since ``first_seen``, oldest first. ``is_cut``: earlier moments are not kept.

    ``group`` is its present group.
    """

    group: str
    first_seen: float
    moments: tuple[Moment, ...] = ()
    is_cut: bool = False

    @property
    def known_since(self) -> float:
        """From when on everything is known."""
        return self.moments[0].time if self.is_cut else self.first_seen

    @property
    def latest(self) -> float:
        """When the last of it was."""
        return self.moments[-1].time if self.moments else self.first_seen


class MomentWriter:
    """Writes moments into bytes, and reads them. Names of groups and types stand once, for all nodes.

    Once there are too many names, new ones are kept as empty.
    """

    def __init__(self) -> None:
        self._names = [""]
        self._numbers = {"": 0}

    def added(self, past: bytes, moment: Moment) -> bytes:
        """The past with one more moment, without the oldest one beyond the limit."""
        second = moment.type if moment.kind is MomentKind.ACKED else moment.previous
        names = self._number(moment.group), self._number(second)
        late_s = min(moment.late_s, _SECONDS_LIMIT)
        packed = _MOMENT.pack(moment.time, _PLACES[moment.kind], *names, moment.revision, late_s)
        return (past + packed)[-KEPT_MOMENTS * _MOMENT.size :]

    def read(self, past: bytes) -> list[Moment]:
        """The moments, in the order in which they were added."""
        return [self._moment(*fields) for fields in _MOMENT.iter_unpack(past)]

    def is_full(self, past: bytes) -> bool:
        """Whether earlier moments may have been dropped."""
        return len(past) == KEPT_MOMENTS * _MOMENT.size

    def _moment(self, time: float, place: int, group: int, second: int, revision: int, late_s: int) -> Moment:
        kind, name = _KINDS[place], self._names[second]
        if kind is MomentKind.ACKED:
            return Moment(time, kind, self._names[group], "", name, revision, late_s)
        return Moment(time, kind, self._names[group], name, "", revision, late_s)

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            if len(self._names) == _NAMES_LIMIT:
                return 0
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number
