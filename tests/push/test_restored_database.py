"""A database that was restored to an earlier state takes no group back, until somebody has decided that."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from tests.push.test_two_publishers import ServerOnStore
from tests.support.resources import static_cluster
from xds.codec.resources import decode_resource
from xds.store.base import Head, Manifest, UnavailableError
from xds.store.retention import StoreCondition
from xds.store.sqlite.memory import MemoryStore

DEADLINE_S = 20.0


class RestoredStore(MemoryStore):
    """A store that goes back to ``earlier`` revisions, and does not have the groups ``gone`` any more."""

    earlier: Mapping[str, int] = {}
    gone: Collection[str] = ()
    behind = ""

    def condition(self) -> StoreCondition:
        return StoreCondition(behind=self.behind)

    async def groups(self) -> list[Head]:
        return [self._as_of(head) for head in await super().groups() if head.group not in self.gone]

    async def head(self, group: str) -> Head | None:
        head = await super().head(group) if group not in self.gone else None
        return self._as_of(head) if head is not None else None

    async def manifest(self, group: str, revision: int | None = None) -> Manifest:
        return await super().manifest(group, revision or self.earlier.get(group))

    def _as_of(self, head: Head) -> Head:
        return Head(head.group, self.earlier.get(head.group, head.revision), head.live)

    def start_over(self) -> None:
        """Restart its watches, as after a restore."""
        self._feed.interrupt()


async def test_groups_that_would_go_back_are_kept_until_somebody_decides() -> None:
    store = RestoredStore()
    await store.open()
    server = ServerOnStore(store)
    await server.start()
    for name in "abc":
        for group in ("edge", "shop", "inner"):
            await server.publisher.push(group, [decode_resource(static_cluster(name, 80))])
    store.earlier, store.gone, store.behind = {"edge": 1}, ("shop",), "commits 4 to 9 are missing"
    reloaded = asyncio.Event()

    async def note() -> None:
        reloaded.set()

    server.following._reload_others = note
    store.start_over()
    await asyncio.wait_for(reloaded.wait(), DEADLINE_S)
    assert revisions(server) == {"edge": 3, "inner": 3, "shop": 3}
    with pytest.raises(UnavailableError, match="would go back from revision 3 to 1: commits 4 to 9 are missing"):
        await server.publisher.stored.refresh(["edge"])
    with pytest.raises(UnavailableError, match="would go back from revision 3 to 0: commits 4 to 9 are missing"):
        await server.publisher.stored.refresh(["shop"])
    store.behind = ""
    reloaded.clear()
    store.start_over()
    await asyncio.wait_for(reloaded.wait(), DEADLINE_S)
    assert revisions(server) == {"edge": 1, "inner": 3}
    await server.close()
    await store.close()


def revisions(server: ServerOnStore) -> dict[str, int]:
    return {each.group: each.revision for each in server.publisher.groups.all()}
