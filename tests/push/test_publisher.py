"""Publisher: durable first, then served; the same after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.connected import Client
from tests.support.labels import stems
from tests.support.plane import Plane
from tests.support.resources import (
    cluster_load_assignment,
    eds_cluster,
    inline_routes,
    listener,
    route,
    route_config,
    static_cluster,
)
from xds.codec.resources import decode_document
from xds.model.errors import ConflictError, EmptyingError, NotFoundError, ValidationError
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER
from xds.model.snapshot import content_digest
from xds.push.groups import GroupSettings
from xds.push.request import PushOptions, replace_all
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.removal_log import PUSHES_KEPT
from xds.store.base import NO_META, Commit, GroupPush, Meta, UnavailableError
from xds.store.sqlite.memory import MemoryStore

GROUP = "edge"


def resources(*documents: Mapping[str, Any]) -> list[Resource]:
    return decode_document(json.dumps({"resources": documents})).resources


def clusters(*names: str, timeout: str = "1s") -> list[Resource]:
    return resources(*(static_cluster(name, 80, connect_timeout=timeout) for name in names))


def served(cache: SnapshotCache, type_url: str = CLUSTER) -> list[str]:
    snapshot = cache.get(GROUP)
    assert snapshot is not None
    return list(snapshot.get(type_url).resources)


async def test_push_is_served_and_wakes_the_group(plane: Plane) -> None:
    result = await plane.publisher.push(GROUP, clusters("b", "a"))
    assert (result.revision, result.changed, stems(result.versions)) == (1, True, {"clusters": "1"})
    assert result.changes["clusters"].added == ("b", "a")
    assert served(plane.cache) == ["b", "a"]
    assert plane.woken == [GROUP]


async def test_push_that_changes_nothing_makes_no_revision(plane: Plane) -> None:
    first = await plane.publisher.push(GROUP, clusters("a"))
    again = await plane.publisher.push(GROUP, clusters("a"))
    assert (again.revision, again.changed, again.etag) == (1, False, first.etag)
    assert plane.woken == [GROUP]


async def test_unchanged_types_keep_version_and_identity(plane: Plane) -> None:
    assignments = [eds_cluster("a"), cluster_load_assignment("a", 80)]
    await plane.publisher.push(GROUP, resources(*assignments))
    before = plane.cache.get(GROUP)
    result = await plane.publisher.push(GROUP, resources(assignments[0], cluster_load_assignment("a", 81)))
    after = plane.cache.get(GROUP)
    assert before is not None and after is not None
    assert after.get(CLUSTER) is before.get(CLUSTER)
    assert stems(result.versions) == {"clusters": "1", "endpoints": "2"}
    assert result.changes["endpoints"].changed == ("a",)


async def test_labels_become_version_info(plane: Plane) -> None:
    pushed = resources(eds_cluster("a"), cluster_load_assignment("a", 80))
    result = await plane.publisher.push(GROUP, pushed, label="v9", labels={ENDPOINT: "e9"})
    assert dict(result.versions) == {"clusters": "v9", "endpoints": "e9"}


async def test_a_label_that_nobody_chose_shows_the_content(plane: Plane) -> None:
    both = resources(eds_cluster("a"), cluster_load_assignment("a", 80))
    await plane.publisher.push(GROUP, both, labels={ENDPOINT: "e1"})
    first = _labels(plane)
    assert first["endpoints"] == "e1"
    await plane.publisher.put(GROUP, clusters("b")[0])
    await plane.publisher.put(GROUP, clusters("b", timeout="9s")[0])
    await plane.publisher.delete(GROUP, (CLUSTER, "b"))
    again = _labels(plane)
    assert again["clusters"] == first["clusters"].replace("1+", "4+"), "the same content again"
    await plane.publisher.push(GROUP, clusters(*"abcdefgh"))
    await plane.publisher.push(GROUP, clusters(*"hgfedc", timeout="9s"))
    await plane.publisher.rollback(GROUP, 1)
    back = _labels(plane)
    assert back["clusters"] == first["clusters"].replace("1+", "7+")
    assert stems(back) == {"clusters": "7", "endpoints": "7"}, "a rollback brings back content, not labels"
    await plane.publisher.push(GROUP, clusters("a"), label="v1")
    assert _labels(plane) == {"clusters": "v1", "endpoints": "v1"}
    after = await plane.reloaded()
    assert _labels(after) == _labels(plane)
    lines = await plane.publisher.history.lines(GROUP)
    assert [line.versions.get(CLUSTER) for line in reversed(lines)][:4:3] == [first["clusters"], again["clusters"]]


def _labels(plane: Plane) -> dict[str, str]:
    """The served labels. The hash in each label of the server is that of its set."""
    snapshot = plane.cache.get(GROUP)
    assert snapshot is not None
    for each in snapshot:
        _, plus, shown = each.version_info.partition("+")
        anew = content_digest((one.name, one.version) for one in each.resources.values())
        assert each.digest == anew
        assert not plus or shown == anew.hex()[:8]
    return plane.publisher.groups.content(GROUP).versions()


async def test_labels_of_an_earlier_release_stay_as_they_are(plane: Plane) -> None:
    """It stored plain numbers; clients that come back name them."""
    pushed = resources(eds_cluster("a"), cluster_load_assignment("a", 80))
    draft = await replace_all(GROUP, pushed)
    await plane.store.commit(GROUP, draft.change, push_id="earlier")
    await plane.publisher.load()
    assert _labels(plane) == {"clusters": "1", "endpoints": "1"}
    assert (await plane.publisher.push(GROUP, pushed)).changed is False
    await plane.publisher.put(GROUP, clusters("b")[0])
    assert stems(_labels(plane)) == {"clusters": "2", "endpoints": "1"}
    assert _labels(plane)["endpoints"] == "1"
    assert plane.cache.log(GROUP).labelled(CLUSTER, "1") is not None


async def test_a_changed_type_without_resources_left_has_a_label(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, [], options=PushOptions(allow_empty=True))
    assert _labels(plane) == {"clusters": "2+00000000"}


async def test_single_resources_are_put_and_deleted(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a", "b"))
    put = await plane.publisher.put(GROUP, clusters("a", timeout="9s")[0])
    assert put.changes["clusters"].changed == ("a",)
    assert served(plane.cache) == ["a", "b"]
    gone = await plane.publisher.delete(GROUP, (CLUSTER, "a"))
    assert gone.changes["clusters"].removed == ("a",)
    assert served(plane.cache) == ["b"]
    with pytest.raises(NotFoundError):
        await plane.publisher.delete(GROUP, (CLUSTER, "a"))


async def test_last_resource_of_a_type_leaves_an_empty_set(plane: Plane) -> None:
    await plane.publisher.push(GROUP, resources(eds_cluster("a"), cluster_load_assignment("a", 80)))
    result = await plane.publisher.delete(GROUP, (ENDPOINT, "a"), PushOptions(force=True))
    assert result.versions["endpoints"] == "2+00000000"
    assert served(plane.cache, ENDPOINT) == []


async def test_the_publisher_has_the_content_of_the_store(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("c", "a", "b"))
    await plane.publisher.put(GROUP, clusters("d")[0])
    await plane.publisher.delete(GROUP, (CLUSTER, "a"))
    await plane.publisher.put(GROUP, clusters("c", timeout="3s")[0])
    manifest = await plane.store.manifest(GROUP)
    content = plane.publisher.groups.content(GROUP)
    assert tuple(content.entries()) == manifest.entries
    assert content.revision == manifest.revision
    assert {found.type.type_url: found.version_info for found in content.snapshot} == manifest.versions


async def test_restart_serves_the_same(plane: Plane) -> None:
    await plane.publisher.push(GROUP, resources(eds_cluster("a"), cluster_load_assignment("a", 80)), label="first")
    await plane.publisher.put(GROUP, clusters("b")[0], PushOptions(meta=Meta("me", "why")))
    before = plane.publisher.groups.content(GROUP)
    after = await plane.reloaded()
    found = after.publisher.groups.content(GROUP)
    assert (found.etag, found.versions(), found.meta.author) == (before.etag, before.versions(), "me")
    assert list(found.resources()) == list(before.resources())


async def test_restart_keeps_revisions_for_clients_that_come_back(plane: Plane) -> None:
    labels = [""]
    for turn in range(PUSHES_KEPT + 2):
        result = await plane.publisher.push(GROUP, clusters("a", f"b{turn}"))
        labels.append(result.versions["clusters"])
    after = await plane.reloaded()
    found = after.cache.log(GROUP).labelled(CLUSTER, labels[1])
    assert found is not None and list(found.resources) == ["a", "b0"]
    newest = after.cache.get(GROUP)
    assert newest is not None
    assert newest.get(CLUSTER).resources["a"] is found.resources["a"]


async def test_rollback_is_a_later_revision_with_earlier_content(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    await plane.publisher.push(GROUP, clusters("b"))
    result = await plane.publisher.rollback(GROUP, 1)
    assert (result.revision, stems(result.versions)) == (3, {"clusters": "3"})
    assert (result.changes["clusters"].added, result.changes["clusters"].removed) == (("a",), ("b",))
    assert served(plane.cache) == ["a"]
    with pytest.raises(NotFoundError):
        await plane.publisher.rollback(GROUP, 9)


async def test_expectation_that_fails_changes_nothing(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"), options=PushOptions(expect=0))
    for dry_run in (True, False):
        with pytest.raises(ConflictError) as raised:
            await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(expect=0, dry_run=dry_run))
        assert raised.value.revision == 1
    assert served(plane.cache) == ["a"]


async def test_a_dry_run_answers_and_changes_nothing(plane: Plane) -> None:
    fresh = await plane.publisher.push(GROUP, clusters("a"), options=PushOptions(dry_run=True))
    assert (fresh.revision, fresh.changed, fresh.changes["clusters"].added) == (0, True, ("a",))
    await plane.publisher.push(GROUP, clusters("a"))
    result = await plane.publisher.push(GROUP, clusters("b"), options=PushOptions(dry_run=True))
    assert (result.revision, result.changes["clusters"].removed) == (1, ("a",))
    same = await plane.publisher.push(GROUP, clusters("a"), options=PushOptions(dry_run=True))
    assert not same.changed
    assert served(plane.cache) == ["a"]


async def test_repeated_push_id_gives_the_first_answer(plane: Plane) -> None:
    once = PushOptions(push_id="p1")
    first = await plane.publisher.push(GROUP, clusters("a"), options=once)
    await plane.publisher.push(GROUP, clusters("b"))
    again = await plane.publisher.push(GROUP, clusters("a"), options=once)
    assert (again.revision, again.etag, again.changes) == (first.revision, first.etag, first.changes)
    assert served(plane.cache) == ["b"]


async def test_pushes_to_a_group_take_turns(plane: Plane) -> None:
    names = [f"c{turn}" for turn in range(20)]
    results = await asyncio.gather(*(plane.publisher.put(GROUP, clusters(name)[0]) for name in names))
    assert sorted(result.revision for result in results) == list(range(1, 21))
    assert sorted(served(plane.cache)) == sorted(names)


async def test_large_pushes_are_prepared_beside_the_loop(plane: Plane) -> None:
    names = [f"c{turn}" for turn in range(500)]
    await plane.publisher.push(GROUP, clusters(*names))
    assert served(plane.cache) == names
    after = await plane.reloaded()
    assert served(after.cache) == names


async def test_emptying_a_group_with_nodes_needs_consent(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    client = Client(plane.fleet, Node(GROUP), GROUP)
    consent = PushOptions(allow_empty=True)
    for refused in (plane.publisher.push(GROUP, []), plane.publisher.delete(GROUP, (CLUSTER, "a"))):
        with pytest.raises(EmptyingError, match="with 1 node connected"):
            await refused
    with pytest.raises(EmptyingError, match="1 node would match no group"):
        await plane.publisher.delete_group(GROUP)
    assert served(plane.cache) == ["a"]
    assert (await plane.publisher.push(GROUP, [], options=consent)).revision == 2
    client.leave()
    await plane.publisher.delete_group(GROUP)
    assert plane.cache.get(GROUP) is None
    with pytest.raises(NotFoundError):
        plane.publisher.groups.content(GROUP)


async def test_a_deleted_group_says_where_its_nodes_go(plane: Plane) -> None:
    """A canary group is deleted: its nodes move to the groups of their clusters, and each gets one."""
    for group in ("canary", "edge", "core"):
        await plane.publisher.push(group, clusters("a"))
    await plane.publisher.configure("canary", GroupSettings("node.metadata.canary == yes"))
    for number in range(5):
        node = Node(f"n{number}", "core" if number == 4 else "edge", metadata={"canary": "yes"})
        Client(plane.fleet, node, "canary")
    preview = await plane.publisher.delete_group("canary", PushOptions(dry_run=True))
    assert (preview.moves, preview.changed) == ({"edge": 4, "core": 1}, True)
    assert plane.publisher.groups.find("canary") is not None
    done = await plane.publisher.delete_group("canary")
    assert done.moves == {"edge": 4, "core": 1}


async def test_a_group_is_not_deleted_when_a_node_would_get_nothing(plane: Plane) -> None:
    await plane.publisher.push("canary", clusters("a"))
    await plane.publisher.push("edge", clusters("a"))
    await plane.publisher.push("void", [])
    Client(plane.fleet, Node("n1", "edge"), "canary")
    Client(plane.fleet, Node("n2", "void"), "canary")
    stray = Client(plane.fleet, Node("n3", "nowhere"), "canary")
    with pytest.raises(EmptyingError) as refused:
        await plane.publisher.delete_group("canary")
    assert str(refused.value) == (
        "deleting group 'canary': 1 node would match no group and get no more updates;"
        " 1 node would move to 'void', which is empty, and lose all resources"
    )
    stray.leave()
    with pytest.raises(EmptyingError, match="'void', which is empty"):
        await plane.publisher.delete_group("canary")
    done = await plane.publisher.delete_group("canary", PushOptions(allow_empty=True))
    assert done.moves == {"edge": 1, "void": 1}


async def test_selectors_move_nodes_between_groups(plane: Plane) -> None:
    """A rule of the group itself counts no more; one of lower priority does."""
    for group in ("canary", "second", "edge"):
        await plane.publisher.push(group, clusters("a"))
    await plane.publisher.configure("canary", GroupSettings("node.id == n1", priority=10))
    await plane.publisher.configure("second", GroupSettings("node.id matches `n.*`", priority=5))
    Client(plane.fleet, Node("n1", "edge"), "canary")
    assert (await plane.publisher.delete_group("canary")).moves == {"second": 1}


NEW_NAMES = (
    "edge",
    "a.b-c_d",
    "sidecar~10.0.0.1~web.ns~ns.svc",
    "projects/1/nodes/2",
    "x" * 256,
    "v1.2+rc=1",
    "u@h:80",
)
OLD_NAMES = ("a b", "-edge", ".hidden", "a//b", "a/", "/a", "a/../b", "..", "grün", "a%b", "a*", "edge?", "[x]", "a,b")


@pytest.mark.parametrize("name", NEW_NAMES)
async def test_names_of_new_groups(plane: Plane, name: str) -> None:
    assert (await plane.publisher.push(name, clusters("a"))).revision == 1


@pytest.mark.parametrize("name", OLD_NAMES)
async def test_names_that_new_groups_cannot_have(plane: Plane, name: str) -> None:
    for refused in (
        plane.publisher.push(name, clusters("a")),
        plane.publisher.put(name, clusters("a")[0]),
        plane.publisher.push(name, clusters("a"), options=PushOptions(dry_run=True)),
        plane.publisher.configure(name, GroupSettings(priority=1)),
    ):
        with pytest.raises(ValidationError, match="the name of a new group has"):
            await refused
    assert plane.publisher.groups.names() == []


async def test_groups_that_are_there_keep_their_names(plane: Plane) -> None:
    """Groups of an earlier release keep working, also when they are restored after a deletion."""
    draft = await replace_all("a b", clusters("a"))
    await plane.store.commit("a b", draft.change, push_id="earlier")
    await plane.publisher.load()
    assert (await plane.publisher.push("a b", clusters("b"))).revision == 2
    assert await plane.publisher.configure("a b", GroupSettings(priority=1))
    assert (await plane.publisher.delete_group("a b")).revision == 3
    assert (await plane.publisher.rollback("a b", 2)).revision == 4


async def test_a_group_made_again_continues_its_revisions(plane: Plane) -> None:
    await plane.publisher.push(GROUP, clusters("a"))
    assert (await plane.publisher.delete_group(GROUP)).revision == 2
    assert (await plane.publisher.push(GROUP, clusters("a"), options=PushOptions(expect=0))).revision == 3
    after = await plane.reloaded()
    assert served(after.cache) == ["a"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257])
async def test_group_names_are_bounded_and_printable(plane: Plane, name: str) -> None:
    with pytest.raises(ValidationError):
        await plane.publisher.push(name, [])


class SlowStore(MemoryStore):
    """Commits at once, and answers when the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()
        self.reached = asyncio.Event()

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        done = await super().commit_all(pushes, push_id=push_id, meta=meta)
        self.reached.set()
        await self.answer.wait()
        return done


async def test_cancelled_caller_leaves_no_push_half_done() -> None:
    store = SlowStore()
    await store.open()
    plane = Plane(store)
    request = asyncio.create_task(plane.publisher.push(GROUP, clusters("a")))
    await store.reached.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    store.answer.set()
    await plane.publisher.close()
    assert served(plane.cache) == ["a"]


class LosingStore(MemoryStore):
    """Commits, but its answers are lost while ``losing``."""

    losing = True

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        done = await super().commit_all(pushes, push_id=push_id, meta=meta)
        if self.losing:
            raise UnavailableError("the connection broke", maybe_committed=True)
        return done


async def test_push_whose_answer_was_lost_is_published_after_all() -> None:
    store = LosingStore()
    await store.open()
    plane = Plane(store)
    with pytest.raises(UnavailableError):
        await plane.publisher.push(GROUP, clusters("a"))
    store.losing = False
    # The next push starts from what the store turned out to hold.
    await plane.publisher.put(GROUP, clusters("b")[0])
    assert served(plane.cache) == ["a", "b"]
    assert tuple(plane.publisher.groups.content(GROUP).entries()) == (await store.manifest(GROUP)).entries
    await plane.publisher.close()


async def test_lost_answer_is_looked_up_without_another_push() -> None:
    store = LosingStore()
    await store.open()
    plane = Plane(store)
    with pytest.raises(UnavailableError):
        await plane.publisher.push(GROUP, clusters("a"))
    async with asyncio.timeout(10):
        while plane.cache.get(GROUP) is None:
            await asyncio.sleep(0.01)
    assert served(plane.cache) == ["a"]
    await plane.publisher.close()


def refer(cluster: str) -> list[Resource]:
    return resources(route_config("r", route(cluster)))


async def test_warnings_about_references_come_with_the_result(plane: Plane) -> None:
    pushed = await plane.publisher.push(GROUP, clusters("a") + refer("nope"))
    assert [one.code for one in pushed.warnings] == ["missing_reference"]
    put = await plane.publisher.put(GROUP, refer("a")[0])
    assert put.warnings == ()
    gone = await plane.publisher.delete(GROUP, (CLUSTER, "a"), PushOptions(dry_run=True))
    assert [one.code for one in gone.warnings] == ["still_referenced"]


def listeners(**ports: int) -> list[Resource]:
    return resources(*(listener(name, inline_routes("r", route("c")), port) for name, port in ports.items()))


async def test_an_address_that_another_listener_leaves_in_the_same_push_is_warned_of(plane: Plane) -> None:
    async def warned(*pushed: Resource) -> list[tuple[str, str, str]]:
        result = await plane.publisher.push(GROUP, [*clusters("c"), *pushed], options=PushOptions(dry_run=True))
        return [(one.code, one.resource, one.pointer) for one in result.warnings]

    held = await plane.publisher.push(GROUP, [*clusters("c"), *listeners(a=1001, b=1002)])
    assert held.warnings == ()
    at_a, at_b = (("address_in_use", f"listeners/{name}", "/address") for name in "ab")
    assert await warned(*listeners(a=1002, b=1001)) == [at_a, at_b]
    assert await warned(*listeners(a=1002, b=1003)) == [at_a]
    assert await warned(*listeners(a=1003, b=1001)) == [at_b]
    assert await warned(*listeners(a=1003, b=1002, n=1001)) == [("address_in_use", "listeners/n", "/address")]
    assert await warned(*listeners(a=1003, b=1002)) == []
    assert await warned(*listeners(b=1001)) == [], "Envoy removes a listener before it adds others"
    assert await warned(*listeners(a=1001, b=1002)) == []
    put = await plane.publisher.put(GROUP, listeners(a=1003)[0])
    assert put.warnings == ()
    put = await plane.publisher.put(GROUP, listeners(b=1001)[0])
    assert put.warnings == (), "the address is free since the push before"


async def test_names_that_do_not_fit_in_one_request_are_warned_of(plane: Plane) -> None:
    """A client with all of them would lose its stream at each return."""
    plane.publisher._request_bytes = 1000
    pushed = await plane.publisher.push("g", clusters("a" * 300, "b" * 100))
    assert pushed.warnings == ()
    put = await plane.publisher.put("g", clusters("c" * 100)[0])
    assert [(one.code, one.resource) for one in put.warnings] == [("names_too_large", "clusters")]
    again = await plane.publisher.put("g", clusters("c" * 100, timeout="2s")[0])
    assert again.warnings == (), "it adds no name"


async def test_warnings_are_errors_when_strict(plane: Plane) -> None:
    with pytest.raises(ValidationError, match="no cluster 'nope'"):
        await plane.publisher.push(GROUP, refer("nope"), options=PushOptions(strict=True))
    assert plane.publisher.groups.all() == []


async def test_content_that_envoy_surely_rejects_is_not_served(plane: Plane) -> None:
    first, second = resources(*(listener(name, inline_routes("r"), 8080) for name in "ab"))
    with pytest.raises(ValidationError, match="address"):
        await plane.publisher.push(GROUP, [first, second])
    await plane.publisher.push(GROUP, [first])
    with pytest.raises(ValidationError, match="address"):
        await plane.publisher.put(GROUP, second)
    assert plane.publisher.groups.content(GROUP).revision == 1
    await plane.publisher.delete(GROUP, (LISTENER, "a"))
    assert (await plane.publisher.put(GROUP, second)).revision == 3


async def test_a_rollback_is_not_held_up(plane: Plane) -> None:
    await plane.publisher.push(GROUP, refer("nope"))
    await plane.publisher.push(GROUP, refer("other"))
    assert (await plane.publisher.rollback(GROUP, 1, PushOptions(strict=True))).revision == 3
