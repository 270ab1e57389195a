"""Two servers on one store: what is written at one is served by both, and both have what the store has."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import count
from math import inf
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.mesh.test_lowered_groups import HTTP, RESOLVER, put_entries, put_upstreams, splitter
from tests.steering.assigned import policy
from tests.support.plane import Plane
from tests.support.resources import cluster_load_assignment, eds_cluster, static_cluster
from xds.access.caller import Caller
from xds.backup.backups import BackupOptions, Backups
from xds.codec.resources import decode_resource
from xds.live.by_hand import EditResult, WriteOptions
from xds.live.owners import OwnedError
from xds.mesh.entry_records import DeleteEntry
from xds.model.errors import ConflictError, NotFoundError, XdsError
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.push import following, rollout_facts
from xds.push.content import BlobIds, GroupContent
from xds.push.following import Lag
from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.push.groups import GroupSettings
from xds.push.request import PushOptions, PushRequest, replace_all
from xds.push.rollout_runner import RolloutRunner
from xds.rollouts.plan import read_plan
from xds.rollouts.rollout import Rollout, RolloutAction, RolloutState, begin
from xds.services.core.binding import Binding
from xds.services.core.instance import Instance
from xds.steering.policies import PolicyTable, etag_of
from xds.store.base import Head, Store, UnavailableError, WatchItem
from xds.store.retention import StoreCondition
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
            (group, name): (owner.kind, owner.follows)
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
            "rollouts": {each.group: each for each in publisher.rollouts.all()},
            "bases": {group: lines(plane, group) for group in GROUPS},
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


def lines(plane: Plane, group: str) -> dict[str, dict[str, str]]:
    """What the nodes of a group are served: the versions of all resources, with the labels, by node."""
    found = {}
    for number in range(6):
        view = plane.cache.resolve(Node(f"n{number}", group))
        sets = view.snapshot.sets.items() if view is not None else ()
        found[f"n{number}"] = {
            f"{url} {name}": version
            for url, each in sets
            if url != ENDPOINT or each.resources
            for name, version in (
                *((name, one.version) for name, one in each.resources.items()),
                ("", each.version_info),
            )
        }
    return found


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


async def roll_out(at: ServerOnStore, chance: random.Random) -> object:
    plan = {"waves": chance.choice(["30%", "2,50%"])}
    resources = [cluster(name, chance) for name in NAMES if chance.random() < 0.7]
    resources += [decode_resource(eds_cluster("web")), assignment("web", chance)]
    options = PushOptions(allow_empty=True, rollout=plan, retry=chance.random() < 0.5)
    return await at.publisher.push(chance.choice(GROUPS), resources, options=options)


async def act(at: ServerOnStore, chance: random.Random) -> object:
    action = chance.choice([*RolloutAction, RolloutAction.ABORT])
    return await at.publisher.rollouts.change(chance.choice(GROUPS), action, Caller("ops"), "because")


async def step(at: ServerOnStore, chance: random.Random) -> None:
    runner = RolloutRunner(at.publisher.rollouts, at.plane.fleet, at.publisher.rollout_facts.gather)
    await runner.look()


async def restore(at: ServerOnStore, chance: random.Random) -> object:
    """Restore what there is now, after a push that this takes back."""
    archive = b"".join([part async for part in at.backups.stream(BackupOptions())])
    await push(at, chance)
    return await at.backups.restore(BytesIO(archive), replace=True)


OFTEN: tuple[Action, ...] = (
    push,
    put,
    delete,
    push_together,
    roll_back,
    write_entries,
    write_upstreams,
    roll_out,
    roll_out,
    act,
)
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
    step,
    restore,
)


Servers = tuple[ServerOnStore, ServerOnStore]


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    store = MemoryStore()
    await store.open()
    both = ServerOnStore(store), ServerOnStore(store)
    for each in both:
        await each.start()
    yield both
    for each in both:
        await each.close()
    await store.close()


async def check_level(servers: Servers, where: str) -> None:
    """Both servers, once they have followed, and the store are equal."""
    for each in servers:
        await each.level()
    first, second = (each.state() for each in servers)
    for what in first:
        assert first[what] == second[what], f"{where}: {what}"
    assert first["groups"] == await stored(servers[0].plane.store), where


async def check_restart(servers: Servers, where: str) -> None:
    """A server that starts now serves each node the same, with the same labels."""
    after = ServerOnStore(servers[0].plane.store)
    await after.publisher.load()
    found, wanted = after.state(), servers[0].state()
    for what in ("groups", "rollouts", "bases"):
        assert found[what] == wanted[what], f"{where}, after a restart: {what}"
    await after.close()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.soak) for n in range(6, 50))])
async def test_both_servers_have_what_the_store_has(servers: Servers, seed: int) -> None:
    chance = random.Random(seed)
    done = 0
    for number in range(40):
        action = chance.choice(ACTIONS)
        try:
            await action(chance.choice(servers), chance)
            done += 1
        except XdsError:  # the group or document does not exist, or has another owner
            pass
        await check_level(servers, f"seed {seed}, item {number}: {action.__name__}")
        if number % 4 == 0:
            await check_restart(servers, f"seed {seed}, item {number}: {action.__name__}")
        assert [each.following.failures for each in servers] == [0, 0]
    assert done > 15


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 30))])
async def test_what_both_write_at_once_ends_equal(servers: Servers, seed: int) -> None:
    """Nobody sees a conflict who named no revision, and no write takes back a part of another."""
    errors: list[XdsError] = []

    async def write(at: ServerOnStore, chance: random.Random) -> None:
        for _ in range(20):
            action = chance.choice([each for each in ACTIONS if each is not restore])
            try:
                await action(at, chance)
            except XdsError as error:
                errors.append(error)

    writers = [write(each, random.Random(seed * 10 + number)) for number, each in enumerate((*servers, *servers))]
    await asyncio.gather(*writers)
    await check_level(servers, f"seed {seed}")
    conflicts = [error for error in errors if isinstance(error, ConflictError) and not isinstance(error, OwnedError)]
    assert not conflicts
    await check_lowered(servers[0])


async def test_a_writer_who_changes_the_server_is_not_refused_because_it_is_behind(servers: Servers) -> None:
    """A load balancer may send each call of a client to another server, which serves the last push a moment later."""
    first, second = servers
    await second.following.close()
    one = decode_resource(static_cluster("a", 80))
    assert (await first.publisher.push("edge", [one], options=EMPTIES)).revision == 1
    await second.publisher.delete("edge", (CLUSTER, "a"), EMPTIES)
    await first.publisher.push("edge", [one], options=EMPTIES)
    two = decode_resource(static_cluster("b", 80))
    await second.publisher.put("edge", two, PushOptions(expect=3))
    etag = (await first.publisher.put("edge", decode_resource(static_cluster("c", 80)))).etag
    three = decode_resource(static_cluster("d", 80))
    assert (await second.publisher.put("edge", three, PushOptions(etag=etag))).revision == 6
    await first.publisher.push("edge", [one], options=EMPTIES)
    assert (await second.publisher.rollback("edge", 6)).revision == 8
    await first.publisher.push("inner", [one])
    assert (await second.publisher.delete_group("inner", EMPTIES)).revision == 2
    with pytest.raises(ConflictError):
        await second.publisher.put("edge", two, PushOptions(expect=7))
    with pytest.raises(NotFoundError):
        await second.publisher.delete("edge", (CLUSTER, "nothing"), EMPTIES)


async def test_what_people_do_reaches_a_rollout_that_another_server_has_just_begun(servers: Servers) -> None:
    first, second = servers
    await first.publisher.push("edge", [decode_resource(static_cluster("a", 80))])
    await second.level()
    await second.following.close()
    options = PushOptions(rollout={"waves": ["25%"]})
    await first.publisher.push("edge", [decode_resource(static_cluster("b", 80))], options=options)
    paused = await second.publisher.rollouts.change("edge", RolloutAction.PAUSE, Caller("ops"))
    assert (paused.head, paused.state) == (2, RolloutState.PAUSED)
    await first.publisher.push("edge", [decode_resource(static_cluster("c", 80))], options=options)
    # It was seen at the first server.
    paused = await second.publisher.rollouts.change("edge", RolloutAction.PAUSE, Caller("ops"), head=3)
    assert (paused.head, paused.state) == (3, RolloutState.PAUSED)
    with pytest.raises(NotFoundError):
        await second.publisher.rollouts.change("shop", RolloutAction.PAUSE, Caller("ops"))


async def test_a_deleted_group_leaves_nothing_that_another_server_has_written_before(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers
    take_over = first.following._take_over

    async def take_over_later(items: Sequence[WatchItem]) -> None:
        await asyncio.sleep(0.02)
        await take_over(items)

    monkeypatch.setattr(first.following, "_take_over", take_over_later)
    for number in range(3):
        group = f"g{number}"
        await first.publisher.push(group, [decode_resource(static_cluster("a", 80))])
        await second.level()
        await write_documents(second, group)
        await first.publisher.delete_group(group, EMPTIES)
    await check_no_documents(servers)


async def test_a_deleted_group_leaves_nothing_that_another_server_writes_at_that_moment(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers
    commit = first.publisher._commit

    async def commit_last(*arguments: Any) -> Any:
        await write_documents(second, "edge")
        return await commit(*arguments)

    await first.publisher.push("edge", [decode_resource(static_cluster("a", 80))])
    await second.level()
    monkeypatch.setattr(first.publisher, "_commit", commit_last)
    await first.publisher.delete_group("edge", EMPTIES)
    await check_no_documents(servers)


async def test_what_another_server_writes_after_the_deletion_of_a_group_stays(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers
    commit = first.publisher._commit

    async def commit_first(*arguments: Any) -> Any:
        await first.following.close()
        commits = await commit(*arguments)
        await second.level()
        await write_documents(second, "edge", priority=2)
        first.following.start(first.reload_others)
        async with asyncio.timeout(DEADLINE_S):
            while first.publisher.settings.get("edge").priority != 2:
                await asyncio.sleep(0.001)
        return commits

    await first.publisher.push("edge", [decode_resource(static_cluster("a", 80))])
    await second.level()
    await write_documents(first, "edge")
    await first.level()
    with monkeypatch.context() as patched:
        patched.setattr(first.publisher, "_commit", commit_first)
        await first.publisher.delete_group("edge", EMPTIES)
    await check_level(servers, "after the deletion")
    assert [each.publisher.settings.get("edge").priority for each in servers] == [2, 2]
    assert [list(each.policies) for each in servers] == [[("edge", "web")]] * 2


async def write_documents(at: ServerOnStore, group: str, priority: int = 1) -> None:
    await at.publisher.configure(group, GroupSettings(f"node.id == {group}", priority), allow_empty=True)
    await at.policies.put((group, "web"), policy(2))


async def check_no_documents(servers: Servers) -> None:
    for server in servers:
        await server.level()
        assert server.publisher.groups.names() == [] and not list(server.policies)
    store = servers[0].plane.store
    assert not [one.id for kind in ("group", "policy") for one in await store.docs(kind)]


async def test_two_writers_on_one_group_both_succeed(servers: Servers) -> None:
    first, second = servers

    async def write(at: ServerOnStore, name: str) -> None:
        for number in range(60):
            await at.publisher.put("edge", decode_resource(static_cluster(name, 80, connect_timeout=f"{number + 1}s")))

    await asyncio.gather(write(first, "a"), write(second, "b"))
    head = await first.plane.store.head("edge")
    assert head is not None and head.revision == 120
    await check_level(servers, "two writers")
    names = {one.name: one.body for one in first.publisher.groups.content("edge").resources()}
    last = {name: decode_resource(static_cluster(name, 80, connect_timeout="60s")).body for name in "ab"}
    assert names == last
    retained, other = (at.plane.cache.retained("edge") for at in servers)
    assert retained == other == list(range(retained[0], 121)), "no revision was left out"


async def test_of_two_that_name_the_revision_one_succeeds(servers: Servers) -> None:
    chance = random.Random(1)
    for turn in range(20):
        result = await servers[turn % 2].publisher.push("edge", [cluster(f"old{turn}", chance)])
        for each in servers:
            await each.level()
        named = PushOptions(expect=result.revision)
        done = await asyncio.gather(
            *(at.publisher.put("edge", cluster(f"new{turn}", chance), named) for at in servers),
            return_exceptions=True,
        )
        assert [type(each) for each in done if isinstance(each, BaseException)] == [ConflictError], done
        await check_level(servers, f"turn {turn}")


async def test_of_two_that_name_the_etag_of_a_document_one_succeeds(servers: Servers) -> None:
    await servers[0].policies.put(("edge", "web"), policy(1))
    await servers[1].level()
    etag = etag_of(servers[0].policies.get(("edge", "web")))
    writes = (at.policies.put(("edge", "web"), policy(2 + number), etag) for number, at in enumerate(servers))
    done = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(each) for each in done if isinstance(each, BaseException)] == [ConflictError]
    await check_level(servers, "etags")


async def test_what_cannot_be_taken_over_is_told_and_tried_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in one table, or with one group, stops nothing else."""
    first, second = servers
    chance = random.Random(1)

    async def fails(*_: object) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(second.policies, "apply", fails)
        planted.setattr(second.publisher.history, "content", fails)
        await first.policies.put(("edge", "web"), policy(1))
        await first.publisher.push("edge", [cluster("a", chance)])
        await second_has_group(second, "edge", 1)
        await first.publisher.push("edge", [cluster("b", chance)])
        await first.publisher.configure("edge", GroupSettings(priority=3))
        async with asyncio.timeout(DEADLINE_S):
            while second.publisher.settings.get("edge").priority != 3 or second.following.failures < 2:
                await asyncio.sleep(0.001)
        assert str(second.following.lag()) == "behind the store, and tries again: group edge, policy edge/web"
        assert second.publisher.groups.content("edge").revision == 1
    await check_level(servers, "after the fault")
    assert second.following.lag() == Lag()


async def second_has_group(at: ServerOnStore, group: str, revision: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (content := at.publisher.groups.find(group)) is None or content.revision != revision:
            await asyncio.sleep(0.001)


async def test_a_watch_that_shows_nothing_is_begun_again(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = servers
    monkeypatch.setattr(following, "STUCK_S", 0.2)
    monkeypatch.setattr(following, "TICK_S", 0.05)
    store = first.plane.store
    assert isinstance(store, MemoryStore)
    with monkeypatch.context() as deaf:
        deaf.setattr(store, "_committed", lambda events: None)
        await first.publisher.push("edge", [cluster("a", random.Random(1))])
        async with asyncio.timeout(DEADLINE_S):
            while not second.following.failures:
                await asyncio.sleep(0.01)
    await check_level(servers, "after silence")
    assert second.publisher.groups.content("edge").revision == 1


async def test_a_watch_that_shows_commits_without_end_is_not_stuck(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write without pause: whenever the server looks, the store has one more than it has taken over."""
    second = servers[1].following
    monkeypatch.setattr(following, "STUCK_S", 0.2)
    monkeypatch.setattr(following, "TICK_S", 0.02)
    store = servers[0].plane.store
    newest, numbers = store.newest_cursor, count()

    async def one_more() -> int:
        await store.put_doc("another", "document", b"%d" % next(numbers))
        return await newest() + 1

    with monkeypatch.context() as busy:
        busy.setattr(store, "newest_cursor", one_more)
        began, lags = second.cursor, []
        for _ in range(60):
            await asyncio.sleep(0.01)
            lags.append(second.lag())
    assert second.cursor > began + 5 and any(lag.commits for lag in lags)
    assert all(lag.seconds < following.STUCK_S and not str(lag) for lag in lags) and second.failures == 0
    await check_level(servers, "after the last one")


async def test_a_store_that_does_not_answer_is_no_stuck_watch(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it answered last is older than what the watch has shown since."""
    first, second = servers
    monkeypatch.setattr(following, "STUCK_S", 0.1)
    monkeypatch.setattr(following, "TICK_S", 0.02)
    store = first.plane.store
    newest = await store.newest_cursor()
    looks, is_away = iter([newest]), asyncio.Event()

    async def newest_cursor() -> int:
        for once in looks:
            await first.publisher.push("edge", [cluster("a", random.Random(1))])
            return once
        is_away.set()
        raise UnavailableError("nobody answers")

    with monkeypatch.context() as away:
        away.setattr(store, "newest_cursor", newest_cursor)
        await is_away.wait()
        await asyncio.sleep(0.5)
    await check_level(servers, "after silence")
    assert (first.following.failures, second.following.failures) == (0, 0)


async def test_a_server_counts_as_cut_off_until_it_has_what_was_committed_meanwhile(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with the newer content, which comes as soon as the database answers, would be taken back."""
    first, second = servers
    monkeypatch.setattr(following, "TICK_S", 0.02)
    await second.following.close()
    may_go_on = asyncio.Event()
    take_over = second.following._take_over

    async def take_over_later(items: Sequence[WatchItem]) -> None:
        await may_go_on.wait()
        await take_over(items)

    monkeypatch.setattr(second.following, "_take_over", take_over_later)
    assert not second.following.is_cut_off()
    with monkeypatch.context() as silent:
        silent.setattr(second.plane.store, "condition", lambda: StoreCondition(cut_off_s=1.0))
        second.following.start(second.reload_others)
        await asyncio.sleep(0.1)
        await first.publisher.push("edge", [cluster("a", random.Random(1))])
    await asyncio.sleep(0.1)
    assert second.following.is_cut_off() and second.publisher.groups.find("edge") is None
    may_go_on.set()
    await check_level(servers, "after the silence")
    async with asyncio.timeout(DEADLINE_S):
        while second.following.is_cut_off():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_reset", [False, True])
async def test_what_was_removed_meanwhile_lingers_at_a_server_that_was_away(servers: Servers, is_reset: bool) -> None:
    """Clients that come from the other server may have any revision between."""
    first, second = servers
    chance = random.Random(1)
    await first.publisher.push("edge", [cluster("a", chance)])
    await second.level()
    await second.following.close()
    for name in ("b", "c", "d"):
        await first.publisher.push("edge", [cluster("a", chance), cluster(name, chance)])
    if is_reset:
        second.following.cursor = 1_000_000
    second.following.start(second.reload_others)
    await second_has_group(second, "edge", 4)
    await check_level(servers, "after the absence")
    logs = [at.plane.cache.log("edge") for at in servers]
    removed, removed_at_other = (set(log.names(CLUSTER)) for log in logs)
    assert removed == removed_at_other >= {"b", "c"}
    assert second.plane.cache.retained("edge") == [1, 2, 3, 4]


async def test_a_server_does_not_read_again_what_it_has_pushed(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers
    await second.following.close()
    read: list[str] = []
    head = first.plane.store.head

    async def recorded(group: str) -> Head | None:
        read.append(group)
        return await head(group)

    monkeypatch.setattr(first.plane.store, "head", recorded)
    for number in range(3):
        await first.publisher.push("edge", [cluster("a", random.Random(number))])
        await first.level()
    assert not read


async def test_a_reset_without_news_is_no_push(servers: Servers) -> None:
    first, second = servers
    await first.publisher.push("edge", [cluster("a", random.Random(1))])
    await second.level()
    before = second.plane.cache.get("edge")
    await second.following.close()
    second.following.cursor = 1_000_000
    second.following.start(second.reload_others)
    async with asyncio.timeout(DEADLINE_S):
        while second.following.cursor == 1_000_000:
            await asyncio.sleep(0.001)
    assert second.plane.cache.get("edge") is before


async def test_streams_are_woken_when_only_endpoints_follow(servers: Servers) -> None:
    """Another filter of a subset selects other instances, and changes no resource of the group."""
    first, second = servers
    for each in servers:
        instances = [Instance(f"i{n}", f"10.0.0.{n}", 80, meta={"version": f"v{n}"}) for n in (1, 2)]
        each.plane.catalog.sink("s", "file").put("web", instances)
        await each.plane.catalog.tick()
    await put_entries(first.plane, HTTP, RESOLVER, splitter(90))
    await put_upstreams(first.plane, "web", group="shop")
    await check_level(servers, "with upstreams")
    revision = first.publisher.groups.content("shop").revision
    second.plane.woken.clear()
    subsets = {"v1": {"Filter": "Service.Meta.version == v2"}, "v2": {"Filter": "Service.Meta.version == v1"}}
    await put_entries(first.plane, {**RESOLVER, "Subsets": subsets})
    await check_level(servers, "with other filters")
    assert first.publisher.groups.content("shop").revision == revision
    assert "shop" in second.plane.woken
    snapshots = [each.plane.cache.get("shop") for each in servers]
    versions = [one.get(ENDPOINT).resources.items() for one in snapshots if one is not None]
    assert {name: one.version for name, one in versions[0]} == {name: one.version for name, one in versions[1]}
    assert len(versions[0]) == 2


async def test_a_push_keeps_what_another_server_has_lowered_meanwhile(servers: Servers) -> None:
    """The server has seen neither the upstreams nor the group's new revision when it plans the push."""
    first, second = servers
    chance = random.Random(1)
    await put_entries(first.plane, HTTP, RESOLVER)
    await first.publisher.push("shop", [cluster("a", chance)])
    await second.level()
    await second.following.close()
    await put_upstreams(first.plane, "web", group="shop")
    result = await second.publisher.push("shop", [cluster("b", chance)])
    lowered = {key for key in ids(first.plane.mesh.lowered.content("shop").records) if key[0] == CLUSTER}
    assert result.revision == 3 and lowered
    assert {(CLUSTER, "b"), *lowered} == {
        key for key in second.publisher.groups.content("shop").blob_ids if key[0] == CLUSTER
    }
    second.following.start(second.reload_others)
    await check_level(servers, "after the push")


@pytest.mark.parametrize("is_behind", ["entries", "upstreams"])
async def test_upstreams_are_lowered_from_the_newest_entries_of_any_server(servers: Servers, is_behind: str) -> None:
    """One server writes upstreams and the other config entries, and neither has seen what the other wrote."""
    first, second = servers
    await put_entries(first.plane, HTTP, RESOLVER, splitter(10))
    await second.level()
    await second.following.close()
    if is_behind == "entries":
        await put_entries(first.plane, splitter(50))
        await put_upstreams(second.plane, "web", group="shop")
    else:
        await put_upstreams(first.plane, "web", group="shop")
        await put_entries(second.plane, splitter(50))
    second.following.start(second.reload_others)
    await check_level(servers, "after both")
    await check_lowered(servers[0])


async def check_lowered(server: ServerOnStore) -> None:
    """Its groups have what the newest config entries make of their upstreams."""
    for group in server.plane.mesh.lowered:
        made = server.plane.mesh.lowered.get(group)
        fresh = await server.plane.mesh.lowered.plan_document(group, made.document)
        content = server.publisher.groups.content(group)
        lowered = {(one.type_url, one.name) for one in content.resources() if one.is_lowered}
        assert ids(fresh.content.records) == ids(made.content.records), f"{group}: lowered from the newest entries"
        assert lowered == fresh.content.records.keys(), group


@pytest.mark.parametrize("reads", ["a start", "a push", "a repeated push"])
async def test_a_restore_between_two_reads_of_a_group_is_survived(
    servers: Servers, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blobs of the manifest that was read are not there any more."""
    first, second = servers
    chance, store = random.Random(1), first.plane.store
    await first.publisher.push("shop", [cluster("restored", chance)])
    archive = b"".join([part async for part in first.backups.stream(BackupOptions())])
    await second.level()
    await second.following.close()
    for number in range(3):
        gone, again = [cluster("gone", chance), cluster(chance.choice(NAMES), chance)], PushOptions(push_id=f"{number}")
        await first.publisher.push("shop", gone, options=again)
    read, restores = store.blobs, iter([True])

    async def blobs(ids: Iterable[str]) -> dict[str, bytes]:
        if next(restores, False):
            await first.backups.restore(BytesIO(archive), replace=True)
        return await read(ids)

    monkeypatch.setattr(store, "blobs", blobs)
    with capture_logs() as logs:
        if reads == "a start":
            second = ServerOnStore(store)
            await second.start()
        elif reads == "a repeated push":
            assert (await second.publisher.push("shop", gone, options=again)).revision == 2  # it is made again
            second.following.start(second.reload_others)
        else:
            await second.publisher.put("shop", cluster("new", chance))
            second.following.start(second.reload_others)
        await check_level((first, second), reads)
    assert not [line for line in logs if line["log_level"] == "error"]
    is_there = (CLUSTER, "gone") in second.publisher.groups.content("shop").blob_ids
    assert is_there == (reads == "a repeated push")
    await second.close()


async def test_a_restore_ends_though_another_server_writes_what_it_is_reading(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups were read before config entries that belong to newer ones: it lowers again, and is outrun."""
    first, second = servers
    chance = random.Random(1)
    await put_entries(first.plane, HTTP, RESOLVER, splitter(10))
    await put_upstreams(first.plane, "web", group="edge")
    archive = b"".join([part async for part in first.backups.stream(BackupOptions())])
    await first.publisher.put("edge", cluster("gone", chance))
    await check_level(servers, "before")
    load = first.plane.mesh.lowered.load

    async def load_late() -> None:
        await second.level()
        await put_entries(second.plane, splitter(20))
        await load()

    monkeypatch.setattr(first.plane.mesh.lowered, "load", load_late)
    async with asyncio.timeout(DEADLINE_S):
        await first.backups.restore(BytesIO(archive), replace=True)
        await first.publisher.put("edge", cluster("new", chance))
    await check_level(servers, "after")


async def test_a_restore_that_is_outrun_without_end_keeps_what_is_stored(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server writes each time before what the restore lowers is committed."""
    first, second = servers
    await put_entries(first.plane, HTTP, RESOLVER, splitter(10))
    await put_upstreams(first.plane, "web", group="edge")
    archive = b"".join([part async for part in first.backups.stream(BackupOptions())])
    await check_level(servers, "before")
    load, apply, weights = first.plane.mesh.lowered.load, first.publisher._apply, count(11)

    async def load_late() -> None:
        await second.level()
        await put_entries(second.plane, splitter(next(weights)))
        await load()

    async def outrun(*arguments: Any) -> Any:
        await second.level()
        await put_entries(second.plane, splitter(next(weights)))
        return await apply(*arguments)

    with monkeypatch.context() as busy:
        busy.setattr(first.plane.mesh.lowered, "load", load_late)
        busy.setattr(first.publisher, "_apply", outrun)
        async with asyncio.timeout(DEADLINE_S):
            await first.backups.restore(BytesIO(archive), replace=True)
    assert next(weights) > 15
    lowered = first.plane.mesh.lowered
    assert "all the time" in lowered.get("edge").error
    assert "derived resources" in first.publisher.backlog.names()
    async with asyncio.timeout(DEADLINE_S):  # nobody writes, and it tries again
        while lowered.get("edge").error:
            await asyncio.sleep(0.01)
    await check_level(servers, "after")


def slowly(read: Callable[..., Awaitable[Any]], chance: random.Random) -> Callable[..., Awaitable[Any]]:
    """A read of the store that takes a while, so that others write before and after it."""

    async def slow(*arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(chance.choice((0, 0, 0.002)))
        found = await read(*arguments, **options)
        await asyncio.sleep(chance.choice((0, 0, 0.002)))
        return found

    return slow


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.soak) for n in range(6, 30))])
async def test_no_node_outside_of_a_wave_is_served_the_head_at_any_moment(
    servers: Servers, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both servers write; the other one takes over documents and content in one step, whatever is read first."""
    chance = random.Random(seed)
    store = servers[0].plane.store
    for name in ("head", "manifest", "docs"):
        monkeypatch.setattr(store, name, slowly(getattr(store, name), chance))
    monkeypatch.setattr(rollout_facts, "KNOWS_AFTER_S", inf)  # nobody follows the group, however long this takes
    nodes = [Node(f"n{number}", "edge") for number in range(12)]
    proven, waves = set[str](), dict[str, Rollout]()  # contents that all may have, and the rollouts of the others
    heads, number = dict[int, str](), 0

    def check() -> None:
        for at in servers:
            found = at.publisher.rollouts.find("edge")
            if found is not None and found.is_promoting:
                proven.add(heads[found.head])
            for node in nodes:
                view = at.plane.cache.resolve(node)
                names = view.snapshot.get(CLUSTER).resources if view is not None else ()
                for name in names:
                    assert name in proven or waves[name].in_wave(node), f"seed {seed}: {node.id} has {name}"

    async def watch() -> None:
        while True:
            check()
            time.sleep(0.0001)  # lets the store's thread have the interpreter
            await asyncio.sleep(0)

    async def roll_out(at: ServerOnStore) -> None:
        nonlocal number
        number += 1
        name = f"c{number}"
        plan = read_plan({"waves": ["25%"]})
        waves[name] = begin("edge", plan, 0, 0, {}, 0.0)
        options = PushOptions(rollout={"waves": ["25%"]}, allow_empty=True)
        result = await at.publisher.push("edge", [decode_resource(static_cluster(name, 80))], options=options)
        heads[result.revision] = name

    async def promote(at: ServerOnStore) -> None:
        await at.publisher.rollouts.change("edge", RolloutAction.PROMOTE, Caller("ops"))

    async def abort(at: ServerOnStore) -> None:
        await at.publisher.rollouts.change("edge", RolloutAction.ABORT, Caller("ops"))

    proven.add("c0")
    await servers[0].publisher.push("edge", [decode_resource(static_cluster("c0", 80))])
    watching = asyncio.create_task(watch())
    for _ in range(30):
        action, at = chance.choice([roll_out, roll_out, abort, abort, promote]), chance.choice(servers)
        with suppress(XdsError):
            await action(at)
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.01)))
        assert not watching.done(), watching.exception()
    await check_level(servers, f"seed {seed}")
    check()
    watching.cancel()
