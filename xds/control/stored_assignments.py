"""The stored assignments of lowered clusters, for upstreams that cannot be lowered again. Pure.

A store holds the clusters, not their assignments, which are generated. They are found by the names of the clusters: a
name says under which datacenter and trust domain it was made, which the settings may have changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from xds.catalog.entry_set import ConfigEntries
from xds.chain.index import ChainContext
from xds.chain.request import CompileRequestError
from xds.control.group_lowering import effective, use_of
from xds.lower.lowered import LoweredAssignment
from xds.lower.lowering import LoweringSettings, UpstreamChain, lower_assignments
from xds.lower.upstreams import Upstream, UpstreamsDocument
from xds.model.errors import ValidationError

_PLACES_TRIED = 8  # pairs of datacenter and trust domain; the clusters of a group have few
_INTERNAL = "internal"  # between the datacenter and the trust domain in the name of a cluster


def stored_assignments(
    clusters: Collection[str], document: UpstreamsDocument, entries: ConfigEntries, context: ChainContext
) -> dict[str, LoweredAssignment]:
    """The assignments of these clusters, by name. What this release refuses of an upstream counts for nothing here.

    A cluster has none if its chain no longer compiles, or if the filter of its subset cannot be evaluated.
    """
    with suppress(ValidationError):  # where an escape hatch of the service-defaults is not JSON, the document counts
        document = effective(document, entries)
    found: dict[str, LoweredAssignment] = {}
    for each in _places(clusters, context):
        for upstream in document.upstreams:
            chain = _chain(upstream, entries, each)
            if chain is None:
                continue
            made = lower_assignments(upstream, chain, document.proxies, LoweringSettings(each.datacenter))
            found = {**{name: one for name, one in made.items() if name in clusters}, **found}
    return dict(sorted(found.items()))


def _places(clusters: Collection[str], context: ChainContext) -> Iterator[ChainContext]:
    """From where the chains of these clusters may have been seen: as today, and as the most names say."""
    yield context
    pairs = Counter(pair for name in clusters for pair in _pairs(name))
    for (datacenter, trust_domain), _ in pairs.most_common(_PLACES_TRIED):
        if (datacenter, trust_domain) != (context.datacenter, context.trust_domain):
            yield replace(context, datacenter=datacenter, trust_domain=trust_domain)


def _pairs(name: str) -> Iterator[tuple[str, str]]:
    """Datacenter and trust domain of a cluster; a trust domain may have ``.internal.`` in it."""
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
    return UpstreamChain(compiled.chain, frozenset(key for key in compiled.consulted if entries.get(key) is not None))
