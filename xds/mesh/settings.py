"""The settings of chains, as their compiler needs them."""

from __future__ import annotations

from xds.mesh.core.chain.index import ChainContext
from xds.settings.sections import ChainSettings


def chain_context(settings: ChainSettings) -> ChainContext:
    """The context of all chains of a server with these settings."""
    return ChainContext(settings.datacenter, settings.trust_domain, settings.partitions)
