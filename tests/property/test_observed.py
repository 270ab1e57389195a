"""A set that was laid change by change equals the set that is laid at once; so do its translation and differences.

The engine amends the served set at each change and each push. A name that it forgot to touch would be served for ever
in the version before.
"""

from __future__ import annotations

import random

import pytest

from tests.support.resources import cluster_load_assignment
from xds.codec.resources import decode_resource
from xds.envoy.translation import V2, translate_to_v2
from xds.model import amended_mapping
from xds.model.resource import Resource, default_version_info
from xds.model.resource_type import ENDPOINT, V2_URLS
from xds.model.snapshot import ResourceSet, Snapshot, amend_snapshot, build_snapshot, content_digest, diff
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.observed_layer import ObservedLayer

NAMES = [f"service-{number}" for number in range(8)]
CHANGES = 120


def assignment(name: str, port: int) -> Resource:
    return decode_resource(cluster_load_assignment(name, port))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_every_way_to_a_set_leads_to_the_same_set(seed: int, shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``shares``: as large sets do, they share what is equal (`xds.model.amended_mapping`)."""
    if shares:
        monkeypatch.setattr(amended_mapping, "SHARED_FROM", 1)
        monkeypatch.setattr(amended_mapping, "_CHANGED_LIMIT", 4)
    dice = random.Random(seed)
    cache = SnapshotCache("test", translations={V2: translate_to_v2})
    observed: dict[str, Resource] = {}
    held: list[Snapshot] = []
    for number in range(CHANGES):
        if number == 0 or dice.random() < 0.3:
            cache.set(_push(cache, dice))
        else:
            put = {name: assignment(name, dice.randint(1, 3)) for name in _some(dice)}
            gone = _some(dice)
            observed = {name: one for name, one in observed.items() if name not in gone or name in put} | put
            cache.observe("g", put, gone)
        assert cache.observed("g") == observed
        if dice.random() < 0.8:
            _compare(cache, observed)
        now = cache.get("g")
        assert now is not None
        for before in held[-4:]:
            _compare_differences(cache, before, now)
        held.append(now)


def _some(dice: random.Random) -> list[str]:
    return dice.sample(NAMES, dice.choice((0, 1, 1, 2, 6)))


def _push(cache: SnapshotCache, dice: random.Random) -> Snapshot:
    before = cache.pushed("g")
    revision = before.revision + 1 if before is not None else 1
    names = [name for name in NAMES if dice.random() < 0.5]
    resources = [assignment(name, dice.randint(1, 3)) for name in names]
    if before is None or ENDPOINT not in before.sets or dice.random() < 0.5:
        kinds = {ENDPOINT: "blue"} if dice.random() < 0.5 else {}
        members = resources if kinds or dice.random() < 0.7 else []
        draft = build_snapshot("g", revision, members, kinds)
        if ENDPOINT not in draft.sets or kinds:
            return draft
        label = default_version_info(revision, draft.get(ENDPOINT).digest)
        return build_snapshot("g", revision, members, {ENDPOINT: label}, before)
    gone = [(ENDPOINT, name) for name in _some(dice) if name in before.get(ENDPOINT).resources]
    put = [each for each in resources[:2] if (ENDPOINT, each.name) not in gone]
    return amend_snapshot(before, revision, put, gone, {})


def _compare(cache: SnapshotCache, observed: dict[str, Resource]) -> None:
    pushed, served = cache.pushed("g"), cache.get("g")
    assert pushed is not None and served is not None
    layer = ObservedLayer()
    layer.change(observed, ())
    wanted, found = layer.apply(pushed).get(ENDPOINT), served.get(ENDPOINT)
    assert dict(found.resources) == dict(wanted.resources) == {**pushed.get(ENDPOINT).resources, **observed}
    assert found.digest == wanted.digest == content_digest((n, r.version) for n, r in found.resources.items())
    assert (found.version_info, dict(found.observed)) == (wanted.version_info, dict(wanted.observed))
    if ENDPOINT in pushed.sets:
        assert found.origin_id == pushed.sets[ENDPOINT].id
    view = cache.view("g", V2)
    assert view is not None
    translated, anew = view.snapshot.get(V2_URLS[ENDPOINT]), translate_to_v2(found)
    assert anew is not None
    assert dict(translated.resources) == dict(anew.resources)
    assert translated.digest == content_digest((n, r.version) for n, r in anew.resources.items())
    assert translated.version_info == anew.version_info
    assert translated.omitted == anew.omitted
    assert dict(translated.observed) == dict(found.observed)


def _compare_differences(cache: SnapshotCache, before: Snapshot, now: Snapshot) -> None:
    old, new = before.get(ENDPOINT), now.get(ENDPOINT)
    found = cache.diffs.change(old, new)
    wanted = diff(_without_journal(old), _without_journal(new))
    assert set(found.added) == set(wanted.added)
    assert set(found.changed) == set(wanted.changed)
    assert set(found.removed) == set(wanted.removed)


def _without_journal(held: ResourceSet) -> ResourceSet:
    """The set as one that knows nothing of its past: all of it is compared."""
    return ResourceSet(held.type, held.version_info, held.resources)
