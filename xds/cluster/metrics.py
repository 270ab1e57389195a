"""The metrics of the servers that share a store."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from xds.cluster.members import Members
from xds.server.metrics.counters import PREFIX
from xds.store.member_register import NO_NUMBER


class MemberMetrics(Collector):
    """The members that this server knows, and whether it holds the lease."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        members = self._members
        joined_n = len(members.others()) + (members.me.number != NO_NUMBER)
        yield GaugeMetricFamily(f"{PREFIX}members", "Servers that share the store, this one included", joined_n)
        yield GaugeMetricFamily(f"{PREFIX}lease_held", "1 while this server holds the lease", members.holds_lease())
        yield CounterMetricFamily(f"{PREFIX}heartbeat_failures", "Heartbeats without an answer", members.failures)
