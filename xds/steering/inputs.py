"""The inputs of a traffic assignment decision, and the events that report its outcome. Pure.

Inputs are load reports, the pushed endpoints, and which connected nodes report. An event is recorded for each source
whose assignment or state changes, with the reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.fleet.event_log import EventKind, EventLog
from xds.fleet.senders import Reporting
from xds.lrs import figures
from xds.model.load_report import Metric
from xds.model.node import Locality
from xds.steering.core.assignment import (
    Assignment,
    Demand,
    FlowRate,
    Observation,
    ObservedFlows,
    Target,
    scale_of_silence,
)
from xds.steering.core.decision_history import DecisionChange
from xds.steering.core.load_assignment import PushedLocality
from xds.steering.core.reasons import describe_shares, locality_label
from xds.store.document_keys import Key

SOURCES_LIMIT = 64  # per policy; each source needs a snapshot of its own


def observe(
    reported: figures.ClusterDemand,
    senders: Mapping[Locality, Reporting],
    pushed: Mapping[Locality, PushedLocality],
    previous: Assignment | None,
    remembered_since: float,
    now: float,
    unheard: Collection[Locality] = (),
) -> Observation:
    """Demand by source, the state of the targets, and the measured flows from sources to targets.

    Sources are the localities of reports and of the ``senders``, and the sources of the ``previous`` assignment
    that reported after ``remembered_since``, because clients reconnect one by one after a restart. Beyond
    ``SOURCES_LIMIT`` sources, sub-zones are merged into zones. Beyond ``SOURCES_LIMIT`` zones, those with the least
    demand get the pushed weights.
    """
    demand = {one.source: _demand(one, senders.get(one.source, Reporting()), now) for one in reported.sources}
    for source, own in senders.items():
        if source not in demand:
            # A node with a load stream that has reported nothing for some time sends no requests.
            demand[source] = Demand(0.0, now if own.settled else None, own.reporting, own.silent)
    memory = previous.memory.sources if previous is not None else {}
    remembered = (source for source, own in memory.items() if own.heard_at >= remembered_since)
    for source in remembered:
        demand.setdefault(source, Demand())
    for source in unheard:
        demand[source] = replace(demand.get(source, Demand()), reported_at=None)
    scales = {source: scale_of_silence(own.nodes, own.silent) for source, own in demand.items()}
    flows = [
        replace(flow, rps=flow.rps * scale, errors_ps=flow.errors_ps * scale, unissued_ps=flow.unissued_ps * scale)
        for flow in reported.flows
        for scale in (scales.get(flow.source, 1.0),)
    ]
    bound = bounded(demand)
    return Observation(bound, _targets(pushed, flows), _flows(reported, flows) if bound is demand else None)


def bounded(demand: Mapping[Locality, Demand]) -> Mapping[Locality, Demand]:
    """At most ``SOURCES_LIMIT`` sources."""
    if len(demand) <= SOURCES_LIMIT:
        return demand
    zones: dict[Locality, list[Demand]] = defaultdict(list)
    for source, own in demand.items():
        zones[Locality(source.region, source.zone)].append(own)
    summed = {zone: _sum(members) for zone, members in zones.items()}
    largest = sorted(summed, key=lambda zone: (-summed[zone].rps, str(zone)))[:SOURCES_LIMIT]
    return {zone: summed[zone] for zone in sorted(largest, key=str)}


def _demand(own: figures.SourceDemand, senders: Reporting, now: float) -> Demand:
    nodes = senders.reporting or own.nodes
    scale = scale_of_silence(nodes, senders.silent)
    reported_at = now if senders.settled else own.reported or None
    dropped_rps = max(own.attempted_ps - own.rps, 0.0) * scale if own.dropped_ps > 0 else 0.0
    repeats_rps, failed_rps = own.repeats_ps * scale, own.failed_ps * scale
    return Demand(own.attempted_ps * scale, reported_at, nodes, senders.silent, dropped_rps, repeats_rps, failed_rps)


def _flows(reported: figures.ClusterDemand, flows: Iterable[figures.Flow]) -> ObservedFlows:
    """The flows by source and target. Errors of requests that were not issued count as drops, up to the reported drops.

    Reports have the drops of a source, but not by target: they are divided among the targets by these errors.
    """
    unissued: dict[Locality, float] = defaultdict(float)
    for flow in reported.flows:
        unissued[flow.source] += flow.unissued_ps
    dropped = {
        one.source: min(one.dropped_ps / unissued[one.source], 1.0)
        for one in reported.sources
        if unissued[one.source] > 0
    }
    rates: dict[Locality, dict[Locality, FlowRate]] = defaultdict(dict)
    for flow in flows:
        drops = flow.unissued_ps * dropped.get(flow.source, 0.0)
        rates[flow.source][flow.target] = FlowRate(flow.rps, max(flow.errors_ps - drops, 0.0))
    return ObservedFlows(reported.until - reported.window_s, reported.window_s, rates)


def _sum(members: Iterable[Demand]) -> Demand:
    demands = list(members)
    reported = [own.reported_at for own in demands if own.reported_at is not None]
    return Demand(
        sum(own.rps for own in demands),
        max(reported, default=None),
        sum(own.nodes for own in demands),
        sum(own.silent for own in demands),
        sum(own.dropped_rps for own in demands),
        sum(own.repeats_rps for own in demands),
        sum(own.failed_rps for own in demands),
    )


def _targets(pushed: Mapping[Locality, PushedLocality], flows: Iterable[figures.Flow]) -> Mapping[Locality, Target]:
    towards: dict[Locality, list[figures.Flow]] = defaultdict(list)
    for flow in flows:
        towards[flow.target].append(flow)
    return {name: _target(own, towards[name]) for name, own in pushed.items()}


def _target(own: PushedLocality, flows: list[figures.Flow]) -> Target:
    load_rps = sum(flow.rps for flow in flows)
    weighed = own.weighed if own.weighed < own.healthy else None
    return Target(own.endpoints, own.healthy, own.priority, own.weight, load_rps, _averages(flows), weighed)


def _averages(flows: Iterable[figures.Flow]) -> dict[str, float]:
    """The average of each metric that the backends of a locality reported, over all sources."""
    summed: dict[str, Metric] = {}
    for flow in flows:
        for name, metric in flow.metrics.items():
            so_far = summed.get(name, Metric(0, 0.0))
            summed[name] = Metric(so_far.requests + metric.requests, so_far.total + metric.total)
    return {name: metric.average for name, metric in summed.items() if metric.requests}


def record_policy_event(log: EventLog, key: Key, action: str, now: float, by: Caller = UNKNOWN_CALLER) -> None:
    """Record that a policy was put or deleted."""
    log.record(EventKind.ASSIGNMENT, action, now, group=key[0], details={**by.names(), "cluster": key[1]})


def record_decision_events(log: EventLog, key: Key, changes: Iterable[DecisionChange]) -> list[str]:
    """Record an event for each source whose assignment or state has changed. Returns the actions of the events."""
    recorded = []
    for change in changes:
        shares = describe_shares(change.after)
        details = {
            "cluster": key[1],
            "source": str(change.source),
            "standing": str(change.standing),
            "reasons": ",".join(dict.fromkeys(str(reason.code) for reason in change.reasons)),
            "shares": shares,
        }
        parts = (f"{locality_label(change.source)}: {shares}", *(reason.detail for reason in change.reasons))
        for action in change.actions:
            recorded.append(action)
            log.record(
                EventKind.ASSIGNMENT, action, change.decided_at, group=key[0], message="; ".join(parts), details=details
            )
    return recorded
