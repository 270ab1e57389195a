"""The results that streams need after a push, computed before the push is served. This may run in another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xds.model.snapshot import Change, ResourceSet, Snapshot, diff
from xds.protocol.diffs import SetIds, assignments_of, set_ids
from xds.protocol.responses import NO_PARTS, PREPARED_FROM, Parts, prepare_parts


@dataclass(frozen=True, slots=True)
class Precomputed:
    """The difference between two snapshots.

    ``changes`` and ``assignments`` (those of changed clusters) are keyed by the ids of the sets, as in `Diffs`.
    ``parts`` are the encoded parts of large sets, by lineage.
    """

    changes: dict[SetIds, Change] = field(default_factory=dict)
    assignments: dict[SetIds, frozenset[str]] = field(default_factory=dict)
    parts: dict[int, Parts] = field(default_factory=dict)


NOTHING_PRECOMPUTED = Precomputed()


def precompute(
    old: Snapshot | None, new: Snapshot, parts_of: Callable[[ResourceSet], Parts] = lambda _: NO_PARTS
) -> Precomputed:
    """What the streams that hold ``old`` will ask for when they are given ``new``.

    ``parts_of`` returns what is encoded already of a set.
    """
    made = Precomputed()
    for type_url, after in new.sets.items():
        before = old.get(type_url) if old is not None else None
        if len(after) >= PREPARED_FROM and not parts_of(after):
            made.parts[after.lineage_id] = prepare_parts(after, parts_of(before) if before is not None else NO_PARTS)
        if before is after:
            continue
        key = set_ids(before, after)
        change = made.changes[key] = diff(before, after)
        if after.type.is_route_target:
            made.assignments[key] = assignments_of((*change.added, *change.changed), after)
    return made
