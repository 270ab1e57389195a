"""Reads the counters of clusters' reports by looking up their serialized parts.

One of a thousand proxies sends few requests to one of a thousand clusters in ten seconds, so reports repeat the same
few counts for the same few localities. A serialized ClusterStats is cut into names, rows (one for each locality and
priority) and interval. Rows and the seconds of intervals are looked up by their bytes; only new ones are parsed.
Clusters and rows may come in any order. This takes about half of the CPU of parsing a report whole
(`bench.load_reports`, 60 nodes with 1,000 clusters in 3 localities).

    ClusterStats   0a LEN name │ 12 LEN row │ 12 LEN row │ 22 LEN interval │ 32 LEN service name
                   ╰─ names ───────────────────────────────────────────────────────────────── ╯

The cuts are correct if each part by itself is a message that has only the expected fields: concatenated protobuf
messages are merged, and no field is in two parts. `xds.lrs.load_stats` parses all other reports whole: reports that are
serialized in another way, have drops, endpoints or metrics, or have invalid values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from xds.lrs.packed_counters import pack
from xds.lrs.windows import length_of
from xds.model.node import Locality
from xds.proto import wire_pb2
from xds.wire.fields import seconds_of
from xds.wire.node import shared_locality

# Limits of valid reports. No client sends more in an interval: a greater counter is an underflow or an invention.
COUNTER_LIMIT = 1 << 53
INTERVAL_LIMIT_S = 86_400.0
PRIORITY_LIMIT = 128  # the limit of Envoy
LOCALITIES_LIMIT = 1_024  # of one cluster's report
NAME_LIMIT = 1_024  # characters of a name that a client chooses

REMEMBERED_ROWS = 1 << 16  # some 350 bytes of memory each
REMEMBERED_TARGETS = 1 << 12

_SHORT = 0x7F  # the greatest length, and the greatest number, that takes one byte
_NAME_TAG, _ROW_TAG, _INTERVAL_TAG = 0x0A, 0x12, 0x22
# An interval up to the number of its nanoseconds: tag, length, tag and number of the seconds, tag of the nanoseconds.
_SECONDS_BYTES = 5
# The continuation bits of a varint, by its number of bytes: set in all bytes but the last.
_CONTINUES = 0x80808080
_CONTINUED = (-1, 0x00, 0x8000, 0x808000, 0x80808000)


# One row of a cluster's report: its target (`target_bytes`), its traffic (packed), requests in progress. A plain tuple,
# because there are hundreds of thousands a second.
RowCounters = tuple[bytes, int, int]
# A cluster's report that has only counters: its names (for `names_of`), the length of its interval, its rows.
ClusterCounters = tuple[bytes, int, Sequence[RowCounters]]


class NotOnlyCountersError(Exception):
    """A cluster's report has more than counters, has an invalid value, or is serialized in an unusual way."""


def target_bytes(locality: Locality, priority: int) -> bytes:
    """A key of locality and priority that does not depend on how a client serializes them."""
    where = wire_pb2.Locality(region=locality.region, zone=locality.zone, sub_zone=locality.sub_zone)
    return where.SerializeToString() + bytes((priority,))


@lru_cache(REMEMBERED_TARGETS)
def target_of(key: bytes) -> tuple[Locality, int]:
    """Locality and priority of a key of `target_bytes`."""
    where = wire_pb2.Locality.FromString(key[:-1])
    return shared_locality(where.region, where.zone, where.sub_zone), key[-1]


def names_of(names: bytes) -> tuple[str, str]:
    """Name and service name of a cluster. Raises ``NotOnlyCountersError``."""
    try:
        part = wire_pb2.ClusterTally.FromString(names)
        cluster, service_name = part.cluster_name.decode(), part.cluster_service_name.decode()
    except (DecodeError, UnicodeDecodeError):
        raise NotOnlyCountersError from None
    usual = wire_pb2.ClusterTally(cluster_name=part.cluster_name, cluster_service_name=part.cluster_service_name)
    # The cuts require a name whose length takes one byte.
    if not cluster or names[1] > _SHORT or len(service_name) > NAME_LIMIT or usual.SerializeToString() != names:
        raise NotOnlyCountersError
    return cluster, service_name


class CounterReader:
    """Reads the counters of clusters' reports, caching rows, targets and intervals. One for each `LoadAggregates`."""

    __slots__ = ("_lengths", "_rows", "_targets")

    def __init__(self) -> None:
        self._rows: dict[bytes, RowCounters] = {}
        self._targets: dict[tuple[bytes, int], bytes] = {}
        self._lengths: dict[bytes, int] = {}

    def read(self, reports: Iterable[bytes]) -> Iterator[ClusterCounters | None]:
        """The counters of each serialized ClusterStats; None for one that must be parsed whole.

        Names are not checked here: `names_of` may still raise.
        """
        known_row, known_length, from_bytes = self._rows.get, self._lengths.get, int.from_bytes
        for stats in reports:
            try:
                position = name_end = 2 + stats[1]
                rows = []
                while stats[position] == _ROW_TAG:
                    end = position + 2 + stats[position + 1]
                    row = known_row(stats[position:end])
                    rows.append(self._new_row(stats[position:end]) if row is None else row)
                    position = end
                end = position + 2 + stats[position + 1]
                nanos_at = position + _SECONDS_BYTES
                length, nanos = known_length(stats[position:nanos_at]), stats[nanos_at:end]
                if length is None or from_bytes(nanos, "big") & _CONTINUES != _CONTINUED[len(nanos)]:
                    length = self._new_length(stats[position:end])
                names = stats[:name_end]
                if end != len(stats):
                    if end > len(stats):
                        raise NotOnlyCountersError
                    names += stats[end:]
            except (NotOnlyCountersError, IndexError):
                yield None
            else:
                yield names, length, rows

    def _new_row(self, row: bytes) -> RowCounters:
        """Parse a row. Raises ``NotOnlyCountersError``."""
        if row[1] > _SHORT or len(row) != 2 + row[1]:
            raise NotOnlyCountersError
        try:
            message = wire_pb2.LocalityTally.FromString(row[2:])
            target = self._target(message.locality, message.priority)
        except DecodeError:
            raise NotOnlyCountersError from None
        successes, errors = message.total_successful_requests, message.total_error_requests
        issued, in_progress = message.total_issued_requests, message.total_requests_in_progress
        if successes + errors + issued + in_progress > COUNTER_LIMIT or message.WhichOneof("extras"):
            raise NotOnlyCountersError
        if len(self._rows) >= REMEMBERED_ROWS:  # the next reports fill the cache again
            self._rows.clear()
        counters = self._rows[row] = target, pack(successes, errors, issued), in_progress
        return counters

    def _target(self, locality: bytes, priority: int) -> bytes:
        """One object for all equal targets."""
        target = self._targets.get((locality, priority))
        if target is None:
            where = wire_pb2.Locality.FromString(locality)
            if max(map(len, (where.region, where.zone, where.sub_zone))) > NAME_LIMIT or priority > PRIORITY_LIMIT:
                raise NotOnlyCountersError
            if len(self._targets) >= REMEMBERED_TARGETS:
                self._targets.clear()
            target = target_bytes(shared_locality(where.region, where.zone, where.sub_zone), priority)
            self._targets[locality, priority] = target
        return target

    def _new_length(self, interval: bytes) -> int:
        """The length of a serialized interval. Raises ``NotOnlyCountersError``.

        Its first bytes are cached if the fraction of a second cannot change the length: it is less than 0.27 s.
        """
        if interval[0] != _INTERVAL_TAG or interval[1] > _SHORT or len(interval) != 2 + interval[1]:
            raise NotOnlyCountersError
        try:
            duration = Duration.FromString(interval[2:])
        except DecodeError:
            raise NotOnlyCountersError from None
        interval_s = seconds_of(duration.seconds, duration.nanos)
        if not 0 < interval_s <= INTERVAL_LIMIT_S or duration.SerializeToString() != interval[2:]:
            raise NotOnlyCountersError
        length = length_of(interval_s)
        if 0 < duration.seconds <= _SHORT and 0 < len(interval) - _SECONDS_BYTES < len(_CONTINUED):
            self._lengths[interval[:_SECONDS_BYTES]] = length
        return length
