"""Labels of pushes, and of sets that are derived from a pushed set."""

from __future__ import annotations

import pytest

from tests.support.resources import cluster_load_assignment
from xds.codec.resources import decode_resource
from xds.model.resource import default_version_info, derived_version_info, version_stem
from xds.model.resource_type import ENDPOINT
from xds.model.snapshot import ResourceSet, Snapshot, build_snapshot
from xds.protocol.requests import Request
from xds.protocol.sotw import fetch
from xds.snapshots.cache import SnapshotCache, View
from xds.snapshots.overlay import apply_overrides

OWN, OTHER = bytes.fromhex("1f3a9c07ff"), bytes.fromhex("0badcafeff")


@pytest.mark.parametrize(
    ("label", "begins", "made"),
    [
        ("5+1f3a9c07", "5", "5+0badcafe"),
        ("5", "5", "5+0badcafe"),
        ("v1", "v1", "v1+0badcafe"),
        ("1.2+build5", "1.2+build5", "1.2+build5+0badcafe"),
        ("5+deadbeef", "5+deadbeef", "5+deadbeef+0badcafe"),
    ],
)
def test_only_the_hash_of_the_set_itself_is_taken_off(label: str, begins: str, made: str) -> None:
    assert version_stem(label, OWN) == begins
    assert derived_version_info(label, OWN, OTHER) == made
    assert default_version_info(5, OWN) == "5+1f3a9c07"


def _assignments(label: str = "") -> ResourceSet:
    """Two of them; without a label it is that of revision 5."""
    members = [decode_resource(cluster_load_assignment(name, 80)) for name in "ab"]
    plain = build_snapshot("g", 5, members, {}).get(ENDPOINT)
    return ResourceSet(plain.type, label or default_version_info(5, plain.digest), plain.resources)


@pytest.mark.parametrize(("label", "begins"), [("", "5"), ("v1", "v1")])
def test_an_overlay_and_a_fetched_part_have_one_hash(label: str, begins: str) -> None:
    base = _assignments(label)
    laid = apply_overrides(base, {"a": decode_resource(cluster_load_assignment("a", 81))})
    assert laid.version_info == f"{begins}+{laid.digest.hex()[:8]}" != base.version_info
    for served in (base, laid):
        view = View("g", Snapshot("g", 5, {ENDPOINT: served}), SnapshotCache().no_view.log)
        whole = fetch(view, Request(ENDPOINT, names=frozenset("ab")))
        assert whole.version_info == f"{begins}+{served.digest.hex()[:8]}"
        part = fetch(view, Request(ENDPOINT, names=frozenset("a")))
        assert part.version_info.startswith(f"{begins}+") and part.version_info.count("+") == 1
        assert part.version_info != whole.version_info
