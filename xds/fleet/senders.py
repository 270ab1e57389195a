"""Which nodes of a group could send to a cluster, and which of them report their load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from xds.fleet.track import NodeTrack
from xds.model.node import Locality
from xds.model.resource_type import CLUSTER, ENDPOINT, alias_of

LOAD_SERVICE = "LRS"  # the service of a stream of load reports, as in `StreamState`
_CLUSTER, _ENDPOINT = alias_of(CLUSTER), alias_of(ENDPOINT)


@dataclass(frozen=True, slots=True)
class Reporting:
    """How many nodes of a locality could send to a cluster: ``reporting`` ones with a load stream, ``silent`` without.

    ``settled``: some of the reporting ones have had their stream for so long that saying nothing means zero.
    """

    reporting: int = 0
    silent: int = 0
    settled: int = 0


@dataclass(slots=True)
class Senders:
    """The nodes of one group. Those that follow all clusters are counted; of the others the names are kept."""

    localities: frozenset[Locality] = frozenset()
    _all: dict[Locality, Counter[str]] = field(default_factory=dict)
    _named: list[tuple[Locality, str, frozenset[str], frozenset[str]]] = field(default_factory=list)

    def of(self, cluster: str, endpoints: str) -> dict[Locality, Reporting]:
        """By locality, for a cluster and the name of its ClusterLoadAssignment."""
        sums = {locality: Counter(kinds) for locality, kinds in self._all.items()}
        for locality, kind, clusters, assignments in self._named:
            if cluster in clusters or endpoints in assignments:
                sums.setdefault(locality, Counter())[kind] += 1
        return {
            locality: Reporting(kinds["settled"] + kinds["young"], kinds["silent"], kinds["settled"])
            for locality, kinds in sums.items()
        }


def take_senders(tracks: Iterable[NodeTrack], now: float, settled_after_s: float) -> Senders:
    """The senders among connected nodes.

    A node without a load stream is silent once it has been connected for ``settled_after_s``: clients open the stream
    after that of their configuration. A node that has no other stream than that of its load is none of these.
    """
    found = Senders()
    localities = set()
    for track in tracks:
        localities.add(track.node.locality)
        kind = _kind(track, now - settled_after_s)
        names, assignments, is_wildcard = _names(track)
        if not kind:
            continue
        if is_wildcard:
            found._all.setdefault(track.node.locality, Counter())[kind] += 1
        elif names or assignments:
            found._named.append((track.node.locality, kind, names, assignments))
    found.localities = frozenset(localities)
    return found


def _kind(track: NodeTrack, before: float) -> str:
    streams = list(track.streams.values())
    load = [stream.opened for stream in streams if stream.service == LOAD_SERVICE]
    if load:
        return "settled" if min(load) <= before else "young"
    return "silent" if streams and min(stream.opened for stream in streams) <= before else ""


def _names(track: NodeTrack) -> tuple[frozenset[str], frozenset[str], bool]:
    clusters: frozenset[str] = frozenset()
    assignments: frozenset[str] = frozenset()
    is_wildcard = False
    for stream in list(track.streams.values()):
        for one in list(stream.types.values()):
            if one.type_url == CLUSTER or alias_of(one.type_url) == _CLUSTER:
                is_wildcard = is_wildcard or one.wildcard
                clusters |= one.names
            elif alias_of(one.type_url) == _ENDPOINT:
                assignments |= one.names
    return clusters, assignments, is_wildcard
