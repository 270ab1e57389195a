"""The demand that other servers measured, for the one that decides: a load stream lives at one server.

A server that does not answer counts with what it told last, and its sources as not reporting, never as without load:
the policy then holds its decision, as for any source whose reports are late. Nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from xds.admin.gathering import gathered_of, server_asked
from xds.admin.other_servers import NoOthers, OtherServers
from xds.fleet.senders import Reporting
from xds.lrs.figures import ClusterDemand, Flow, SourceDemand
from xds.model.load_report import Metric
from xds.model.node import Locality
from xds.store.document_keys import Key

Json = dict[str, Any]

DEMAND_PATH = "/demand"  # of an internal route
POLICIES_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class WantedDemand:
    """A cluster whose demand is asked for: its group, the name of its assignment, and the interval of its policy."""

    group: str
    cluster: str
    endpoints: str
    interval_s: float

    @property
    def key(self) -> Key:
        """The policy."""
        return self.group, self.cluster


@dataclass(frozen=True, slots=True)
class MeasuredDemand:
    """What one server measured of a cluster: the demand, and the nodes that could send, by source.

    ``apart`` are the nodes of the group that only report their load to it.
    """

    reported: ClusterDemand
    senders: Mapping[Locality, Reporting]
    apart: Mapping[Locality, Reporting] = field(default_factory=dict)

    @property
    def sources(self) -> frozenset[Locality]:
        """The localities that it knows something of."""
        return frozenset((*self.senders, *(one.source for one in self.reported.sources)))


@dataclass(frozen=True, slots=True)
class OthersDemand:
    """What the other servers measured, by policy. ``unheard``: their names and what they told last, if they told."""

    found: Mapping[Key, Sequence[MeasuredDemand]] = field(default_factory=dict)
    unheard: Mapping[str, Mapping[Key, MeasuredDemand]] = field(default_factory=dict)

    def add_to(self, key: Key, own: MeasuredDemand) -> MeasuredDemand:
        """All that was measured of a cluster, together with what this server measured."""
        late = [last[key] for last in self.unheard.values() if key in last]
        return added([own, *self.found.get(key, ()), *late])

    def unheard_sources(self, key: Key, known: Iterable[Locality]) -> frozenset[Locality]:
        """The sources whose demand is not complete; of a server that has told nothing yet all that are ``known``."""
        sources: set[Locality] = set()
        for last in self.unheard.values():
            sources.update(last[key].sources if key in last else known)
        return frozenset(sources)


NOTHING = OthersDemand()


class DemandOfOthers:
    """Asks the other servers, and keeps what each of them told last."""

    def __init__(self, others: OtherServers | None = None) -> None:
        self._others = others or NoOthers()
        self._last: dict[str, dict[Key, MeasuredDemand]] = {}

    async def ask(self, wanted: Sequence[WantedDemand]) -> OthersDemand:
        """What they measured of these clusters."""
        names = self._others.names()
        for gone in self._last.keys() - set(names):
            del self._last[gone]
        if not names or not wanted:
            return NOTHING
        answers = await self._others.ask(server_asked("POST", DEMAND_PATH, {"wanted": list(map(asdict, wanted))}))
        told = await gathered_of(answers, read_answer)
        found: dict[Key, list[MeasuredDemand]] = {}
        for name, measured in told.documents.items():
            self._last.setdefault(name, {}).update(measured)
            for key, each in measured.items():
                found.setdefault(key, []).append(each)
        return OthersDemand(found, {name: self._last.get(name, {}) for name in told.partial})


def added(measured: Sequence[MeasuredDemand]) -> MeasuredDemand:
    """The demand at several servers. The window ends where the first of theirs does."""
    first = measured[0].reported
    if len(measured) == 1:
        return measured[0]
    sources: dict[Locality, SourceDemand] = {}
    flows: dict[tuple[Locality, Locality], Flow] = {}
    senders, apart = (_sum(each) for each in zip(*((one.senders, one.apart) for one in measured), strict=True))
    for each in measured:
        for source in each.reported.sources:
            known = sources.get(source.source)
            sources[source.source] = _source(known, source) if known is not None else source
        for flow in each.reported.flows:
            along = flow.source, flow.target
            flows[along] = _flow(flows[along], flow) if along in flows else flow
    until = min(each.reported.until for each in measured)
    return MeasuredDemand(
        replace(first, until=until, sources=tuple(sources.values()), flows=tuple(flows.values())),
        {source: nodes.with_streams_of(apart.get(source, Reporting())) for source, nodes in senders.items()},
    )


def _sum(counts: Iterable[Mapping[Locality, Reporting]]) -> dict[Locality, Reporting]:
    total: dict[Locality, Reporting] = {}
    for each in counts:
        for locality, nodes in each.items():
            total[locality] = total.get(locality, Reporting()) + nodes
    return total


def _source(one: SourceDemand, other: SourceDemand) -> SourceDemand:
    return SourceDemand(
        one.source,
        one.rps + other.rps,
        one.errors_ps + other.errors_ps,
        one.dropped_ps + other.dropped_ps,
        one.in_progress + other.in_progress,
        one.nodes + other.nodes,
        max(one.reported, other.reported),
        one.attempted_ps + other.attempted_ps,
        one.repeats_ps + other.repeats_ps,
        one.failed_ps + other.failed_ps,
    )


def _flow(one: Flow, other: Flow) -> Flow:
    metrics = dict(one.metrics)
    for name, metric in other.metrics.items():
        had = metrics.get(name, Metric(0, 0.0))
        metrics[name] = Metric(had.requests + metric.requests, had.total + metric.total)
    return Flow(
        one.source,
        one.target,
        one.rps + other.rps,
        one.errors_ps + other.errors_ps,
        one.in_progress + other.in_progress,
        metrics,
        one.unissued_ps + other.unissued_ps,
    )


def write_answer(measured: Mapping[Key, MeasuredDemand]) -> Json:
    """What a server measured, as JSON."""
    return {
        "measured": [
            {
                "key": list(key),
                "reported": asdict(each.reported),
                "senders": _write_nodes(each.senders),
                "apart": _write_nodes(each.apart),
            }
            for key, each in measured.items()
        ]
    }


def read_answer(document: Json) -> dict[Key, MeasuredDemand]:
    """The reverse of `write_answer`. Raises one of ``FORM_ERRORS`` for a document of another form."""
    found: dict[Key, MeasuredDemand] = {}
    for each in document["measured"]:
        group, cluster = each["key"]
        reported = dict(each["reported"])
        reported["sources"] = tuple(
            SourceDemand(**{**one, "source": Locality(**one["source"])}) for one in reported["sources"]
        )
        reported["flows"] = tuple(map(_read_flow, reported["flows"]))
        nodes = (_read_nodes(each[name]) for name in ("senders", "apart"))
        found[group, cluster] = MeasuredDemand(ClusterDemand(**reported), *nodes)
    return found


def _write_nodes(nodes: Mapping[Locality, Reporting]) -> list[tuple[Json, Json]]:
    return [(asdict(locality), asdict(each)) for locality, each in nodes.items()]


def _read_nodes(listed: Iterable[tuple[Json, Json]]) -> dict[Locality, Reporting]:
    return {Locality(**locality): Reporting(**each) for locality, each in listed}


def _read_flow(one: Json) -> Flow:
    metrics = {name: Metric(*metric) for name, metric in one["metrics"].items()}
    localities = {name: Locality(**one[name]) for name in ("source", "target")}
    return Flow(**{**one, **localities, "metrics": metrics})
