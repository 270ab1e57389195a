"""The metrics of the servers that share a store."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from xds.cluster.fan_out import FanOut
from xds.cluster.members import Members
from xds.server.counters import PREFIX
from xds.store.member_register import NO_NUMBER


class MemberMetrics(Collector):
    """The members that this server knows, how they answer, and whether it holds the lease."""

    def __init__(self, members: Members, fan_out: FanOut) -> None:
        self._members = members
        self._fan_out = fan_out

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        members = self._members
        joined_n = len(members.others()) + (members.me.number != NO_NUMBER)
        yield GaugeMetricFamily(f"{PREFIX}members", "Servers that share the store, this one included", joined_n)
        yield GaugeMetricFamily(f"{PREFIX}lease_held", "1 while this server holds the lease", members.holds_lease())
        yield CounterMetricFamily(f"{PREFIX}heartbeat_failures", "Heartbeats without an answer", members.failures)
        text = "Calls of other servers that they did not answer"
        yield CounterMetricFamily(f"{PREFIX}unanswered_calls", text, self._fan_out.unanswered_n)
