"""The counters of a cluster's report, packed into one integer and remembered by their bytes.

**Remembered.** One of a thousand proxies sends few requests to one of a thousand clusters in ten seconds, so reports
repeat the same few counts for the same few localities. A serialized ClusterStats is cut into four parts: cluster name,
counters (localities and drops), interval, service name. The counters are looked up by their bytes, and parsed only if
they are new. The cuts are right if each part by itself is a message that has only the expected fields, since
concatenated protobuf messages are merged and no field is in two parts. A report that is written in another way, has
endpoints or metrics, or has invalid values raises ``NotOnlyCountersError``; it is parsed whole by `xds.lrs.load_stats`.

**Packed.** A fleet reports a million counters in an interval, and Python needs the same time to add two small integers
as two of twenty digits. So counters stand side by side in one integer, each in a lane of 96 bits, and one addition or
subtraction adds or subtracts all of them. A lane of a sum must not be negative; an addend may be the difference of two
packed integers.
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

# Limits of valid reports. A greater counter went below zero or is made up: no client sends so much in an interval.
COUNTER_LIMIT = 1 << 53
INTERVAL_LIMIT_S = 86_400.0
PRIORITY_LIMIT = 128  # that of Envoy
LOCALITIES_LIMIT = 1_024  # of one cluster's report
NAME_LIMIT = 1_024  # characters of a name that a client chooses

# How many byte strings are remembered, and up to which length.
REMEMBERED_CLUSTERS = 1 << 16  # some 700 bytes of memory each
REMEMBERED_CLUSTER_BYTES = 512
REMEMBERED_LOCALITIES = 1 << 16  # some 300 bytes of memory each
REMEMBERED_LOCALITY_BYTES = 256
REMEMBERED_LAYOUTS = REMEMBERED_NAMES = 1 << 12

# The counters of one locality and priority: the serialized Locality; successes, errors and issued requests, packed;
# requests in progress.
LocalityCounters = tuple[bytes, int, int]
# The serialized Locality of each row of a cluster's report, in order.
LocalityLayout = tuple[bytes, ...]
# A ClusterStats: whole, its names (for `names_of`), its interval (for `interval_of`), its counters.
ClusterParts = tuple[bytes, bytes, bytes, "ClusterCounters"]

_LANE = "QI"  # a counter of 8 bytes, and 4 bytes for the carries of a sum
_LANE_BYTES = struct.calcsize(f"<{_LANE}")
_LANE_BITS = 8 * _LANE_BYTES

_LOCALITY_FIELDS = attrgetter(
    "locality",
    "total_successful_requests",
    "total_error_requests",
    "total_issued_requests",
    "total_requests_in_progress",
    "priority",
)
_SHORT = 0x7F  # the greatest length that takes one byte
_LOCALITIES_TAG = 0x12  # field 2, length-delimited
_INTERVAL_TAG = ord('"')  # field 4, length-delimited


class ClusterCounters(NamedTuple):
    """What a cluster's report counts, packed.

    ``counters``: 1 for the report itself, then the successes, errors and issued requests of each locality of the
    layout. ``in_progress``: of each locality. ``sums``: successes, errors, issued, dropped. ``dropped``: not packed.
    """

    layout: LocalityLayout
    counters: int
    in_progress: int
    sums: int
    dropped: int


class NotOnlyCountersError(Exception):
    """A cluster's report has more than counters, has an invalid value, or is serialized in an unusual way."""


def pack(counters: Sequence[int]) -> int:
    """Counters from 0 to 2**64 - 1, packed."""
    return int.from_bytes(struct.pack(f"<{'Q4x' * len(counters)}", *counters), "little")


def shift_lanes(packed: int, lanes: int) -> int:
    """Packed counters, moved up by so many lanes, so that others fit below them."""
    return packed << _LANE_BITS * lanes


def unpack(packed: int, count: int) -> Sequence[int]:
    """The ``count`` counters of a packed integer."""
    parts = struct.unpack(f"<{_LANE * count}", packed.to_bytes(_LANE_BYTES * count, "little"))
    low, high = parts[::2], parts[1::2]
    return [one + (more << 64) for one, more in zip(low, high, strict=True)] if any(high) else low


class CounterDecoder:
    """Reads clusters' reports for their counters, and remembers what it read. One for each `LoadAggregates`."""

    __slots__ = ("_clusters", "counters_of")

    def __init__(self) -> None:
        self._clusters = _RememberedClusters()
        # The counters in the bytes between name and interval. Raises ``NotOnlyCountersError``.
        self.counters_of: Callable[[bytes], ClusterCounters] = self._clusters.__getitem__

    def read(self, reports: Iterable[bytes]) -> Iterator[ClusterParts | bytes]:
        """The parts of each serialized ClusterStats; the ClusterStats itself where it must be parsed whole.

        Names and intervals are not checked here: `names_of` and `interval_of` may still raise.
        """
        clusters = self._clusters
        mark = b""  # the intervals of one request differ by microseconds, so they have the same length
        for stats in reports:
            while True:
                try:
                    # Fields come in the order of their numbers: name, localities, dropped, interval, service name.
                    name_end = 2 + stats[1]
                    interval = stats.rindex(mark, name_end)
                    interval_end = interval + 2 + stats[interval + 1]
                    counters = clusters[stats[name_end:interval]]
                except (NotOnlyCountersError, ValueError, IndexError):
                    before, mark = mark, _mark_of(stats)
                    if mark == before:
                        yield stats
                        break
                else:
                    yield stats, stats[:name_end] + stats[interval_end:], stats[interval:interval_end], counters
                    break


def names_of(names: bytes) -> tuple[str, str]:
    """Name and service name of a cluster. Raises ``NotOnlyCountersError``."""
    part = _part_with(names, "cluster_name", "cluster_service_name")
    try:
        cluster, service_name = part.cluster_name.decode(), part.cluster_service_name.decode()
    except UnicodeDecodeError:
        raise NotOnlyCountersError from None
    # The first cut assumes a name whose length takes one byte.
    if not cluster or names[1] > _SHORT or len(service_name) > NAME_LIMIT:
        raise NotOnlyCountersError
    return cluster, service_name


def interval_of(interval: bytes) -> float:
    """The interval in seconds. Raises ``NotOnlyCountersError``."""
    try:
        duration = Duration.FromString(_part_with(interval, "load_report_interval").load_report_interval)
    except DecodeError:
        raise NotOnlyCountersError from None
    interval_s = seconds_of(duration.seconds, duration.nanos)
    if not 0 < interval_s <= INTERVAL_LIMIT_S:
        raise NotOnlyCountersError
    return interval_s


def head_of(stats: bytes) -> bytes:
    """A ClusterStats up to the end of its name. Of one with a longer name, or without one, any prefix."""
    return stats[: 2 + stats[1]] if len(stats) > 1 else stats


def interval_bytes(stats: bytes) -> int:
    """The size of a ClusterStats's interval with its tag and length; meaningless where it has none."""
    return 2 + _mark_of(stats)[1]


def _mark_of(stats: bytes) -> bytes:
    """Tag and length of the interval. Where there is none, no cut by this mark is right."""
    try:
        return bytes((_INTERVAL_TAG, min(len(_part(stats).load_report_interval), _SHORT)))
    except NotOnlyCountersError:
        return bytes((_INTERVAL_TAG, 0))


def _part(data: bytes) -> wire_pb2.ClusterTally:
    try:
        return wire_pb2.ClusterTally.FromString(data)
    except DecodeError:
        raise NotOnlyCountersError from None


def _part_with(data: bytes, *fields: str) -> wire_pb2.ClusterTally:
    """A part that has only these fields, none of them twice (unless repeated) and in the usual order."""
    part = _part(data)
    if not {field.name for field, _ in part.ListFields()}.issubset(fields) or part.SerializeToString() != data:
        raise NotOnlyCountersError
    return part


# What is remembered, each by its bytes. A full dict is cleared: the next reports fill it again.


class _RememberedClusters(dict[bytes, ClusterCounters]):
    """The counters of clusters, by the bytes of localities and drops."""

    def __init__(self) -> None:
        super().__init__()
        self._localities = _RememberedLocalities()
        self._layouts = _SharedLayouts()

    def __missing__(self, data: bytes) -> ClusterCounters:
        localities = _split_localities(data)
        dropped = 0
        if localities is None:
            part = _part_with(data, "upstream_locality_stats", "total_dropped_requests")
            localities, dropped = part.upstream_locality_stats, part.total_dropped_requests
        if len(localities) > LOCALITIES_LIMIT or dropped > COUNTER_LIMIT:
            raise NotOnlyCountersError
        counters = self._sum(list(map(self._localities.__getitem__, localities)), dropped)
        if len(data) <= REMEMBERED_CLUSTER_BYTES:
            if len(self) >= REMEMBERED_CLUSTERS:
                self.clear()
            self[data] = counters
        return counters

    def _sum(self, localities: Sequence[LocalityCounters], dropped: int) -> ClusterCounters:
        layout, finished, in_progress = zip(*localities, strict=True) if localities else ((), (), ())
        counters = 1
        for position, packed in enumerate(finished):
            counters += shift_lanes(packed, 1 + 3 * position)
        return ClusterCounters(
            self._layouts[layout],
            counters,
            sum(map(shift_lanes, in_progress, range(len(layout)))),
            sum(finished) + shift_lanes(dropped, 3),
            dropped,
        )


def _split_localities(data: bytes) -> Sequence[bytes] | None:
    """The rows of bytes that hold short rows and nothing else; None where the bytes must be parsed."""
    rows = []
    position, end = 0, len(data)
    while end - position > 1:
        size = data[position + 1]
        if data[position] != _LOCALITIES_TAG or size > _SHORT:
            return None
        position += 2
        rows.append(data[position : position + size])
        position += size
    return rows if position == end else None


class _SharedLayouts(dict[LocalityLayout, LocalityLayout]):
    """One object for all equal layouts: they are compared by identity."""

    def __missing__(self, layout: LocalityLayout) -> LocalityLayout:
        if len(self) >= REMEMBERED_LAYOUTS:
            self.clear()
        self[layout] = layout
        return layout


class _RememberedLocalities(dict[bytes, LocalityCounters]):
    """The counters of one row, by its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._names = _SharedNames()
        self._message = wire_pb2.LocalityTally()  # parsed into again and again: faster than a new one

    def __missing__(self, data: bytes) -> LocalityCounters:
        message = self._message
        try:
            message.ParseFromString(data)
            locality, successes, errors, issued, in_progress, priority = _LOCALITY_FIELDS(message)
            locality = self._names[locality]
        except DecodeError:
            raise NotOnlyCountersError from None
        if successes + errors + issued + in_progress > COUNTER_LIMIT or priority > PRIORITY_LIMIT:
            raise NotOnlyCountersError
        if message.WhichOneof("extras"):
            raise NotOnlyCountersError
        if len(self) >= REMEMBERED_LOCALITIES:
            self.clear()
            self._message = wire_pb2.LocalityTally()  # the memory of a message that is parsed into only grows
        row = (locality, pack((successes, errors, issued)), in_progress)
        if len(data) <= REMEMBERED_LOCALITY_BYTES:
            self[data] = row
        return row


class _SharedNames(dict[bytes, bytes]):
    """One object for all equal serialized localities. Raises ``DecodeError`` for bytes that are none."""

    def __missing__(self, data: bytes) -> bytes:
        where = wire_pb2.Locality.FromString(data)
        if max(map(len, (where.region, where.zone, where.sub_zone))) > NAME_LIMIT:
            raise NotOnlyCountersError
        if len(self) >= REMEMBERED_NAMES:
            self.clear()
        self[data] = data
        return data
