"""The config entries of a publisher without groups."""

from __future__ import annotations

from xds.fleet.fleet import Fleet
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.served import ServedMesh
from xds.push.publisher import Publisher
from xds.snapshots.cache import SnapshotCache
from xds.store.base import Store


def entries_of(store: Store, context: ChainContext) -> EntryTable:
    """The config entries of a store, not loaded yet."""
    return published_entries(store, context)[0]


def published_entries(store: Store, context: ChainContext) -> tuple[EntryTable, Publisher]:
    """The config entries of a store, not loaded yet, and their publisher."""
    fleet = Fleet()
    publisher = Publisher(store, SnapshotCache(), fleet, lambda groups: None)
    mesh = ServedMesh(store, publisher, context, fleet.events)
    publisher.derived.sources += mesh.derived()
    return mesh.entries, publisher
