"""The counters of a server, and the registry that renders all metrics as Prometheus text.

The hot path counts in plain integers; metric families are made from them when the text is requested. Names are listed
in docs/operations.md, with the prefix ``xds_server_``. Labels are bounded: resource types that are not in the table
have the label ``other``, and so have groups beyond the first ``GROUP_LABELS``.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from math import inf
from threading import Lock
from time import monotonic
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.fleet.refused_streams import RefusalReason
from xds.model.errors import LimitError, RemoteProtocolError
from xds.model.resource_type import V3_TYPES, alias_of
from xds.version import __version__

PREFIX = "xds_server_"
OTHER = "other"
GROUP_LABELS = 200
_TYPE_LABELS = frozenset(rule.alias for rule in V3_TYPES)
_SIZE_BOUNDS = (1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7)
_TIME_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BUILD_BOUNDS = (0.00001, 0.00005, 0.0001, 0.00025, 0.0005, *_TIME_BOUNDS)
KEPT_S = 1.0  # how long a rendered text is served to further scrapes
# Labels of counters with alerts exist from the start, at 0: Prometheus sees no increase in a series that begins at 1.
FOREIGN_REASONS = ("host", "origin")
RELOAD_RESULTS = ("ok", "failed")
KINDS = ("initial", "ack", "nack", "subscribe", "repeat", "stale", "poll")


class Distribution:
    """A histogram in plain numbers."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that was observed so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += times * value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count several values."""
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.total += sum(values)

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds with cumulative counts, as Prometheus expects them."""
        buckets, running = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            buckets.append((bound, float(running)))
        return buckets


class TypeCounters:
    """The counters of one resource type."""

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
    """All counters of one server. ``registry`` renders them and the metrics of registered collectors."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self.streams: Counter[tuple[str, str]] = Counter()  # (protocol, service)
        self.closed: Counter[str] = Counter()  # gRPC status code name
        self.nacks: Counter[tuple[str, str]] = Counter()  # (type, group)
        self.limit_hits: Counter[str] = Counter()
        self.foreign_refused: Counter[str] = Counter(dict.fromkeys(FOREIGN_REASONS, 0))  # reason
        self.refused: Counter[str] = Counter(dict.fromkeys(RefusalReason, 0))  # streams refused, by reason
        self.node_mismatches = 0
        self.node_audits = 0  # nodes accepted in audit mode although no rule allows them
        self.auth_reloads: Counter[str] = Counter(dict.fromkeys(RELOAD_RESULTS, 0))  # result
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

    def attach_pushes(self, commits: Counter[str], triggers: Counter[str], rollbacks: Counter[str]) -> None:
        """Render these counters of pushes: commits by result, wakes of streams by reason, rollbacks by reason."""
        self.commits, self.push_triggers, self.rollbacks = commits, triggers, rollbacks

    def type(self, type_url: str) -> TypeCounters:
        """The counters of a type. Types that are not in the table share one."""
        counters = self._by_url.get(type_url)
        if counters is None:
            label = type_label(alias_of(type_url))
            counters = self._types.setdefault(label, TypeCounters(label))
            if label != OTHER:  # clients choose other URLs, so they are not remembered
                self._by_url[type_url] = counters
        return counters

    def types(self) -> Iterator[TypeCounters]:
        """The counters of all types, ordered by label."""
        return iter(sorted(self._types.values(), key=lambda counters: counters.label))

    def group(self, group: str) -> str:
        """The label of a group."""
        if group in self._groups:
            return group
        if len(self._groups) < GROUP_LABELS:
            self._groups.add(group)
            return group
        return OTHER

    def count_limit(self, error: RemoteProtocolError) -> None:
        """Count the limit that a request has exceeded, if the error names one."""
        if isinstance(error, LimitError):
            self.limit_hits[error.limit] += 1

    def nacked(self, type_url: str, group: str) -> None:
        """Count a NACK of a type by a client of a group."""
        self.nacks[self.type(type_url).label, self.group(group)] += 1

    def offered(self, waited_s: float, built_s: float, streams: int = 1) -> None:
        """Count the run of woken streams: how long each was queued, and how long its responses took to compute."""
        self.queue_seconds.observe(waited_s, streams)
        self.build_seconds.observe(built_s, streams)

    def sent(self, type_url: str, resources: int, size: int, streams: int) -> None:
        """Count a response of ``size`` bytes, which so many streams were sent."""
        self.response_bytes.observe(size, streams)
        counters = self.type(type_url)
        counters.responses += streams
        counters.resources += streams * resources

    def converged(self, group: str, seconds: float) -> None:
        """Count how long a push to a group took until its last ACK."""
        label = self.group(group)
        self.convergence.setdefault(label, Distribution(_TIME_BOUNDS)).observe(seconds)

    def render(self) -> bytes:
        """The current exposition text (``text/plain; version=1.0.0``). May be called in any thread."""
        return generate_latest(self.registry)

    def text(self) -> bytes:
        """As ``render``, at most once in ``kept_s`` for all callers. Call it in a thread: 10,000 series take 100 ms."""
        with self._rendering:
            if monotonic() - self._text_at >= self._kept_s:
                self._text = self.render()
                self._text_at = monotonic()
            return self._text


def type_label(alias: str) -> str:
    """The label of a resource type, by its alias."""
    return alias if alias in _TYPE_LABELS else OTHER


class _Counters(Collector):
    """Makes metric families from the counters."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._streams()
        yield from self._requests()
        yield from self._responses()
        yield from self._times()
        info = {"version": __version__, "python": platform.python_version(), "edp": version("envoy-data-plane")}
        yield family(
            GaugeMetricFamily, "build_info", "Versions of the running server", {tuple(info.values()): 1}, tuple(info)
        )

    def _streams(self) -> Iterator[Metric]:
        m = self._metrics
        yield family(GaugeMetricFamily, "streams", "Open streams", m.streams, ("protocol", "service"))
        yield family(CounterMetricFamily, "streams_closed", "Streams by final status", m.closed, ("code",))
        yield family(CounterMetricFamily, "streams_refused", "Streams that were refused", m.refused, ("reason",))
        yield family(CounterMetricFamily, "limit_hits", "Times a limit was hit", m.limit_hits, ("limit",))
        yield histogram("stream_duration_seconds", "Duration of closed streams", {(): m.stream_seconds})
        exhausted = {(): m.files_exhausted}
        yield family(CounterMetricFamily, "files_exhausted", "Seconds without a file descriptor left", exhausted)
        waiting = {(): m.awaiting_admission}
        yield family(GaugeMetricFamily, "streams_awaiting_admission", "New streams that wait for admission", waiting)
        yield histogram(
            "admission_seconds", "Time from the arrival of a stream to its admission", {(): m.admission_seconds}
        )
        yield family(
            CounterMetricFamily,
            "node_mismatches",
            "Requests that name another node than the first request of their stream",
            {(): m.node_mismatches},
        )
        text = "HTTP requests refused as those of a foreign page or for an unknown host name"
        yield family(CounterMetricFamily, "http_foreign_refused", text, m.foreign_refused, ("reason",))
        audits = {(): m.node_audits}
        yield family(CounterMetricFamily, "node_audits", "Nodes accepted in audit mode that no rule allows", audits)
        yield family(
            CounterMetricFamily, "auth_reloads", "Reloads of the auth settings by result", m.auth_reloads, ("result",)
        )

    def _requests(self) -> Iterator[Metric]:
        m = self._metrics
        kinds = {(each.label, kind): number for each in m.types() for kind, number in each.kinds.items()}
        yield family(CounterMetricFamily, "requests", "Discovery requests by kind", kinds, ("type", "kind"))
        yield family(CounterMetricFamily, "nacks", "Responses rejected by clients", m.nacks, ("type", "group"))
        yield family(CounterMetricFamily, "snapshot_commits", "Pushes by result", m.commits, ("result",))
        yield family(CounterMetricFamily, "rollbacks", "Rollbacks by reason", m.rollbacks, ("reason",))
        yield family(CounterMetricFamily, "push_triggers", "Wakes of streams by reason", m.push_triggers, ("reason",))

    def _responses(self) -> Iterator[Metric]:
        m = self._metrics
        labels = ("type",)
        sent = {(each.label,): each.responses for each in m.types()}
        yield family(CounterMetricFamily, "responses", "Responses sent", sent, labels)
        resources = {(each.label,): each.resources for each in m.types()}
        yield family(CounterMetricFamily, "resources_sent", "Resources sent", resources, labels)
        timeouts = {(each.label,): each.timeouts for each in m.types()}
        yield family(
            CounterMetricFamily,
            "send_timeouts",
            "Responses that were superseded before the client answered",
            timeouts,
            labels,
        )
        ended = {(each.label,): each.waits_ended for each in m.types()}
        yield family(CounterMetricFamily, "order_timeouts", "Waits for an ACK of a type that timed out", ended, labels)
        yield family(
            CounterMetricFamily, "coalesced_updates", "Wakes of streams that were queued already", {(): m.coalesced}
        )
        yield histogram("response_size_bytes", "Size of responses", {(): m.response_bytes})

    def _times(self) -> Iterator[Metric]:
        m = self._metrics
        acks = {(each.label,): each.ack_seconds for each in m.types()}
        yield histogram("ack_seconds", "Time from a response to its ACK", acks, ("type",))
        groups = {(group,): each for group, each in list(m.convergence.items())}
        yield histogram("convergence_seconds", "Time from a push to its last ACK", groups, ("group",))
        yield histogram("push_fan_out_seconds", "Time to wake the streams of a push", {(): m.fan_out_seconds})
        yield histogram("push_queue_seconds", "Time from the wake of a stream to its work item", {(): m.queue_seconds})
        yield histogram(
            "response_build_seconds", "Time to compute the responses of a woken stream", {(): m.build_seconds}
        )
        yield family(
            GaugeMetricFamily, "event_loop_lag_seconds", "Delay of a timer of the event loop", {(): m.loop_lag_s}
        )


Labels = tuple[str, ...]
Key = TypeVar("Key", bound=str | Labels)


def family(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    values: Mapping[Key, float],
    labels: Labels = (),
    prefix: str = PREFIX,
) -> Metric:
    """A metric family of counters or gauges; the keys of ``values`` are label values in the order of ``labels``."""
    metric = kind(prefix + name, text, labels=labels)
    for key, value in list(values.items()):  # a copy, because the loop counts meanwhile
        metric.add_metric(_labels(key), value)
    return metric


def histogram(name: str, text: str, values: Mapping[Key, Distribution], labels: Labels = ()) -> Metric:
    """A metric family of histograms."""
    metric = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for key, distribution in list(values.items()):
        metric.add_metric(_labels(key), distribution.buckets(), distribution.total)
    return metric


def _labels(key: str | Labels) -> Labels:
    return (key,) if isinstance(key, str) else key
