"""What a push id stands for outlives a release: the digest of a push is kept beside it for a day."""

from __future__ import annotations

from xds.store.base import Delta, Drop, Entry, FullSet, GroupPush, Rollback
from xds.store.revisions import push_digest


def test_the_digest_of_a_push_stays_as_older_releases_wrote_it() -> None:
    entries = (Entry("t", "n", "ab"),)
    pushes = [
        GroupPush("g", FullSet(entries, {}, "l", {"b": "1", "a": "2"})),
        GroupPush("h", Delta(entries, (("t", "x"),), {})),
        GroupPush("i", Rollback(3)),
        GroupPush("j", Drop()),
    ]
    assert push_digest(pushes).hex() == "a6c2383f78f4c0f979fbfddd5e967810"


def test_names_with_half_a_surrogate_pair_have_a_digest() -> None:
    assert push_digest([GroupPush("\ud800", Drop())]) != push_digest([GroupPush("\udc00", Drop())])
