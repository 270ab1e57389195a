"""The config entries of a publisher without groups."""

from __future__ import annotations

from xds.chain.index import Seen
from xds.control.config_entries import EntryPublisher
from xds.control.publisher import Publisher
from xds.fleet.fleet import Fleet
from xds.protocol.cache import SnapshotCache
from xds.store.base import Store


def entries_of(store: Store, seen: Seen) -> EntryPublisher:
    """The config entries of a store, not loaded yet."""
    return Publisher(store, SnapshotCache(), Fleet(), lambda groups: None, seen=seen).entries
