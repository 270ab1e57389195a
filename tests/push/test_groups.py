"""Settings of groups: durable, in force, deleted with the group."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.plane import Plane
from tests.support.sansio import make_resource
from xds.model.errors import EmptyingError, NotFoundError, ValidationError
from xds.model.node import GroupMatch, Node
from xds.model.resource_type import CLUSTER
from xds.push import groups
from xds.push.groups import GroupSettings, read_settings
from xds.push.request import PushOptions
from xds.services.core.binding import Binding
from xds.snapshots.order import GroupOrder
from xds.store.base import LeaseLostError, UnavailableError

EDGE = GroupSettings("node.cluster == edge", 10)
NODE = Node("n1", "edge")


async def push(plane: Plane, group: str, *names: str, **options: Any) -> None:
    await plane.publisher.push(
        group, [make_resource(CLUSTER, name, "1") for name in names], options=PushOptions(**options)
    )


async def test_settings_are_in_force_at_once_and_after_a_restart(plane: Plane) -> None:
    await push(plane, "default", "d")
    await push(plane, "blue", "b")
    assert await plane.publisher.configure("blue", EDGE)
    assert plane.woken[-1] == "blue"
    assert plane.cache.match(NODE) == GroupMatch("blue", "selector")
    again = await plane.reloaded()
    assert again.cache.match(NODE) == GroupMatch("blue", "selector")
    assert again.publisher.settings.get("blue") == EDGE


def order_of(plane: Plane) -> GroupOrder:
    """The order settings of the group."""
    view = plane.cache.view("blue")
    assert view is not None
    return view.order


async def test_how_long_removed_content_stays_is_a_setting_of_the_group(plane: Plane) -> None:
    await push(plane, "blue", "b")
    assert order_of(plane) == GroupOrder(proceed_on_nack=False)
    await plane.publisher.configure("blue", GroupSettings(listener_drain_s=60.0))
    (kept,) = await plane.store.docs(groups.KIND)
    assert json.loads(kept.body) == {"selector": "", "priority": 0, "on_nack": "", "listener_drain_s": 60.0}
    again = await plane.reloaded()
    for each in (plane, again):
        order = order_of(each)
        assert (order.removal_delay_s, order.listener_drain_s) == (None, 60.0)
    await plane.publisher.configure("blue", GroupSettings(on_nack="proceed"))
    assert order_of(plane) == GroupOrder(proceed_on_nack=True)


async def test_settings_are_loaded_before_snapshots_are_served(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node must not be in the wrong group even for a moment."""
    await push(plane, "blue", "b")
    await plane.publisher.configure("blue", EDGE)
    again = plane.restarted()
    order: list[str] = []
    served, configured = again.cache.set, again.cache.configure

    def serve(*given: Any, **more: Any) -> None:
        order.append("set")
        served(*given, **more)

    def configure(*given: Any) -> None:
        order.append("configure")
        configured(*given)

    monkeypatch.setattr(again.cache, "set", serve)
    monkeypatch.setattr(again.cache, "configure", configure)
    await again.publisher.load()
    assert order == ["configure", "set"]


async def test_the_same_settings_again_change_nothing(plane: Plane) -> None:
    assert await plane.publisher.configure("blue", EDGE)
    plane.woken.clear()
    assert not await plane.publisher.configure("blue", EDGE)
    assert plane.woken == []


async def test_settings_make_no_revision_and_outlast_a_push(plane: Plane) -> None:
    await push(plane, "blue", "b")
    await plane.publisher.configure("blue", EDGE)
    assert plane.publisher.groups.content("blue").revision == 1
    await push(plane, "blue", "c")
    assert plane.publisher.settings.get("blue") == EDGE


async def test_a_dry_run_says_whether_something_would_change(plane: Plane) -> None:
    assert await plane.publisher.configure("blue", EDGE, dry_run=True)
    assert "blue" not in plane.publisher.settings
    assert await plane.store.docs(groups.KIND) == []


async def test_a_group_with_settings_only_takes_no_nodes_until_it_has_a_snapshot(plane: Plane) -> None:
    await push(plane, "default", "d")
    await plane.publisher.configure("blue", EDGE)
    assert plane.publisher.groups.names() == ["blue", "default"]
    assert plane.cache.match(NODE) == GroupMatch("default", "default")
    await push(plane, "blue", "b")
    assert plane.cache.match(NODE) == GroupMatch("blue", "selector")


async def test_an_empty_group_takes_nodes_only_when_that_is_meant(plane: Plane) -> None:
    await plane.publisher.configure("blue", EDGE)
    with pytest.raises(EmptyingError):
        await push(plane, "blue")
    await push(plane, "blue", allow_empty=True)
    with pytest.raises(EmptyingError):
        await plane.publisher.configure("blue", GroupSettings("node.id == n1"))
    await plane.publisher.configure("blue", GroupSettings("node.id == n1"), allow_empty=True)


async def test_settings_go_with_the_group(plane: Plane) -> None:
    await push(plane, "blue", "b")
    await plane.publisher.configure("blue", EDGE)
    await plane.publisher.delete_group("blue", PushOptions(dry_run=True))
    assert plane.publisher.settings.get("blue") == EDGE
    await plane.publisher.delete_group("blue")
    assert (plane.publisher.groups.names(), await plane.store.docs(groups.KIND)) == ([], [])
    await push(plane, "blue", "b")
    assert plane.cache.match(NODE) is None


async def test_a_group_with_settings_only_can_be_deleted(plane: Plane) -> None:
    await plane.publisher.configure("blue", EDGE)
    with pytest.raises(LeaseLostError):  # the files of a watched directory, which another server reads by now
        await plane.publisher.delete_group("blue", PushOptions(may_write=lambda: False))
    assert plane.publisher.settings.get("blue") == EDGE
    assert (await plane.publisher.delete_group("blue")).revision == 0
    with pytest.raises(NotFoundError):
        await plane.publisher.delete_group("blue")


async def test_the_deletion_of_a_group_with_settings_only_can_be_repeated(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.publisher.configure("blue", EDGE)
    await plane.bindings.put(("blue", "web"), Binding("web"))
    put, deletions = plane.store.put_doc, list[str]()

    async def fail_at_the_second(kind: str, *given: Any, **more: Any) -> int:
        deletions.append(kind)
        if len(deletions) == 2:
            raise UnavailableError("down")
        return await put(kind, *given, **more)

    monkeypatch.setattr(plane.store, "put_doc", fail_at_the_second)
    with pytest.raises(UnavailableError):
        await plane.publisher.delete_group("blue")
    await plane.publisher.delete_group("blue")
    kinds = {kind for table in plane.publisher.stored.tables() for kind in table.kinds}
    assert [await plane.store.docs(kind, "blue") for kind in kinds] == [[]] * len(kinds)


async def test_settings_that_the_store_refuses_are_not_in_force(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*given: object, **more: object) -> int:
        raise UnavailableError("down")

    await push(plane, "blue", "b")
    monkeypatch.setattr(plane.store, "put_doc", fail)
    with pytest.raises(UnavailableError):
        await plane.publisher.configure("blue", EDGE)
    assert plane.cache.match(NODE) is None


async def test_settings_that_cannot_be_read_are_left_out_and_kept(plane: Plane) -> None:
    await plane.store.put_doc(groups.KIND, "broken", b"{")
    await plane.store.put_doc(groups.KIND, "wrong", json.dumps({"selector": "node.nothing == x"}).encode())
    await plane.store.put_doc(groups.KIND, "fine", json.dumps({"priority": 3}).encode())
    await plane.publisher.load()
    assert list(plane.publisher.settings) == ["fine"]
    assert len(await plane.store.docs(groups.KIND)) == 3


async def test_selectors_are_bounded_in_number(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SELECTORS_LIMIT", 2)
    for group in ("a", "b"):
        await plane.publisher.configure(group, EDGE)
    with pytest.raises(ValidationError, match="can have a selector"):
        await plane.publisher.configure("c", EDGE)
    await plane.publisher.configure("c", GroupSettings(priority=1))
    await plane.publisher.configure("a", GroupSettings("node.id == x"))


@pytest.mark.parametrize(
    ("settings", "code", "pointer", "message"),
    [
        (GroupSettings("node.cluster = x"), "invalid_selector", "/selector", "column 14: expected an operator"),
        (GroupSettings("node.clutser == x"), "invalid_selector", "/selector", 'did you mean "cluster"?'),
        (GroupSettings("nod.id == x"), "invalid_selector", "/selector", 'did you mean "node"?'),
        (GroupSettings("node.locality.region.x == y"), "invalid_selector", "/selector", "is a text"),
        (GroupSettings(priority=10**9), "out_of_range", "/priority", "between"),
        (GroupSettings(on_nack="wait"), "invalid_value", "/on_nack", "hold or proceed"),
        (GroupSettings(removal_delay_s=-1.0), "out_of_range", "/removal_delay_s", "between 0 and 86400"),
        (GroupSettings(listener_drain_s=1e6), "out_of_range", "/listener_drain_s", "between 0 and 86400"),
        (GroupSettings(listener_drain_s=float("nan")), "out_of_range", "/listener_drain_s", "between"),
    ],
)
async def test_wrong_settings_are_reported_with_their_place(
    plane: Plane, settings: GroupSettings, code: str, pointer: str, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        await plane.publisher.configure("blue", settings)
    (violation,) = caught.value.violations
    assert (violation.code, violation.pointer) == (code, pointer)
    assert message in str(violation)


async def test_the_place_in_a_selector_of_several_lines(plane: Plane) -> None:
    with pytest.raises(ValidationError) as caught:
        await plane.publisher.configure("blue", GroupSettings("node.id == x or\n  node.cluster = y"))
    assert caught.value.violations[0].source == "selector:2:16"
    with pytest.raises(ValidationError) as caught:
        await plane.publisher.configure("blue", GroupSettings("node.id = x"))
    assert caught.value.violations[0].source == "selector:1:9"


@pytest.mark.parametrize(
    "document",
    [
        *(None, [], "x", {"selektor": ""}, {"selector": 1}, {"priority": "1"}, {"priority": 1.5}, {"priority": True}),
        *(
            {"removal_delay_s": "15"},
            {"listener_drain_s": True},
            {"listener_drain_s": [1]},
            {"listener_drain_s": 10**400},
        ),
    ],
)
def test_invalid_group_settings_are_refused(document: object) -> None:
    with pytest.raises(ValidationError):
        read_settings(document)


def test_omitted_settings_have_their_default() -> None:
    assert read_settings({}) == GroupSettings("", 0, "")
    assert read_settings({"selector": None, "priority": 2}) == GroupSettings("", 2)
    assert read_settings({"removal_delay_s": 3, "listener_drain_s": None}) == GroupSettings(removal_delay_s=3.0)
