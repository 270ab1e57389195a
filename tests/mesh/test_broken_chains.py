"""Groups with an upstream whose chain does not compile, as another release may have stored it."""

from __future__ import annotations

import json

import pytest

from tests.mesh.test_lowered_groups import (
    GROUP,
    HTTP,
    RESOLVER,
    Json,
    bodies,
    put_entries,
    put_upstreams,
    splitter,
)
from tests.support.plane import Plane
from xds.mesh.entry_records import LINE, DeleteEntry, EntryResult
from xds.model.errors import ValidationError
from xds.model.snapshot import Change
from xds.push.request import DEFAULT_OPTIONS
from xds.store.base import Delta, Entry, blob_id

EAST: Json = {"Kind": "service-resolver", "Name": "east", "Redirect": {"Service": "east", "Peer": "cloud"}}


async def store_loop(plane: Plane) -> None:
    """Two entries that send requests to each other, as another release, with other rules, might have left them."""
    ways = {"loop": "x", "x": "loop"}
    made = {
        name: {
            "CreateIndex": 1,
            "Kind": "service-resolver",
            "ModifyIndex": 1,
            "Name": name,
            "Redirect": {"Service": to},
        }
        for name, to in ways.items()
    }
    stored = {name: json.dumps(each).encode() for name, each in made.items()}
    lines = tuple(Entry("service-resolver", name, blob_id(body)) for name, body in stored.items())
    await plane.store.commit(LINE, Delta(lines, (), {blob_id(body): body for body in stored.values()}), push_id="p")


@pytest.fixture
async def before(plane: Plane) -> Plane:
    """A group that calls three services, one of which got a chain that does not compile."""
    await put_entries(plane, HTTP, RESOLVER, splitter(90), EAST)
    await put_upstreams(plane, "web", "loop", "api")
    await store_loop(plane)
    return plane


@pytest.fixture
async def shop(before: Plane) -> Plane:
    """The group after a start of the server."""
    return await before.reloaded()


@pytest.mark.parametrize("services", [("loop", "east"), ("east", "loop")])
async def test_a_chain_that_does_not_compile_is_told_beside_what_is_wrong_with_another(
    shop: Plane, services: tuple[str, str]
) -> None:
    findings = {"loop": ("circular_redirect", "chain/loop"), "east": ("unreachable", "service-resolver/east")}
    with pytest.raises(ValidationError) as refused:
        await put_upstreams(shop, *services, group="other")
    assert [(one.code, one.resource) for one in refused.value.violations] == [findings[each] for each in services]
    for service, one in zip(services, refused.value.violations, strict=True):
        assert one.hint.endswith(f"upstream {service!r}; group 'other'")


async def test_a_chain_that_does_not_compile_takes_nothing_from_other_upstreams(before: Plane, shop: Plane) -> None:
    assert bodies(shop) == bodies(before)
    assert 'the chain of "loop" does not compile' in shop.mesh.lowered.get(GROUP).error


async def test_what_was_written_meanwhile_is_served_once_the_chain_compiles(shop: Plane) -> None:
    await put_entries(shop, splitter(50))
    result = await mend(shop)
    assert [(each.group, each.changes) for each in result.groups] == [(GROUP, {"routes": Change(changed=("web",))})]
    assert bodies(shop) == bodies(await shop.reloaded())
    assert shop.mesh.lowered.get(GROUP).error == ""


async def test_what_was_broken_meanwhile_is_shown_once_the_chain_compiles(shop: Plane) -> None:
    before = bodies(shop)
    await put_entries(shop, {**EAST, "Name": "api"})
    await mend(shop)
    assert bodies(shop) == before
    error = shop.mesh.lowered.get(GROUP).error
    assert "service-resolver/api" in error
    assert "loop" not in error


async def mend(plane: Plane) -> EntryResult:
    """Delete the entries of the chain that does not compile."""
    loop = [DeleteEntry("service-resolver", name) for name in ("loop", "x")]
    return await plane.mesh.entries.apply(loop, DEFAULT_OPTIONS)
