"""Assignments that are set by hand: durable, over every push, drained, and gone with their group."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.support.plane import Plane
from tests.support.resources import cluster_load_assignment, eds_cluster
from xds.access.caller import Caller
from xds.codec.resources import decode_resource
from xds.fleet.event_log import EventFilter, EventKind
from xds.live.by_hand import KIND, Edit, EditResult, HandChange, WriteOptions
from xds.live.draining import DrainingEndpoint, drain_missing, endpoint_states
from xds.live.endpoint_patch import read_patch
from xds.live.owners import HAND, OwnedError, Owner
from xds.model.errors import ConflictError, NotFoundError, ValidationError
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.push.request import PushOptions
from xds.services.bindings import BINDING
from xds.store.base import UnavailableError
from xds.store.etags import ANY_ETAG, NO_ETAG
from xds.store.sqlite.memory import MemoryStore

G = "edge"
KEY = (G, "web")
ALICE = WriteOptions(by=Caller("alice", "al", "10.0.0.9:1"))
NOW = replace(ALICE, drain_s=0.0)


def assignment(*ports: int, name: str = "web") -> Resource:
    return decode_resource(cluster_load_assignment(name, *ports))


def setting(*ports: int, name: str = "web") -> Edit:
    return lambda present, draining: EditResult(assignment(*ports, name=name))


def patching(**document: Any) -> Edit:
    patch = read_patch(document)
    return lambda present, draining: patch.apply("web", present, draining)


async def push(plane: Plane, *ports: int, **options: Any) -> None:
    resources = [decode_resource(eds_cluster("web")), assignment(*ports)]
    await plane.publisher.push(G, resources, options=PushOptions(**options))


def served(plane: Plane, name: str = "web") -> dict[int, str] | None:
    """The health of the endpoints by port."""
    snapshot = plane.cache.get(G)
    assert snapshot is not None
    found = snapshot.get(ENDPOINT).resources.get(name)
    if found is None:
        return None
    return {int(state.address.rpartition(":")[2]): state.health for state in endpoint_states(found)}


UP, DRAINS = "UNKNOWN", "DRAINING"


async def end(plane: Plane, after_s: float) -> None:
    plane.now_s += after_s
    await plane.by_hand.end_drains(plane.now_s)


async def test_an_assignment_by_hand_is_served_instead_of_the_pushed_one_without_a_revision(plane: Plane) -> None:
    await push(plane, 81)
    plane.woken.clear()
    change = await plane.by_hand.edit(KEY, setting(81, 82), ALICE)
    assert change.changed and served(plane) == {81: UP, 82: UP}
    assert plane.woken == [G]
    assert plane.publisher.groups.content(G).revision == 1
    assert plane.publisher.live.owner(*KEY) == Owner(HAND, actor="alice", time_s=plane.now_s)
    again = await plane.by_hand.edit(KEY, setting(81, 82), ALICE)
    assert not again.changed and plane.woken == [G]


async def test_pushes_undo_and_rollback_leave_it_as_it_is(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(81, 82), ALICE)
    await push(plane, 83)
    assert served(plane) == {81: UP, 82: UP}
    await plane.publisher.rollback(G, 1)
    assert served(plane) == {81: UP, 82: UP}
    assert plane.publisher.groups.content(G).revision == 3
    await plane.by_hand.delete(KEY, NOW)
    assert served(plane) == {81: UP}


async def test_endpoints_that_vanish_drain_also_those_of_the_push_below(plane: Plane) -> None:
    await push(plane, 81, 82)
    await plane.by_hand.edit(KEY, setting(82, 83), ALICE)
    assert served(plane) == {81: DRAINS, 82: UP, 83: UP}
    await plane.by_hand.edit(KEY, setting(83), ALICE)
    await end(plane, 14.9)
    assert served(plane) == {81: DRAINS, 82: DRAINS, 83: UP}
    plane.woken.clear()
    await end(plane, 0.1)
    assert served(plane) == {83: UP}
    assert plane.woken == [G]


async def test_a_change_has_its_own_drain_time_or_none(plane: Plane) -> None:
    await push(plane, 81, 82, 83)
    await plane.by_hand.edit(KEY, patching(remove=["127.0.0.1:81"]), replace(ALICE, drain_s=60))
    await plane.by_hand.edit(KEY, patching(remove=["127.0.0.1:82"]), NOW)
    assert served(plane) == {81: DRAINS, 83: UP}
    await end(plane, 59)
    assert served(plane) == {81: DRAINS, 83: UP}
    await plane.by_hand.edit(KEY, patching(remove=["127.0.0.1:81"]), NOW)
    assert served(plane) == {83: UP}, "what drains already can be ended"


async def test_a_drain_can_be_taken_back(plane: Plane) -> None:
    await push(plane, 81, 82)
    await plane.by_hand.edit(KEY, patching(remove=["127.0.0.1:81"]), ALICE)
    await plane.by_hand.edit(KEY, patching(put=[{"address": "127.0.0.1:81"}]), ALICE)
    assert served(plane) == {82: UP, 81: UP}
    await end(plane, 100)
    assert served(plane) == {82: UP, 81: UP}


async def test_a_patch_starts_from_the_pushed_assignment_and_then_from_the_set_one(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit(KEY, patching(put=[{"address": "127.0.0.1:82"}]), ALICE)
    await push(plane, 85)
    await plane.by_hand.edit(KEY, patching(put=[{"address": "127.0.0.1:83"}]), ALICE)
    assert served(plane) == {81: UP, 82: UP, 83: UP}
    gone = patching(remove=["127.0.0.1:82", "127.0.0.1:99"])
    change = await plane.by_hand.edit(KEY, gone, ALICE)
    assert change.absent == ("127.0.0.1:99",)
    change = await plane.by_hand.edit(KEY, gone, ALICE)
    assert not change.changed and change.absent == ("127.0.0.1:99",), "what drains is there; again is not a change"


async def test_a_name_that_is_not_pushed_may_be_set(plane: Plane) -> None:
    await push(plane, 81)
    key = (G, "other/name")
    await plane.by_hand.edit(key, setting(90, name="other/name"), ALICE)
    assert served(plane, "other/name") == {90: UP}
    assert plane.by_hand.is_used(KEY) and not plane.by_hand.is_used(key)
    await plane.by_hand.delete(key, ALICE)
    assert served(plane, "other/name") == {90: DRAINS}
    await end(plane, 15)
    assert served(plane, "other/name") is None
    assert plane.publisher.live.owner(*key) is None


async def test_a_deleted_assignment_drains_into_the_pushed_one(plane: Plane) -> None:
    await push(plane, 81, 82)
    await plane.by_hand.edit(KEY, setting(82, 83), NOW)
    await plane.by_hand.delete(KEY, ALICE)
    assert served(plane) == {81: UP, 82: UP, 83: DRAINS}
    assert plane.publisher.live.owner(*KEY) is not None, "until then"
    with pytest.raises(NotFoundError):
        await plane.by_hand.delete(KEY, ALICE)
    await end(plane, 15)
    assert served(plane) == {81: UP, 82: UP}
    assert plane.cache.get(G) is plane.cache.pushed(G)
    assert plane.publisher.live.owner(*KEY) is None
    assert await plane.store.docs(KIND) == []


async def test_one_that_is_leaving_can_be_set_again_or_ended(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(83), NOW)
    await plane.by_hand.delete(KEY, ALICE)
    await plane.by_hand.edit(KEY, setting(83, 84), replace(ALICE, etag=NO_ETAG))
    assert served(plane) == {83: UP, 84: UP, 81: DRAINS}
    await end(plane, 100)
    assert served(plane) == {83: UP, 84: UP}
    await plane.by_hand.delete(KEY, ALICE)
    await plane.by_hand.delete(KEY, NOW)
    assert plane.cache.get(G) is plane.cache.pushed(G)


async def test_compare_and_set(plane: Plane) -> None:
    await push(plane, 81)
    with pytest.raises(ConflictError, match="has no etag"):
        await plane.by_hand.edit(KEY, setting(82), replace(ALICE, etag=ANY_ETAG))
    first = await plane.by_hand.edit(KEY, setting(82), replace(ALICE, etag=NO_ETAG))
    assert first.after is not None
    etag = first.after.etag
    await end(plane, 100)
    held = plane.by_hand.find(KEY)
    assert held is not None and held.etag == etag, "the end of a drain does not change what is wanted"
    second = await plane.by_hand.edit(KEY, setting(83), replace(ALICE, etag=etag))
    assert second.after is not None and second.after.etag != etag
    for stale in (etag, NO_ETAG):
        with pytest.raises(ConflictError):
            await plane.by_hand.edit(KEY, setting(84), replace(ALICE, etag=stale))
        with pytest.raises(ConflictError):
            await plane.by_hand.delete(KEY, replace(ALICE, etag=stale))


async def test_edits_at_the_same_time_do_not_lose_one_another(plane: Plane) -> None:
    await push(plane, 80)
    edits = [patching(put=[{"address": f"127.0.0.1:{port}"}]) for port in range(81, 99)]
    await asyncio.gather(*(plane.by_hand.edit(KEY, edit, ALICE) for edit in edits))
    assert served(plane) == dict.fromkeys(range(80, 99), UP)


async def test_a_dry_run_changes_nothing(plane: Plane) -> None:
    await push(plane, 81)
    change = await plane.by_hand.edit(KEY, setting(82), replace(ALICE, dry_run=True))
    assert isinstance(change, HandChange) and change.after is not None
    assert endpoint_states(change.after.served())[1].health == DRAINS
    assert served(plane) == {81: UP} and await plane.store.docs(KIND) == []
    await plane.by_hand.edit(KEY, setting(82), NOW)
    await plane.by_hand.delete(KEY, replace(ALICE, dry_run=True))
    assert served(plane) == {82: UP}


async def test_bad_edits_change_nothing(plane: Plane) -> None:
    await push(plane, 81)
    with pytest.raises(NotFoundError, match="no such group"):
        await plane.by_hand.edit(("nowhere", "web"), setting(82), ALICE)
    with pytest.raises(ValidationError):
        await plane.by_hand.edit(KEY, patching(put=[{"address": "127.0.0.1:82", "priority": 5}]), ALICE)
    with pytest.raises(NotFoundError, match="no assignment 'web' of group 'edge' is set by hand"):
        await plane.by_hand.delete(KEY, ALICE)
    assert served(plane) == {81: UP} and plane.publisher.live.owners(G) == {}


async def test_a_binding_keeps_hands_off(plane: Plane) -> None:
    await push(plane, 81)
    plane.publisher.live.assign(G, Owner(BINDING, "bound to service 'shop'", "shop"), {"web": assignment(90)})
    for write in (plane.by_hand.edit(KEY, setting(82), ALICE), plane.by_hand.delete(KEY, ALICE)):
        with pytest.raises(OwnedError, match="is bound to service 'shop': it cannot be set by hand"):
            await write
    assert served(plane) == {90: UP}


async def test_an_assignment_by_hand_is_stored_before_it_is_served(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that cannot be stored is not served: a restart would take it back."""
    await push(plane, 81)

    async def fail(*arguments: Any, **options: Any) -> int:
        assert served(plane) == {81: UP}
        raise UnavailableError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "put_doc", fail)
        with pytest.raises(UnavailableError):
            await plane.by_hand.edit(KEY, setting(82), ALICE)
    assert served(plane) == {81: UP} and plane.by_hand.find(KEY) is None
    await plane.by_hand.edit(KEY, setting(82), NOW)
    assert served(plane) == {82: UP}


async def test_a_change_whose_caller_goes_away_is_stored_and_served(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored and not served would last until a restart, which nobody would expect to move traffic."""
    await push(plane, 81)
    store, stored = MemoryStore.put_doc, asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> int:
        made = await store(*arguments, **options)
        stored.set()
        await asyncio.sleep(0.01)
        return made

    monkeypatch.setattr(MemoryStore, "put_doc", slow)
    call = asyncio.create_task(plane.by_hand.edit(KEY, setting(82), NOW))
    await stored.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await plane.by_hand.close()
    assert served(plane) == {82: UP}


async def test_the_end_of_a_deletion_waits_for_the_store(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a restart would bring the deleted assignment back."""
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(83), NOW)
    await plane.by_hand.delete(KEY, ALICE)

    async def fail(*arguments: Any, **options: Any) -> int:
        raise UnavailableError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "put_doc", fail)
        with pytest.raises(UnavailableError):
            await end(plane, 20)
        assert served(plane) == {81: UP, 83: DRAINS}
    await end(plane, 1)
    assert served(plane) == {81: UP}


async def test_the_first_answer_after_a_restart_has_the_assignment_by_hand(plane: Plane) -> None:
    await push(plane, 81, 82)
    await plane.by_hand.edit(KEY, setting(82, 83), ALICE)
    before = plane.cache.get(G)
    plane.now_s += 5
    after = await plane.reloaded()
    assert served(after) == {81: DRAINS, 82: UP, 83: UP}
    now = after.cache.get(G)
    assert before is not None and now is not None
    assert now.get(ENDPOINT).version_info == before.get(ENDPOINT).version_info
    assert after.publisher.live.owner(*KEY) == plane.publisher.live.owner(*KEY)
    await end(after, 9.9)
    assert served(after) == {81: DRAINS, 82: UP, 83: UP}
    await end(after, 0.1)
    assert served(after) == {82: UP, 83: UP}


async def test_a_drain_that_ended_while_the_server_was_down_is_over(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(83), NOW)
    await plane.by_hand.edit((G, "more"), setting(91, name="more"), NOW)
    await plane.by_hand.edit((G, "more"), setting(92, name="more"), ALICE)
    await plane.by_hand.delete(KEY, ALICE)
    plane.now_s += 100
    after = await plane.reloaded()
    assert served(after) == {81: UP} and served(after, "more") == {92: UP}
    await end(after, 1)
    assert after.publisher.live.owner(*KEY) is None
    assert [doc.id for doc in await after.store.docs(KIND)] == ["edge/more"]


async def test_an_unreadable_document_is_kept_and_affects_no_other(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit((G, "more"), setting(91, name="more"), NOW)
    for body in (b"{", b"{}", json.dumps({"assignment": "!", "draining": []}).encode()):
        await plane.store.put_doc(KIND, "edge/web", body)
        after = await plane.reloaded()
        assert served(after) == {81: UP} and served(after, "more") == {91: UP}
    assert len(await plane.store.docs(KIND)) == 2


async def test_an_assignment_by_hand_is_deleted_with_its_group(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(82), NOW)
    await plane.publisher.delete_group(G)
    assert await plane.store.docs(KIND) == []
    assert plane.publisher.live.owners(G) == {} and len(plane.by_hand) == 0
    await push(plane, 81)
    assert served(plane) == {81: UP}


async def test_a_change_during_the_deletion_of_its_group_leaves_nothing_behind(plane: Plane) -> None:
    """Whichever comes first: an assignment that outlives its group would come back with the next one of this name."""
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(82), NOW)
    work = [
        plane.by_hand.edit((G, "more"), setting(91, name="more"), NOW),
        plane.publisher.delete_group(G),
        plane.by_hand.edit((G, "late"), setting(91, name="late"), NOW),
    ]
    results = await asyncio.gather(*work, return_exceptions=True)
    assert all(not isinstance(one, BaseException) or isinstance(one, NotFoundError) for one in results)
    assert plane.publisher.groups.names() == []
    assert await plane.store.docs(KIND) == []
    assert plane.publisher.live.owners(G) == {} and plane.cache.observed(G) == {}


async def test_a_change_of_an_assignment_is_audited_and_an_event(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(82), ALICE)
    await end(plane, 15)
    await plane.by_hand.delete(KEY, NOW)
    page = await plane.publisher.audit.read("", 100)
    notes = [entry.note for entry in page.entries if entry.note.action.startswith("endpoints.")]
    assert [(note.action, note.actor, note.group, note.subject) for note in notes] == [
        ("endpoints.set", "alice", G, "web"),
        ("endpoints.deleted", "alice", G, "web"),
    ]
    assert json.loads(notes[0].new) == {
        "endpoints_n": 1,
        "endpoints": ["127.0.0.1:82"],
        "draining": ["127.0.0.1:81"],
    }
    events = plane.fleet.events.after(0, EventFilter(frozenset({EventKind.ENDPOINTS})), 100).events
    assert [event.action for event in events] == ["set", "drained", "deleted"]
    assert events[0].details == {"actor": "alice", "author": "al", "resource": "web", "endpoints": 1, "draining": 1}


async def test_a_reload_replaces_assignments_by_the_stored_ones(plane: Plane) -> None:
    """As with a backup: the stored documents replace those in force."""
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(82), NOW)
    (document,) = await plane.store.docs(KIND)
    await plane.by_hand.edit(KEY, setting(83), NOW)
    await plane.by_hand.edit((G, "more"), setting(91, name="more"), NOW)
    await plane.store.put_doc(KIND, document.id, document.body)
    await plane.store.put_doc(KIND, "edge/more", None)
    await plane.publisher.reload()
    assert served(plane) == {82: UP} and served(plane, "more") is None
    assert list(plane.publisher.live.owners(G)) == ["web"]


async def test_a_large_assignment_is_deleted_beside_the_event_loop(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(plane, 1)
    await plane.by_hand.edit(KEY, setting(*range(1, 3_000)), ALICE)
    threads: list[threading.Thread] = []

    def noted(*given: Any) -> tuple[DrainingEndpoint, ...]:
        threads.append(threading.current_thread())
        return drain_missing(*given)

    monkeypatch.setattr("xds.live.by_hand.drain_missing", noted)
    await plane.by_hand.delete(KEY, ALICE)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert served(plane) == {1: UP, **dict.fromkeys(range(2, 3_000), DRAINS)}


async def test_the_holder_of_the_lease_deletes_what_every_server_has_ended(plane: Plane) -> None:
    await push(plane, 81)
    await plane.by_hand.edit(KEY, setting(82), ALICE)
    await end(plane, 15.0)
    await plane.by_hand.delete(KEY, ALICE)
    plane.by_hand.holds_lease = lambda: False
    await end(plane, 15.1)
    assert served(plane) == {81: UP}
    assert len(await plane.store.docs(KIND)) == 1
    plane.by_hand.holds_lease = lambda: True
    await end(plane, 0.1)
    assert await plane.store.docs(KIND) == []
    assert served(plane) == {81: UP}
