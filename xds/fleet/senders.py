"""Which nodes of a group could send to a cluster, and which of them report their load.

This module defines reporting: a node with an open load stream reports, and if it sends nothing, its load is zero. gRPC
sends no reports while all of its clusters are idle. Keepalive ends the streams of nodes that have left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from xds.fleet.node_records import NodeRecord
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, ENDPOINT, alias_of

_CLUSTER, _ENDPOINT = alias_of(CLUSTER), alias_of(ENDPOINT)


@dataclass(frozen=True, slots=True)
class Reporting:
    """Nodes of a locality that could send to a cluster: ``reporting`` have a load stream, ``silent`` have none.

    ``settled`` counts the reporting nodes whose stream is so old that no report means no load.
    """

    reporting: int = 0
    silent: int = 0
    settled: int = 0

    def __add__(self, other: Reporting) -> Reporting:
        return Reporting(self.reporting + other.reporting, self.silent + other.silent, self.settled + other.settled)

    def with_streams_of(self, apart: Reporting) -> Reporting:
        """The silent ones among them may have their load streams ``apart``, at other servers."""
        found = min(self.silent, apart.reporting)
        return Reporting(self.reporting + found, self.silent - found, self.settled + min(found, apart.settled))


@dataclass(slots=True)
class Senders:
    """The nodes of one group. Nodes with a wildcard subscription are counted; for others the names are kept.

    ``apart`` are nodes with a load stream alone: of several servers, another one may have their configuration streams.
    """

    localities: set[Locality] = field(default_factory=set)
    by_kind: dict[Locality, Counter[str]] = field(default_factory=dict)
    by_name: list[tuple[Locality, str, frozenset[str], frozenset[str]]] = field(default_factory=list)
    apart: dict[Locality, Reporting] = field(default_factory=dict)

    def of(self, cluster: str, endpoints: str) -> dict[Locality, Reporting]:
        """The nodes that could send to a cluster, by locality; ``endpoints``: the name of its ClusterLoadAssignment."""
        sums = {locality: Counter(self.by_kind.get(locality)) for locality in self.localities}
        for locality, kind, clusters, assignments in self.by_name:
            if cluster in clusters or endpoints in assignments:
                sums[locality][kind] += 1
        return {
            locality: Reporting(kinds["settled"] + kinds["young"], kinds["silent"], kinds["settled"])
            for locality, kinds in sums.items()
        }


def take_senders(
    nodes: Iterable[NodeRecord],
    apart: Iterable[Node],
    reporting_since: Mapping[str, float],
    reported_until: Mapping[str, float],
    now: float,
    settled_after_s: float,
) -> Senders:
    """The senders among connected nodes, and those ``apart``.

    ``reporting_since``: when the nodes with a load stream opened it, by node id.
    A node without a load stream is silent once it has been connected for ``settled_after_s``, because clients open the
    load stream after the discovery stream. A node whose load stream ended at ``reported_until`` is silent only
    ``settled_after_s`` later: clients open another one, and the node's last reports are still counted.
    """
    senders = Senders()
    for node in nodes:
        locality = node.node.locality
        senders.localities.add(locality)
        name = node.node.id
        kind = _kind(node, reporting_since.get(name), reported_until.get(name, -inf), now - settled_after_s)
        names, assignments, is_wildcard = _names(node)
        if is_wildcard:
            senders.by_kind.setdefault(locality, Counter())[kind] += 1
        elif names or assignments:
            senders.by_name.append((locality, kind, names, assignments))
    for each in apart:
        is_settled = reporting_since.get(each.id, now) <= now - settled_after_s
        had = senders.apart.get(each.locality, Reporting())
        senders.apart[each.locality] = had + Reporting(1, settled=int(is_settled))
    return senders


def _kind(node: NodeRecord, reporting_since: float | None, reported_until: float, before: float) -> str:
    if reporting_since is not None:
        return "settled" if reporting_since <= before else "young"
    opened = min((stream.opened for stream in node.streams), default=before + 1.0)
    return "silent" if max(opened, reported_until) <= before else "other"


def _names(node: NodeRecord) -> tuple[frozenset[str], frozenset[str], bool]:
    clusters: frozenset[str] = frozenset()
    assignments: frozenset[str] = frozenset()
    is_wildcard = False
    for stream in node.streams:
        for one in list(stream.types.values()):
            if one.type_url == CLUSTER or alias_of(one.type_url) == _CLUSTER:
                is_wildcard = is_wildcard or one.wildcard
                clusters |= one.names
            elif alias_of(one.type_url) == _ENDPOINT:
                assignments |= one.names
    return clusters, assignments, is_wildcard
