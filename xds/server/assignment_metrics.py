"""Metrics of traffic assignment: how its sources stand, and what happened since the start."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from xds.control.assignment_inputs import ACTIONS
from xds.control.assignments import Assignments
from xds.load.assignment import Standing
from xds.server.metrics import PREFIX


class AssignmentMetrics(Collector):
    """Counts what is at work when the text is asked for; in a thread, over copies."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments

    def collect(self) -> Iterator[Metric]:
        at_work = self._assignments
        waiting, standings = at_work.census()
        text = "Policies of traffic assignment, and those that lack something to decide about"
        policies = GaugeMetricFamily(f"{PREFIX}assignment_policies", text, labels=["state"])
        policies.add_metric(["deciding"], at_work.policies_n - waiting)
        policies.add_metric(["waiting"], waiting)
        yield policies
        text = "Source localities of all policies, by how what they are served came about"
        sources = GaugeMetricFamily(f"{PREFIX}assignment_sources", text, labels=["standing"])
        for standing in Standing:
            sources.add_metric([str(standing)], standings[standing])
        yield sources
        events = CounterMetricFamily(f"{PREFIX}assignment_events", "What sources were served anew", labels=["action"])
        for action in ACTIONS:
            events.add_metric([action], at_work.counts[action])
        yield events
        text = "Rounds of decisions that ended in a fault of the server"
        yield CounterMetricFamily(f"{PREFIX}assignment_failures", text, value=at_work.failures)
