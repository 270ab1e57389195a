"""Metrics of services: the catalog, the sources and registrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import time

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.server.counters import PREFIX, Labels, family
from xds.services.bindings import Bindings
from xds.services.catalog import ServiceCatalog
from xds.services.followed_assignments import FollowedAssignments
from xds.services.registration import Registrations
from xds.services.source_feed import SourceFeed
from xds.services.source_runs import Sources

_SOURCE: Labels = ("source", "kind")
_FeedMetric = tuple[str, str, Callable[[SourceFeed], float]]
_GAUGES: Sequence[_FeedMetric] = (
    ("source_services", "Services of a source", lambda feed: len(feed.source.by_service)),
    ("source_instances", "Instances of a source", lambda feed: feed.source.instances_n),
    (
        "source_held_services",
        "Services with a held loss: their source lost too many instances at once",
        lambda feed: len(feed.source.held_services),
    ),
    (
        "source_held_instances",
        "Instances that are kept although their source lost them",
        lambda feed: feed.source.lost_n,
    ),
    ("source_findings", "Findings: parts of a source's data that cannot be used", lambda feed: feed.findings_n),
    ("source_failing", "1 while a source cannot be read", lambda feed: feed.status.is_failing),
    (
        "source_read_time_seconds",
        "When a source was last read, in epoch seconds; 0 for never",
        lambda feed: feed.status.read_at,
    ),
)
_COUNTERS: Sequence[_FeedMetric] = (
    ("source_changes", "Changes of services that a source has shown", lambda feed: feed.status.changes_n),
    ("source_failures", "Failed attempts to read a source", lambda feed: feed.status.failures_n),
)


class CatalogMetrics(Collector):
    """The catalog of services, and all assignments that follow services, by owner.

    ``collect`` runs in a thread, over copies. The number of sources bounds the series.
    """

    def __init__(
        self, catalog: ServiceCatalog, bindings: Bindings, followed: Mapping[str, FollowedAssignments]
    ) -> None:
        self._catalog = catalog
        self._bindings = bindings
        self._followed = followed

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        catalog, bindings = self._catalog, self._bindings
        yield family(GaugeMetricFamily, "services", "Services of the catalog", {(): catalog.services_n})
        live_n = bindings.followed.live_n
        states: dict[Labels, float] = {("live",): live_n, ("waiting",): len(bindings) - live_n}
        text = "Assignments that follow a service: served, or waiting for a source to show the service"
        yield family(GaugeMetricFamily, "bindings", text, states, ("state",))
        text = "Changes of services that failed in the server; proxies keep the previous endpoints"
        failures = catalog.failures + sum(each.failures for each in self._followed.values())
        yield CounterMetricFamily(f"{PREFIX}catalog_failures", text, value=failures)
        yield from self._sources()

    def _sources(self) -> Iterator[Metric]:
        feeds = self._catalog.feeds()
        for kind, metrics in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, text, value_of in metrics:
                values: dict[Labels, float] = {(one.status.name, one.status.kind): value_of(one) for one in feeds}
                yield family(kind, name, text, values, _SOURCE)


class RegistrationMetrics(Collector):
    """Registrations. ``collect`` runs in a thread and reads single numbers."""

    def __init__(self, registrations: Registrations) -> None:
        self._registrations = registrations

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        registrations = self._registrations
        for name, text, value in (
            ("registered_instances", "Instances that are registered over HTTP", len(registrations.table)),
            ("registered_ttl_checks", "Running TTL checks", registrations.ttl_checks_n),
            ("registrations_unsaved", "Registrations whose last status is not stored yet", registrations.unsaved_n),
        ):
            yield family(GaugeMetricFamily, name, text, {(): float(value)})
        for name, text, count in (
            (
                "registered_checks_expired",
                "TTL checks without a heartbeat within their TTL",
                float(registrations.expired_n),
            ),
            (
                "registered_instances_reaped",
                "Instances deregistered because they stayed critical",
                float(registrations.reaped_n),
            ),
            (
                "registration_standstill_seconds",
                "How long TTLs were paused because the server did not run",
                registrations.lost_s,
            ),
            ("registration_failures", "Failures of the server while it checked TTLs", float(registrations.failures)),
        ):
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value=count)


class SourceMetrics(Collector):
    """Restarts and waiting changes of sources. `CatalogMetrics` has their services and instances."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        now = time()
        runs = [((run.name, run.kind), run) for run in self._sources.runs().values()]
        restarts = {labels: run.restarts_n for labels, run in runs}
        yield family(CounterMetricFamily, "source_restarts", "Restarts of sources that had ended", restarts, _SOURCE)
        waiting = {labels: run.waiting_n for labels, run in runs}
        text = "Services whose latest state waits because of changes_per_s"
        yield family(GaugeMetricFamily, "source_waiting_services", text, waiting, _SOURCE)
        lag = {labels: max(now - run.waiting_since, 0.0) if run.waiting_since else 0.0 for labels, run in runs}
        text = "How long changes of services have been waiting because of changes_per_s"
        yield family(GaugeMetricFamily, "source_waiting_seconds", text, lag, _SOURCE)
