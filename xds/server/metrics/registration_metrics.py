"""Metrics of instances that are registered over HTTP, and of the clocks of their checks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.control.registration import Registrations
from xds.server.metrics.counters import PREFIX, family


class RegistrationMetrics(Collector):
    """Registrations. Runs in a thread, over single numbers."""

    def __init__(self, registrations: Registrations) -> None:
        self._registrations = registrations

    def collect(self) -> Iterator[Metric]:
        """The metrics of now."""
        of = self._registrations
        for name, text, value in (
            ("registered_instances", "Instances that are registered over HTTP", len(of.table)),
            ("registered_ttl_checks", "TTL checks whose clock runs", of.ttl_checks_n),
            ("registrations_unsaved", "Registrations whose last status is not stored yet", of.unsaved_n),
        ):
            yield family(GaugeMetricFamily, name, text, {(): float(value)})
        for name, text, count in (
            ("registered_checks_expired", "TTL checks that were not told their status in time", float(of.expired_n)),
            ("registered_instances_reaped", "Instances deregistered because they stayed critical", float(of.reaped_n)),
            ("registration_standstill_seconds", "How long clocks stood still, as the server did not run", of.lost_s),
            ("registration_failures", "Failures in the server while clocks were looked at", float(of.failures)),
        ):
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value=count)
