"""Two servers on one store: what is written at one is served by both, and both have what the store has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from io import BytesIO
from typing import Any

import pytest

from tests.mesh.test_lowered_groups import HTTP, RESOLVER, put_entries, put_upstreams, splitter
from tests.steering.assigned import policy
from tests.support.plane import Plane
from tests.support.resources import cluster_load_assignment, eds_cluster, static_cluster
from xds.backup.backups import BackupOptions, Backups
from xds.codec.resources import decode_resource
from xds.live.by_hand import EditResult, WriteOptions
from xds.mesh.entry_records import DeleteEntry
from xds.model.errors import XdsError
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.push.content import BlobIds, GroupContent
from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.push.groups import GroupSettings
from xds.push.request import PushOptions, PushRequest, replace_all
from xds.services.core.binding import Binding
from xds.steering.policies import PolicyTable
from xds.store.base import Store
from xds.store.sqlite.memory import MemoryStore

GROUPS = ("edge", "shop", "inner")
NAMES = ("a", "b", "c")
EMPTIES = PushOptions(allow_empty=True, force=True)
DEADLINE_S = 20.0


class ServerOnStore:
    """A publisher with the tables of all features, which follows the store."""

    def __init__(self, store: Store) -> None:
        self.plane = Plane(store)
        self.publisher = self.plane.publisher
        self.policies = PolicyTable(store)
        self.publisher.documents.append(self.policies)
        self.backups = Backups(store, self.publisher, self.reload_others)
        self.following = self.publisher.following

    async def reload_others(self) -> None:
        """Nothing else is loaded."""

    async def start(self) -> None:
        await self.publisher.load()
        self.following.start(self.reload_others)

    async def level(self) -> None:
        """Wait until it has what the store has."""
        newest = await self.plane.store.newest_cursor()
        async with asyncio.timeout(DEADLINE_S):
            while self.following.cursor < newest or str(self.following.lag()):
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.plane.mesh.close()
        await self.publisher.close()

    def state(self) -> dict[str, Any]:
        """What it serves and knows."""
        publisher, plane = self.publisher, self.plane
        contents = publisher.groups.all()
        bound = {key: one.binding for key in plane.bindings if (one := plane.bindings.find(key)) is not None}
        owners = {
            (group, name): (owner.kind, owner.service)
            for group in GROUPS
            for name, owner in publisher.live.owners(group).items()
        }
        return {
            "groups": {
                each.group: (
                    each.revision,
                    dict(each.blob_ids),
                    {url: one.version_info for url, one in each.snapshot.sets.items()},
                )
                for each in contents
            },
            "cached": {group: served(plane, group) for group in GROUPS},
            "settings": {group: publisher.settings.get(group) for group in publisher.settings},
            "policies": {key: self.policies.get(key) for key in self.policies},
            "by hand": {group: {name: one.etag for name, one in plane.by_hand.of(group).items()} for group in GROUPS},
            "bindings": bound,
            "owners": owners,
            "entries": (plane.mesh.entries.revision, [one.entry for one in plane.mesh.entries.records()]),
            "upstreams": {each: plane.mesh.lowered.get(each).document for each in plane.mesh.lowered},
            "lowered": {each: ids(plane.mesh.lowered.content(each).records) for each in plane.mesh.lowered},
        }


def labels(content: GroupContent) -> dict[str, str]:
    return {url: one.version_info for url, one in content.snapshot.sets.items()}


def served(plane: Plane, group: str) -> dict[str, dict[str, str]] | None:
    """The versions of all resources that proxies are served; None for no group."""
    snapshot = plane.cache.get(group)
    if snapshot is None:
        return None
    sets = snapshot.sets.items()
    return {
        url: {**{name: one.version for name, one in each.resources.items()}, "": each.version_info}
        for url, each in sets
        if url != ENDPOINT or each.resources
    }


def ids(records: Any) -> dict[tuple[str, str], str]:
    return {key: one.blob_id for key, one in records.items()}


async def stored(store: Store) -> dict[str, tuple[int, BlobIds | dict[tuple[str, str], str], dict[str, str]]]:
    """All groups of the store."""
    heads = [head for head in await store.groups() if head.group != CONFIG_ENTRIES_LINE]
    manifests = [await store.manifest(head.group) for head in heads]
    return {
        one.group: (one.revision, {(url, name): blob for url, name, blob in one.entries}, dict(one.versions))
        for one in manifests
    }


def cluster(name: str, chance: random.Random) -> Resource:
    return decode_resource(static_cluster(name, 80, connect_timeout=f"{chance.randrange(1, 9)}s"))


def assignment(name: str, chance: random.Random) -> Resource:
    return decode_resource(cluster_load_assignment(name, chance.randrange(80, 90)))


Action = Callable[[ServerOnStore, random.Random], Awaitable[object]]


async def push(at: ServerOnStore, chance: random.Random) -> object:
    resources = [cluster(name, chance) for name in NAMES if chance.random() < 0.7]
    if chance.random() < 0.5:
        resources += [decode_resource(eds_cluster("web")), assignment("web", chance)]
    return await at.publisher.push(chance.choice(GROUPS), resources, options=EMPTIES)


async def put(at: ServerOnStore, chance: random.Random) -> object:
    return await at.publisher.put(chance.choice(GROUPS), cluster(chance.choice(NAMES), chance))


async def delete(at: ServerOnStore, chance: random.Random) -> object:
    return await at.publisher.delete(chance.choice(GROUPS), (CLUSTER, chance.choice(NAMES)), EMPTIES)


async def push_together(at: ServerOnStore, chance: random.Random) -> object:
    requests: list[PushRequest] = [
        await replace_all(group, [cluster(name, chance) for name in NAMES]) for group in chance.sample(GROUPS, 2)
    ]
    return await at.publisher.transaction(requests, EMPTIES)


async def roll_back(at: ServerOnStore, chance: random.Random) -> object:
    group = chance.choice(GROUPS)
    return await at.publisher.rollback(group, at.publisher.groups.content(group).revision - 1, EMPTIES)


async def delete_group(at: ServerOnStore, chance: random.Random) -> object:
    return await at.publisher.delete_group(chance.choice(GROUPS), EMPTIES)


async def configure(at: ServerOnStore, chance: random.Random) -> object:
    selector = f"node.metadata.zone == {chance.choice(NAMES)}"
    return await at.publisher.configure(chance.choice(GROUPS), GroupSettings(selector, chance.randrange(3)))


async def set_by_hand(at: ServerOnStore, chance: random.Random) -> object:
    wanted = assignment("web", chance)
    options = WriteOptions(allow_empty=True, drain_s=chance.choice((0, 3600)))
    return await at.plane.by_hand.edit((chance.choice(GROUPS), "web"), lambda *_: EditResult(wanted), options)


async def end_by_hand(at: ServerOnStore, chance: random.Random) -> object:
    options = WriteOptions(allow_empty=True, drain_s=chance.choice((0, 3600)))
    return await at.plane.by_hand.delete((chance.choice(GROUPS), "web"), options)


async def bind(at: ServerOnStore, chance: random.Random) -> object:
    return await at.plane.bindings.put((chance.choice(GROUPS), "web"), Binding(chance.choice(NAMES)))


async def unbind(at: ServerOnStore, chance: random.Random) -> None:
    await at.plane.bindings.delete((chance.choice(GROUPS), "web"))


async def put_policy(at: ServerOnStore, chance: random.Random) -> object:
    return await at.policies.put((chance.choice(GROUPS), "web"), policy(chance.randrange(1, 9)))


async def delete_policy(at: ServerOnStore, chance: random.Random) -> None:
    await at.policies.delete((chance.choice(GROUPS), "web"))


async def write_entries(at: ServerOnStore, chance: random.Random) -> object:
    return await put_entries(at.plane, HTTP, RESOLVER, splitter(chance.randrange(1, 99)))


async def delete_entry(at: ServerOnStore, chance: random.Random) -> object:
    return await at.plane.mesh.entries.apply([DeleteEntry("service-splitter", "web")])


async def write_upstreams(at: ServerOnStore, chance: random.Random) -> object:
    services = chance.sample(("web", "api"), chance.randrange(1, 3))
    return await put_upstreams(at.plane, *services, group=chance.choice(GROUPS))


async def delete_upstreams(at: ServerOnStore, chance: random.Random) -> object:
    return await at.plane.mesh.write_upstreams(chance.choice(GROUPS), None, EMPTIES)


async def restore(at: ServerOnStore, chance: random.Random) -> object:
    """Restore what there is now, after a push that this takes back."""
    archive = b"".join([part async for part in at.backups.stream(BackupOptions())])
    await push(at, chance)
    return await at.backups.restore(BytesIO(archive), replace=True)


OFTEN: tuple[Action, ...] = (push, put, delete, push_together, roll_back, write_entries, write_upstreams)
ACTIONS: Sequence[Action] = (
    *(OFTEN * 2),
    delete_group,
    configure,
    set_by_hand,
    end_by_hand,
    bind,
    unbind,
    put_policy,
    delete_policy,
    delete_entry,
    delete_upstreams,
    restore,
)


@pytest.fixture
async def servers() -> AsyncIterator[tuple[ServerOnStore, ServerOnStore]]:
    store = MemoryStore()
    await store.open()
    both = ServerOnStore(store), ServerOnStore(store)
    for each in both:
        await each.start()
    yield both
    for each in both:
        await each.close()
    await store.close()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.soak) for n in range(6, 100))])
async def test_both_servers_have_what_the_store_has(servers: tuple[ServerOnStore, ServerOnStore], seed: int) -> None:
    chance = random.Random(seed)
    done = 0
    for number in range(40):
        action = chance.choice(ACTIONS)
        try:
            await action(chance.choice(servers), chance)
            done += 1
        except XdsError:  # the group or document does not exist, or has another owner
            pass
        for each in servers:
            await each.level()
        first, second = (each.state() for each in servers)
        where = f"seed {seed}, item {number}: {action.__name__}"
        for what in first:
            assert first[what] == second[what], f"{where}: {what}"
        assert first["groups"] == await stored(servers[0].plane.store), where
        assert [each.following.failures for each in servers] == [0, 0], where
    assert done > 15
