"""What every engine does with the audit list, with kinds of revisions, and with pushes of endpoints alone."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from tests.store.contract import EDS, cluster, contents, delta, dumped, endpoints, full, push
from xds.store.audit_entries import LIMITS, MERGED_S, AuditFilter, AuditLane, AuditNote
from xds.store.base import CorruptError, Drop, GoneError, GroupChange, GroupPush, Meta, Rollback, Store, blob_id
from xds.store.records import REVISIONS, Record
from xds.store.retention import Retention
from xds.store.sqlite.memory import MemoryStore

CHANGED = AuditNote("push", "team", "root", "10.0.0.1:1", "g", new='{"a": 1}', time_s=1.0)
REFUSED = AuditNote("refused", "", "", "10.0.0.9:1", "g", time_s=2.0, lane=AuditLane.REFUSED, key="k")


async def commit(store: Store, change: GroupChange, note: AuditNote | None = None) -> None:
    number = len(await store.history("g", limit=10_000))
    await store.commit_all([GroupPush("g", change, note=note)], push_id=f"n{number}", meta=Meta(actor="team"))


async def line(store: Store, revision: int) -> tuple[str, int, bool, int, bool]:
    (found,) = await store.history("g", before=revision + 1, limit=1)
    return found.kind, found.content_of, found.endpoints_only, found.undone_by, found.content


@asynccontextmanager
async def emptied() -> AsyncIterator[Store]:
    """Another server's store."""
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


async def seen(store: Store) -> list[object]:
    """The history with all that can be read of it, and the audit list."""
    lines = await store.history("g", limit=1000)
    read = [await contents(store, await store.manifest("g", line.revision)) for line in lines if line.content]
    return [lines, read, (await store.audit(limit=10_000)).entries]


class AuditContract:
    """Mixed into the suite of each engine."""

    async def test_the_list_is_measured_by_lane(self, store: Store) -> None:
        empty = await store.stats()
        assert (empty.audit, empty.audit_bytes) == (dict.fromkeys(AuditLane, 0), 0)
        await commit(store, full(cluster("a")), CHANGED)
        await store.note([REFUSED, REFUSED, replace(REFUSED, key="other"), replace(CHANGED, time_s=2.0)])
        found = await store.stats()
        assert found.audit == {AuditLane.CHANGE: 2, AuditLane.ENDPOINTS: 0, AuditLane.REFUSED: 2}
        noted = (await store.audit(wanted=AuditFilter(lanes=frozenset({AuditLane.CHANGE})))).entries
        assert found.audit_bytes == sum(entry.note.size for entry in noted) > 400

    async def test_a_backup_has_the_history_and_the_audit_list(self, store: Store) -> None:
        await commit(store, full(cluster("a"), endpoints("x")), CHANGED)
        for body in (b"2", b"3", b"4", b"5"):
            await commit(store, delta(endpoints("x", body)), replace(CHANGED, action="endpoints"))
        await commit(store, full(cluster("b"), endpoints("x", b"5")), replace(CHANGED, time_s=5.0))
        await commit(store, Rollback(1, keeps_endpoints=True, keep=((EDS, "x"),)), replace(CHANGED, action="rollback"))
        await store.record_outcome("g", 6, 10, 4)
        await store.note([REFUSED, REFUSED])
        await store.collect(Retention(endpoint_revisions=1), 1.0)
        lines = await store.history("g")
        assert [line.revision for line in lines if not line.content] == [4, 3, 2]
        assert (lines[0].content_of, lines[0].meta.actor, lines[1].refused, lines[1].undone_by) == (1, "team", 4, 7)
        before, records = await seen(store), await dumped(store)
        async with emptied() as other:
            await other.restore(lambda: iter(records))
            assert await seen(other) == before
            again = await dumped(other)
            await store.restore(lambda: iter(again), replace=True)
            assert await seen(store) == before
            await other.note([REFUSED])
            await commit(other, delta(cluster("c")), CHANGED)
            counts = [(each.note.action, each.count) for each in (await other.audit()).entries[-2:]]
            assert counts == [("refused", 3), ("push", 1)]
        brief = await dumped(store, history=False)
        assert not [record for record in brief if record.kind == "audit"]
        await store.restore(lambda: iter(brief), replace=True)
        assert [line.revision for line in await store.history("g")] == [7]
        assert (await store.audit()).entries == before[-1], "what was done is not forgotten"

    async def test_entries_with_long_texts_are_counted_too(self, store: Store) -> None:
        """Their texts are more than an index of PostgreSQL holds."""
        text = "".join(map(chr, random.Random(1).sample(range(0x4E00, 0x9FFF), 2_000)))
        notes = [replace(CHANGED, message=each) for each in (text, text, text, f"{text}!")]
        await commit(store, full(cluster("a"), endpoints("x")), CHANGED)
        for number, note in enumerate(notes):
            await commit(store, delta(endpoints("x", b"%d" % number)), note)
        found = (await store.audit()).entries
        assert [(each.count, each.note.message) for each in found[1:]] == [(3, text), (1, f"{text}!")]

    async def test_a_restore_keeps_the_audit_list_and_is_listed_itself(self, store: Store) -> None:
        await commit(store, full(cluster("a")), CHANGED)
        records = await dumped(store)
        await commit(store, full(cluster("b")), replace(CHANGED, time_s=7.0))
        cursor = (await store.audit()).cursor
        told = AuditNote("backup.restored", "ann", peer="10.0.0.1:1", time_s=9.0)
        await store.restore(lambda: iter(records), replace=True, note=told)
        page = await store.audit()
        assert [(entry.note.action, entry.note.time_s) for entry in page.entries] == [
            ("push", 1.0),
            ("push", 7.0),
            ("backup.restored", 9.0),
        ]
        assert [entry.note.action for entry in (await store.audit(cursor)).entries] == ["backup.restored"]
        async with emptied() as other:
            await other.note(
                [replace(CHANGED, action="before", time_s=0.5), replace(CHANGED, action="after", time_s=3)]
            )
            cursor = (await other.audit()).cursor
            await other.restore(lambda: iter(records), note=told)
            actions = [entry.note.action for entry in (await other.audit()).entries]
            assert actions == ["before", "push", "after", "backup.restored"]
            assert (await other.audit(cursor)).lagged, "entries came that a reader has not seen"

    async def test_a_restored_rollback_to_an_absent_revision_is_refused(self, store: Store) -> None:
        """Whoever looks for what was undone would not come to an end."""
        await commit(store, full(cluster("a")))
        await commit(store, full(cluster("b")))
        at = list(REVISIONS.fields).index("content_of")
        for to in (2, 3, -1):
            records = [
                Record(kind, (*values[:at], to, *values[at + 1 :])) if kind == REVISIONS.name else Record(kind, values)
                for kind, values in await dumped(store)
            ]
            with pytest.raises(CorruptError, match="rollback"):
                await store.restore(partial(iter, records), replace=True)

    async def test_counted_entries_have_their_bound_after_a_restore(self, store: Store) -> None:
        await store.note([replace(REFUSED, key=f"own {n}", time_s=float(n)) for n in range(LIMITS[AuditLane.REFUSED])])
        async with emptied() as other:
            await other.note([replace(REFUSED, key=f"other {n}", time_s=n + 0.5) for n in range(10)])
            await other.note([CHANGED])
            records = await dumped(other)
        await store.restore(lambda: iter(records))
        entries = (await store.audit(limit=10_000)).entries
        assert len(entries) == LIMITS[AuditLane.REFUSED] + 1
        assert min(entry.note.time_s for entry in entries if entry.note.lane is AuditLane.REFUSED) == 5.0

    async def test_a_write_is_noted_with_the_revision_that_it_makes(self, store: Store) -> None:
        await commit(store, full(cluster("a")), CHANGED)
        await store.put_doc("group", "g", b"1", note=replace(CHANGED, action="group.configured"))
        page = await store.audit()
        assert [(entry.note.action, entry.note.revision, entry.count) for entry in page.entries] == [
            ("push", 1, 1),
            ("group.configured", 0, 1),
        ]
        assert replace(page.entries[0].note, revision=0) == CHANGED
        assert not page.lagged and not page.more

    async def test_writes_without_effect_are_not_listed(self, store: Store) -> None:
        await store.commit_all([GroupPush("g", full(cluster("a")), note=CHANGED)], push_id="p")
        await store.commit_all([GroupPush("g", full(cluster("a")), note=CHANGED)], push_id="p")  # replayed
        await store.commit_all([GroupPush("g", full(cluster("a")), note=CHANGED)], push_id="q")  # as it was
        for _ in range(2):
            await store.put_doc("group", "g", b"1", note=CHANGED)
        assert len((await store.audit()).entries) == 2

    async def test_a_reader_continues_after_its_cursor(self, store: Store) -> None:
        await store.note([replace(CHANGED, group=f"g{n}") for n in range(5)])
        seen, cursor = [], ""
        while True:
            page = await store.audit(cursor, 2)
            seen += [entry.note.group for entry in page.entries]
            cursor = page.cursor
            if not page.more:
                break
        assert seen == ["g0", "g1", "g2", "g3", "g4"]
        assert (await store.audit(cursor)).entries == ()
        await store.note([replace(CHANGED, group="later")])
        assert [entry.note.group for entry in (await store.audit(cursor)).entries] == ["later"]

    async def test_a_cursor_of_another_list_restarts_and_is_marked(self, store: Store) -> None:
        await store.note([CHANGED])
        page = await store.audit("abc-1")
        assert (len(page.entries), page.lagged) == (1, True)
        for text in ("1", "abc", "a b-1", "abc-x", "-", "abc--1", "abc-" + "9" * 30):
            with pytest.raises(ValueError, match="not a cursor"):
                await store.audit(text)

    async def test_entries_are_filtered(self, store: Store) -> None:
        await store.note([CHANGED, replace(CHANGED, group="h", actor="other", time_s=9.0), REFUSED])
        for wanted, found in (
            (AuditFilter(group="h"), ["h"]),
            (AuditFilter(actor="team"), ["g"]),
            (AuditFilter(since_s=5.0), ["h"]),
            (AuditFilter(action="refused"), ["g"]),
            (AuditFilter(lanes=frozenset({AuditLane.CHANGE})), ["g", "h"]),
        ):
            assert [entry.note.group for entry in (await store.audit("", 10, wanted)).entries] == found, wanted

    async def test_the_newest_entries_come_first_and_a_reader_continues_behind_them(self, store: Store) -> None:
        await store.note([replace(CHANGED, message=str(number)) for number in range(5)])
        await store.note([REFUSED])
        newest = AuditFilter(lanes=frozenset({AuditLane.CHANGE}), newest=True)
        page = await store.audit(limit=2, wanted=newest)
        assert ([entry.note.message for entry in page.entries], page.more) == (["4", "3"], False)
        assert (await store.audit(page.cursor)).entries == ()
        await store.note([replace(CHANGED, message="5")])
        assert [entry.note.message for entry in (await store.audit(page.cursor)).entries] == ["5"]
        assert [entry.note.message for entry in (await store.audit(wanted=newest)).entries] == [*"543210"]

    async def test_entries_of_a_key_are_counted_and_come_again(self, store: Store) -> None:
        await store.note([REFUSED])
        page = await store.audit()
        await store.note([replace(REFUSED, time_s=9.0, count=3, first_s=5.0)])
        (entry,) = (await store.audit(page.cursor)).entries
        assert (entry.id, entry.count, entry.first_s, entry.note.time_s) == (page.entries[0].id, 4, 2.0, 9.0)
        assert len((await store.audit()).entries) == 1
        await store.note([replace(REFUSED, time_s=3.0 + MERGED_S)])  # another hour
        assert [entry.count for entry in (await store.audit()).entries] == [4, 1]

    async def test_refused_writes_displace_no_changes(self, store: Store) -> None:
        await store.note([CHANGED])
        for turn in range(3):
            await store.note([replace(REFUSED, key=f"{turn}-{n}") for n in range(LIMITS[AuditLane.REFUSED])])
        entries = (await store.audit("", 10_000)).entries
        assert entries[0].note == CHANGED
        assert len(entries) == 1 + LIMITS[AuditLane.REFUSED]
        await store.collect(Retention(audit_bytes=1000), 10.0)
        assert (await store.audit("", 1)).entries[0].note == CHANGED

    async def test_the_list_is_bounded_by_age_and_by_size(self, store: Store) -> None:
        page = await store.audit()
        await store.note([replace(CHANGED, group=f"g{n}", time_s=float(n)) for n in range(10)])
        await store.collect(Retention(audit_s=5.0), 9.5)
        assert [entry.note.group for entry in (await store.audit()).entries] == ["g5", "g6", "g7", "g8", "g9"]
        await store.collect(Retention(audit_bytes=3 * replace(CHANGED, group="g0").size), 9.5)
        later = await store.audit(page.cursor)
        assert [entry.note.group for entry in later.entries] == ["g7", "g8", "g9"]
        assert later.lagged, "some are gone that this reader has not seen"
        assert not (await store.audit(later.cursor)).lagged

    async def test_a_revision_has_its_kind(self, store: Store) -> None:
        await push(store, full(cluster("a"), endpoints("a")))
        await push(store, delta(endpoints("a", b"2")))
        await push(store, full(cluster("b"), endpoints("a", b"2")))
        await push(store, Rollback(2))
        await push(store, Drop())
        await push(store, Rollback(1))
        assert [await line(store, n) for n in range(1, 7)] == [
            ("push", 0, False, 0, True),
            ("push", 0, True, 6, True),
            ("push", 0, False, 6, True),
            ("rollback", 2, False, 6, True),
            ("delete", 0, False, 6, False),
            ("restore", 1, False, 0, True),
        ]
        await store.commit("g", full(cluster("c")), push_id="k", meta=Meta(kind="restore"))
        assert (await line(store, 7))[0] == "restore"

    async def test_undone_revisions_are_those_not_in_effect(self, store: Store) -> None:
        async def undone() -> dict[int, int]:
            return {each.revision: each.undone_by for each in await store.history("g") if each.undone_by}

        for n in range(1, 4):
            await push(store, full(cluster("a", b"%d" % n)))
        await push(store, Rollback(2))
        assert await undone() == {3: 4}
        await push(store, Rollback(1))
        assert await undone() == {2: 5, 3: 5, 4: 5}
        await push(store, Rollback(3))  # it was good after all
        assert await undone() == {4: 6, 5: 6}
        await push(store, Rollback(5))
        assert await undone() == {2: 5, 3: 5, 4: 5, 6: 7}

    async def test_a_rollback_keeps_the_endpoints_that_it_names(self, store: Store) -> None:
        await push(store, full(cluster("a"), endpoints("a"), endpoints("b")))
        await push(store, full(cluster("a", b"2"), endpoints("a", b"2"), endpoints("c")))
        keep = tuple(each[:2] for each in (endpoints("a"), endpoints("c")))
        await push(store, Rollback(1, keeps_endpoints=True, keep=keep))
        found = await contents(store, await store.manifest("g"))
        assert found == [cluster("a"), endpoints("a", b"2"), endpoints("b"), endpoints("c")]
        (newest, *_) = await store.history("g")
        assert (newest.content_of, newest.keeps_endpoints) == (1, True)

    async def test_endpoints_alone_do_not_use_up_the_history(self, store: Store) -> None:
        for n in range(1, 4):
            await push(store, full(cluster("a", b"%d" % n), endpoints("a")))
        for n in range(50):
            await push(store, delta(endpoints("a", b"moved %d" % n)))
        policy = Retention(revisions=2, age_s=-1.0, revisions_limit=2, endpoint_revisions=5, endpoint_lines=10)
        done = await store.collect(policy, 0.0)
        assert done.revisions == 1 + 45
        lines = await store.history("g", limit=100)
        assert [each.revision for each in lines if each.content] == [53, 52, 51, 50, 49, 3, 2]
        assert [each.revision for each in lines] == [*range(53, 43, -1), 3, 2, 1]
        assert [each.revision for each in await store.history("g", endpoints=False)] == [3, 2, 1]
        for revision, body in ((2, b"1"), (3, b"1"), (49, b"moved 45"), (53, b"moved 49")):
            held = await contents(store, await store.manifest("g", revision))
            assert held[1] == endpoints("a", body), revision
        with pytest.raises(GoneError):
            await store.manifest("g", 48)
        found = await store.stats()
        assert (found.revisions, found.blobs) == (7, 2 + 1 + 5)
        assert blob_id(b"moved 44") not in {each.blob_id for each in (await store.manifest("g")).entries}
        assert (await store.collect(policy, 0.0)).revisions == 0

    async def test_endpoints_alone_are_counted_in_the_audit_list(self, store: Store) -> None:
        await commit(store, full(cluster("a"), endpoints("a")), CHANGED)
        for n in range(20):
            await commit(store, delta(endpoints("a", b"%d" % n)), replace(CHANGED, time_s=2.0 + n))
        first, moved = (await store.audit()).entries
        assert (first.note.revision, first.count) == (1, 1)
        assert (moved.note.revision, moved.count, moved.first_s, moved.note.time_s) == (21, 20, 2.0, 21.0)

    async def test_how_many_refused_a_revision_is_kept(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        await store.record_outcome("g", 1, 5, 3)
        await store.record_outcome("g", 9, 5, 3)  # it may be gone
        await store.record_outcome("none", 1, 5, 3)
        (found,) = await store.history("g")
        assert (found.nodes, found.refused) == (5, 3)
