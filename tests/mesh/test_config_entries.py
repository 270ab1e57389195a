"""Config entries as desired state: what a write changes, refuses, and leaves untouched."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.entries import entries_of, published_entries
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.chain_json import response_json
from xds.mesh.core.chain.index import ChainContext, ChainIndex, Proposal
from xds.mesh.core.entries.entry import ConfigEntry, read_entry
from xds.mesh.core.entries.entry_set import Changes
from xds.mesh.entry_records import ENTRY_BYTES, LINE, DeleteEntry, EntryConflictError, EntryWrite, PutEntry
from xds.model.errors import ConflictError, NotFoundError, ValidationError
from xds.push.request import PushOptions
from xds.store.base import (
    NO_META,
    Commit,
    Delta,
    Entry,
    GoneError,
    GroupPush,
    Head,
    Meta,
    ReusedPushIdError,
    Store,
    UnavailableError,
    blob_id,
)
from xds.store.retention import Retention
from xds.store.sqlite.engine import SqliteStore
from xds.store.sqlite.memory import MemoryStore
from xds.tasks.waiting import TooManyWaitersError

CONTEXT = ChainContext("dc1", "test.consul")
HTTP: dict[str, Any] = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
SUBSETS: dict[str, Any] = {"v1": {"Filter": "Service.Meta.version == v1"}, "v2": {}}


def entry(value: dict[str, Any]) -> ConfigEntry:
    (made,) = read_entry(value).entries
    return made


def put(value: dict[str, Any], cas: int | None = None, etag: str = "") -> PutEntry:
    return PutEntry(entry(value), cas, etag)


def resolver(name: str = "web", **fields: Any) -> dict[str, Any]:
    return {"Kind": "service-resolver", "Name": name, **fields}


def splitter(name: str = "web", *subsets: str) -> dict[str, Any]:
    splits = [{"Weight": 100 / len(subsets), "ServiceSubset": each} for each in subsets]
    return {"Kind": "service-splitter", "Name": name, "Splits": splits}


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "xds.sqlite3")
    await made.open()
    yield made
    await made.close()


async def published(store: Store) -> EntryTable:
    made = entries_of(store, CONTEXT)
    await made.load()
    return made


@pytest.fixture
async def entries(store: Store) -> EntryTable:
    return await published(store)


@pytest.fixture
async def split(entries: EntryTable) -> EntryTable:
    """Entries of one service: a splitter between the two subsets of its resolver."""
    await entries.apply([put(HTTP), put(resolver(Subsets=SUBSETS)), put(splitter("web", "v1", "v2"))])
    return entries


def state(entries: EntryTable) -> object:
    return entries.revision, entries.records(), {name: entries.chain(name) for name in entries.index.services}


class TestWriting:
    async def test_a_write_makes_one_revision_for_several_entries(self, entries: EntryTable) -> None:
        result = await entries.apply([put(HTTP), put(resolver(Subsets=SUBSETS)), put(splitter("web", "v1", "v2"))])
        assert result.revision == entries.revision == 1
        assert [(each.key, each.change) for each in result.changes] == [
            (("proxy-defaults", "global"), "added"),
            (("service-resolver", "web"), "added"),
            (("service-splitter", "web"), "added"),
        ]
        assert result.chains == ("web",)
        assert entries.chain("web").start_node == "splitter:web.default.default"

    async def test_created_and_modified_revisions(self, split: EntryTable) -> None:
        await split.apply([put(resolver(Subsets=SUBSETS, ConnectTimeout="9s"))])
        held = split.record("service-resolver", "web")
        assert held is not None
        assert (held.created_revision, held.modified_revision) == (1, 2)
        await split.apply([DeleteEntry("service-splitter", "web")])
        await split.apply([put(splitter("web", "v1"))])
        again = split.record("service-splitter", "web")
        assert again is not None
        assert (again.created_revision, again.modified_revision) == (4, 4)

    async def test_a_write_of_equal_content_makes_no_revision(self, split: EntryTable) -> None:
        before = state(split)
        result = await split.apply([put(resolver(Subsets=SUBSETS))])
        assert (result.changed, result.changes, result.chains, result.revision) == (False, (), (), 1)
        assert state(split) == before

    async def test_a_restart_keeps_entries_revisions_and_chains(self, split: EntryTable, store: Store) -> None:
        await split.apply([put(resolver(Subsets=SUBSETS, ConnectTimeout="9s"))])
        assert state(await published(store)) == state(split)

    async def test_deleting_everything_keeps_the_revision(self, split: EntryTable, store: Store) -> None:
        result = await split.apply([DeleteEntry(*record.key) for record in split.records()])
        assert (result.revision, split.records(), list(split.index.services)) == (2, [], [])
        assert (await published(store)).revision == 2

    async def test_a_deletion_of_an_absent_entry(self, split: EntryTable) -> None:
        with pytest.raises(NotFoundError, match="service-router/web"):
            await split.apply([DeleteEntry("service-router", "web")])
        result = await split.apply([DeleteEntry("service-router", "web", must_exist=False)])
        assert (result.changed, result.revision) == (False, 1)


class TestRefusals:
    @pytest.mark.parametrize(
        ("writes", "flaw", "path"),
        [
            ([DeleteEntry("service-resolver", "web")], "unknown_subset", "splitter:web.default.default"),
            (
                [put(resolver(Redirect={"Service": "b"})), put(resolver("b", Redirect={"Service": "web"}))],
                "circular_redirect",
                "web",
            ),
            ([put(splitter("web", "v1", "v3"))], "unknown_subset", "splitter:web.default.default"),
            ([put({"Kind": "service-defaults", "Name": "web", "Protocol": "tcp"})], "protocol_not_http", "web"),
            ([DeleteEntry("proxy-defaults", "global")], "protocol_not_http", "web"),
        ],
    )
    async def test_a_write_that_breaks_a_chain_changes_nothing(
        self, split: EntryTable, store: Store, writes: list[EntryWrite], flaw: str, path: str
    ) -> None:
        before = state(split)
        with pytest.raises(ValidationError) as refused:
            await split.apply([put(resolver("other")), *list[EntryWrite](writes)])
        (finding,) = [each for each in refused.value.violations if "web" in each.resource]
        assert finding.code == flaw
        assert path in finding.hint
        assert state(split) == before
        assert state(await published(store)) == before

    async def test_ten_thousand_redirects_behind_each_other(self, entries: EntryTable) -> None:
        redirects = (put(resolver(f"s{at}", Redirect={"Service": f"s{at + 1}"})) for at in range(10_000))
        with pytest.raises(ValidationError) as refused:
            await entries.apply(list(redirects))
        assert {each.code for each in refused.value.violations} == {"too_large"}
        assert len(refused.value.violations) <= 100
        assert len(str(refused.value)) < 1_000_000
        assert (entries.revision, entries.records()) == (0, [])

    async def test_an_entry_of_a_megabyte(self, split: EntryTable) -> None:
        before = state(split)
        large = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http", "x": "y" * 1_000_000}}
        with pytest.raises(ValidationError, match=str(ENTRY_BYTES)) as refused:
            await split.apply([put(large)])
        assert refused.value.violations[0].resource == "proxy-defaults/global"
        assert state(split) == before

    async def test_one_entry_twice(self, split: EntryTable) -> None:
        writes: list[EntryWrite] = [put(resolver()), DeleteEntry("service-resolver", "web")]
        with pytest.raises(ValidationError) as refused:
            await split.apply(writes)
        assert [each.code for each in refused.value.violations] == ["duplicate_entry"]
        with pytest.raises(ValidationError):
            await split.apply([])


class TestPreconditions:
    async def test_cas_zero_only_creates(self, split: EntryTable) -> None:
        with pytest.raises(EntryConflictError) as refused:
            await split.apply([put(resolver(), cas=0)])
        assert (refused.value.key, refused.value.revision) == (("service-resolver", "web"), 1)
        assert (await split.apply([put(resolver("new"), cas=0)])).revision == 2

    async def test_cas_is_the_revision_of_the_entry(self, split: EntryTable) -> None:
        await split.apply([put(resolver("new"))])
        with pytest.raises(EntryConflictError):
            await split.apply([DeleteEntry("service-splitter", "web", cas=2)])
        with pytest.raises(EntryConflictError):
            await split.apply([DeleteEntry("service-splitter", "none", cas=2)])
        assert (await split.apply([DeleteEntry("service-splitter", "web", cas=1)])).revision == 3

    async def test_etags_of_an_entry(self, split: EntryTable) -> None:
        held = split.record("service-resolver", "web")
        assert held is not None
        for stale in ("r1-00000000", "r2"):
            with pytest.raises(EntryConflictError):
                await split.apply([put(resolver(), etag=stale)])
        with pytest.raises(EntryConflictError):
            await split.apply([put(resolver("new"), etag="*")])
        await split.apply([put(resolver(Subsets={**SUBSETS, "v3": {}}), etag=held.etag)])

    async def test_one_failed_precondition_refuses_the_whole_write(self, split: EntryTable) -> None:
        before = state(split)
        with pytest.raises(EntryConflictError):
            await split.apply([put(resolver("new")), put(resolver(), cas=7)])
        assert state(split) == before

    async def test_preconditions_of_the_line(self, split: EntryTable) -> None:
        for options in (PushOptions(expect=0), PushOptions(etag="r7")):
            with pytest.raises(ConflictError):
                await split.apply([put(resolver("new"))], options)
        await split.apply([put(resolver("new"))], PushOptions(etag="r1"))
        await split.apply([put(resolver("newer"))], PushOptions(expect=2))


class TestRepeats:
    async def test_a_repeat_gets_the_first_result(self, split: EntryTable, store: Store) -> None:
        options = PushOptions(push_id="once")
        first = await split.apply([put(resolver("new"), cas=0)], options)
        await split.apply([DeleteEntry("service-resolver", "new")])
        for publisher in (split, await published(store)):
            again = await publisher.apply([put(resolver("new"), cas=0)], options)
            assert (again.revision, again.changes, again.replayed) == (2, first.changes, True)
            assert publisher.revision == 3

    async def test_another_write_with_the_same_id(self, split: EntryTable) -> None:
        options = PushOptions(push_id="once")
        await split.apply([put(resolver("new"))], options)
        with pytest.raises(ReusedPushIdError):
            await split.apply([put(resolver("newer"))], options)

    async def test_a_dry_run_shows_the_changes(self, split: EntryTable) -> None:
        before = state(split)
        result = await split.apply([DeleteEntry("service-splitter", "web")], PushOptions(dry_run=True))
        assert (result.dry_run, result.revision, result.chains) == (True, 1, ("web",))
        assert [each.change for each in result.changes] == ["removed"]
        assert state(split) == before


class TestHistory:
    async def test_undo_brings_the_very_chain_back(self, split: EntryTable, store: Store) -> None:
        chain, json = split.chain("web"), response_json(split.chain("web"))
        await split.apply([DeleteEntry("service-splitter", "web"), put(resolver(Redirect={"Service": "b"}))])
        assert split.chain("web") != chain
        plan = await split.history.undo_plan()
        assert (plan.takes_back.revision, plan.to.revision) == (2, 1)
        result = await split.roll_back(plan.to.revision)
        assert result.revision == 3
        for publisher in (split, await published(store)):
            assert publisher.chain("web") == chain
            assert response_json(publisher.chain("web")) == json
            held = publisher.record("service-resolver", "web")
            assert held is not None
            assert (held.created_revision, held.modified_revision) == (1, 3)
        lines = await split.history.line.page()
        assert [(line.revision, line.kind, line.content_of, line.undone_by) for line in lines] == [
            (3, "rollback", 1, 0),
            (2, "push", 0, 3),
            (1, "push", 0, 0),
        ]

    async def test_undo_twice_goes_further_back(self, split: EntryTable) -> None:
        await split.apply([put(resolver("b"))])
        await split.apply([put(resolver("c"))])
        await split.roll_back((await split.history.undo_plan()).to.revision)
        await split.roll_back((await split.history.undo_plan()).to.revision)
        assert [record.key[1] for record in split.records("service-resolver")] == ["web"]
        with pytest.raises(NotFoundError, match="no revision before 1"):
            await split.history.undo_plan()

    async def test_an_undo_that_breaks_a_chain_is_refused(self, split: EntryTable, store: Store) -> None:
        await split.apply([put(resolver("b"))])
        stricter = await published(store)
        body = b'{"CreateIndex":1,"Kind":"service-defaults","ModifyIndex":1,"Name":"web","Protocol":"tcp"}'
        delta = Delta((Entry("service-defaults", "web", blob_id(body)),), (), {blob_id(body): body})
        await store.commit(LINE, delta, push_id="as an earlier release")
        await stricter.load()
        await stricter.apply([DeleteEntry("service-defaults", "web")])
        with pytest.raises(ValidationError, match="protocol"):
            await stricter.roll_back(3)
        assert stricter.revision == 4

    async def test_differences_between_revisions(self, split: EntryTable) -> None:
        await split.apply([put(resolver("b"))])
        await split.apply([DeleteEntry("service-splitter", "web")])
        await split.apply([put(splitter("web", "v1", "v2"))])
        assert [each.change for each in await split.history.changes(0, 1)] == ["added"] * 3
        assert [(each.key, each.change) for each in await split.history.changes(1, 3)] == [
            (("service-resolver", "b"), "added"),
            (("service-splitter", "web"), "removed"),
        ]
        assert [each.key for each in await split.history.changes(1, 4)] == [("service-resolver", "b")]

    async def test_retention_forgets_old_revisions_and_keeps_the_entries(self, split: EntryTable, store: Store) -> None:
        for at in range(5):
            await split.apply([put(resolver(Subsets=SUBSETS, ConnectTimeout=f"{at + 1}s"))])
        before = state(split)
        await store.collect(Retention(revisions=2, age_s=0), time.time())
        assert state(await published(store)) == before
        assert [line.content for line in await split.history.line.page()] == [True, True, False, False, False, False]
        with pytest.raises(GoneError):
            await split.roll_back(1)
        assert (await split.roll_back(5)).revision == 7

    async def test_actor_and_author_of_a_revision_are_kept(self, split: EntryTable, store: Store) -> None:
        meta = Meta(author="ada", message="more", actor="ci")
        await split.apply([put(resolver("b"))], PushOptions(meta=meta, peer="127.0.0.1:1"))
        line = await split.history.line.find(2)
        assert line is not None
        assert (line.meta.author, line.meta.message, line.meta.actor) == ("ada", "more", "ci")
        assert line.meta.time_s > 0
        note = (await store.audit()).entries[-1].note
        assert (note.action, note.subject, note.revision) == ("config_entries.changed", "service-resolver/b", 2)
        assert (note.author, note.actor, note.peer, note.message) == ("ada", "ci", "127.0.0.1:1", "more")
        assert '"service-resolver/b"' in note.new


class TestBrokenStores:
    async def test_broken_entries_do_not_keep_the_others_from_being_served(
        self, split: EntryTable, store: Store
    ) -> None:
        bodies = {
            ("service-resolver", "bad"): b"no JSON",
            ("service-future", "web"): b'{"CreateIndex":1,"Kind":"service-future","ModifyIndex":1,"Name":"web"}',
            ("service-resolver", "loop"): b'{"CreateIndex":1,"Kind":"service-resolver","ModifyIndex":1,"Name":"loop",'
            b'"Redirect":{"Service":"pool"}}',
            ("service-resolver", "pool"): b'{"CreateIndex":1,"Kind":"service-resolver","ModifyIndex":1,"Name":"pool",'
            b'"Redirect":{"Service":"loop"}}',
        }
        lines = tuple(Entry(*key, blob_id(body)) for key, body in bodies.items())
        await store.commit(LINE, Delta(lines, (), {blob_id(body): body for body in bodies.values()}), push_id="p")
        again = await published(store)
        assert again.unreadable.keys() == {("service-resolver", "bad"), ("service-future", "web")}
        assert {error.chain for error in again.index.broken()} == {"loop", "pool"}
        assert again.chain("web") == split.chain("web")
        await again.apply([put(resolver("more"))])  # others can be written
        await again.apply([put(resolver("pool"))])  # what is broken can be mended
        assert again.index.broken() == ()
        await again.apply([DeleteEntry("service-resolver", "bad")])
        assert again.unreadable.keys() == {("service-future", "web")}
        assert (await published(store)).unreadable.keys() == {("service-future", "web")}


class ForgetfulStore(MemoryStore):
    """Commits, but while ``fails`` its answers are lost, as when a disk hangs; then it answers no question."""

    fails = False

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        done = await super().commit_all(pushes, push_id=push_id, meta=meta)
        if self.fails:
            raise UnavailableError("the answer is lost", maybe_committed=True)
        return done

    async def head(self, group: str) -> Head | None:
        if self.fails:
            raise UnavailableError("no answer")
        return await super().head(group)


class TestLostAnswers:
    @pytest.fixture
    async def forgetful(self) -> AsyncIterator[ForgetfulStore]:
        store = ForgetfulStore()
        await store.open()
        yield store

    async def test_committed_content_is_served_before_the_next_write(self, forgetful: ForgetfulStore) -> None:
        entries, publisher = published_entries(forgetful, CONTEXT)
        forgetful.fails = True
        with pytest.raises(UnavailableError):
            await entries.apply([put(resolver("a"))], PushOptions(push_id="p"))
        with pytest.raises(UnavailableError):
            await entries.apply([put(resolver("b"))])
        assert (entries.revision, entries.records()) == (0, [])
        forgetful.fails = False
        again = await entries.apply([put(resolver("a"))], PushOptions(push_id="p"))
        assert (again.revision, again.replayed) == (1, True)
        assert [record.key[1] for record in entries.records()] == ["a"]
        await entries.apply([put(resolver("b"))])
        assert state(await published(forgetful)) == state(entries)
        await publisher.close()

    async def test_committed_content_is_served_without_another_write(
        self, forgetful: ForgetfulStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("xds.push.backlog.RETRY_DERIVED_S", 0.01)
        entries, publisher = published_entries(forgetful, CONTEXT)
        forgetful.fails = True
        with pytest.raises(UnavailableError):
            await entries.apply([put(resolver("a"))])
        forgetful.fails = False
        await asyncio.wait_for(entries.wait(0, lambda: entries.revision, 60), 10)
        assert [record.key[1] for record in entries.records()] == ["a"]
        await publisher.close()

    async def test_a_write_continues_when_its_caller_is_cancelled(self, store: Store) -> None:
        entries, publisher = published_entries(store, CONTEXT)
        writing = asyncio.create_task(entries.apply([put(resolver("a"))]))
        await asyncio.sleep(0)
        writing.cancel()
        await publisher.close()
        assert entries.record("service-resolver", "a") is not None


class TestTheEventLoop:
    async def test_few_chains_are_compiled_on_the_loop_and_many_in_a_thread(
        self, entries: EntryTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"s{at}" for at in range(300)]
        await entries.apply([put(HTTP), *(put(resolver(name, Subsets=SUBSETS)) for name in names)])
        await entries.apply([put(splitter(name, "v1", "v2")) for name in names])
        threads: list[int] = []
        propose = ChainIndex.propose

        def noted(index: ChainIndex, changes: Changes) -> Proposal:
            threads.append(threading.get_ident())
            return propose(index, changes)

        monkeypatch.setattr(ChainIndex, "propose", noted)
        result = await entries.apply([put({**HTTP, "Config": {"protocol": "grpc"}})])
        assert len(result.chains) == len(names)
        await entries.apply([put(splitter("s0", "v1"))])
        many, few = threads
        assert (many == threading.get_ident(), few == threading.get_ident()) == (False, True)


class TestWaiting:
    async def test_the_revision_of_a_chain_follows_its_entries(self, split: EntryTable) -> None:
        await split.apply([put(resolver("other"))])
        assert (split.chain_revision("web"), split.chain_revision("other"), split.chain_revision("none")) == (1, 2, 1)
        await split.apply([DeleteEntry("service-splitter", "web")])
        assert (split.chain_revision("web"), split.chain_revision("other")) == (3, 2)
        assert (split.kind_revision("service-splitter"), split.kind_revision("service-resolver")) == (3, 2)

    async def test_a_waiter_returns_when_its_chain_changes(self, split: EntryTable) -> None:
        waiting = asyncio.create_task(split.wait(1, lambda: split.chain_revision("web"), 60))
        await split.apply([put(resolver("other"))])
        await asyncio.sleep(0)
        assert not waiting.done()
        await split.apply([DeleteEntry("service-splitter", "web")])
        await asyncio.wait_for(waiting, 10)

    async def test_a_waiter_returns_when_its_time_is_over(self, split: EntryTable) -> None:
        await asyncio.wait_for(split.wait(1, lambda: split.revision, 0.01), 10)

    async def test_waiters_are_bounded(self, split: EntryTable) -> None:
        split.waiting.limit = 2
        waiting = [asyncio.create_task(split.wait(1, lambda: split.revision, 60)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyWaitersError):
            await split.wait(1, lambda: split.revision, 60)
        await split.apply([put(resolver("other"))])
        await asyncio.wait_for(asyncio.gather(*waiting), 10)
        await asyncio.wait_for(split.wait(2, lambda: split.revision, 0.01), 10)

    async def test_chains_of_another_datacenter(self, split: EntryTable) -> None:
        assert split.chain("web").datacenter == "dc1"
        assert split.chain("web", datacenter="dc2").datacenter == "dc2"
