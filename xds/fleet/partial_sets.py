"""Mixed sets: what a client has while resources linger, are held, or were rejected. No push has them as such."""

from __future__ import annotations

from xds.model.snapshot import ResourceSet, empty_set, mix

_MADE_LIMIT = 64


def pushed_of(held: ResourceSet) -> ResourceSet:
    """The pushed set that a mixed set was made from."""
    while held.mixture is not None:
        held = held.mixture.base
    return held


class PartialSets:
    """Sets without the resources that a client rejected. One set serves all clients in the same state."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, tuple[str, ...]], ResourceSet] = {}

    def taken(self, offered: ResourceSet, before: ResourceSet | None, guilty: tuple[str, ...]) -> ResourceSet:
        """The set of a client that had ``before`` and rejected the names ``guilty`` of ``offered``."""
        held = before if before is not None else empty_set(offered.type.type_url)
        key = (offered.id, held.id, guilty)
        made = self._made.pop(key, None) or mix(offered, held, guilty)
        self._made[key] = made
        if len(self._made) > _MADE_LIMIT:
            del self._made[next(iter(self._made))]
        return made


def stands_for(held: ResourceSet) -> ResourceSet:
    """The pushed set, where a mixed set contains all of it; else the mixed set."""
    if held.mixture is None:
        return held
    pushed, mixed = pushed_of(held), held
    while mixed.mixture is not None:
        if not mixed.mixture.kept.isdisjoint(pushed.resources):
            return held
        mixed = mixed.mixture.base
    return pushed
