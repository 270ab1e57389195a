"""Load reports and what is asked of them: bytes to values and back. v2 and v3 have the same fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import attrgetter

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.load_report import (
    NO_METRICS,
    UTILISATIONS,
    ClusterLoad,
    EndpointLoad,
    LocalityLoad,
    Metric,
    Traffic,
)
from xds.model.node import Locality
from xds.proto import wire_pb2
from xds.protocol.wire import shared_locality

# A counter above this is one that went below zero, or was made up: no client sends so much in an interval.
COUNTER_LIMIT = 1 << 53
INTERVAL_LIMIT_S = 86_400.0
PRIORITY_LIMIT = 128  # Envoy's
# Of one cluster's report. What is beyond the first endpoints is not told apart, what is beyond the others is refused.
ENDPOINTS_LIMIT = 2_048
LOCALITIES_LIMIT = CATEGORIES_LIMIT = 1_024
NAME_LIMIT = 1_024  # characters: of whatever clients name
_NANOS = 1_000_000_000

# Of one locality, at one priority: itself, serialized; successes, errors, issued, in progress.
LocalityTally = tuple[bytes, int, int, int, int]
# Of one cluster: its name and service name; the interval in seconds; dropped; its localities.
ClusterTally = tuple[str, str, float, int, list[LocalityTally]]

# Values that recur are known by their bytes. What one of a thousand proxies sends to one of a thousand clusters in ten
# seconds are few requests: the same few counts for the same few localities.
KNOWN_TALLIES = 1 << 17  # some 300 bytes each
KNOWN_TALLY_BYTES = 256  # those with longer names are read again
KNOWN_LOCALITIES = 1 << 12
KNOWN_NAMES = 1 << 15

_CLUSTER_FIELDS = attrgetter(
    "cluster_name",
    "cluster_service_name",
    "load_report_interval",
    "total_dropped_requests",
    "upstream_locality_stats",
)
_LOCALITY_FIELDS = attrgetter(
    "locality",
    "total_successful_requests",
    "total_error_requests",
    "total_issued_requests",
    "total_requests_in_progress",
    "priority",
)


@dataclass(frozen=True, slots=True)
class LoadDemand:
    """A LoadStatsResponse: what a client is to report. ``every``: all of its clusters, and ``clusters`` is empty."""

    interval_s: float
    clusters: tuple[str, ...] = ()
    every: bool = False
    by_endpoint: bool = False

    def encode(self) -> bytes:
        message = wire_pb2.LoadStatsResponse(
            clusters=self.clusters, report_endpoint_granularity=self.by_endpoint, send_all_clusters=self.every
        )
        nanos = round(self.interval_s * _NANOS)
        message.load_reporting_interval.seconds, message.load_reporting_interval.nanos = divmod(nanos, _NANOS)
        return message.SerializeToString()


class LoadRequest:
    """A LoadStatsRequest, read as far as somebody asks. ``node`` is still serialized.

    Three readings of the same bytes: ``tallies`` for counting, a fifth of the time; ``loads`` and `load_at` as values.
    All refuse the same: a cluster's report is believed as a whole or not at all.
    """

    __slots__ = ("_decoded", "_message", "data")

    def __init__(self, data: bytes) -> None:
        """Raises ``RemoteProtocolError`` for bytes that are no LoadStatsRequest."""
        self.data = data
        self._message = wire_pb2.LoadTally()
        self._decoded: list[ClusterLoad | None] | None = None
        try:
            self._message.ParseFromString(data)
        except DecodeError:
            raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "not a LoadStatsRequest") from None

    @property
    def node(self) -> bytes:
        return self._message.node

    @property
    def reports(self) -> int:
        """How many clusters' reports there are, those that cannot be included."""
        return len(self._message.cluster_stats)

    @property
    def loads(self) -> tuple[ClusterLoad, ...]:
        return tuple(load for load in self._all() if load is not None)

    @property
    def refused(self) -> int:
        """The cluster reports that cannot be."""
        return self._all().count(None)

    def _all(self) -> list[ClusterLoad | None]:
        if self._decoded is None:
            self._decoded = [_load(piece) for piece in _pieces(self.data)]
        return self._decoded

    def tallies(self) -> Iterator[ClusterTally | ClusterLoad | None]:
        """The clusters in order: counters where there is nothing else, else all values; None for what cannot be."""
        pieces: Sequence[bytes] = ()
        known, intervals = _TALLIES.__getitem__, _Intervals()
        for index, stats in enumerate(self._message.cluster_stats):
            cluster, service, interval, dropped, localities = _CLUSTER_FIELDS(stats)
            name, service_name, interval_s = _NAMES[cluster], _NAMES[service], intervals[interval]
            if len(localities) > LOCALITIES_LIMIT:
                yield None
                continue
            try:
                tallies: list[LocalityTally] = list(map(known, localities))
            except _BeyondCountingError:
                interval_s = 0.0
            if (
                interval_s
                and name
                and service_name is not None
                and dropped <= COUNTER_LIMIT
                and not stats.HasField("dropped_requests")
            ):
                yield name, service_name, interval_s, dropped, tallies
            else:
                pieces = pieces or _pieces(self.data)
                yield _load(pieces[index])

    def bare(self) -> bytes:
        """The bytes without the node: Envoy's is 61 kB, and comes with every report."""
        node = self._message.node
        prefix = wire_pb2.LoadTally(node=node).SerializeToString() if node else b""
        return self.data.removeprefix(prefix)


def decode_load_request(data: bytes) -> LoadRequest:
    """Raises ``RemoteProtocolError`` for bytes that are none."""
    return LoadRequest(data)


def load_at(data: bytes, index: int) -> ClusterLoad | None:
    """One cluster's report, without the time to read the others; None for one that cannot be."""
    return _load(_pieces(data)[index])


def locality_of(data: bytes) -> Locality:
    """The locality of a tally."""
    where = wire_pb2.Locality.FromString(data)
    return shared_locality(where.region, where.zone, where.sub_zone)


def _pieces(data: bytes) -> Sequence[bytes]:
    return wire_pb2.ClusterPieces.FromString(data).cluster_stats


class _Intervals(dict[bytes, float]):
    """Seconds by serialized Duration, 0 for one that cannot be. In one request they differ by microseconds at most."""

    def __missing__(self, data: bytes) -> float:
        try:
            duration = Duration.FromString(data)
        except DecodeError:
            return 0.0
        interval_s = float(duration.seconds + duration.nanos / _NANOS)
        found = self[data] = interval_s if 0 < interval_s <= INTERVAL_LIMIT_S else 0.0
        return found


class _BeyondCountingError(Exception):
    """A locality's report has more than counters, or a value that cannot be."""


class _KnownTallies(dict[bytes, LocalityTally]):
    """By what they are serialized from. Raises ``_BeyondCountingError``."""

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
            raise _BeyondCountingError from None
        if succeeded + failed + begun + underway > COUNTER_LIMIT or priority > PRIORITY_LIMIT:
            raise _BeyondCountingError
        if room.WhichOneof("extras"):
            raise _BeyondCountingError
        if len(self) >= KNOWN_TALLIES:
            self._forget()
        tally = (where, succeeded, failed, begun, underway)
        if len(data) <= KNOWN_TALLY_BYTES:
            self[data] = tally
        return tally

    def _forget(self) -> None:
        self.clear()
        self._room = wire_pb2.LocalityTally()  # a message that is read into again and again only grows


class _KnownLocalities(dict[bytes, bytes]):
    """One object for all that are the same. Raises ``DecodeError``; as `_KnownTallies` for long names."""

    def __missing__(self, data: bytes) -> bytes:
        where = wire_pb2.Locality.FromString(data)
        if not _are_names(where.region, where.zone, where.sub_zone):
            raise _BeyondCountingError
        if len(self) >= KNOWN_LOCALITIES:
            self.clear()
        self[data] = data
        return data


class _KnownNames(dict[bytes, str | None]):
    """One object for all that are the same; None for what is no UTF-8, or too long."""

    def __missing__(self, data: bytes) -> str | None:
        try:
            name = data.decode()
        except UnicodeDecodeError:
            return None
        if len(name) > NAME_LIMIT:
            return None
        if len(self) >= KNOWN_NAMES:
            self.clear()
        self[data] = name
        return name


_TALLIES, _LOCALITIES, _NAMES = _KnownTallies(), _KnownLocalities(), _KnownNames()


def _load(piece: bytes) -> ClusterLoad | None:
    try:
        return _cluster(wire_pb2.ClusterStats.FromString(piece))
    except DecodeError:
        return None


def _cluster(stats: wire_pb2.ClusterStats) -> ClusterLoad | None:
    """None for a report with a value that cannot be: then nothing in it can be believed."""
    if len(stats.upstream_locality_stats) > LOCALITIES_LIMIT or len(stats.dropped_requests) > CATEGORIES_LIMIT:
        return None
    interval_s = stats.load_report_interval.seconds + stats.load_report_interval.nanos / _NANOS
    room = ENDPOINTS_LIMIT
    localities: list[LocalityLoad | None] = []
    for row in stats.upstream_locality_stats:
        localities.append(_locality(row, room))
        room = max(0, room - len(row.upstream_endpoint_stats))
    drops: dict[str, int] = {}
    for each in stats.dropped_requests:
        drops[each.category] = drops.get(each.category, 0) + each.dropped_count
    believable = (
        stats.cluster_name
        and 0 < interval_s <= INTERVAL_LIMIT_S
        and max((stats.total_dropped_requests, *drops.values())) <= COUNTER_LIMIT
        and None not in localities
        and _are_names(stats.cluster_name, stats.cluster_service_name, *drops)
    )
    if not believable:
        return None
    told = tuple(each for each in localities if each is not None)
    # "category totals need not sum to the total" (spec/lrs.md 12), but no more than the total can be dropped.
    dropped = max(stats.total_dropped_requests, sum(drops.values()))
    return ClusterLoad(stats.cluster_name, interval_s, stats.cluster_service_name, told, dropped, drops)


def _locality(stats: wire_pb2.UpstreamLocalityStats, room: int) -> LocalityLoad | None:
    """With as many endpoints as there is ``room`` for."""
    traffic = _traffic(stats)
    metrics = _metrics(stats.load_metric_stats)
    own = _utilisations(stats)
    endpoints = [_endpoint(each) for each in stats.upstream_endpoint_stats[:room]]
    if traffic is None or metrics is None or own is None or None in endpoints or stats.priority > PRIORITY_LIMIT:
        return None
    where = stats.locality
    if not _are_names(where.region, where.zone, where.sub_zone, *metrics):
        return None
    told = tuple(each for each in endpoints if each is not None) if endpoints else ()
    both = {**metrics, **own} if own else metrics
    return LocalityLoad(shared_locality(where.region, where.zone, where.sub_zone), traffic, stats.priority, both, told)


def _endpoint(stats: wire_pb2.UpstreamEndpointStats) -> EndpointLoad | None:
    traffic, metrics, address = _traffic(stats), _metrics(stats.load_metric_stats), _address(stats.address)
    if traffic is None or metrics is None or not _are_names(address, *metrics):
        return None
    return EndpointLoad(address, traffic, metrics)


def _are_names(*texts: str) -> bool:
    """Whether none is too long: what is kept under a name takes its length in memory, again and again."""
    return max(map(len, texts), default=0) <= NAME_LIMIT


def _traffic(stats: wire_pb2.UpstreamLocalityStats | wire_pb2.UpstreamEndpointStats) -> Traffic | None:
    traffic = Traffic(
        stats.total_successful_requests,
        stats.total_error_requests,
        stats.total_issued_requests,
        stats.total_requests_in_progress,
    )
    return traffic if max(traffic) <= COUNTER_LIMIT else None


def _metrics(stats: Sequence[wire_pb2.EndpointLoadMetricStats]) -> Mapping[str, Metric] | None:
    if not stats:
        return NO_METRICS
    return _checked(
        (one.metric_name, Metric(one.num_requests_finished_with_metric, one.total_metric_value)) for one in stats
    )


def _utilisations(stats: wire_pb2.UpstreamLocalityStats) -> Mapping[str, Metric] | None:
    """Told by backends (ORCA), and asked for by few: three looks, and nothing made where there is nothing."""
    told = [(name, getattr(stats, name)) for name in UTILISATIONS if stats.HasField(name)]
    if not told:
        return NO_METRICS
    return _checked((name, Metric(one.num_requests_finished_with_metric, one.total_metric_value)) for name, one in told)


def _checked(metrics: Iterable[tuple[str, Metric]]) -> Mapping[str, Metric] | None:
    found = dict(metrics)
    if not all(metric.requests <= COUNTER_LIMIT and isfinite(metric.total) for metric in found.values()):
        return None
    return found


def _address(address: wire_pb2.Address) -> str:
    if address.HasField("pipe"):
        return address.pipe.path
    host, port = address.socket_address.address, address.socket_address.port_value
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
