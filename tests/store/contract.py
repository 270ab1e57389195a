"""What every store engine must do: the docstrings of ``xds.store.base`` as tests.

An engine's test module subclasses ``StoreContract`` and gives it a fixture ``store``, open, with a reader buffer of
``READER_BUFFER`` items.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from xds.model.errors import ConflictError, NotFoundError
from xds.store.audit_entries import AuditNote
from xds.store.base import (
    OBSERVED,
    Commit,
    CorruptError,
    Delta,
    DocumentChanged,
    DocumentWrite,
    Drop,
    Entry,
    FullSet,
    GoneError,
    GroupChange,
    GroupCommitted,
    GroupPush,
    Head,
    LeaseLostError,
    Manifest,
    Meta,
    ObservedRecord,
    OpenNack,
    Reset,
    ReusedPushIdError,
    Rollback,
    Store,
    StoredContent,
    UnavailableError,
    WatchItem,
    blob_id,
)
from xds.store.document_keys import document_id, key_of
from xds.store.records import Record
from xds.store.retention import Collected, Retention

CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
READER_BUFFER = 8
WAIT_S = 20

_push_ids = count(1)

Content = tuple[str, str, bytes]  # type URL, name, body


def cluster(name: str, body: bytes = b"1") -> Content:
    return CDS, name, body


def endpoints(name: str, body: bytes = b"1") -> Content:
    return EDS, name, body


def full(*contents: Content, label: str = "", labels: dict[str, str] | None = None) -> FullSet:
    entries = tuple(Entry(url, name, blob_id(body)) for url, name, body in contents)
    return FullSet(entries, {blob_id(body): body for _, _, body in contents}, label, labels or {})


def delta(*put: Content, delete: tuple[tuple[str, str], ...] = (), label: str = "") -> Delta:
    whole = full(*put)
    return Delta(whole.entries, delete, whole.blobs, label)


async def push(
    store: Store, change: GroupChange, group: str = "g", push_id: str = "", expect: int | None = None
) -> Commit:
    return await store.commit(group, change, push_id=push_id or f"push-{next(_push_ids)}", expect=expect)


async def replayed(store: Store, change: GroupChange, push_id: str, group: str = "g") -> Commit | None:
    """The commit that a push would repeat."""
    found = await store.committed([GroupPush(group, change)], push_id)
    return found[0] if found is not None else None


async def contents(store: Store, manifest: Manifest) -> list[Content]:
    """A manifest with the bodies it names, in order."""
    blobs = await store.blobs({entry.blob_id for entry in manifest.entries})
    return [(entry.type_url, entry.name, blobs[entry.blob_id]) for entry in manifest.entries]


async def push_knowing(store: Store, change: GroupChange, known: StoredContent, group: str = "g") -> Commit:
    (commit,) = await store.commit_all(
        [GroupPush(group, change, head_content=known)], push_id=f"push-{next(_push_ids)}"
    )
    return commit


def known_of(manifest: Manifest) -> StoredContent:
    """What somebody who holds a manifest knows."""
    return StoredContent(manifest.revision, {(url, name): blob for url, name, blob in manifest.entries})


async def watch_items(store: Store, cursor: int | None = None) -> AsyncIterator[WatchItem]:
    """A watch item by item."""
    async for commits in store.watch(cursor):
        for item in commits:
            yield item


async def take(watch: AsyncIterator[WatchItem], number: int) -> list[WatchItem]:
    async with asyncio.timeout(WAIT_S):
        return [await anext(watch) for _ in range(number)]


async def start(watch: AsyncIterator[WatchItem]) -> Reset:
    """Read the first item, a Reset: from then on the reader has a buffer."""
    (first,) = await take(watch, 1)
    assert isinstance(first, Reset)
    return first


class StoreContract:
    async def test_a_push_is_read_back_whole_and_in_pushed_order(self, store: Store) -> None:
        pushed = [cluster("b"), endpoints("x", b"2"), cluster("a", b"3")]
        commit = await store.commit("g", full(*pushed), push_id="p", meta=Meta("ann", "first", 12.5))
        assert commit == Commit("g", 1)
        manifest = await store.manifest("g")
        assert await contents(store, manifest) == pushed
        assert (manifest.group, manifest.revision, manifest.meta) == ("g", 1, Meta("ann", "first", 12.5))
        assert await store.head("g") == Head("g", 1)

    async def test_revisions_count_per_group(self, store: Store) -> None:
        assert [(await push(store, full(cluster("a", body)))).revision for body in (b"1", b"2", b"3")] == [1, 2, 3]
        assert (await push(store, full(cluster("a")), group="other")).revision == 1
        assert await store.groups() == [Head("g", 3), Head("other", 1)]

    async def test_older_revisions_stay_readable(self, store: Store) -> None:
        steps = [
            [cluster("a"), cluster("b")],
            [cluster("b"), cluster("c"), cluster("a", b"2")],
            [cluster("c", b"4")],
            [cluster("new"), cluster("c", b"4"), cluster("a")],
        ]
        for step in steps:
            await push(store, full(*step))
        for revision, step in enumerate(steps, start=1):
            assert await contents(store, await store.manifest("g", revision)) == step

    async def test_all_of_a_type_changes_beside_others(self, store: Store) -> None:
        names = [f"n{index}" for index in range(120)]
        of_old, of_new = ([endpoints(name, body) for name in names] for body in (b"old", b"new"))
        editions: list[list[Content]] = [
            [*map(cluster, names), *of_old],
            [*map(cluster, names), *of_new],
            [*map(cluster, names), *of_old[:60], cluster("more")],
            [*map(cluster, names[7:]), *of_new[:60][::-1]],
        ]
        for edition in editions:
            await push(store, full(*edition))
        for revision, edition in enumerate(editions, start=1):
            assert await contents(store, await store.manifest("g", revision)) == edition

    async def test_known_blobs_do_not_change_the_result(self, store: Store) -> None:
        names = [f"n{index}" for index in range(120)]
        of_old, of_new = ([endpoints(name, body) for name in names] for body in (b"old", b"new"))
        changes: list[GroupChange] = [
            full(*map(cluster, names), *of_old),
            full(*map(cluster, names), *of_new),  # all of a type, in its place
            full(*map(cluster, names), *of_new),
            full(*map(cluster, names), *of_old[:7], *of_new[7:], cluster("last")),
            full(*map(cluster, names[3:]), *of_old, cluster("last")),
            full(endpoints("first"), *of_new[::-1], *map(cluster, names)),
            delta(endpoints("n5", b"5"), cluster("one", b"1"), delete=((CDS, "n7"),)),
            Rollback(2),
            full(*of_old[:60]),
            full(),
            full(*of_new),
            Drop(),
        ]
        for change in changes:
            await push(store, change, "unknown")
            known = StoredContent(0, {})
            with suppress(NotFoundError):
                known = known_of(await store.manifest("known"))
            await push_knowing(store, change, known, "known")
        lines = [await store.history(group, limit=100) for group in ("known", "unknown")]
        assert len(lines[0]) == len(changes) - 1
        for known_line, line in zip(*lines, strict=True):
            assert (known_line.versions, known_line.resources) == (line.versions, line.resources)
        for revision in range(1, len(lines[0])):
            known_then, then = [await store.manifest(group, revision) for group in ("known", "unknown")]
            assert known_then.entries == then.entries

    async def test_known_blobs_of_another_revision_are_ignored(self, store: Store) -> None:
        await push(store, full(cluster("a"), cluster("b")))
        old = known_of(await store.manifest("g"))
        await push(store, full(cluster("b", b"2"), cluster("c")))
        for known in (old, StoredContent(3, old.blob_ids), StoredContent(0, {})):
            back = await push_knowing(store, full(cluster("b", b"2"), cluster("c")), known)
            assert back == Commit("g", 2, changed=False)
            with pytest.raises(NotFoundError):
                await push_knowing(store, delta(delete=((CDS, "a"),)), known)
        assert await push_knowing(store, full(cluster("a"), cluster("b")), old) == Commit("g", 3)
        assert await push_knowing(store, delta(cluster("b", b"3"), delete=((CDS, "a"),)), old) == Commit("g", 4)
        contents_by_revision = [await contents(store, await store.manifest("g", n)) for n in (2, 3, 4)]
        assert contents_by_revision == [
            [cluster("b", b"2"), cluster("c")],
            [cluster("a"), cluster("b")],
            [cluster("b", b"3")],
        ]

    async def test_known_blobs_are_no_part_of_the_push(self, store: Store) -> None:
        pushed = [
            GroupPush("g", full(cluster("a")), head_content=known)
            for known in (None, StoredContent(0, {}), StoredContent(1, {}))
        ]
        commits = [await store.commit_all([one], push_id="p") for one in pushed]
        assert [(commit.revision, commit.replayed) for (commit,) in commits] == [(1, False), (1, True), (1, True)]

    async def test_a_push_that_changes_nothing_makes_no_revision(self, store: Store) -> None:
        await push(store, full(cluster("a"), endpoints("x")))
        assert await push(store, full(endpoints("x"), cluster("a"), label="l")) == Commit("g", 1, changed=False)
        assert await push(store, delta(cluster("a"))) == Commit("g", 1, changed=False)
        assert await push(store, delta()) == Commit("g", 1, changed=False)
        assert (await store.manifest("g")).versions == {CDS: "1", EDS: "1"}
        assert len(await store.history("g")) == 1

    async def test_the_first_push_makes_a_revision_even_when_empty(self, store: Store) -> None:
        assert await push(store, full()) == Commit("g", 1)
        assert await store.groups() == [Head("g", 1)]
        assert (await store.manifest("g")).entries == ()

    async def test_a_type_keeps_its_version_until_its_content_changes(self, store: Store) -> None:
        await push(store, full(cluster("a"), cluster("b"), endpoints("x")))
        await push(store, full(cluster("b"), cluster("a"), endpoints("x", b"2")))
        assert (await store.manifest("g")).versions == {CDS: "1", EDS: "2"}
        await push(store, delta(cluster("a", b"2")))
        assert (await store.manifest("g")).versions == {CDS: "3", EDS: "2"}
        assert (await store.manifest("g", 2)).versions == {CDS: "1", EDS: "2"}

    async def test_a_changed_type_gets_its_own_label_else_the_label_of_the_push(self, store: Store) -> None:
        await push(store, full(cluster("a"), endpoints("x"), label="v1", labels={EDS: "e1"}))
        assert (await store.manifest("g")).versions == {CDS: "v1", EDS: "e1"}
        await push(store, full(cluster("a"), endpoints("x", b"2"), label="v2", labels={CDS: "c2"}))
        assert (await store.manifest("g")).versions == {CDS: "v1", EDS: "v2"}
        await push(store, delta(cluster("a", b"3"), label="v3"))
        assert (await store.manifest("g")).versions == {CDS: "v3", EDS: "v2"}

    async def test_a_label_that_nobody_chose_shows_the_hash_that_comes_with_the_push(self, store: Store) -> None:
        first = GroupPush("g", full(cluster("a"), endpoints("x"), labels={EDS: "e1"}), hashes={CDS: "aa", EDS: "bb"})
        (commit,) = await store.commit_all([first], push_id="1")
        assert commit.versions == (await store.manifest("g")).versions == {CDS: "1+aa", EDS: "e1"}
        again = GroupPush("g", first.change, hashes={CDS: "cc"})
        assert [(one.revision, one.replayed) for one in await store.commit_all([again], push_id="1")] == [(1, True)]
        await store.commit_all(
            [GroupPush("g", full(cluster("a", b"2"), endpoints("x", b"2")), hashes={EDS: "dd"})], push_id="2"
        )
        assert (await store.manifest("g")).versions == {CDS: "2", EDS: "2+dd"}
        await store.commit_all([GroupPush("g", Rollback(1), hashes={CDS: "aa", EDS: "bb"})], push_id="3")
        assert (await store.manifest("g")).versions == {CDS: "3+aa", EDS: "3+bb"}
        assert [line.versions[CDS] for line in await store.history("g")] == ["3+aa", "2", "1+aa"]

    async def test_a_type_whose_last_resource_goes_is_empty_at_a_version_of_its_own(self, store: Store) -> None:
        await push(store, full(cluster("a"), endpoints("x")))
        await push(store, full(cluster("a")))
        assert (await store.manifest("g")).versions == {CDS: "1", EDS: "2"}
        await push(store, full(cluster("a", b"2")))
        assert (await store.manifest("g")).versions == {CDS: "3", EDS: "2"}
        await push(store, delta(delete=((CDS, "a"),), label="gone"))
        assert (await store.manifest("g")).versions == {CDS: "gone", EDS: "2"}

    async def test_a_delta_keeps_places_and_appends(self, store: Store) -> None:
        await push(store, full(cluster("a"), cluster("b"), endpoints("x")))
        commit = await push(store, delta(cluster("new"), cluster("a", b"2"), delete=((CDS, "b"),)))
        assert commit == Commit("g", 2)
        now = await contents(store, await store.manifest("g"))
        assert now == [cluster("a", b"2"), endpoints("x"), cluster("new")]

    async def test_a_delta_makes_a_group(self, store: Store) -> None:
        assert await push(store, delta(cluster("a")), expect=0) == Commit("g", 1)
        assert await contents(store, await store.manifest("g")) == [cluster("a")]

    async def test_a_delta_cannot_delete_what_is_not_there(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        with pytest.raises(NotFoundError):
            await push(store, delta(cluster("c"), delete=((CDS, "b"),)))
        with pytest.raises(NotFoundError):
            await push(store, delta(delete=((EDS, "a"),)), group="other")
        assert await store.head("g") == Head("g", 1)
        assert await store.head("other") is None

    async def test_a_resource_named_twice_is_refused(self, store: Store) -> None:
        for change in (full(cluster("a"), cluster("a", b"2")), delta(cluster("a"), delete=((CDS, "a"),))):
            with pytest.raises(ValueError, match="'a'"):
                await push(store, change)
        assert await store.head("g") is None

    async def test_a_blob_held_need_not_be_given(self, store: Store) -> None:
        await push(store, full(cluster("a", b"body")))
        await push(store, FullSet((Entry(CDS, "b", blob_id(b"body")),), {}), group="other")
        assert await contents(store, await store.manifest("other")) == [cluster("b", b"body")]

    async def test_a_push_with_a_missing_or_wrong_blob_leaves_nothing_behind(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        whole = full(cluster("a", b"2"), cluster("b", b"3"))
        wrong: dict[str, bytes] = {**whole.blobs, blob_id(b"3"): b"other"}
        lacking = {blob_id(b"2"): b"2"}
        for blobs in (wrong, lacking):
            with pytest.raises(CorruptError):
                await push(store, FullSet(whole.entries, blobs), push_id="p")
        assert await store.head("g") == Head("g", 1)
        assert await replayed(store, whole, "p") is None
        assert await push(store, whole, push_id="p") == Commit("g", 2)

    async def test_a_missing_blob_is_reported(self, store: Store) -> None:
        with pytest.raises(CorruptError):
            await store.blobs([blob_id(b"never")])

    async def test_an_empty_blob_is_a_blob(self, store: Store) -> None:
        await push(store, full(cluster("a", b"")))
        assert await contents(store, await store.manifest("g")) == [cluster("a", b"")]

    async def test_the_same_push_id_is_done_once(self, store: Store) -> None:
        first = await push(store, full(cluster("a")), push_id="p")
        await push(store, full(cluster("b")))
        again = await push(store, full(cluster("a")), push_id="p", expect=77)
        assert (first, again) == (Commit("g", 1), Commit("g", 1, replayed=True))
        assert await store.head("g") == Head("g", 2)
        assert await push(store, full(cluster("a")), push_id="p", group="other") == Commit("other", 1)

    async def test_a_push_without_change_is_remembered_too(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        await push(store, full(cluster("a")), push_id="p")
        await push(store, full(cluster("b")))
        assert await push(store, full(cluster("a")), push_id="p") == Commit("g", 1, changed=False, replayed=True)

    async def test_expect_is_compared_with_the_head(self, store: Store) -> None:
        await push(store, full(cluster("a")), expect=0)
        await push(store, full(cluster("b")), expect=1)
        for expect in (0, 1, 3):
            with pytest.raises(ConflictError) as conflict:
                await push(store, full(cluster("c")), expect=expect)
            assert conflict.value.revision == 2
        with pytest.raises(ConflictError) as conflict:
            await push(store, full(cluster("c")), group="other", expect=1)
        assert conflict.value.revision == 0
        assert await store.groups() == [Head("g", 2)]

    async def test_one_of_concurrent_pushes_with_the_same_expect_succeeds(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        tries = [push(store, full(cluster("a", b"n%d" % n)), expect=1) for n in range(8)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(result, Commit) for result in results) == 1
        assert sum(isinstance(result, ConflictError) for result in results) == 7

    async def test_rollback_brings_the_content_back_under_a_version_of_its_own(self, store: Store) -> None:
        await push(store, full(cluster("a"), cluster("b"), endpoints("x"), label="v1"))
        await push(store, full(cluster("b", b"2"), endpoints("x"), label="v2"))
        assert await push(store, Rollback(1)) == Commit("g", 3)
        manifest = await store.manifest("g")
        assert await contents(store, manifest) == [cluster("a"), cluster("b"), endpoints("x")]
        assert manifest.versions == {CDS: "3", EDS: "v1"}
        assert await push(store, Rollback(1)) == Commit("g", 3, changed=False)

    async def test_a_delta_may_bring_the_content_of_a_revision_back(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        await push(store, full(cluster("a", b"2")))
        back = delta(cluster("a", b"3"))
        await push(store, Delta(back.put, (), back.blobs, content_of=1))
        lines = await store.history("g")
        assert [(line.kind, line.content_of, line.undone_by) for line in lines] == [
            ("rollback", 1, 0),
            ("push", 0, 3),
            ("push", 0, 0),
        ]

    async def test_rollback_to_an_unknown_revision_is_refused(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        await push(store, Drop())
        for group, to in (("g", 0), ("g", 2), ("g", 3), ("other", 1)):
            with pytest.raises(NotFoundError):
                await push(store, Rollback(to), group=group)
        assert await store.head("g") == Head("g", 2, live=False)

    async def test_lifetimes_and_the_head_give_the_content_of_earlier_revisions(self, store: Store) -> None:
        a, b, c, d = cluster("a"), cluster("b"), cluster("c"), cluster("d")
        contents = [(a, b), (cluster("b", b"2"), a), (a, c, d), None, (a, d), (d, a, b)]
        for content in contents:
            await (push(store, full(*content)) if content is not None else push(store, Drop()))
        head = await store.manifest("g")
        for since in range(1, len(contents)):
            changed = await store.lifetimes("g", since)
            assert all(each.born > since or each.died > since for each in changed)
            begun = {each.entry[:2] for each in changed if each.born > since}
            for at in range(since, len(contents) + 1):
                alive = {each.entry for each in changed if each.born <= at and (not each.died or at < each.died)}
                alive |= {entry for entry in head.entries if entry[:2] not in begun}
                expected = set((await store.manifest("g", at)).entries) if contents[at - 1] is not None else alive
                assert alive == expected, (since, at)
        assert await store.lifetimes("g", len(contents)) == []
        assert await store.lifetimes("unknown", 1) == []

    async def test_a_dropped_group_keeps_its_history_and_never_repeats_a_revision(self, store: Store) -> None:
        await push(store, full(cluster("a"), endpoints("x")))
        assert await push(store, Drop(), expect=1) == Commit("g", 2)
        assert await store.head("g") == Head("g", 2, live=False)
        assert await store.groups() == []
        for revision in (None, 2):
            with pytest.raises(NotFoundError):
                await store.manifest("g", revision)
        assert await contents(store, await store.manifest("g", 1)) == [cluster("a"), endpoints("x")]
        with pytest.raises(ConflictError) as conflict:
            await push(store, full(cluster("a")), expect=2)
        assert conflict.value.revision == 0
        assert await push(store, full(cluster("a")), expect=0) == Commit("g", 3)
        assert (await store.manifest("g")).versions == {CDS: "3"}

    async def test_a_dropped_group_can_be_rolled_back(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        await push(store, Drop())
        assert await push(store, Rollback(1)) == Commit("g", 3)
        assert await contents(store, await store.manifest("g")) == [cluster("a")]

    async def test_only_a_live_group_can_be_dropped(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            await push(store, Drop())
        await push(store, full(cluster("a")))
        await push(store, Drop(), push_id="p")
        assert await push(store, Drop(), push_id="p") == Commit("g", 2, replayed=True)
        with pytest.raises(NotFoundError):
            await push(store, Drop())

    async def test_the_manifest_of_an_unknown_revision(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            await store.manifest("g")
        await push(store, full(cluster("a")))
        for revision in (-1, 0, 2, 1 << 80):
            with pytest.raises(NotFoundError):
                await store.manifest("g", revision)

    async def test_history_is_newest_first_and_paged(self, store: Store) -> None:
        assert await store.history("g") == []
        await store.commit("g", full(cluster("a"), cluster("b")), push_id="1", meta=Meta("ann", "one", 1.0))
        await store.commit("g", full(cluster("a"), label="v2"), push_id="2", meta=Meta("bob", "two", 2.0))
        await store.commit("g", Drop(), push_id="3", meta=Meta("cat", "three", 3.0))
        lines = await store.history("g")
        assert [line.revision for line in lines] == [3, 2, 1]
        assert [line.meta.author for line in lines] == ["cat", "bob", "ann"]
        assert [line.resources for line in lines] == [0, 1, 2]
        assert [line.versions for line in lines] == [{}, {CDS: "v2"}, {CDS: "1"}]
        assert [line.live for line in lines] == [False, True, True]
        assert await store.history("g", before=3, limit=1) == lines[1:2]
        assert await store.history("g", before=1) == []
        assert await store.history("g", before=1 << 80, limit=1 << 80) == lines
        assert await store.history("g", limit=-1) == []

    async def test_a_watch_starts_with_the_state(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        await push(store, full(cluster("a")), group="dropped")
        await push(store, Drop(), group="dropped")
        assert (await start(watch_items(store))).groups == (Head("g", 1),)

    async def test_a_watch_yields_every_commit_once_in_order(self, store: Store) -> None:
        watch = watch_items(store)
        cursor = (await start(watch)).cursor
        await push(store, full(cluster("a")))
        await push(store, full(cluster("a")))  # changes nothing
        await push(store, delta(cluster("b")))
        await push(store, full(cluster("a")), group="other")
        await push(store, Drop())
        items = await take(watch, 4)
        heads = [item.head for item in items if isinstance(item, GroupCommitted)]
        assert heads == [Head("g", 1), Head("g", 2), Head("other", 1), Head("g", 3, live=False)]
        cursors = [cursor, *(item.cursor for item in items)]
        assert cursors == sorted(set(cursors))

    async def test_a_watch_yields_whole_commits(self, store: Store) -> None:
        watch = store.watch(await store.newest_cursor())
        reading = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.05)
        pushes = [GroupPush(name, full(cluster("a")), writes=(DocumentWrite("kind", name, b"1"),)) for name in "ab"]
        await store.commit_all(pushes, push_id="p")
        assert [type(item) for item in await reading] == [GroupCommitted, DocumentChanged] * 2

    async def test_a_watch_continues_after_a_cursor(self, store: Store) -> None:
        watch = watch_items(store)
        await start(watch)
        for n in range(4):
            await push(store, full(cluster("a", b"%d" % n)))
        told = await take(watch, 4)
        resumed = watch_items(store, told[1].cursor)
        assert await take(resumed, 2) == told[2:]
        await push(store, full(cluster("last")))
        assert await take(resumed, 1) == await take(watch, 1)

    async def test_a_watch_with_a_cursor_from_the_future_is_reset(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        reset = await start(watch_items(store, 1_000_000))
        assert reset.groups == (Head("g", 1),)

    async def test_a_reader_that_falls_behind_is_reset_and_continues(self, store: Store) -> None:
        slow, quick = watch_items(store), watch_items(store)
        await start(slow)
        await start(quick)
        last = READER_BUFFER + 3
        for n in range(1, last + 1):
            await push(store, full(cluster("a", b"%d" % n)))
            (told,) = await take(quick, 1)
            assert isinstance(told, GroupCommitted)
            assert told.head == Head("g", n)
        (reset,) = await take(slow, 1)
        assert isinstance(reset, Reset)
        assert reset.groups == (Head("g", last),)
        await push(store, full(cluster("after")))
        assert await take(slow, 1) == await take(quick, 1)

    async def test_watches_started_amid_pushes_miss_nothing(self, store: Store) -> None:
        pushes = 30

        async def follow() -> int:
            watch = watch_items(store)
            reached = 0
            async with asyncio.timeout(WAIT_S):
                while reached < pushes:
                    item = await anext(watch)
                    if isinstance(item, Reset):
                        reached = max([head.revision for head in item.groups], default=reached)
                    elif isinstance(item, GroupCommitted):
                        assert item.head.revision == reached + 1
                        reached = item.head.revision
            return reached

        readers = []
        for n in range(pushes):
            readers.append(asyncio.create_task(follow()))
            await push(store, full(cluster("a", b"%d" % n)))
        assert await asyncio.gather(*readers) == [pushes] * pushes

    async def test_documents_count_their_changes(self, store: Store) -> None:
        assert await store.put_doc("selector", "b", b"1") == 1
        assert await store.put_doc("selector", "b", b"2") == 2
        assert await store.put_doc("selector", "b", b"2") == 2
        assert await store.put_doc("selector", "a", b"") == 1
        assert await store.put_doc("token", "b", b"t") == 1
        assert [(doc.id, doc.body, doc.revision) for doc in await store.docs("selector")] == [
            ("a", b"", 1),
            ("b", b"2", 2),
        ]

    async def test_a_deleted_document_continues_its_versions(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            await store.put_doc("token", "a", None)
        await store.put_doc("token", "a", b"1")
        assert await store.put_doc("token", "a", None) == 2
        assert await store.docs("token") == []
        with pytest.raises(NotFoundError):
            await store.put_doc("token", "a", None)
        assert await store.put_doc("token", "a", b"1", expect=0) == 3

    async def test_documents_are_compared_and_set(self, store: Store) -> None:
        await store.put_doc("token", "a", b"1", expect=0)
        await store.put_doc("token", "a", b"2", expect=1)
        for expect in (0, 1, 3):
            with pytest.raises(ConflictError) as conflict:
                await store.put_doc("token", "a", b"3", expect=expect)
            assert conflict.value.revision == 2

    async def test_open_nacks_are_replaced_and_forgotten_by_their_id(self, store: Store) -> None:
        one, two, three = (OpenNack(id, f"node-{id}", CDS, b"%d" % id) for id in (1, 2, 3))
        await store.put_nacks([three, one, two])
        assert await store.nacks() == [one, two, three]
        other = OpenNack(2, "node-2", EDS, b"other")
        await store.put_nacks([other], [1, 99])
        assert await store.nacks() == [other, three]
        await store.put_nacks([], [2, 3])
        assert await store.nacks() == []

    async def test_observed_records_are_replaced_and_forgotten_by_source_and_service(self, store: Store) -> None:
        a, b, c = ObservedRecord("s", "a", b"1"), ObservedRecord("s", "b", b"2"), ObservedRecord("t", "a", b"3")
        await store.put_observed([c, a, b])
        assert await store.observed() == [a, b, c]
        other = ObservedRecord("s", "a", b"4")
        await store.put_observed([other], [("s", "b"), ("unknown", "x")])
        assert await store.observed() == [other, c]
        await store.put_observed([], [("s", "a"), ("t", "a")])
        assert await store.observed() == []

    async def test_observed_records_are_read_by_source_and_service(self, store: Store) -> None:
        a, b, c = ObservedRecord("s", "a", b"1"), ObservedRecord("s", "b", b"2"), ObservedRecord("t", "a", b"3")
        await store.put_observed([c, a, b])
        assert await store.observed("s") == [a, b]
        assert await store.observed("s", ["b", "unknown"]) == [b]
        assert await store.observed("s", []) == await store.observed("unknown") == []

    async def test_a_watch_tells_of_observed_records_where_it_is_asked_for(self, store: Store) -> None:
        watch = watch_items(store)
        await start(watch)
        await store.put_observed([ObservedRecord("s", "a", b"1")])
        records = [ObservedRecord("t", "b", b"1"), ObservedRecord("s", "c", b"2")]
        await store.put_observed(records, [("s", "a")], is_told=True)
        told = [item for item in await take(watch, 2) if isinstance(item, DocumentChanged)]
        assert [(item.kind, item.id, item.body) for item in told] == [
            (OBSERVED, "s", b'["a", "c"]'),
            (OBSERVED, "t", b'["b"]'),
        ]

    async def test_observed_records_may_have_notes_for_the_audit_list(self, store: Store) -> None:
        record = ObservedRecord("s", "a", b"1")
        await store.put_observed([record], [], [AuditNote("a", key="k"), AuditNote("b"), AuditNote("a", key="k")])
        assert [(one.note.action, one.count) for one in (await store.audit()).entries] == [("b", 1), ("a", 2)]
        assert await store.observed() == [record]

    async def test_a_server_that_has_lost_the_lease_writes_nothing(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        lost = GroupPush("g", full(cluster("b")), may_write=lambda: False)
        with pytest.raises(LeaseLostError):
            await store.commit_all([GroupPush("other", full(cluster("b"))), lost], push_id="p")
        with pytest.raises(LeaseLostError):
            await store.put_observed([ObservedRecord("s", "a", b"1")], may_write=lambda: False)
        assert [(head.group, head.revision) for head in await store.groups()] == [("g", 1)]
        assert await store.observed() == [] and await replayed(store, full(cluster("b")), "p") is None

    async def test_nobody_watches_open_nacks(self, store: Store) -> None:
        watch = watch_items(store)
        await start(watch)
        await store.put_nacks([OpenNack(1, "n", CDS, b"x")])
        await push(store, full(cluster("a")))
        (item,) = await take(watch, 1)
        assert isinstance(item, GroupCommitted)

    async def test_documents_are_found_by_prefix(self, store: Store) -> None:
        for id in ("a", "a%", "a/1", "a/2", "b", "a_", "á"):
            await store.put_doc("kind", id, b"x")
        assert [doc.id for doc in await store.docs("kind", "a/")] == ["a/1", "a/2"]
        assert [doc.id for doc in await store.docs("kind", "a%")] == ["a%"]
        assert [doc.id for doc in await store.docs("kind")] == ["a", "a%", "a/1", "a/2", "a_", "b", "á"]

    async def test_a_watch_yields_documents(self, store: Store) -> None:
        watch = watch_items(store)
        await start(watch)
        await store.put_doc("token", "a", b"1")
        await store.put_doc("token", "a", b"1")
        await push(store, full(cluster("a")))
        await store.put_doc("token", "a", None)
        first, second, third = await take(watch, 3)
        assert first == DocumentChanged("token", "a", b"1", 1, first.cursor)
        assert second == GroupCommitted(Head("g", 1), second.cursor)
        assert third == DocumentChanged("token", "a", None, 2, third.cursor)

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        watch = watch_items(store)
        await start(watch)
        await push(store, full(cluster("a")))
        await store.close()
        await store.close()
        (told,) = await take(watch, 1)
        assert isinstance(told, GroupCommitted)
        with pytest.raises(UnavailableError):
            await take(watch, 1)
        with pytest.raises(UnavailableError):
            await push(store, full(cluster("b")))
        with pytest.raises(UnavailableError):
            await store.groups()

    async def test_cancelled_callers_do_not_disturb_the_others(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        for n in range(20):
            task = asyncio.create_task(push(store, full(cluster("a", b"c%d" % n)), push_id=f"c{n}"))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        done = [n for n in range(20) if await replayed(store, full(cluster("a", b"c%d" % n)), f"c{n}") is not None]
        assert (await store.head("g")) == Head("g", 1 + len(done))
        assert await push(store, full(cluster("z"))) == Commit("g", 2 + len(done))

    async def test_a_transaction_changes_all_its_groups(self, store: Store) -> None:
        await push(store, full(cluster("a"), cluster("b")))
        await push(store, full(cluster("old")), group="gone")
        pushes = [
            GroupPush("g", delta(cluster("a", b"2"), delete=((CDS, "b"),)), expect=1),
            GroupPush("gone", Drop()),
            GroupPush("fresh", full(endpoints("x")), expect=0),
            GroupPush("empty", full()),
        ]
        commits = await store.commit_all(pushes, push_id="t", meta=Meta("ann", "all", 3.0))
        assert commits == [Commit("g", 2), Commit("gone", 2), Commit("fresh", 1), Commit("empty", 1)]
        assert [commit.versions for commit in commits] == [{CDS: "2"}, {}, {EDS: "1"}, {}]
        assert await store.groups() == [Head("empty", 1), Head("fresh", 1), Head("g", 2)]
        assert await contents(store, await store.manifest("g")) == [cluster("a", b"2")]
        assert [(await store.history(each.group))[0].meta for each in pushes] == [Meta("ann", "all", 3.0)] * 4

    async def test_a_watch_yields_a_transaction_in_its_order(self, store: Store) -> None:
        watch = watch_items(store)
        await start(watch)
        await store.commit_all([GroupPush(name, full()) for name in "ba"], push_id="t")
        heads = [item.head for item in await take(watch, 2) if isinstance(item, GroupCommitted)]
        assert heads == [Head("b", 1), Head("a", 1)]

    async def test_a_failed_transaction_changes_nothing(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        await push(store, full(cluster("a")), group="h")
        watch = watch_items(store)
        await start(watch)
        fine = GroupPush("new", full(cluster("n", b"fresh")))
        bad: list[tuple[GroupPush, type[Exception]]] = [
            (GroupPush("g", full(cluster("a")), expect=2), ConflictError),
            (GroupPush("g", delta(delete=((CDS, "b"),))), NotFoundError),
            (GroupPush("g", Rollback(7)), NotFoundError),
            (GroupPush("none", Drop()), NotFoundError),
            (GroupPush("g", FullSet((Entry(CDS, "a", blob_id(b"lacking")),), {})), CorruptError),
            (GroupPush("g", full(cluster("a"), cluster("a", b"2"))), ValueError),
        ]
        for one, error in bad:
            with pytest.raises(error):
                await store.commit_all([fine, GroupPush("h", full()), one], push_id="t")
        assert await store.groups() == [Head("g", 1), Head("h", 1)]
        assert await store.head("new") is None
        assert [await replayed(store, full(), "t", name) for name in ("new", "h", "g")] == [None] * 3
        with pytest.raises(CorruptError):
            await store.blobs([blob_id(b"fresh")])
        await push(store, full(cluster("b")))
        (item,) = await take(watch, 1)
        assert isinstance(item, GroupCommitted) and item.head == Head("g", 2)

    async def test_a_conflict_names_its_group(self, store: Store) -> None:
        await push(store, full(cluster("a")), group="h")
        with pytest.raises(ConflictError) as conflict:
            await store.commit_all([GroupPush("g", full()), GroupPush("h", full(), expect=0)], push_id="t")
        assert (conflict.value.group, conflict.value.revision) == ("h", 1)

    async def test_a_transaction_is_done_once(self, store: Store) -> None:
        pushes = [GroupPush(name, full(cluster(name))) for name in "ab"]
        assert await store.committed(pushes, "t") is None
        await store.commit_all(pushes, push_id="t")
        await push(store, full(), group="a")
        again = [Commit("a", 1, replayed=True), Commit("b", 1, replayed=True)]
        assert await store.commit_all(pushes, push_id="t") == again
        assert await store.committed(pushes, "t") == again
        assert await store.groups() == [Head("a", 2), Head("b", 1)]

    async def test_a_repeat_is_compared_by_its_request(self, store: Store) -> None:
        first = GroupPush("g", full(cluster("a")), request_text="a")
        (commit,) = await store.commit_all([first], push_id="p")
        (again,) = await store.commit_all([GroupPush("g", full(cluster("b")), request_text="a")], push_id="p")
        assert (again.revision, again.replayed) == (commit.revision, True)
        assert await store.committed([GroupPush("g", Delta((), (), {}), request_text="a")], "p") == [again]
        with pytest.raises(ReusedPushIdError):
            await store.commit_all([GroupPush("g", full(cluster("a")), request_text="b")], push_id="p")

    async def test_a_push_id_stands_for_one_push(self, store: Store) -> None:
        both = [GroupPush(name, full(cluster(name))) for name in "ab"]
        await store.commit_all(both, push_id="t")
        others = (
            both[:1],
            both[::-1],
            [both[0], GroupPush("b", full(cluster("other")))],
            [both[0], GroupPush("c", full())],
            [GroupPush("a", delta(cluster("a")))],
            [GroupPush("a", full(cluster("a"), label="v1"))],
            [GroupPush("a", Rollback(1))],
            [GroupPush("a", Drop())],
        )
        for other in others:
            with pytest.raises(ReusedPushIdError):
                await store.commit_all(other, push_id="t")
            with pytest.raises(ReusedPushIdError):
                await store.committed(other, "t")
        assert await store.groups() == [Head("a", 1), Head("b", 1)]

    async def test_no_transaction_is_empty_or_names_a_group_twice(self, store: Store) -> None:
        for pushes in ([], [GroupPush("a", full()), GroupPush("a", full(cluster("x")))]):
            with pytest.raises(ValueError, match="at least one group"):
                await store.commit_all(pushes, push_id="t")
        assert await store.groups() == []

    async def test_the_same_push_at_the_same_time_is_done_once(self, store: Store) -> None:
        tries = [push(store, full(cluster("a")), push_id="p") for _ in range(8)]
        results = await asyncio.gather(*tries)
        assert sorted(result.replayed for result in results) == [False] + [True] * 7
        assert await store.head("g") == Head("g", 1)

    async def test_a_collection_keeps_the_last_and_the_young(self, store: Store) -> None:
        for n in range(1, 7):
            await store.commit("g", full(cluster("a", b"%d" % n)), push_id=f"{n}", meta=Meta("ann", f"{n}", 10.0 * n))
        done = await store.collect(Retention(revisions=2, age_s=25.0), now_s=65.0)
        assert done == Collected(revisions=3, blobs=3, blob_bytes=3)
        assert [(line.revision, line.content) for line in await store.history("g")] == [
            (6, True),
            (5, True),
            (4, True),
            (3, False),
            (2, False),
            (1, False),
        ]
        assert [line.meta.author for line in await store.history("g")] == ["ann"] * 6
        for n in (4, 5, 6):
            assert await contents(store, await store.manifest("g", n)) == [cluster("a", b"%d" % n)]
        with pytest.raises(CorruptError):
            await store.blobs([blob_id(b"3")])
        found = await store.stats()
        assert (found.revisions, found.blobs) == (3, 3)

    async def test_content_that_was_collected_is_gone_not_unknown(self, store: Store) -> None:
        for n in range(3):
            await push(store, full(cluster("a", b"%d" % n)))
        await store.collect(Retention(revisions=1, age_s=-1.0), 0.0)
        for revision in (1, 2):
            with pytest.raises(GoneError, match=f"revision {revision} of group 'g'"):
                await store.manifest("g", revision)
            with pytest.raises(GoneError):
                await push(store, Rollback(revision))
        with pytest.raises(NotFoundError) as unknown:
            await store.manifest("g", 4)
        assert not isinstance(unknown.value, GoneError)
        assert await push(store, delta(cluster("b"))) == Commit("g", 4)

    async def test_the_head_and_what_is_pinned_are_always_kept(self, store: Store) -> None:
        for n in range(1, 6):
            await push(store, full(cluster("a", b"%d" % n)))
            await push(store, full(cluster("a", b"%d" % n)), group="h")
        await store.collect(Retention(revisions=1, age_s=-1.0, revisions_limit=1, pinned={"g": (3, 4)}), 0.0)
        kept = {group: [line.revision for line in await store.history(group) if line.content] for group in "gh"}
        assert kept == {"g": [5, 4, 3], "h": [5]}
        assert await contents(store, await store.manifest("g", 3)) == [cluster("a", b"3")]

    async def test_a_pinned_revision_whose_content_is_gone_keeps_nothing(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        for n in range(3):
            await push(store, delta(endpoints("a", b"%d" % n)))
        little = Retention(revisions=1, age_s=-1.0, endpoint_revisions=1)
        await store.collect(little, 0.0)
        assert [line.content for line in await store.history("g")] == [True, False, False, True]
        await push(store, delta(cluster("a", b"2")))
        await store.collect(replace(little, pinned={"g": (2, 3)}), 0.0)
        assert [line.content for line in await store.history("g")] == [True, False, False, False, False]
        assert (await store.stats()).revisions == 1

    async def test_young_revisions_are_bounded(self, store: Store) -> None:
        for n in range(10):
            await push(store, full(cluster("a", b"%d" % n)))
        await store.collect(Retention(revisions=1, revisions_limit=4), 0.0)
        assert [line.content for line in await store.history("g")] == [True] * 4 + [False] * 6

    async def test_lines_of_the_history_go_last(self, store: Store) -> None:
        for n in range(6):
            await store.commit("g", full(cluster("a", b"%d" % n)), push_id=f"{n}", meta=Meta(time_s=float(n)))
        policy = Retention(revisions=1, age_s=1.5, history_s=3.5)
        assert await store.collect(policy, 6.0) == Collected(revisions=5, lines=3, blobs=5, blob_bytes=5)
        assert [line.revision for line in await store.history("g")] == [6, 5, 4]
        assert (await store.collect(Retention(revisions=1, age_s=-1, history_limit=2), 6.0)).lines == 1
        assert [line.revision for line in await store.history("g")] == [6, 5]
        with pytest.raises(NotFoundError):
            await store.manifest("g", 3)

    async def test_a_deleted_group_is_kept_for_a_while(self, store: Store) -> None:
        for n in range(3):
            await store.commit("g", full(cluster("a", b"%d" % n)), push_id=f"{n}", meta=Meta(time_s=1.0))
        await store.commit("g", Drop(), push_id="drop", meta=Meta(time_s=100.0))
        await store.collect(Retention(revisions=3, age_s=50.0), 149.0)
        assert [line.content for line in await store.history("g")] == [False, True, True, False]
        assert await push(store, Rollback(3)) == Commit("g", 5)
        await store.commit("g", Drop(), push_id="again", meta=Meta(time_s=100.0))
        await store.collect(Retention(revisions=3, age_s=50.0), 151.0)
        assert not any(line.content for line in await store.history("g"))
        assert (await store.stats()).blobs == 0
        with pytest.raises(GoneError):
            await push(store, Rollback(3))
        assert await push(store, full(cluster("a"))) == Commit("g", 7)
        assert (await store.manifest("g")).versions == {CDS: "7"}

    async def test_a_blob_that_a_manifest_names_is_kept(self, store: Store) -> None:
        await push(store, full(cluster("a", b"1")), group="other")
        for body in (b"1", b"2", b"1"):
            await push(store, full(cluster("a", body)))
        assert (await store.collect(Retention(revisions=1, age_s=-1.0), 0.0)).blobs == 1
        assert await contents(store, await store.manifest("g")) == [cluster("a", b"1")]
        await push(store, Drop(), group="other")
        assert (await store.collect(Retention(revisions=1, age_s=-1.0), 0.0)).blobs == 0
        assert await contents(store, await store.manifest("g")) == [cluster("a", b"1")]

    async def test_a_collection_finds_nothing_the_second_time(self, store: Store) -> None:
        for n in range(4):
            await push(store, full(cluster("a", b"%d" % n)))
        policy = Retention(revisions=2, age_s=-1.0)
        assert (await store.collect(policy, 0.0)).blobs == 2
        assert await store.collect(policy, 0.0) == Collected()

    async def test_pushes_amid_a_collection_lose_nothing(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Blobs that are about to be deleted are named again while that goes on."""
        monkeypatch.setattr("xds.store.sql.collection.ROWS_PER_STEP", 2)
        monkeypatch.setattr("xds.store.sql.collection.ROWS_PER_SCAN", 3)
        bodies = [b"%d" % n for n in range(20)]
        for turn in range(3):
            await push(store, full(*(cluster(f"c{n}", body + b"-%d" % turn) for n, body in enumerate(bodies))))
        collecting = asyncio.create_task(store.collect(Retention(revisions=1, age_s=-1.0), 0.0))
        for n, body in enumerate(bodies):
            again = cluster(f"c{n}", body + b"-0")
            with suppress(CorruptError):  # deleted by now: it must be given, which is as it should be
                await push(store, FullSet((Entry(CDS, "only", blob_id(again[2])),), {}), group=f"by-id-{n}")
            await push(store, delta(again))
        await collecting
        assert await contents(store, await store.manifest("g")) == [
            cluster(f"c{n}", body + b"-0") for n, body in enumerate(bodies)
        ]
        for head in await store.groups():
            assert await contents(store, await store.manifest(head.group))

    async def test_documents_go_with_their_group(self, store: Store) -> None:
        await push(store, full(cluster("a")))
        for id in ("g", "g/x", "h"):
            await store.put_doc("settings", id, b"1")
        for key in (("g", "x"), ("g", "y/z"), ("g/x", "y"), ("gg", "x")):
            await store.put_doc("policy", document_id(key), b"1")
        watch = watch_items(store)
        await start(watch)
        drop = Drop(("settings", "none"), ("policy", "none"))
        for expect in (7, None):
            with suppress(ConflictError):
                await push(store, drop, push_id="p", expect=expect)
            assert [doc.id for doc in await store.docs("settings")] == [*(["g"] if expect else []), "g/x", "h"]
        assert [key_of(doc.id) for doc in await store.docs("policy")] == [("g/x", "y"), ("gg", "x")]
        first, *others = await take(watch, 4)
        assert isinstance(first, GroupCommitted) and first.head == Head("g", 2, live=False)
        assert others == [
            DocumentChanged(kind, id, None, 2, first.cursor + number)
            for number, (kind, id) in enumerate([("settings", "g"), ("policy", "g/x"), ("policy", "g/y%2Fz")], 1)
        ]
        await store.put_doc("settings", "g", b"2")
        assert (await push(store, drop, push_id="p")).replayed
        assert [doc.id for doc in await store.docs("settings")] == ["g", "g/x", "h"]

    # Dumps

    async def test_a_dump_restored_is_the_same_store(self, store: Store) -> None:
        await fill(store)
        for history in (True, False):
            records = await dumped(store, history)
            before = await pictured(store, history)
            await store.restore(partial(iter, records), replace=True)
            assert await pictured(store, history) == before
            assert await dumped(store, history) == records

    async def test_revisions_and_ranks_go_on_after_a_restore(self, store: Store) -> None:
        await fill(store)
        records = await dumped(store)
        await store.restore(lambda: iter(records), replace=True)
        assert await push(store, full(cluster("a")), group="dropped") == Commit("dropped", 3)
        assert (await push(store, delta(cluster("z", b"9")))).revision == 5
        assert [name for _, name, _ in (await store.manifest("g")).entries] == ["c", "a", "x", "z"]
        assert await store.put_doc("kind", "gone", b"again") == 3

    async def test_a_restore_into_a_store_with_content_needs_an_option(self, store: Store) -> None:
        await fill(store)
        before = await dumped(store)
        with pytest.raises(ConflictError, match="not empty"):
            await store.restore(lambda: iter(()))
        assert await dumped(store) == before
        await store.restore(lambda: iter(()), replace=True)
        assert (await store.groups(), await dumped(store)) == ([], [])
        await store.restore(lambda: iter(before))
        assert await dumped(store) == before

    @pytest.mark.parametrize("kind", ["groups", "revisions", "entries", "blobs"])
    async def test_records_that_do_not_fit_together_change_nothing(self, store: Store, kind: str) -> None:
        await fill(store)
        before = await dumped(store)
        last = max(at for at, record in enumerate(before) if record.kind == kind)
        with pytest.raises(CorruptError):
            await store.restore(lambda: iter(before[:last] + before[last + 1 :]), replace=True)
        assert await dumped(store) == before

    async def test_records_that_cannot_be_read_change_nothing(self, store: Store) -> None:
        await fill(store)
        before = await dumped(store)

        def broken() -> Iterator[Record]:
            yield from before[:-1]
            raise OSError("the archive ended")

        with pytest.raises(OSError, match="ended"):
            await store.restore(broken, replace=True)
        assert await dumped(store) == before

    async def test_a_dump_is_of_one_moment_whatever_is_pushed_meanwhile(self, store: Store) -> None:
        await fill(store)
        expected = await dumped(store)
        found: list[Record] = []
        number = 0
        async for batch in store.dump():
            found += batch
            number += 1
            await push(store, full(cluster("a", b"%d" % number), cluster(f"n{number}")))
            await push(store, full(cluster("m")), group=f"made-{number}")
        assert sorted(map(repr, found)) == sorted(map(repr, expected))

    async def test_a_watch_is_reset_after_a_restore(self, store: Store) -> None:
        await fill(store)
        records = await dumped(store)
        watch = watch_items(store)
        (reset,) = await take(watch, 1)
        await store.restore(lambda: iter(records), replace=True)
        (again,) = await take(watch, 1)
        assert isinstance(again, Reset) and again.cursor > reset.cursor
        (resumed,) = await take(watch_items(store, reset.cursor), 1)
        assert isinstance(resumed, Reset), "what was committed before the restore is not what came after this cursor"


async def fill(store: Store) -> None:
    """Groups with history, order, an empty and a deleted one; documents."""
    await push(store, full(cluster("a"), cluster("b"), endpoints("x"), label="v1"))
    await push(store, delta(endpoints("x", b"2")))
    await push(store, full(cluster("c"), cluster("a"), endpoints("x", b"2")))
    await push(store, delta(cluster("c", b"3"), label="v4"))
    await push(store, full(), group="empty")
    await push(store, full(cluster("a")), group="dropped")
    await push(store, Drop(), group="dropped")
    await store.put_doc("kind", "a", b"\x00body")
    await store.put_doc("kind", "gone", b"1")
    await store.put_doc("kind", "gone", None)


async def dumped(store: Store, history: bool = True) -> list[Record]:
    return [record async for batch in store.dump(history) for record in batch]


async def pictured(store: Store, history: bool) -> list[object]:
    """What can be read of a filled store."""
    seen: list[object] = [await store.groups(), await store.docs("kind")]
    for group in ("g", "empty", "dropped"):
        lines = await store.history(group, limit=100 if history else 1)
        seen += [await store.head(group), lines]
        seen += [await contents(store, await store.manifest(group, line.revision)) for line in lines if line.content]
    return seen
