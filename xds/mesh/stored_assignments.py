"""The assignments of stored lowered clusters, for upstreams that cannot be lowered again. Pure.

The store has the clusters, but not their assignments, which are generated. The assignments are found by the names of
the clusters. A name contains the datacenter and trust domain under which it was made; the settings may have other ones
now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.chain.request import CompileRequestError
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.lower.lowered import LoweredAssignment
from xds.mesh.core.lower.lowering import lower_assignments
from xds.mesh.core.lower.upstream_context import UpstreamChain
from xds.mesh.core.lower.upstreams import Upstream, UpstreamsDocument
from xds.mesh.group_lowering import effective, use_of
from xds.model.errors import ValidationError

_PAIRS_TRIED = 8  # pairs of datacenter and trust domain; the clusters of a group have few
_INTERNAL = "internal"  # between the datacenter and the trust domain in the name of a cluster


def stored_assignments(
    clusters: Collection[str], document: UpstreamsDocument, entries: ConfigEntries, context: ChainContext
) -> dict[str, LoweredAssignment]:
    """The assignments of these clusters, by name. Errors for which this release refuses an upstream are ignored.

    A cluster has no assignment if its chain no longer compiles, or if the filter of its subset cannot be evaluated.
    """
    with suppress(ValidationError):  # if an escape hatch of the service-defaults is not JSON, the document alone counts
        document = effective(document, entries)
    assignments: dict[str, LoweredAssignment] = {}
    for origin in _origins(clusters, context):
        for upstream in document.upstreams:
            chain = _chain(upstream, entries, origin)
            if chain is None:
                continue
            lowered = lower_assignments(upstream, chain, document.proxies, origin.datacenter)
            assignments = {**{name: one for name, one in lowered.items() if name in clusters}, **assignments}
    return dict(sorted(assignments.items()))


def _origins(clusters: Collection[str], context: ChainContext) -> Iterator[ChainContext]:
    """The contexts in which these clusters may have been compiled: the present one, then those that most names show."""
    yield context
    pairs = Counter(pair for name in clusters for pair in _pairs(name))
    for (datacenter, trust_domain), _ in pairs.most_common(_PAIRS_TRIED):
        if (datacenter, trust_domain) != (context.datacenter, context.trust_domain):
            yield replace(context, datacenter=datacenter, trust_domain=trust_domain)


def _pairs(name: str) -> Iterator[tuple[str, str]]:
    """The possible pairs of datacenter and trust domain of a cluster: a trust domain may contain ``.internal.``."""
    labels = name.split(".")
    for index, label in enumerate(labels):
        if label == _INTERNAL and 0 < index < len(labels) - 1:
            yield labels[index - 1], ".".join(labels[index + 1 :])


def _chain(upstream: Upstream, entries: ConfigEntries, context: ChainContext) -> UpstreamChain | None:
    try:
        compiled = use_of(upstream).compile(context, entries)
    except CompileRequestError:
        return None
    if compiled.chain is None:
        return None
    return UpstreamChain(compiled.chain, entries.written(compiled.consulted))
