"""What every store engine must do with pushes that follow from others, and with documents written with a push."""

from __future__ import annotations

import pytest

from tests.store.contract import CDS, cluster, contents, delta, endpoints, full
from xds.model.errors import ConflictError, NotFoundError
from xds.store.audit_entries import AuditNote
from xds.store.base import DERIVED, DocumentWrite, GroupPush, ReusedPushIdError, Rollback, Store


class DerivedContract:
    async def test_derived_content_is_committed_with_its_push(self, store: Store) -> None:
        pushes = [
            GroupPush("line", delta(cluster("entry"))),
            GroupPush("g", delta(cluster("lowered")), is_derived=True, kind=DERIVED),
        ]
        commits = await store.commit_all(pushes, push_id="p")
        assert [(each.group, each.revision) for each in commits] == [("line", 1), ("g", 1)]
        assert [line.kind for line in await store.history("g")] == [DERIVED]
        assert [line.kind for line in await store.history("line")] == ["push"]

    async def test_a_repeated_push_is_known_whatever_followed_from_it(self, store: Store) -> None:
        asked = GroupPush("line", delta(cluster("entry")))
        await store.commit_all([asked, GroupPush("g", delta(cluster("lowered")), is_derived=True)], push_id="p")
        done = await store.committed([asked], "p")
        assert done is not None
        assert [(each.group, each.revision, each.replayed) for each in done] == [("line", 1, True)]
        again = await store.commit_all(
            [asked, GroupPush("other", delta(cluster("lowered")), is_derived=True)], push_id="p"
        )
        assert [(each.group, each.replayed) for each in again] == [("line", True)]
        assert await store.head("other") is None
        with pytest.raises(ReusedPushIdError):
            await store.commit_all([GroupPush("line", delta(cluster("other")))], push_id="p")

    async def test_a_change_that_was_extended_is_compared_as_it_was_asked_for(self, store: Store) -> None:
        asked = full(cluster("pushed"))
        made = GroupPush("g", full(cluster("pushed"), cluster("lowered")), requested_change=asked)
        await store.commit_all([made], push_id="p")
        done = await store.committed([GroupPush("g", asked)], "p")
        assert done is not None
        assert [each.revision for each in done] == [1]

    async def test_documents_are_written_with_a_push(self, store: Store) -> None:
        note = AuditNote("upstreams.put", group="g")
        put = DocumentWrite("upstreams", "g", b"1", note)
        await store.commit_all([GroupPush("g", delta(cluster("a")), writes=(put,))], push_id="1")
        assert [(doc.id, doc.body) for doc in await store.docs("upstreams")] == [("g", b"1")]
        # Also where the content stays, and deletions of what is not there.
        writes = (DocumentWrite("upstreams", "g", b"2"), DocumentWrite("other", "g", None))
        (commit,) = await store.commit_all([GroupPush("g", delta(), writes=writes)], push_id="2")
        assert not commit.changed
        assert [(doc.id, doc.body) for doc in await store.docs("upstreams")] == [("g", b"2")]
        await store.commit_all([GroupPush("g", delta(), writes=(DocumentWrite("upstreams", "g", None),))], push_id="3")
        assert await store.docs("upstreams") == []
        assert [each.note.action for each in (await store.audit()).entries] == ["upstreams.put"]

    async def test_a_push_that_fails_writes_no_document(self, store: Store) -> None:
        put = DocumentWrite("upstreams", "g", b"1")
        for push in (
            GroupPush("g", delta(cluster("a")), expect=7, writes=(put,)),
            GroupPush("g", delta(delete=((CDS, "a"),)), writes=(put,)),
        ):
            with pytest.raises((ConflictError, NotFoundError)):
                await store.commit_all([push], push_id="p")
        assert await store.docs("upstreams") == []

    async def test_a_rollback_keeps_present_lowered_content_and_not_the_former(self, store: Store) -> None:
        await store.commit("g", full(cluster("pushed"), cluster("was"), endpoints("x")), push_id="1")
        await store.commit("g", full(cluster("is")), push_id="2")
        change = Rollback(1, keep=((CDS, "is"),), omit=((CDS, "was"),))
        await store.commit("g", change, push_id="3")
        assert await contents(store, await store.manifest("g")) == [cluster("pushed"), endpoints("x"), cluster("is")]

    async def test_a_rollback_undoes_nothing_that_was_lowered(self, store: Store) -> None:
        await store.commit("g", full(cluster("a")), push_id="1")
        lowered = GroupPush("g", delta(cluster("l")), is_derived=True, kind=DERIVED)
        await store.commit_all([GroupPush("line", delta(cluster("entry"))), lowered], push_id="2")
        await store.commit("g", full(cluster("b"), cluster("l")), push_id="3")
        await store.commit("g", Rollback(1, keep=((CDS, "l"),)), push_id="4")
        undone = {line.revision: line.undone_by for line in await store.history("g")}
        assert undone == {1: 0, 2: 0, 3: 4, 4: 0}
