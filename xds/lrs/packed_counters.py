"""Load reports read for their counters: bytes known from other reports, read again only where they are not.

What one of a thousand proxies sends to one of a thousand clusters in ten seconds are few requests: the same few counts
for the same few localities. A cluster's report is cut into its name, its counters, its interval and its service name,
each known by its bytes. The cuts are right where each part by itself is a message with the fields it is to have: the
concatenation of messages is their merger, and no field is in two of them. Whatever is not cut so, or has more than
counters, or values that cannot be, is not for this reading (``NotTalliedError``).

Counters side by side in one number: of two such numbers all are added, or subtracted, at once.

A report has a million counters, and Python takes as long for one addition of small numbers as for one of twenty.
Sums must not be negative in any lane; what is added may be, as a difference of two numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from xds.proto import wire_pb2
from xds.wire.fields import seconds_of

# A counter above this is one that went below zero, or was made up: no client sends so much in an interval.
COUNTER_LIMIT = 1 << 53
INTERVAL_LIMIT_S = 86_400.0
PRIORITY_LIMIT = 128  # Envoy's
LOCALITIES_LIMIT = 1_024  # of one cluster's report; what has more is refused
NAME_LIMIT = 1_024  # characters: of whatever clients name

# What is remembered: so many, and so long ones.
KNOWN_TALLIES = 1 << 16  # some 700 bytes each
KNOWN_TALLY_BYTES = 512
KNOWN_LOCALITY_TALLIES = 1 << 16  # some 300 bytes each
KNOWN_LOCALITY_TALLY_BYTES = 256
KNOWN_LAYOUTS = KNOWN_LOCALITIES = 1 << 12

# Of one locality, at one priority: itself, serialized; successes, errors and issued requests, as lanes; in progress.
LocalityTally = tuple[bytes, int, int]
# Which localities a cluster's report tells of, in its order.
Layout = tuple[bytes, ...]
# A ClusterStats: all of it, its names (`names_of`), its interval (`interval_of`), and its counters.
ClusterTally = tuple[bytes, bytes, bytes, "Tally"]

_LOCALITY_FIELDS = attrgetter(
    "locality",
    "total_successful_requests",
    "total_error_requests",
    "total_issued_requests",
    "total_requests_in_progress",
    "priority",
)
_SHORT = 0x7F  # the greatest length of one byte
_LOCALITIES_TAG = 0x12  # field 2, delimited
_INTERVAL_TAG = ord('"')  # field 4, delimited


class Tally(NamedTuple):
    """What a report counts of a cluster, as lanes (`xds.lrs.packed_counters`).

    ``counters``: first 1, for the report itself, then the successes, errors and issued requests of each locality in the
    layout. ``in_progress``: of each locality. ``sums``: successes, errors, issued, dropped. ``dropped`` once more.
    """

    layout: Layout
    counters: int
    in_progress: int
    sums: int
    dropped: int


class NotTalliedError(Exception):
    """A cluster's report has more than counters, or a value that cannot be, or is written in a way of its own."""


def read_tallies(reports: Iterable[bytes]) -> Iterator[ClusterTally | bytes]:
    """Of each ClusterStats of a request; itself where it is not for this reading.

    That may also show when names or interval are read, which whoever counts knows by their bytes.
    """
    mark = b""  # intervals of one request differ by microseconds, and so are of one length
    for stats in reports:
        while True:
            try:
                # Fields come in the order of their numbers: name, localities, dropped, interval, service name.
                name_end = 2 + stats[1]
                interval = stats.rindex(mark, name_end)
                interval_end = interval + 2 + stats[interval + 1]
                tally = _TALLIES[stats[name_end:interval]]
            except (NotTalliedError, ValueError, IndexError):
                before, mark = mark, _mark_of(stats)
                if mark == before:
                    yield stats
                    break
            else:
                yield stats, stats[:name_end] + stats[interval_end:], stats[interval:interval_end], tally
                break


def names_of(names: bytes) -> tuple[str, str]:
    """Name and service name of a cluster. Raises ``NotTalliedError``."""
    part = _part_with(names, "cluster_name", "cluster_service_name")
    try:
        found = part.cluster_name.decode(), part.cluster_service_name.decode()
    except UnicodeDecodeError:
        raise NotTalliedError from None
    # A length of one byte: where the first cut is.
    if not found[0] or names[1] > _SHORT or len(found[1]) > NAME_LIMIT:
        raise NotTalliedError
    return found


def interval_of(interval: bytes) -> float:
    """In seconds. Raises ``NotTalliedError``."""
    try:
        duration = Duration.FromString(_part_with(interval, "load_report_interval").load_report_interval)
    except DecodeError:
        raise NotTalliedError from None
    interval_s = seconds_of(duration.seconds, duration.nanos)
    if not 0 < interval_s <= INTERVAL_LIMIT_S:
        raise NotTalliedError
    return interval_s


def head_of(stats: bytes) -> bytes:
    """A cluster's report up to the end of its name; too much of one that is not written so."""
    return stats[: 2 + stats[1]] if len(stats) > 1 else stats


def interval_bytes(stats: bytes) -> int:
    """How many bytes the interval of a cluster's report takes, tag and length included; wrong where it has none."""
    return 2 + _mark_of(stats)[1]


def _mark_of(stats: bytes) -> bytes:
    """How the interval begins: its tag and length. Where there is none, no cut is right."""
    try:
        return bytes((_INTERVAL_TAG, min(len(_part(stats).load_report_interval), _SHORT)))
    except NotTalliedError:
        return bytes((_INTERVAL_TAG, 0))


def _part(data: bytes) -> wire_pb2.ClusterTally:
    try:
        return wire_pb2.ClusterTally.FromString(data)
    except DecodeError:
        raise NotTalliedError from None


def _part_with(data: bytes, *fields: str) -> wire_pb2.ClusterTally:
    """Whole fields, of these names only, each once where it is not repeated, and none that is unknown before them."""
    part = _part(data)
    if not {field.name for field, _ in part.ListFields()}.issubset(fields) or part.SerializeToString() != data:
        raise NotTalliedError
    return part


class _KnownTallies(dict[bytes, Tally]):
    """By localities and what is dropped."""

    def __missing__(self, data: bytes) -> Tally:
        localities = _localities_of(data)
        dropped = 0
        if localities is None:
            part = _part_with(data, "upstream_locality_stats", "total_dropped_requests")
            localities, dropped = part.upstream_locality_stats, part.total_dropped_requests
        if len(localities) > LOCALITIES_LIMIT or dropped > COUNTER_LIMIT:
            raise NotTalliedError
        tally = _tally(list(map(_LOCALITY_TALLIES.__getitem__, localities)), dropped)
        if len(data) <= KNOWN_TALLY_BYTES:
            if len(self) >= KNOWN_TALLIES:
                self.clear()
            self[data] = tally
        return tally


def _localities_of(data: bytes) -> Sequence[bytes] | None:
    """Those of bytes that hold nothing else, and only short ones; None: to be read otherwise."""
    found = []
    at, end = 0, len(data)
    while end - at > 1:
        size = data[at + 1]
        if data[at] != _LOCALITIES_TAG or size > _SHORT:
            return None
        at += 2
        found.append(data[at : at + size])
        at += size
    return found if at == end else None


def _tally(localities: Sequence[LocalityTally], dropped: int) -> Tally:
    layout, counted, in_progress = zip(*localities, strict=True) if localities else ((), (), ())
    counters = 1
    for place, lanes in enumerate(counted):
        counters += shifted(lanes, 1 + 3 * place)
    return Tally(
        _LAYOUTS[layout],
        counters,
        sum(map(shifted, in_progress, range(len(layout)))),
        sum(counted) + shifted(dropped, 3),
        dropped,
    )


class _KnownLayouts(dict[Layout, Layout]):
    """One object for all that are the same."""

    def __missing__(self, layout: Layout) -> Layout:
        if len(self) >= KNOWN_LAYOUTS:
            self.clear()
        self[layout] = layout
        return layout


class _KnownLocalityTallies(dict[bytes, LocalityTally]):
    def __init__(self) -> None:
        super().__init__()
        self._room = wire_pb2.LocalityTally()

    def __missing__(self, data: bytes) -> LocalityTally:
        room = self._room
        try:
            room.ParseFromString(data)
            where, succeeded, failed, begun, underway, priority = _LOCALITY_FIELDS(room)
            where = _LOCALITIES[where]
        except DecodeError:
            raise NotTalliedError from None
        if succeeded + failed + begun + underway > COUNTER_LIMIT or priority > PRIORITY_LIMIT:
            raise NotTalliedError
        if room.WhichOneof("extras"):
            raise NotTalliedError
        if len(self) >= KNOWN_LOCALITY_TALLIES:
            self._forget()
        tally = (where, pack((succeeded, failed, begun)), underway)
        if len(data) <= KNOWN_LOCALITY_TALLY_BYTES:
            self[data] = tally
        return tally

    def _forget(self) -> None:
        self.clear()
        self._room = wire_pb2.LocalityTally()  # a message that is read into again and again only grows


class _KnownLocalities(dict[bytes, bytes]):
    """One object for all that are the same. Raises ``DecodeError`` besides."""

    def __missing__(self, data: bytes) -> bytes:
        where = wire_pb2.Locality.FromString(data)
        if max(map(len, (where.region, where.zone, where.sub_zone))) > NAME_LIMIT:
            raise NotTalliedError
        if len(self) >= KNOWN_LOCALITIES:
            self.clear()
        self[data] = data
        return data


_TALLIES, _LOCALITY_TALLIES = _KnownTallies(), _KnownLocalityTallies()
_LAYOUTS, _LOCALITIES = _KnownLayouts(), _KnownLocalities()

# Of the bytes between the names and the interval. Raises ``NotTalliedError``.
tally_of: Callable[[bytes], Tally] = _TALLIES.__getitem__


# A counter of eight bytes, and room for the sum of more of them than anybody can send.
_LANE = "QI"
_LANE_BYTES = struct.calcsize(f"<{_LANE}")
_LANE_BITS = 8 * _LANE_BYTES


def pack(counters: Sequence[int]) -> int:
    """Each from 0 on, below 2**64."""
    return int.from_bytes(struct.pack(f"<{'Q4x' * len(counters)}", *counters), "little")


def shifted(lanes: int, places: int) -> int:
    """The same counters, behind so many others: the sum with those is all of them."""
    return lanes << _LANE_BITS * places


def unpack(lanes: int, count: int) -> Sequence[int]:
    """All counters, of which there are ``count``."""
    parts = struct.unpack(f"<{_LANE * count}", lanes.to_bytes(_LANE_BYTES * count, "little"))
    low, high = parts[::2], parts[1::2]
    return [one + (more << 64) for one, more in zip(low, high, strict=True)] if any(high) else low
