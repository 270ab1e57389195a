"""The document of a rollout is kept, restored and examined with its group."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from tests.push.test_publisher import GROUP, clusters
from tests.push.test_rollouts import CAREFULLY, NODES, OPERATOR, have, rollout
from tests.support.connected import Client
from tests.support.plane import Plane
from xds.backup.backups import BackupOptions, Backups, examine_directory
from xds.model.errors import NotFoundError
from xds.model.node import Node
from xds.model.resource_type import CLUSTER
from xds.push.collector import Collector
from xds.push.content import GroupContent
from xds.push.request import PushOptions
from xds.rollouts.decide import Facts, decide
from xds.rollouts.rollout import RolloutAction, RolloutState
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import PUSHES_KEPT
from xds.store.base import CorruptError
from xds.store.engines import open_store
from xds.store.retention import Retention

LITTLE = Retention(revisions=1, age_s=-60, endpoint_revisions=1)


def connect(plane: Plane) -> None:
    for name in NODES:
        Client(plane.fleet, Node(name, GROUP), GROUP).subscribe(CLUSTER)


async def archive_of(plane: Plane, *, history: bool = True) -> BytesIO:
    backups = Backups(plane.store, plane.publisher, _nothing)
    return BytesIO(b"".join([part async for part in backups.stream(BackupOptions(history=history))]))


async def _nothing() -> None:
    pass


async def restore(plane: Plane, archive: BytesIO) -> None:
    await Backups(plane.store, plane.publisher, _nothing).restore(archive, replace=True)


async def test_a_restored_rollout_is_paused(plane: Plane) -> None:
    connect(plane)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    (first,) = have(plane, "b")
    archive = await archive_of(plane)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.PROMOTE, OPERATOR)
    await restore(plane, archive)
    found = rollout(plane)
    assert (found.state, found.reason) == (RolloutState.PAUSED, "restored from a backup")
    assert have(plane, "b") == {first}
    assert have(plane, "a") == set(NODES) - {first}
    await plane.publisher.rollouts.change(GROUP, RolloutAction.RESUME, OPERATOR)
    await plane.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    assert have(plane, "a") == set(NODES)


async def test_a_restored_rollout_waits_for_a_person_although_none_of_its_nodes_is_there(plane: Plane) -> None:
    connect(plane)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    elsewhere = Plane()
    await elsewhere.store.open()
    await restore(elsewhere, await archive_of(plane))
    found = rollout(elsewhere)
    for second in range(300):
        found = decide(found, Facts({}, set(), set()), found.since_s + second)
    assert (found.state, found.reason) == (RolloutState.PAUSED, "restored from a backup")
    await elsewhere.publisher.close()
    await elsewhere.store.close()


async def test_without_history_there_is_no_base_to_serve(plane: Plane) -> None:
    connect(plane)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    archive = await archive_of(plane, history=False)
    await restore(plane, archive)
    assert have(plane, "b") == set(NODES)
    await plane.publisher.push(GROUP, clusters("c"), options=CAREFULLY)
    assert (len(have(plane, "c")), len(have(plane, "b"))) == (1, len(NODES) - 1), "all had b"
    await plane.publisher.rollouts.change(GROUP, RolloutAction.PROMOTE, OPERATOR)
    assert (await plane.publisher.push(GROUP, clusters("d"), options=PushOptions(all_at_once=True))).changed


async def test_the_base_is_kept_while_the_rollout_is_open() -> None:
    plane = Plane(rules=OrderRules(linger_max=1))
    await plane.store.open()
    connect(plane)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    for number in range(PUSHES_KEPT + 3):
        await plane.publisher.push(GROUP, clusters(f"c{number}"))
    collector = Collector(plane.store, plane.cache, LITTLE, 1, bases=plane.publisher.rollouts.pinned)
    await collector.collect()
    after = await plane.reloaded()
    assert len(have(after, "a")) == len(NODES) - 1
    await after.publisher.rollouts.change(GROUP, RolloutAction.ABORT, OPERATOR)
    assert have(after, "a") == set(NODES)
    await Collector(after.store, after.cache, LITTLE, 1, bases=after.publisher.rollouts.pinned).collect()
    await plane.store.close()


async def test_a_damaged_rollout_is_found(tmp_path: Path) -> None:
    plane = Plane(open_store("sqlite", tmp_path))
    await plane.store.open()
    connect(plane)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    body = (await plane.store.docs("rollout"))[0].body
    await plane.store.put_doc("rollout", "lost", body.replace(b'"base": 1', b'"base": 7'))
    await plane.store.put_doc("rollout", "shop", b"{}")
    await plane.store.close()
    assert examine_directory(tmp_path).findings == [
        "the rollout of group lost: the content of its base, 7, is missing",
        "the rollout of group shop: damaged",
    ]


async def test_a_rollout_that_cannot_be_read_is_kept(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.store.put_doc("rollout", GROUP, b"{}")
    after = await plane.reloaded()
    assert after.publisher.rollouts.find(GROUP) is None
    assert have(after, "a") == set(NODES)
    assert await after.store.docs("rollout")


async def test_a_rollout_without_its_group_is_nobodys(plane: Plane) -> None:
    connect(plane)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    body = (await plane.store.docs("rollout"))[0].body
    await plane.store.put_doc("rollout", "gone", body)
    after = await plane.reloaded()
    assert [each.group for each in after.publisher.rollouts.open()] == [GROUP]
    with pytest.raises(NotFoundError):
        await after.publisher.rollouts.change("gone", RolloutAction.PAUSE, OPERATOR)


async def test_a_damaged_base_does_not_stop_the_server(plane: Plane) -> None:
    """Its nodes are served the head then: there is nothing else."""
    connect(plane)
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"), options=CAREFULLY)
    after = plane.restarted()

    async def read(group: str, revision: int) -> GroupContent:
        raise CorruptError(f"{group} {revision}")

    after.publisher.rollouts._read_content = read
    await after.publisher.load()
    assert have(after, "b") == set(NODES)
