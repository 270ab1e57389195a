"""Collectors of metrics: each reads the state of one part of the server at each scrape.

No counter is kept for metrics alone. Names are listed in docs/operations.md. Clusters, localities and drop categories
come from clients: the first ``PAIRS`` of (cluster, locality) and of (cluster, category) have series of their own, the
others are summed as ``other``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from contextlib import suppress
from pathlib import Path
from time import time

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.access.certificate import read_pem
from xds.backup.backups import Backups
from xds.fleet.convergence import Census
from xds.fleet.fleet import Fleet
from xds.push import collector
from xds.push.audit_log import APART, TOGETHER
from xds.push.certificates import PushedCertificates
from xds.push.following import StoreFollower
from xds.push.progress import nodes_by_line
from xds.push.rollouts import Rollouts
from xds.rollouts.rollout import RolloutState
from xds.server.counters import OTHER, PREFIX, Labels, Metrics, family, type_label
from xds.server.flow.write_limiter import WriteLanes
from xds.server.load_streams import LoadStreams
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.lines import GroupLine
from xds.store.retention import StoreCondition, StoreStats

LOAD_PREFIX = "xds_lrs_"
PAIRS = 2_000
AGENTS = 50
AGENT_CHARACTERS = 100
NO_CATEGORY = "uncategorised"

Pair = tuple[str, str]


class FleetMetrics(Collector):
    """The state of nodes and snapshots, from the fleet and the cache."""

    def __init__(self, metrics: Metrics, cache: SnapshotCache, fleet: Fleet, per_node: int) -> None:
        self._metrics = metrics
        self._cache = cache
        self._fleet = fleet
        self._per_node = per_node

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        census = self._fleet.census(time(), detailed=self._per_node)
        yield from self._nodes(census)
        if self._per_node:
            yield from self._single_nodes(census)
        yield from self._snapshots()

    def _nodes(self, census: Census) -> Iterator[Metric]:
        for name, text, counts in (
            ("nodes", "Connected nodes", census.nodes),
            (
                "nodes_lingering",
                "Nodes with lingering resources: removed, but kept until nothing uses them",
                census.lingering,
            ),
            ("nodes_held", "Nodes whose content is withheld until clusters are warm", census.held),
        ):
            yield family(GaugeMetricFamily, name, text, self._by_group(counts), ("group",))
        yield family(GaugeMetricFamily, "node_agents", "Connected nodes by client", _agents(census), ("agent",))
        labels = ("type", "group")
        yield family(
            GaugeMetricFamily, "nodes_nacked", "Nodes that reject a type", self._by_type(census.nacked), labels
        )
        text = "Nodes that have not acknowledged a type for a minute"
        yield family(GaugeMetricFamily, "nodes_stale", text, self._by_type(census.stale), labels)
        missing: Counter[Labels] = Counter()
        for alias, number in census.missing.items():
            missing[(type_label(alias),)] += number
        yield family(GaugeMetricFamily, "missing_resources", "Subscribed names that do not exist", missing, ("type",))

    def _single_nodes(self, census: Census) -> Iterator[Metric]:
        states = {
            (node, self._metrics.group(group), type_label(alias)): float(is_synced)
            for (node, group, alias), is_synced in census.synced.items()
        }
        labels = ("node", "group", "type")
        yield family(
            GaugeMetricFamily,
            "node_synced",
            "1 while a node has acknowledged the current resources of a type",
            states,
            labels,
        )
        text = "Nodes that have no series of their own"
        yield family(GaugeMetricFamily, "node_synced_truncated", text, {(): census.left_out})

    def _by_group(self, counts: Mapping[str, int]) -> Counter[Labels]:
        sums: Counter[Labels] = Counter()
        for group, number in counts.items():
            sums[(self._metrics.group(group),)] += number
        return sums

    def _by_type(self, counts: Mapping[tuple[str, str], int]) -> Counter[Labels]:
        sums: Counter[Labels] = Counter()
        for (alias, group), number in counts.items():
            sums[type_label(alias), self._metrics.group(group)] += number
        return sums

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
        yield family(GaugeMetricFamily, "snapshot_revision", "Revision served", revisions, ("group",))
        yield family(GaugeMetricFamily, "snapshot_resources", "Resources served", resources, ("group", "type"))


def _agents(census: Census) -> Counter[Labels]:
    """Nodes by their client and its version; clients choose the text, so the most frequent ones have a series."""
    sums: Counter[Labels] = Counter()
    for at, (agent, number) in enumerate(census.agents.most_common()):
        sums[(agent[:AGENT_CHARACTERS] if at < AGENTS else OTHER,)] += number
    return sums


class WriteMetrics(Collector):
    """Large responses that are written but not yet read by clients."""

    def __init__(self, lanes: WriteLanes) -> None:
        self._lanes = lanes

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        lanes = self._lanes
        used = {(): lanes.used_bytes}
        yield family(
            GaugeMetricFamily,
            "in_flight_bytes",
            "Bytes of large responses that are buffered but not yet read by clients",
            used,
        )
        waits = {(): lanes.waits}
        yield family(CounterMetricFamily, "in_flight_waits", "Large responses that waited for room", waits)
        yield family(
            GaugeMetricFamily,
            "slow_streams",
            "Streams of slow clients, which wait for each other alone",
            {(): lanes.slow_n},
        )
        yield family(
            CounterMetricFamily, "slow_streams_cut", "Slow streams disconnected to make room", {(): lanes.terminated}
        )


class LabelBudget:
    """Decides which label pairs have series of their own: the first that still exist, so that no counter jumps."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pairs: dict[Pair, None] = {}

    def update(self, present: Collection[Pair]) -> None:
        """Drop pairs that no longer exist, and admit as many others."""
        self._pairs = {pair: None for pair in self._pairs if pair in present}
        for pair in present:
            if len(self._pairs) >= self._limit:
                return
            self._pairs[pair] = None

    def label(self, pair: Pair) -> Pair:
        """The labels under which a pair is counted."""
        return pair if pair in self._pairs else (OTHER, OTHER)


class LoadMetrics(Collector):
    """Load reports and their streams."""

    def __init__(self, streams: LoadStreams, pairs: int = PAIRS) -> None:
        self._streams = streams
        self._localities = LabelBudget(pairs)
        self._categories = LabelBudget(pairs)

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        yield from self._own()
        yield from self._requests()
        yield from self._drops()

    def _own(self) -> Iterator[Metric]:
        counts, size = self._streams.counts, self._streams.aggregates.size()
        yield _gauge("lrs_streams", "Open load report streams", len(self._streams))
        yield _counter("lrs_reports", "Load reports received", counts.reports)
        yield _counter("lrs_report_bytes", "Bytes of load reports", counts.bytes)
        yield _counter("lrs_responses", "Requests for load reports sent", counts.responses)
        yield _counter(
            "lrs_restarts", "Streams ended so that the client reads a changed request for reports", counts.restarts
        )
        interval = self._streams.interval
        yield _gauge("lrs_interval_seconds", "The reporting interval that clients are asked for", interval.interval_s)
        yield _counter("lrs_reading_seconds", "CPU time for reading and counting load reports", counts.reading_s)
        yield _counter("lrs_refused", "Invalid reports of a cluster", counts.refused)
        left_out = CounterMetricFamily(
            f"{PREFIX}lrs_left_out", "Reported values that a memory bound left out", labels=["bound"]
        )
        for bound, number in size.left_out.items():
            left_out.add_metric([bound], number)
        yield left_out
        yield _gauge("lrs_windows", "Load windows in memory", size.windows)

    def _requests(self) -> Iterator[Metric]:
        totals = {(each.cluster, str(each.target)): each for each in self._streams.aggregates.target_totals()}
        self._localities.update(totals)
        outcomes: Counter[tuple[str, ...]] = Counter()
        issued: Counter[tuple[str, ...]] = Counter()
        in_progress: Counter[tuple[str, ...]] = Counter()
        for pair, total in totals.items():
            labels = self._localities.label(pair)
            outcomes[(*labels, "success")] += total.successes
            outcomes[(*labels, "error")] += total.errors
            issued[labels] += total.issued
            in_progress[labels] += total.in_progress
        pair_labels = ("cluster", "locality")
        yield family(
            CounterMetricFamily, "requests", "Requests that ended", outcomes, (*pair_labels, "outcome"), LOAD_PREFIX
        )
        yield family(CounterMetricFamily, "requests_issued", "Requests that began", issued, pair_labels, LOAD_PREFIX)
        yield family(
            GaugeMetricFamily, "requests_in_progress", "Requests in progress", in_progress, pair_labels, LOAD_PREFIX
        )

    def _drops(self) -> Iterator[Metric]:
        drop_totals = self._streams.aggregates.drop_totals()
        totals = {(each.cluster, each.category or NO_CATEGORY): each.dropped for each in drop_totals}
        self._categories.update(totals)
        drops: Counter[tuple[str, ...]] = Counter()
        for pair, dropped in totals.items():
            drops[self._categories.label(pair)] += dropped
        yield family(
            CounterMetricFamily, "dropped", "Requests dropped by clients", drops, ("cluster", "category"), LOAD_PREFIX
        )


class StoreMetrics(Collector):
    """The store: its size as last measured, and collections since the start. A scrape does not read the store."""

    def __init__(self, collector: collector.Collector, condition: Callable[[], StoreCondition]) -> None:
        self._collector = collector
        self._condition = condition

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        stats, done = self._collector.stats, self._collector.collected
        state = self._condition()
        yield _gauge(
            "store_lost", "1 while the files of the store are deleted or replaced: pushes are refused", bool(state.lost)
        )
        yield _gauge("store_read_only", "1 while the store is read-only: pushes are refused", bool(state.read_only))
        yield _gauge("store_behind", "1 while the store lacks acknowledged commits", bool(state.behind))
        text = "1 while the database does not answer: proxies are served, pushes are refused"
        yield _gauge("store_cut_off", text, bool(state.cut_off_s))
        yield _gauge("store_copy_failed", "1 while this disk has no copy of the database's state", bool(state.copy))
        if stats is not None:
            yield from _sizes(stats)
        yield _counter("store_collected_revisions", "Revisions whose content was deleted", done.revisions)
        yield _counter("store_collected_blobs", "Blobs deleted", done.blobs)
        yield _counter("store_collected_bytes", "Bytes of deleted blobs", done.blob_bytes)
        yield _counter("store_collection_failures", "Collections that failed", self._collector.failures)


class FollowingMetrics(Collector):
    """How far the server is behind its store."""

    def __init__(self, following: StoreFollower) -> None:
        self._following = following

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        lag = self._following.lag()
        text = "How long the server has lacked commits of the store, or has had no answer of it"
        yield _gauge("store_lag_seconds", text, max(lag.seconds, lag.silent_s))
        yield _gauge("store_backlog", "Groups and documents that could not be taken over yet", len(lag.behind))
        text = "Commits that could not be taken over because of a fault of this server"
        yield _counter("store_following_failures", text, self._following.failures)


class AuditMetrics(Collector):
    """Refused writes since the start, by how the audit list records them. ``refusals`` has the counts."""

    def __init__(self, refusals: Mapping[str, int]) -> None:
        self._refusals = refusals

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        text = "Refused writes: with an entry of their own in the audit list, or counted in a shared entry"
        yield _counters(
            "audit_refusals", text, "told", {told: self._refusals.get(told, 0) for told in (APART, TOGETHER)}
        )


class BackupMetrics(Collector):
    """Backups and restores since the start; the last backup only if there was one."""

    def __init__(self, backups: Backups) -> None:
        self._backups = backups

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        backups = self._backups
        yield _counters("backups", "Backups by result", "result", {"made": backups.made, "failed": backups.failed})
        yield _counter("restores", "Backups that were restored", backups.restored)
        for name, text, value in (
            ("backup_last_success_timestamp_seconds", "Time of the last backup", backups.last_s),
            ("backup_last_bytes", "Size of the last backup", backups.last_bytes),
        ):
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=())
            if backups.made:
                gauge.add_metric((), value)
            yield gauge


def _sizes(stats: StoreStats) -> Iterator[Metric]:
    yield _gauge("store_bytes", "Disk space of the store", stats.bytes)
    yield _gauge("store_free_bytes", "Free space within the files of the store", stats.free_bytes)
    yield _gauge("store_revisions", "Revisions whose content is kept", stats.revisions)
    yield _gauge("store_blobs", "Distinct resource bodies stored", stats.blobs)
    entries = GaugeMetricFamily(f"{PREFIX}audit_entries", "Entries of the audit list by kind", labels=["lane"])
    for lane, count in stats.audit.items():
        entries.add_metric([lane.name.lower()], count)
    yield entries
    yield _gauge("audit_bytes", "Size of the entries of changes in the audit list", stats.audit_bytes)


class WatchMetrics(Collector):
    """Refused files of the watched directory. ``refused`` is empty if no directory is watched."""

    def __init__(self, refused: Sized) -> None:
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        yield _gauge(
            "watch_refused", "Groups whose files in the watched directory cannot be applied", len(self._refused)
        )


class RolloutMetrics(Collector):
    """The careful rollouts: those that go on, by state; the nodes of their groups by line; and those that ended."""

    def __init__(
        self, rollouts: Rollouts, ended: Mapping[str, int], cache: SnapshotCache, fleet: Fleet, metrics: Metrics
    ) -> None:
        self._rollouts = rollouts
        self._ended = ended
        self._cache = cache
        self._fleet = fleet
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        going_on = self._rollouts.open()
        states = Counter({state.value: 0 for state in RolloutState if state.is_open})
        states.update(each.state.value for each in going_on)
        yield family(GaugeMetricFamily, "rollouts", "Careful rollouts that have not ended", states, ("state",))
        nodes: Counter[Labels] = Counter()
        for each in going_on:
            connected = self._fleet.connected(each.group)
            for line, ids in nodes_by_line(self._cache, self._fleet, each.group, connected).items():
                served = "head" if line is GroupLine.HEAD else "base"
                nodes[self._metrics.group(each.group), served] += len(ids)
        text = "Nodes of groups with a careful rollout: those in the wave have the head"
        yield family(GaugeMetricFamily, "rollout_nodes", text, nodes, ("group", "line"))
        yield _counters("rollouts_ended", "Careful rollouts that ended, by result", "result", self._ended)


class CertificateMetrics(Collector):
    """When the certificates of pushed resources expire: the first of each group."""

    def __init__(self, certificates: PushedCertificates, metrics: Metrics) -> None:
        self._certificates = certificates
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        first: dict[Labels, float] = {}
        for certificate in self._certificates.all():  # those that expire first come first
            first.setdefault((self._metrics.group(certificate.group),), certificate.not_after)
        text = "When the first certificate in the resources of a group expires, in epoch seconds"
        yield family(GaugeMetricFamily, "pushed_certificate_expiry_timestamp_seconds", text, first, ("group",))


class OwnCertificateMetrics(Collector):
    """When the server's own certificates expire, read from their files, which may be replaced; ``files`` is by port."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def collect(self) -> Iterator[Metric]:
        """The current metrics. A file that cannot be read has none: the log tells of it."""
        ends: dict[Labels, float] = {}
        for port, file in self._files.items():
            with suppress(OSError, ValueError):
                ends[(port,)] = read_pem(file.read_text()).not_after
        text = "When the certificate of a port expires, in epoch seconds"
        yield family(GaugeMetricFamily, "certificate_expiry_timestamp_seconds", text, ends, ("port",))


class EncryptionMetrics(Collector):
    """The ports that other machines reach without TLS; ``unencrypted`` is by port."""

    def __init__(self, unencrypted: Mapping[str, bool]) -> None:
        self._unencrypted = unencrypted

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        ports: dict[Labels, float] = {(port,): float(is_so) for port, is_so in self._unencrypted.items()}
        text = "1 if a port that other machines reach has no TLS"
        yield family(GaugeMetricFamily, "port_unencrypted", text, ports, ("port",))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    counters = CounterMetricFamily(PREFIX + name, text, labels=[label])
    for each, value in values.items():
        counters.add_metric([each], value)
    return counters


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)
