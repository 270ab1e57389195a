"""Observed assignments: laid over the pushed snapshot of a group, name by name, without a revision.

docs/services.md: "The push itself is not changed: when the observed assignment is removed, the pushed one is served
again. The version_info of a set with observed assignments is that of the push with `+<8 hex of the served set>`". A
client that holds the served set counts as holding the pushed one. A change costs work for the names that change, and a
copy of two mappings of references.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from xds.model.amended_mapping import amend
from xds.model.resource import Resource, derived_version_info
from xds.model.resource_type import ENDPOINT, resource_type
from xds.model.snapshot import NO_VERSION, Derivation, ResourceSet, Snapshot
from xds.protocol.diffs import Diffs


class ObservedLayer:
    """The observed assignments of one group, by name."""

    __slots__ = ("_nothing", "resources")

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self._nothing = ResourceSet(resource_type(ENDPOINT), NO_VERSION, {})

    def change(self, put: Mapping[str, Resource], gone: Collection[str]) -> tuple[str, ...]:
        """Put and remove assignments; returns the names that have other content now."""
        held = self.resources
        touched = [name for name, one in put.items() if name not in held or held[name].version != one.version]
        touched += [name for name in gone if name in held and name not in put]
        for name in touched:
            if name in put:
                held[name] = put[name]
            else:
                del held[name]
        return tuple(touched)

    def over(self, pushed: Snapshot) -> Snapshot:
        """The pushed snapshot with this layer; the very snapshot where the layer changes nothing."""
        base = self.base(pushed)
        return _with_set(pushed, lay(self.resources, base, base, self.resources))

    def base(self, pushed: Snapshot) -> ResourceSet:
        """The pushed set that the layer is laid over; an empty one of this group where none was pushed."""
        return pushed.sets.get(ENDPOINT, self._nothing)

    def served(self, snapshot: Snapshot) -> ResourceSet:
        """The set of assignments in a snapshot with this layer."""
        return snapshot.sets.get(ENDPOINT, self._nothing)

    def again(self, pushed: Snapshot, served: Snapshot, touched: Collection[str]) -> Snapshot:
        """The pushed snapshot with this layer after a change.

        ``served`` had the layer over the same snapshot, or over an earlier one of the same lineage. It differs in no
        other assignments than those ``touched``.
        """
        return _with_set(pushed, lay(self.resources, self.base(pushed), self.served(served), touched))


def lay(
    observed: Mapping[str, Resource], base: ResourceSet, served: ResourceSet, touched: Iterable[str]
) -> ResourceSet:
    """The set with ``observed`` assignments in the place of those of ``base``, or beside them.

    ``served`` was laid before, and differs in the names ``touched`` alone. The result is ``base`` itself where nothing
    differs from it, and ``served`` where nothing changes.
    """
    put: dict[str, Resource] = {}
    removed: list[str] = []
    pushed_versions: dict[str, str] = {}
    bare: list[str] = []  # names that are not observed any more
    for name in touched:
        pushed, own, held = base.resources.get(name), observed.get(name), served.resources.get(name)
        if own is None or (pushed is not None and own.version == pushed.version):
            wanted = pushed
            bare += [name] if name in served.observed else []
        else:
            wanted = own
            pushed_versions[name] = pushed.version if pushed is not None else ""
        if wanted is None:
            removed += [name] if held is not None else []
        elif held is None or held.version != wanted.version:
            put[name] = wanted
    noted = amend(served.observed, pushed_versions, bare, shares=True)
    if not noted:
        return base
    if not put and not removed and served.origin_id == base.origin_id:
        return served
    digest = served.amended_digest(put, removed)
    derivation = Derivation(origin_id=base.origin_id, omitted=base.omitted, observed=noted)
    label = derived_version_info(base.version_info, base.digest, digest)
    return served.amended(label, put, removed, derivation=derivation, digest=digest, shares=True)


def translate_again(
    translated: ResourceSet,
    before: ResourceSet,
    after: ResourceSet,
    touched: Collection[str],
    translate: Callable[[ResourceSet], ResourceSet | None],
) -> ResourceSet | None:
    """The translation of ``after``, given that of ``before``, which differs in the names ``touched`` alone.

    None where the type has no translation.
    """
    members = {name: after.resources[name] for name in touched if name in after.resources}
    made = translate(ResourceSet(after.type, after.version_info, members))
    if made is None:
        return None
    gone = [name for name in touched if name in translated.resources and name not in made.resources]
    omitted = {name: problem for name, problem in translated.omitted.items() if name not in touched} | dict(
        made.omitted
    )
    digest = translated.amended_digest(made.resources, gone)
    label = derived_version_info(after.version_info, after.digest, digest)
    derivation = Derivation(origin_id=after.origin_id, omitted=omitted, observed=after.observed)
    return translated.amended(label, made.resources, gone, derivation=derivation, digest=digest, shares=True)


def touched_by_push(before: ResourceSet, after: ResourceSet, layer: ObservedLayer, diffs: Diffs) -> Collection[str]:
    """The names in which the served sets of two pushes may differ, where the layer is the same."""
    changed = diffs.change(before, after).names if before is not after else ()
    return changed if before.lineage_id == after.lineage_id else dict.fromkeys((*changed, *layer.resources))


def _with_set(pushed: Snapshot, served: ResourceSet) -> Snapshot:
    if pushed.sets.get(ENDPOINT) is served or (ENDPOINT not in pushed.sets and not served.resources):
        return pushed
    return Snapshot(pushed.group, pushed.revision, {**pushed.sets, ENDPOINT: served})
