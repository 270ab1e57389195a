"""What streams will ask of a push, computed before it is served: where it may be another thread than theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xds.model.resource_type import alias_of
from xds.model.snapshot import Change, ResourceSet, Snapshot, diff

Sets = tuple[int, int]  # ids of the set before (0 for none) and of the set after


@dataclass(frozen=True, slots=True)
class Foresight:
    """What leads from one snapshot to the next, by the ids of the sets; assignments of changed clusters."""

    changes: dict[Sets, Change] = field(default_factory=dict)
    assignments: dict[Sets, frozenset[str]] = field(default_factory=dict)


NOTHING_FORESEEN = Foresight()


def foresee(old: Snapshot | None, new: Snapshot) -> Foresight:
    """What the streams that hold ``old`` will ask when they are given ``new``."""
    found = Foresight()
    for type_url, after in new.sets.items():
        before = old.get(type_url) if old is not None else None
        if before is after:
            continue
        key = sets_key(before, after)
        change = found.changes[key] = diff(before, after)
        if after.type.is_route_target:
            found.assignments[key] = assignments_of((*change.added, *change.changed), after)
    return found


def sets_key(old: ResourceSet | None, new: ResourceSet) -> Sets:
    """What leads from one set to another is kept under this."""
    return (old.id if old is not None else 0, new.id)


def assignments_of(clusters: Iterable[str], new: ResourceSet) -> frozenset[str]:
    """Names of the assignments that clusters of a set refer to."""
    return frozenset(
        reference.name
        for name in clusters
        for reference in new.resources[name].references
        if alias_of(reference.type_url) == "endpoints"
    )
