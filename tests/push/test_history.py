"""What a start reads for the removal log of a group, and at which times its pushes were."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic, time

import pytest

from tests.push.test_publisher import GROUP, clusters
from tests.support.plane import Plane
from xds.model.resource_type import CLUSTER
from xds.push import stored_state
from xds.push.groups import GroupSettings
from xds.push.history import StoredReach, pushed_times
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import PUSHES_KEPT, kept_s

TURNS = PUSHES_KEPT + 5
REACH = StoredReach(OrderRules(), (), wall_s=1_000.0, now_s=50.0)


async def pushed(plane: Plane, turns: int = TURNS) -> None:
    """Each push takes a cluster away."""
    for turn in range(turns):
        await plane.publisher.push(GROUP, clusters("a", f"b{turn}"))


async def after_s(plane: Plane, passed_s: float, monkeypatch: pytest.MonkeyPatch) -> Plane:
    """A new process, some time later."""
    monkeypatch.setattr(stored_state, "time", lambda: time() + passed_s)
    monkeypatch.setattr(stored_state, "monotonic", lambda: monotonic() + passed_s)
    return await plane.reloaded()


async def test_all_young_revisions_are_read_into_the_log(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    await pushed(plane)
    after = await after_s(plane, kept_s(plane.rules) - 100, monkeypatch)
    assert after.cache.retained(GROUP) == plane.cache.retained(GROUP) == list(range(1, TURNS + 1))
    assert after.cache.log(GROUP).names(CLUSTER) == {f"b{turn}" for turn in range(TURNS - 1)}


async def test_old_revisions_are_read_for_the_last_ten_pushes(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    await pushed(plane)
    after = await after_s(plane, kept_s(plane.rules) + 100, monkeypatch)
    assert after.cache.log(GROUP).names(CLUSTER) == {f"b{turn}" for turn in range(TURNS - 1 - PUSHES_KEPT, TURNS - 1)}


async def test_at_most_linger_max_pushes_are_read() -> None:
    plane = Plane(rules=OrderRules(linger_max=PUSHES_KEPT + 2))
    await plane.store.open()
    await pushed(plane)
    after = await plane.reloaded()
    assert after.cache.retained(GROUP) == plane.cache.retained(GROUP) == list(range(3, TURNS + 1))
    assert after.cache.log(GROUP).names(CLUSTER) == plane.cache.log(GROUP).names(CLUSTER)


async def test_all_revisions_are_read_while_a_node_rejects_newest_content(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pushed(plane)
    newest = plane.publisher.groups.content(GROUP).snapshot.get(CLUSTER).resources["a"]
    monkeypatch.setattr(stored_state, "time", lambda: time() + 10 * kept_s(plane.rules))
    after = plane.restarted()
    after.cache.note_refused(CLUSTER, {"a": (newest.version,)})
    await after.publisher.load()
    assert after.cache.retained(GROUP) == list(range(1, TURNS + 1))


async def test_the_times_of_a_group_decide(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    await pushed(plane)
    await plane.publisher.configure(GROUP, GroupSettings(removal_delay_s=1.0, listener_drain_s=9.0))
    assert plane.cache.rules_of(GROUP) == replace(plane.rules, removal_delay_s=1.0, listener_drain_s=9.0)
    after = await after_s(plane, 100.0, monkeypatch)
    assert len(after.cache.retained(GROUP)) == PUSHES_KEPT + 1


async def test_removals_end_after_a_restart_as_before(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are on the clock of the streams, which a reboot sets back."""
    await pushed(plane, 2)
    gone = next(iter(plane.cache.log(GROUP).versions(CLUSTER, "b0")))
    before_s = plane.cache.log(GROUP).end_s(gone.type_url, gone.name, gone.version)
    after = await after_s(plane, 30.0, monkeypatch)
    after_restart_s = after.cache.log(GROUP).end_s(gone.type_url, gone.name, gone.version)
    monkeypatch.setattr(stored_state, "monotonic", lambda: monotonic() - 7_000.0)
    rebooted = await plane.reloaded()
    after_reboot_s = rebooted.cache.log(GROUP).end_s(gone.type_url, gone.name, gone.version)
    assert before_s is not None and after_restart_s is not None and after_reboot_s is not None
    assert after_restart_s == pytest.approx(before_s, abs=1.0)
    assert after_reboot_s == pytest.approx(before_s - 30.0 - 7_000.0, abs=1.0)


@pytest.mark.parametrize(
    ("epoch_s", "expected"),
    [
        ([990.0, 400.0], [40.0, -550.0]),
        ([1_500.0, 990.0], [50.0, 40.0]),  # the wall clock was set back after a push
        ([990.0, 1_500.0, 980.0], [40.0, 40.0, 30.0]),  # and between two
    ],
)
def test_times_of_pushes_are_never_in_the_future(epoch_s: list[float], expected: list[float]) -> None:
    assert pushed_times(epoch_s, REACH) == expected


async def test_a_restored_store_is_one_more_push_of_a_group_that_is_served(plane: Plane) -> None:
    await pushed(plane, 2)
    records = [record async for batch in plane.store.dump() for record in batch]
    await plane.publisher.push(GROUP, clusters("a", "b2"))
    await plane.store.restore(lambda: iter(records), replace=True)
    await plane.publisher.reload()
    assert plane.cache.retained(GROUP) == [1, 2, 3, 2]
    assert {"b0", "b2"} <= set(plane.cache.log(GROUP).names(CLUSTER))


async def test_a_store_that_is_loaded_again_unchanged_is_no_push(plane: Plane) -> None:
    await pushed(plane, 3)
    await plane.publisher.reload()
    assert plane.cache.retained(GROUP) == [1, 2, 3]
    assert plane.cache.log(GROUP).names(CLUSTER) == {"b0", "b1"}
