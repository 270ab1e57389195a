"""The revision of a chain moves when the chain does, and only then."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.entries import entries_of
from tests.support.random_entries import RandomEntries
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.chain import ChainError, DiscoveryChain
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.entries.entry import read_entry
from xds.mesh.entry_records import DeleteEntry, EntryWrite, PutEntry
from xds.model.errors import ValidationError
from xds.store.sqlite.memory import MemoryStore

SETS = 6  # random sets of entries, written one after the other over each other
DELETED = 0.2
VIEWS: tuple[tuple[Overrides | None, str], ...] = (
    (None, ""),
    (None, "dc9"),
    (Overrides(protocol="tcp"), ""),
    (Overrides(connect_timeout_ns=7), "dc9"),
)
View = tuple[str, Overrides | None, str]


def chain_of(publisher: EntryTable, view: View) -> DiscoveryChain | None:
    try:
        return publisher.chain(*view)
    except ChainError:
        return None


def writes(random: Random) -> list[EntryWrite]:
    found: list[EntryWrite] = []
    for entry in RandomEntries(random, is_old=False).entries():
        try:
            (made,) = read_entry(entry).entries
        except ValidationError:
            continue
        found.append(
            DeleteEntry(made.kind, made.name, must_exist=False) if random.random() < DELETED else PutEntry(made)
        )
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_the_revision_of_a_chain_moves_with_the_chain(seed: int) -> None:
    random = Random(seed)
    store = MemoryStore()
    await store.open()
    publisher = entries_of(store, ChainContext("dc1", "test.consul"))
    todo = [write for _ in range(SETS) for write in writes(random)]
    views = [(name, *view) for name in sorted({write.key[1] for write in todo}) for view in VIEWS]
    moved = still = 0
    for write in todo:
        followed = set(publisher.index.services)
        before = {view: (chain_of(publisher, view), publisher.chain_revision(*view)) for view in views}
        try:
            result = await publisher.apply([write])
        except ValidationError:
            continue
        for view, (chain, revision) in before.items():
            now = publisher.chain_revision(*view)
            assert revision <= now <= result.revision
            if chain_of(publisher, view) != chain:
                moved += 1
                assert now == result.revision, (view, write)
            elif view[1:] == VIEWS[0] and view[0] in followed & set(publisher.index.services):
                still += 1
                assert now == revision, (view, write)
    assert min(moved, still) > 20
    await store.close()


async def test_no_chain_revision_decreases_after_a_restart() -> None:
    store = MemoryStore()
    await store.open()
    publisher = entries_of(store, ChainContext("dc1", "test.consul"))
    kind, names = "service-resolver", ("web", "api", "gone", "never")
    for name in names[:3]:
        await publisher.apply([PutEntry(read_entry({"Kind": kind, "Name": name, "ConnectTimeout": "1s"}).entries[0])])
    await publisher.apply([DeleteEntry(kind, "gone")])

    def revisions(of: EntryTable) -> list[int]:
        entries = [of.entry_revision(kind, name) for name in names]
        return [*entries, *map(of.chain_revision, names), of.kind_revision(kind), of.kind_revision("service-router")]

    before = revisions(publisher)
    again = entries_of(store, ChainContext("dc1", "test.consul"))
    await again.load()
    assert all(was <= now <= 4 for was, now in zip(before, revisions(again), strict=True))
    held = revisions(again)
    await again.apply([DeleteEntry(kind, "web")])
    changed = [was != now for was, now in zip(held, revisions(again), strict=True)]
    assert changed == [True, False, False, False, True, False, False, False, True, False]
    await store.close()
