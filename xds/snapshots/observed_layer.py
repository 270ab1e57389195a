"""Observed (live) assignments of a group, which replace pushed ones name by name, without a revision.

docs/services.md: "The push itself is not changed: when the observed assignment is removed, the pushed one is served
again. The version_info of a set with observed assignments is that of the push with `+<8 hex of the served set>`". A
client that holds the served set counts as holding the pushed one. The cost of a change depends on the number of changed
names, and includes a copy of two mappings of references.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from xds.model.amended_mapping import amend
from xds.model.resource import Resource, derived_version_info
from xds.model.resource_type import ENDPOINT, resource_type
from xds.model.snapshot import NO_VERSION, Derivation, ResourceSet, Snapshot
from xds.snapshots.diffs import Diffs


class ObservedLayer:
    """The observed assignments of one group, by name."""

    __slots__ = ("_empty_set", "resources")

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self._empty_set = ResourceSet(resource_type(ENDPOINT), NO_VERSION, {})

    def change(self, put: Mapping[str, Resource], removed: Collection[str]) -> tuple[str, ...]:
        """Put and remove assignments; returns the names whose content changed."""
        layer = self.resources
        touched = [name for name, one in put.items() if name not in layer or layer[name].version != one.version]
        touched += [name for name in removed if name in layer and name not in put]
        for name in touched:
            if name in put:
                layer[name] = put[name]
            else:
                del layer[name]
        return tuple(touched)

    def apply(self, pushed: Snapshot) -> Snapshot:
        """The pushed snapshot with this layer; the same object if the layer changes nothing."""
        base = self.base(pushed)
        return _with_set(pushed, apply_observed(self.resources, base, base, self.resources))

    def base(self, snapshot: Snapshot) -> ResourceSet:
        """The set of assignments of a snapshot; the layer's own empty set if it has none."""
        return snapshot.sets.get(ENDPOINT, self._empty_set)

    def reapply(self, pushed: Snapshot, served: Snapshot, touched: Collection[str]) -> Snapshot:
        """The pushed snapshot with this layer after a change of the layer or the snapshot.

        ``served`` is the snapshot with the layer before the change. It was made from the same snapshot, or from an
        earlier one of the same lineage. Only the assignments ``touched`` may differ.
        """
        return _with_set(pushed, apply_observed(self.resources, self.base(pushed), self.base(served), touched))


def apply_observed(
    observed: Mapping[str, Resource], base: ResourceSet, served: ResourceSet, touched: Iterable[str]
) -> ResourceSet:
    """The set ``base`` with the ``observed`` assignments: in the place of pushed ones, or added.

    ``served`` is an earlier result, in which only the names ``touched`` may differ. Returns ``base`` if the result is
    equal to it, and ``served`` if nothing changes.
    """
    put: dict[str, Resource] = {}
    removed: list[str] = []
    pushed_versions: dict[str, str] = {}
    dropped: list[str] = []  # names that are no longer observed
    for name in touched:
        pushed, live, before = base.resources.get(name), observed.get(name), served.resources.get(name)
        if live is None or (pushed is not None and live.version == pushed.version):
            after = pushed
            dropped += [name] if name in served.observed else []
        else:
            after = live
            pushed_versions[name] = pushed.version if pushed is not None else ""
        if after is None:
            removed += [name] if before is not None else []
        elif before is None or before.version != after.version:
            put[name] = after
    replaced = amend(served.observed, pushed_versions, dropped, shares=True)
    if not replaced:
        return base
    if not put and not removed and served.origin_id == base.origin_id:
        return served
    digest = served.amended_digest(put, removed)
    derivation = Derivation(origin_id=base.origin_id, omitted=base.omitted, observed=replaced)
    label = derived_version_info(base.version_info, base.digest, digest)
    return served.amended(label, put, removed, derivation=derivation, digest=digest, shares=True)


def translate_changes(
    translated: ResourceSet,
    after: ResourceSet,
    touched: Collection[str],
    translate: Callable[[ResourceSet], ResourceSet | None],
) -> ResourceSet | None:
    """The translation of ``after``. ``translated`` is that of a set in which only the names ``touched`` differ.

    None if the type has no translation.
    """
    members = {name: after.resources[name] for name in touched if name in after.resources}
    changes = translate(ResourceSet(after.type, after.version_info, members))
    if changes is None:
        return None
    put, removed = changes.resources, [n for n in touched if n in translated.resources and n not in changes.resources]
    unchanged = {name: problem for name, problem in translated.omitted.items() if name not in touched}
    omitted = unchanged | dict(changes.omitted)
    digest = translated.amended_digest(put, removed)
    label = derived_version_info(after.version_info, after.digest, digest)
    derivation = Derivation(origin_id=after.origin_id, omitted=omitted, observed=after.observed)
    return translated.amended(label, put, removed, derivation=derivation, digest=digest, shares=True)


def touched_by_push(before: ResourceSet, after: ResourceSet, layer: ObservedLayer, diffs: Diffs) -> Collection[str]:
    """The names in which the served sets of two pushes with the same layer may differ."""
    changed = diffs.change(before, after).names if before is not after else ()
    return changed if before.lineage_id == after.lineage_id else dict.fromkeys((*changed, *layer.resources))


def _with_set(pushed: Snapshot, served: ResourceSet) -> Snapshot:
    if pushed.sets.get(ENDPOINT) is served or (ENDPOINT not in pushed.sets and not served.resources):
        return pushed
    return pushed.with_set(served)
