"""Derived resources of two sources in one group: those of upstreams, and those of a source made for the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from tests.mesh.test_lowered_groups import GROUP, HTTP, WEB, cluster, put_entries, put_upstreams, served
from tests.support.plane import Plane
from xds.access.caller import UNKNOWN_CALLER, Caller
from xds.codec.record import blob_id, dump_record
from xds.model.errors import ValidationError
from xds.model.resource_type import CLUSTER
from xds.push.content import Key
from xds.push.derived import (
    NOTHING_DERIVED,
    Derived,
    DerivedChange,
    DerivedContent,
    DerivedResource,
    DerivedWrite,
    unchanged,
)
from xds.push.request import PushOptions, PushRequest, plan_change
from xds.store.base import Commit, DocumentWrite, Meta, Rollback, Store
from xds.store.known_documents import KnownDocuments

KIND = "named_clusters"


class NamedClusters(Derived):
    """A cluster for each name in the document of a group."""

    kinds = (KIND,)
    is_within = False

    def __init__(self, store: Store) -> None:
        self.lock = asyncio.Lock()
        self.known = KnownDocuments(store, self)
        self.present: dict[str, DerivedContent] = {}
        self._store = store

    async def apply(self, kind: str, id: str, body: bytes | None) -> None:
        self.present.pop(id, None)
        if body is not None:
            self.present[id] = content_of(json.loads(body))

    def groups(self) -> Collection[str]:
        return list(self.present)

    def content(self, group: str) -> DerivedContent:
        return self.present.get(group, NOTHING_DERIVED)

    def adopt(self, group: str, stored: Mapping[Key, DerivedResource]) -> bool:
        is_same = stored.keys() == self.present[group].records.keys()
        self.present[group] = DerivedContent(stored)
        return is_same

    async def settle(self, group: str, apply: Callable[[DerivedWrite], Awaitable[None]]) -> Collection[str]:
        names = next(json.loads(doc.body) for doc in await self._store.docs(KIND) if doc.id == group)
        await apply(NamesWrite(self, group, names))
        return ()

    async def load(self) -> None:
        self.present = {doc.id: content_of(json.loads(doc.body)) for doc in await self._store.docs(KIND)}

    def documents(self, group: str) -> tuple[tuple[str, str], ...]:
        return ((KIND, group),) if group in self.present else ()

    async def forget(self, group: str, by: Caller) -> None:
        await self._store.put_doc(KIND, group, None)

    def dropped(self, group: str) -> None:
        self.present.pop(group, None)


class NamesWrite(DerivedWrite):
    """A write of the document of one group."""

    def __init__(self, source: NamedClusters, group: str, names: Sequence[str]) -> None:
        self._source = source
        self._group = group
        self._names = names

    @property
    def source(self) -> NamedClusters:
        return self._source

    async def plan(self) -> Collection[str]:
        return (self._group,)

    async def derive(self, deleted: Collection[str]) -> Mapping[str, DerivedChange]:
        write = DocumentWrite(KIND, self._group, json.dumps(self._names).encode(), UNKNOWN_CALLER.note("names"))
        before, after = self._source.content(self._group), content_of(self._names)
        return {self._group: DerivedChange(before, after, writes=(write,))}

    def begin(self, commits: Sequence[Commit], meta: Meta) -> Collection[str]:
        self._source.present[self._group] = content_of(self._names)
        return ()


def content_of(names: Sequence[str]) -> DerivedContent:
    made = [replace(cluster(name), is_lowered=True) for name in names]
    return DerivedContent({(CLUSTER, one.name): DerivedResource(one, blob_id(dump_record(one))) for one in made})


async def write(plane: Plane, *names: str) -> None:
    source = next(each for each in plane.publisher.derived.sources if isinstance(each, NamedClusters))
    await plane.publisher.transaction([], write=NamesWrite(source, GROUP, names))


@pytest.fixture
async def both(plane: Plane) -> Plane:
    """A group with a pushed cluster, a lowered one and a named one."""
    plane.publisher.derived.sources.append(NamedClusters(plane.store))
    await plane.publisher.load()
    await put_entries(plane, HTTP)
    await plane.publisher.push(GROUP, [cluster("pushed")])
    await put_upstreams(plane, "web")
    await write(plane, "named")
    return plane


async def test_each_source_changes_its_own_resources(both: Plane) -> None:
    assert set(served(both, CLUSTER)) == {"pushed", "named", WEB}
    await write(both, "other")
    assert set(served(both, CLUSTER)) == {"pushed", "other", WEB}
    await both.mesh.write_upstreams(GROUP, None, PushOptions())
    assert set(served(both, CLUSTER)) == {"pushed", "other"}
    await both.publisher.push(GROUP, [cluster("new")])
    assert set(served(both, CLUSTER)) == {"new", "other"}


async def test_a_name_of_another_source_is_refused(both: Plane) -> None:
    with pytest.raises(ValidationError, match="this name is lowered from upstream 'web'"):
        await write(both, WEB)
    assert set(served(both, CLUSTER)) == {"pushed", "named", WEB}


async def test_the_sources_find_their_resources_again_after_a_restart(both: Plane) -> None:
    revision = both.publisher.groups.content(GROUP).revision
    await both.store.put_doc(KIND, GROUP, b'["renamed"]')
    again = both.restarted()
    again.publisher.derived.sources.append(NamedClusters(again.store))
    await again.publisher.load()
    assert set(served(again, CLUSTER)) == {"pushed", "renamed", WEB}
    assert again.mesh.lowered.get(GROUP).error == ""
    assert again.publisher.groups.content(GROUP).revision == revision + 1


async def test_a_deleted_group_has_no_derived_resources(both: Plane) -> None:
    await both.publisher.delete_group(GROUP)
    assert both.publisher.derived.groups() == set()
    assert await both.store.docs(KIND) == []


async def test_a_rollback_is_planned_where_the_group_does_not_have_yet_what_another_server_derived(
    plane: Plane,
) -> None:
    """It keeps what is there, as the store does, which compares the revision; it does not fail."""
    for name in ("one", "two"):
        await plane.publisher.push("a", [cluster(name)])
    request = PushRequest("a", Rollback(1), derived=unchanged(content_of(["derived"])))
    current, target = plane.publisher.groups.content("a"), await plane.publisher.history.content("a", 1)
    assert list(plan_change(request, current, target).blob_ids) == [(CLUSTER, "one")]
