"""The removal log of a group (docs/internals/engine.md#who-has-which-state)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from tests.support.sansio import make_resource
from xds.model.resource_type import CLUSTER, LISTENER, ROUTE
from xds.model.snapshot import Snapshot, build_snapshot
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.diffs import Diffs
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import VERSIONS_KEPT, RefusedVersions, RemovalLog

RULES = OrderRules(listener_drain_s=600, removal_delay_s=15, order_timeout_s=30, linger_max=100)
SETTLE_S = 45.0
KEPT_S = 1_230.0

Texts = Mapping[str, str]
NONE: Texts = MappingProxyType({})


class Group:
    """A group with its log; each push is a mapping from name to text for each of three types."""

    def __init__(self, rules: OrderRules = RULES) -> None:
        self.refused = RefusedVersions()
        self.log = RemovalLog(rules, Diffs().between, self.refused)
        self.pushes: list[tuple[Snapshot, float]] = []
        self.rules = rules

    def push(
        self, at_s: float, clusters: Texts = NONE, listeners: Texts = NONE, routes: Texts = NONE, label: str = ""
    ) -> Snapshot:
        contents = {CLUSTER: clusters, LISTENER: listeners, ROUTE: routes}
        made = [make_resource(url, name, text) for url, texts in contents.items() for name, text in texts.items()]
        revision = len(self.pushes) + 1
        before = self.pushes[-1][0] if self.pushes else None
        labels = {url: label or str(revision) for url in contents}
        snapshot = build_snapshot("g", revision, made, labels, before)
        self.pushes.append((snapshot, at_s))
        self.log.note_push(snapshot, at_s)
        return snapshot

    def refuse(self, type_url: str, name: str, content: str) -> None:
        """Some node refuses this version."""
        self.refused.add([(type_url, name, version(type_url, name, content))])

    def in_a_new_process(self) -> RemovalLog:
        """A log that reads the same pushes."""
        log = RemovalLog(self.rules, Diffs().between, self.refused)
        for snapshot, at_s in self.pushes:
            log.note_push(snapshot, at_s, is_stored=True)
        return log

    def end_s(self, name: str, content: str = "1") -> float | None:
        return self.log.end_s(CLUSTER, name, make_resource(CLUSTER, name, content).version)


def version(type_url: str, name: str, content: str) -> str:
    return make_resource(type_url, name, content).version


def texts(log: RemovalLog, type_url: str = CLUSTER) -> dict[str, str]:
    """Of each name of the log, the text of its last version."""
    return {name: each.body.decode().rpartition("=")[2] for name, each in log.last(type_url).resources.items()}


def test_a_name_is_in_the_version_that_the_last_push_removed_or_changed() -> None:
    group = Group()
    group.push(0, {"a": "1", "b": "1"})
    assert texts(group.log) == {}
    group.push(1, {"a": "2", "b": "1"})
    assert texts(group.log) == {"a": "1"}
    group.push(2, {"b": "1"})
    assert texts(group.log) == {"a": "2"}
    assert group.log.removed_by(CLUSTER, "a") == 3
    assert group.log.removed_by(CLUSTER, "b") == 0


def test_a_version_that_a_node_rejected_replaces_no_other() -> None:
    """The one before it does; and if all were refused, none."""
    group = Group()
    group.push(0, {"a": "1"})
    group.push(1, {"a": "wrong"})
    group.push(2)
    assert texts(group.log) == {"a": "wrong"}
    group.refuse(CLUSTER, "a", "wrong")
    assert texts(group.log) == {"a": "1"}
    group.refuse(CLUSTER, "a", "1")
    assert texts(group.log) == {}


def test_a_rejection_is_seen_though_an_earlier_one_is_forgotten_for_it() -> None:
    """A cache remembers so many versions that nodes rejected; as many are none the less others."""
    group = Group()
    group.push(0, {"a": "1"})
    group.push(1, {"a": "2"})
    group.push(2)
    group.refuse(CLUSTER, "a", "2")
    assert texts(group.log) == {"a": "1"}
    group.refuse(CLUSTER, "a", "1")
    group.refused.take_oldest()
    assert texts(group.log) == {"a": "2"}


def test_a_rejected_version_has_the_last_accepted_one_as_stand_in() -> None:
    group = Group()
    for at_s, content in enumerate(("1", "2", "3", "4", "5", "6")):
        pushed = group.push(at_s, {"a": content})
        if content in ("1", "2", "4"):
            group.log.note_accepted(pushed.get(CLUSTER))
    group.refuse(CLUSTER, "a", "3")
    found = next(group.log.stand_ins(CLUSTER, "a"), None)
    assert found is not None and found.version == version(CLUSTER, "a", "4"), "nobody has the fifth"
    group.refuse(CLUSTER, "a", "4")
    found = next(group.log.stand_ins(CLUSTER, "a", {version(CLUSTER, "a", "4")}), None)
    assert found is not None and found.version == version(CLUSTER, "a", "2")
    found = next(group.log.stand_ins(CLUSTER, "a", {version(CLUSTER, "a", each) for each in "24"}), None)
    assert found is not None and found.version == version(CLUSTER, "a", "1")
    assert next(group.log.stand_ins(CLUSTER, "b"), None) is None


def test_a_rejection_by_one_node_leaves_a_version_accepted_by_others_in_use() -> None:
    """Its NACK takes nothing from clients that return, whether it comes before their ACK or after it."""
    group = Group()
    before = group.push(0, {"a": "1", "b": "1"})
    group.refuse(CLUSTER, "a", "1")
    assert group.push(1, {}).get(CLUSTER).resources == {}
    assert group.log.last(CLUSTER).resources.keys() == {"b"}, "nobody accepted it"
    group.log.note_accepted(before.get(CLUSTER))
    group.refuse(CLUSTER, "b", "1")
    assert group.log.last(CLUSTER).resources.keys() == {"a", "b"}
    assert group.in_a_new_process().last(CLUSTER).resources.keys() == set(), "what was ACKed before is not known"


def test_the_log_has_new_names_that_no_client_accepted() -> None:
    """A client that returns need not be given it, unless it shows it."""
    group = Group()
    group.push(0, {"a": "1"})
    accepted = group.push(1, {"a": "1", "b": "1"})
    group.log.note_accepted(accepted.get(CLUSTER))
    group.push(2, {"a": "1", "b": "1", "c": "1"})
    group.push(3, {"a": "1"})
    versions = {name: version(CLUSTER, name, "1") for name in "abc"}
    assert group.log.unaccepted(CLUSTER, versions) == {"c"}
    assert group.in_a_new_process().unaccepted(CLUSTER, versions) == set(), (
        "nobody knows what was ACKed before a restart"
    )
    assert group.log.unaccepted(CLUSTER, {"c": version(CLUSTER, "c", "2")}) == set(), "another version"


def test_the_log_has_names_that_are_back_in_an_earlier_version() -> None:
    group = Group()
    group.push(0, {"a": "1", "b": "1", "c": "1"})
    group.push(1, {"a": "2", "c": "1"})
    group.push(2, {"a": "1", "b": "2", "c": "1"})
    assert group.log.came_back(CLUSTER) == {"a"}


def test_without_a_change_of_listeners_removals_end_when_all_have_the_push() -> None:
    group = Group()
    group.push(0, {"a": "1"}, {"l": "1"})
    group.push(1_000, {}, {"l": "1"})
    assert group.end_s("a") == 1_000 + SETTLE_S
    assert group.end_s("a", "2") is None, "the log does not have this version"


def test_the_end_of_a_name_is_that_of_the_last_push_that_took_it_away() -> None:
    group = Group()
    for at_s, clusters in ((0, {"a": "1"}), (100, {}), (200, {"a": "2"}), (300, {})):
        group.push(at_s, clusters)
    assert group.end_s("a", "1") == group.end_s("a", "2") == 300 + SETTLE_S


@pytest.mark.parametrize("before_s", [0, 1, 599])
def test_listeners_that_changed_within_a_drain_before_count(before_s: float) -> None:
    """Old connections on the listener of before use what this push removes."""
    group = Group()
    group.push(0, {"a": "1"}, {"l": "1"})
    group.push(1_000 - before_s, {"a": "1"} if before_s else {}, {"l": "2"})
    if before_s:
        group.push(1_000, {}, {"l": "2"})
    assert group.end_s("a") == 1_000 - before_s + 600 + SETTLE_S


@pytest.mark.parametrize(("after_s", "counts"), [(1, True), (45, True), (46, False)])
def test_listeners_that_change_soon_after_count(after_s: float, counts: bool) -> None:
    """A client may have skipped the push before: its old connections use what that one removed."""
    group = Group()
    group.push(0, {"a": "1"}, {"l": "1"})
    group.push(1_000, {}, {"l": "1"})
    group.push(1_000 + after_s, {}, {"l": "2"})
    assert group.end_s("a") == (1_000 + after_s + 600 + SETTLE_S if counts else 1_000 + SETTLE_S)


def test_pushes_are_kept_for_twice_a_drain_and_ten_always() -> None:
    group = Group()
    for number in range(15):
        group.push(number, {f"c{number}": "1"})
    assert len(texts(group.log)) == 14
    for number in range(15, 20):
        group.push(KEPT_S + number, {f"c{number}": "1"})
    assert sorted(texts(group.log), key=lambda name: int(name[1:])) == [f"c{number}" for number in range(9, 19)]


def test_pushes_are_kept_while_the_newest_content_is_rejected() -> None:
    """A refused push may stand longer than any connection lives."""
    group = Group()
    group.push(0, {"a": "1"}, {}, {"r": "wrong"})
    group.refuse(ROUTE, "r", "wrong")
    for number in range(12):
        group.push(2 * KEPT_S * number, {f"c{number}": "1"}, {}, {"r": "wrong"})
    assert "a" in texts(group.log)
    group.push(2 * KEPT_S * 20, {}, {}, {"r": "2"})
    assert "a" not in texts(group.log)


def test_pushes_beyond_the_limit_are_dropped() -> None:
    group = Group(OrderRules(listener_drain_s=600, removal_delay_s=15, order_timeout_s=30, linger_max=12))
    for number in range(20):
        group.push(0, {f"c{number}": "1"})
    assert len(texts(group.log)) == 12


def test_a_set_is_found_by_its_label_while_its_push_is_kept() -> None:
    group = Group()
    snapshots = [group.push(number, {}, {"l": str(number)}) for number in range(20)]
    assert group.log.labelled(LISTENER, "20") is snapshots[-1].get(LISTENER)
    assert group.log.labelled(LISTENER, "3") is snapshots[2].get(LISTENER)
    assert group.log.labelled(LISTENER, "3+00000000") is None
    for number in range(20, 40):
        group.push(2 * KEPT_S * number, {}, {"l": str(number)})
    assert group.log.labelled(LISTENER, "3") is None
    assert group.log.labelled(LISTENER, "35") is not None


def test_a_label_of_several_sets_identifies_none() -> None:
    """A caller's own label may repeat."""
    group = Group()
    group.push(0, {"a": "1"}, label="blue")
    group.push(1, {"a": "2"}, label="green")
    group.push(2, {"a": "3"}, label="green")
    assert group.log.labelled(CLUSTER, "blue") is not None
    assert group.log.labelled(CLUSTER, "green") is None


def test_a_repeated_label_identifies_no_set() -> None:
    """Part of what came between may have been applied by a client that shows it still: it refused the rest."""
    group = Group()
    for at_s, (label, text) in enumerate((("blue", "1"), ("green", "2"), ("blue", "1"))):
        group.push(at_s, {"a": text}, label=label)
    assert group.log.labelled(CLUSTER, "blue") is None
    assert group.log.labelled(CLUSTER, "green") is not None


def test_a_new_process_that_reads_the_pushes_has_the_same_log() -> None:
    group = Group()
    group.push(0, {"a": "1", "b": "1"}, {"l": "1"})
    group.push(500, {"b": "2"}, {"l": "2"})
    group.push(900, {}, {"l": "2"})
    log = group.in_a_new_process()
    assert texts(log) == texts(group.log) == {"a": "1", "b": "2"}
    for name, content in (("a", "1"), ("b", "2")):
        version = make_resource(CLUSTER, name, content).version
        assert log.end_s(CLUSTER, name, version) == group.end_s(name, content) == 500 + 600 + SETTLE_S


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same-process", "restarted"])
def test_the_log_of_another_api_version_has_the_same_pushes(is_restarted: bool) -> None:
    """Also those before its first client."""
    group = Group()
    group.push(0, {"a": "1"})
    group.push(1, {"b": "1"})
    cache = SnapshotCache(translations={"v2": lambda held: held})
    (before, before_s), (newest, newest_s) = group.pushes
    if not is_restarted:
        cache.set(before, now_s=before_s)
    cache.set(newest, retained=[(before_s, before)] if is_restarted else (), now_s=newest_s)
    assert set(cache.log("g").names(CLUSTER)) == {"a"}
    assert set(cache.log("g", "v2").names(CLUSTER)) == {"a"}


def test_the_cluster_sets_of_the_last_twelve_labels_are_kept() -> None:
    """A large set may change with every push. A label whose set is not kept names none, also when it comes back."""
    group = Group()
    for at_s in range(30):
        group.push(at_s, {"a": f"{at_s}"}, {"l": f"{at_s}"}, label=f"v{at_s}")
    labels = [f"v{at_s}" for at_s in range(30)]
    assert [label for label in labels if group.log.labelled(CLUSTER, label) is not None] == labels[-12:]
    assert all(group.log.labelled(LISTENER, label) is not None for label in labels)
    group.push(30, {"a": "other"}, {"l": "29"}, label="v1")
    assert group.log.labelled(CLUSTER, "v1") is None


def test_the_last_version_that_a_client_accepted_is_kept_beyond_ten_others() -> None:
    group = Group()
    accepted = group.push(0, {"a": "accepted"})
    group.log.note_accepted(accepted.get(CLUSTER))
    for number in range(2 * VERSIONS_KEPT):
        group.push(1 + number, {"a": str(number)})
    kept = [each.version for each in group.log.versions(CLUSTER, "a")]
    assert kept[-1] == version(CLUSTER, "a", "accepted")
    assert len(kept) == 1 + VERSIONS_KEPT


def test_ten_versions_are_kept_of_a_resource_that_changes_in_each_push() -> None:
    group = Group()
    group.push(0, {"a": "0"})
    for number in range(4 * VERSIONS_KEPT):
        group.push(1 + number, {"a": str(1 + number % 2)})
    assert {each.version for each in group.log.versions(CLUSTER, "a")} == {
        version(CLUSTER, "a", text) for text in "012"
    }
