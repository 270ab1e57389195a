"""Prometheus metrics. The hot path counts in plain ints; the text is made from them when it is asked for.

Names are those of spec/operator_surface.md 2.5, prefix ``xds_server_``. Labels are bounded: types that are not in the
table are ``other``, and so are groups beyond the first ``GROUP_LABELS``.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from math import inf
from threading import Lock
from time import monotonic, time
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

import xds
from xds.fleet.convergence import Census
from xds.fleet.fleet import Fleet
from xds.model.resource_type import V3_TYPES, alias_of
from xds.protocol.cache import SnapshotCache
from xds.server.in_flight import InFlight

PREFIX = "xds_server_"
OTHER = "other"
GROUP_LABELS = 200
_TYPE_LABELS = frozenset(rule.alias for rule in V3_TYPES)
_SIZE_BOUNDS = (1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7)
_TIME_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BUILD_BOUNDS = (0.00001, 0.00005, 0.0001, 0.00025, 0.0005, *_TIME_BOUNDS)
KEPT_S = 1.0  # how long a rendered text serves further scrapes
KINDS = ("initial", "ack", "nack", "subscribe", "repeat", "stale", "poll")


class Distribution:
    """A histogram in plain numbers."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound to cumulative count, as Prometheus wants them."""
        found, running = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            found.append((bound, float(running)))
        return found


class TypeCounters:
    """What is counted for one resource type."""

    __slots__ = ("ack_seconds", "kinds", "label", "missing", "resources", "responses", "timeouts", "waits_ended")

    def __init__(self, label: str) -> None:
        self.label = label
        self.kinds = dict.fromkeys(KINDS, 0)
        self.responses = 0
        self.resources = 0
        self.timeouts = 0
        self.waits_ended = 0
        self.ack_seconds = Distribution(_TIME_BOUNDS)


class Metrics:
    """All counters of one server, and the registry that renders them."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self.streams: Counter[tuple[str, str]] = Counter()  # (protocol, service)
        self.closed: Counter[str] = Counter()  # gRPC status code name
        self.nacks: Counter[tuple[str, str]] = Counter()  # (type, group)
        self.limit_hits: Counter[str] = Counter()
        self.foreign_refused: Counter[str] = Counter()  # reason
        self.refused: Counter[str] = Counter()  # streams turned away at the door, by reason
        self.node_mismatches = 0
        self.node_audits = 0  # let in although no rule allows it
        self.auth_reloads: Counter[str] = Counter()  # result
        self.files_exhausted = 0
        self.awaiting_admission = 0
        self.admission_seconds = Distribution(_TIME_BOUNDS)
        self.coalesced = 0
        self.commits: Counter[str] = Counter()  # result
        self.push_triggers: Counter[str] = Counter()  # reason
        self.rollbacks: Counter[str] = Counter()  # reason
        self.response_bytes = Distribution(_SIZE_BOUNDS)
        self.stream_seconds = Distribution((1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0))
        self.fan_out_seconds = Distribution(_TIME_BOUNDS)
        self.queue_seconds = Distribution(_TIME_BOUNDS)
        self.build_seconds = Distribution(_BUILD_BOUNDS)
        self.convergence: dict[str, Distribution] = {}  # group label
        self.loop_lag_s = 0.0
        self._text = b""
        self._text_at = -inf
        self._kept_s = kept_s
        self._rendering = Lock()
        self.registry = CollectorRegistry(auto_describe=False)
        self._types: dict[str, TypeCounters] = {}
        self._by_url: dict[str, TypeCounters] = {}
        self._groups: set[str] = set()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(_Counters(self))

    def attach(self, cache: SnapshotCache, fleet: Fleet, per_node: int = 0) -> None:
        """Show these, too. ``per_node``: how many nodes get series of their own."""
        self.registry.register(_State(self, cache, fleet, per_node))

    def attach_in_flight(self, in_flight: InFlight) -> None:
        """Show the account of what is written and not yet taken."""
        self.registry.register(_InFlightCollector(in_flight))

    def attach_pushes(self, commits: Counter[str], triggers: Counter[str], rollbacks: Counter[str]) -> None:
        """Show what pushes came to: by result, by what woke the streams, by reason."""
        self.commits, self.push_triggers, self.rollbacks = commits, triggers, rollbacks

    def type(self, type_url: str) -> TypeCounters:
        """The counters of a type; one and the same for all types that are not in the table."""
        found = self._by_url.get(type_url)
        if found is None:
            label = type_label(alias_of(type_url))
            found = self._types.setdefault(label, TypeCounters(label))
            if label != OTHER:  # clients choose the others: not remembered
                self._by_url[type_url] = found
        return found

    def types(self) -> Iterator[TypeCounters]:
        """All that were counted, by label."""
        return iter(sorted(self._types.values(), key=lambda counters: counters.label))

    def group(self, group: str) -> str:
        """The label of a group."""
        if group in self._groups:
            return group
        if len(self._groups) < GROUP_LABELS:
            self._groups.add(group)
            return group
        return OTHER

    def nacked(self, type_url: str, group: str) -> None:
        self.nacks[self.type(type_url).label, self.group(group)] += 1

    def offered(self, waited_s: float, built_s: float) -> None:
        """A woken stream had its turn: how long it waited, and how long finding what it is sent took."""
        self.queue_seconds.observe(waited_s)
        self.build_seconds.observe(built_s)

    def converged(self, group: str, seconds: float) -> None:
        """A push to a group reached its last node."""
        label = self.group(group)
        self.convergence.setdefault(label, Distribution(_TIME_BOUNDS)).observe(seconds)

    def render(self) -> bytes:
        """The exposition text (``text/plain; version=1.0.0``), made anew. May be called from any thread."""
        return generate_latest(self.registry)

    def text(self) -> bytes:
        """As ``render``, at most once in ``kept_s`` however many ask. For a thread: 10,000 series take 100 ms."""
        with self._rendering:
            if monotonic() - self._text_at >= self._kept_s:
                self._text = self.render()
                self._text_at = monotonic()
            return self._text


def type_label(alias: str) -> str:
    return alias if alias in _TYPE_LABELS else OTHER


class _Counters(Collector):
    """What happened, from the counters."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._streams()
        yield from self._requests()
        yield from self._responses()
        yield from self._times()
        info = {"version": xds.__version__, "python": platform.python_version(), "edp": version("envoy-data-plane")}
        yield _family(GaugeMetricFamily, "build_info", "What is running", {tuple(info.values()): 1}, tuple(info))

    def _streams(self) -> Iterator[Metric]:
        m = self._metrics
        yield _family(GaugeMetricFamily, "streams", "Open streams", m.streams, ("protocol", "service"))
        yield _family(CounterMetricFamily, "streams_closed", "Streams by final status", m.closed, ("code",))
        yield _family(CounterMetricFamily, "streams_refused", "Streams turned away", m.refused, ("reason",))
        yield _family(CounterMetricFamily, "limit_hits", "Times a limit was hit", m.limit_hits, ("limit",))
        yield _histogram("stream_duration_seconds", "Life of closed streams", {(): m.stream_seconds})
        exhausted = {(): m.files_exhausted}
        yield _family(CounterMetricFamily, "files_exhausted", "Seconds without a file descriptor left", exhausted)
        waiting = {(): m.awaiting_admission}
        yield _family(GaugeMetricFamily, "streams_awaiting_admission", "New streams not yet taken up", waiting)
        yield _histogram(
            "admission_seconds", "From the arrival of a stream to its admission", {(): m.admission_seconds}
        )
        yield _family(
            CounterMetricFamily, "node_mismatches", "Requests that name another node", {(): m.node_mismatches}
        )
        text = "Requests of foreign pages, and by unknown names, that were refused"
        yield _family(CounterMetricFamily, "http_foreign_refused", text, m.foreign_refused, ("reason",))
        audits = {(): m.node_audits}
        yield _family(CounterMetricFamily, "node_audits", "Nodes let in in audit mode that no rule allows", audits)
        yield _family(CounterMetricFamily, "auth_reloads", "Settings of auth read again", m.auth_reloads, ("result",))

    def _requests(self) -> Iterator[Metric]:
        m = self._metrics
        kinds = {(each.label, kind): number for each in m.types() for kind, number in each.kinds.items()}
        yield _family(CounterMetricFamily, "requests", "Requests by what they are", kinds, ("type", "kind"))
        yield _family(CounterMetricFamily, "nacks", "Responses refused by clients", m.nacks, ("type", "group"))
        yield _family(CounterMetricFamily, "snapshot_commits", "Pushes by result", m.commits, ("result",))
        yield _family(CounterMetricFamily, "rollbacks", "Rollbacks by reason", m.rollbacks, ("reason",))
        yield _family(CounterMetricFamily, "push_triggers", "What woke streams", m.push_triggers, ("reason",))

    def _responses(self) -> Iterator[Metric]:
        m = self._metrics
        labels = ("type",)
        sent = {(each.label,): each.responses for each in m.types()}
        yield _family(CounterMetricFamily, "responses", "Responses sent", sent, labels)
        resources = {(each.label,): each.resources for each in m.types()}
        yield _family(CounterMetricFamily, "resources_sent", "Resources sent", resources, labels)
        timeouts = {(each.label,): each.timeouts for each in m.types()}
        yield _family(CounterMetricFamily, "send_timeouts", "Responses superseded unanswered", timeouts, labels)
        ended = {(each.label,): each.waits_ended for each in m.types()}
        yield _family(CounterMetricFamily, "order_timeouts", "Waits for a type that were given up", ended, labels)
        yield _family(CounterMetricFamily, "coalesced_updates", "Wakes of streams awake already", {(): m.coalesced})
        yield _histogram("response_size_bytes", "Size of responses", {(): m.response_bytes})

    def _times(self) -> Iterator[Metric]:
        m = self._metrics
        acks = {(each.label,): each.ack_seconds for each in m.types()}
        yield _histogram("ack_seconds", "From send to ACK", acks, ("type",))
        groups = {(group,): each for group, each in list(m.convergence.items())}
        yield _histogram("convergence_seconds", "From push to the last ACK", groups, ("group",))
        yield _histogram("push_fan_out_seconds", "Time to wake the streams of a push", {(): m.fan_out_seconds})
        yield _histogram("push_queue_seconds", "From the wake of a stream to its turn", {(): m.queue_seconds})
        yield _histogram("response_build_seconds", "Time to find what a woken stream is sent", {(): m.build_seconds})
        yield _family(GaugeMetricFamily, "event_loop_lag_seconds", "Lateness of a timer", {(): m.loop_lag_s})


class _InFlightCollector(Collector):
    """What is written and not yet taken by clients."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight

    def collect(self) -> Iterator[Metric]:
        account = self._in_flight
        used = {(): account.used_bytes}
        yield _family(GaugeMetricFamily, "in_flight_bytes", "Bytes of large responses on their way", used)
        waits = {(): account.waits}
        yield _family(CounterMetricFamily, "in_flight_waits", "Responses that waited for room", waits)
        yield _family(
            GaugeMetricFamily, "slow_streams", "Streams that hold up nobody but each other", {(): account.slow}
        )
        yield _family(CounterMetricFamily, "slow_streams_cut", "Slow streams cut off to make room", {(): account.cuts})


class _State(Collector):
    """What is, from the cache and the fleet."""

    def __init__(self, metrics: Metrics, cache: SnapshotCache, fleet: Fleet, per_node: int) -> None:
        self._metrics = metrics
        self._cache = cache
        self._fleet = fleet
        self._per_node = per_node

    def collect(self) -> Iterator[Metric]:
        found = self._fleet.census(time(), detailed=self._per_node)
        yield from self._nodes(found)
        if self._per_node:
            yield from self._single_nodes(found)
        yield from self._snapshots()

    def _nodes(self, found: Census) -> Iterator[Metric]:
        for name, text, counts in (
            ("nodes", "Connected nodes", found.nodes),
            ("nodes_lingering", "Nodes that keep for a while what a push removed", found.lingering),
            ("nodes_held", "Nodes from which content is held back until clusters are warm", found.held),
        ):
            yield _family(GaugeMetricFamily, name, text, self._by_group(counts), ("group",))
        labels = ("type", "group")
        yield _family(
            GaugeMetricFamily, "nodes_nacked", "Nodes that refuse a type", self._by_type(found.nacked), labels
        )
        text = "Nodes that have not answered for a minute"
        yield _family(GaugeMetricFamily, "nodes_stale", text, self._by_type(found.stale), labels)
        missing: Counter[Labels] = Counter()
        for alias, number in found.missing.items():
            missing[(type_label(alias),)] += number
        yield _family(GaugeMetricFamily, "missing_resources", "Names asked for in vain", missing, ("type",))

    def _single_nodes(self, found: Census) -> Iterator[Metric]:
        states = {
            (node, self._metrics.group(group), type_label(alias)): float(is_synced)
            for (node, group, alias), is_synced in found.synced.items()
        }
        labels = ("node", "group", "type")
        yield _family(GaugeMetricFamily, "node_synced", "1 while a node is in step with a type", states, labels)
        text = "Nodes without series of their own"
        yield _family(GaugeMetricFamily, "node_synced_truncated", text, {(): found.left_out})

    def _by_group(self, counts: Mapping[str, int]) -> Counter[Labels]:
        found: Counter[Labels] = Counter()
        for group, number in counts.items():
            found[(self._metrics.group(group),)] += number
        return found

    def _by_type(self, counts: Mapping[tuple[str, str], int]) -> Counter[Labels]:
        found: Counter[Labels] = Counter()
        for (alias, group), number in counts.items():
            found[type_label(alias), self._metrics.group(group)] += number
        return found

    def _snapshots(self) -> Iterator[Metric]:
        revisions: dict[tuple[str, ...], float] = {}
        resources: Counter[tuple[str, ...]] = Counter()
        for name in self._cache.groups():
            snapshot = self._cache.get(name)
            label = self._metrics.group(name)
            if snapshot is None:
                continue
            if label != OTHER:
                revisions[(label,)] = snapshot.revision
            for each in snapshot:
                resources[label, type_label(each.type.alias)] += len(each)
        yield _family(GaugeMetricFamily, "snapshot_revision", "Revision served", revisions, ("group",))
        yield _family(GaugeMetricFamily, "snapshot_resources", "Resources served", resources, ("group", "type"))


Labels = tuple[str, ...]
Key = TypeVar("Key", bound=str | Labels)


def _family(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    values: Mapping[Key, float],
    labels: Labels = (),
) -> Metric:
    family = kind(PREFIX + name, text, labels=labels)
    for key, value in list(values.items()):  # at once: the loop goes on counting
        family.add_metric(_labels(key), value)
    return family


def _histogram(name: str, text: str, values: Mapping[Key, Distribution], labels: Labels = ()) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for key, distribution in list(values.items()):
        family.add_metric(_labels(key), distribution.buckets(), distribution.total)
    return family


def _labels(key: str | Labels) -> Labels:
    return (key,) if isinstance(key, str) else key
