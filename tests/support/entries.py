"""The config entries of a publisher without groups."""

from __future__ import annotations

from xds.fleet.fleet import Fleet
from xds.mesh.config_entries import EntryPublisher
from xds.mesh.core.chain.index import ChainContext
from xds.push.publisher import Publisher
from xds.snapshots.cache import SnapshotCache
from xds.store.base import Store


def entries_of(store: Store, context: ChainContext) -> EntryPublisher:
    """The config entries of a store, not loaded yet."""
    return Publisher(store, SnapshotCache(), Fleet(), lambda groups: None, chain_context=context).entries
