"""Mixed sets, which clients are served and nobody pushed: with what lingers, without what is held back or refused."""

from __future__ import annotations

from xds.model.snapshot import ResourceSet, empty_set, mix

_MADE_LIMIT = 64


def pushed_of(held: ResourceSet) -> ResourceSet:
    """The pushed set that a mixed one was made of."""
    while held.mixture is not None:
        held = held.mixture.base
    return held


class PartialSets:
    """Sets of which clients took all but what they refuse; made once for all clients in the same situation."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, tuple[str, ...]], ResourceSet] = {}

    def taken(self, offered: ResourceSet, before: ResourceSet | None, guilty: tuple[str, ...]) -> ResourceSet:
        """What a client holds that had ``before``, and refused these names of what it was offered."""
        held = before if before is not None else empty_set(offered.type.type_url)
        key = (offered.id, held.id, guilty)
        made = self._made.pop(key, None) or mix(offered, held, guilty)
        self._made[key] = made
        if len(self._made) > _MADE_LIMIT:
            del self._made[next(iter(self._made))]
        return made


def stands_for(held: ResourceSet) -> ResourceSet:
    """The pushed set, where a client that holds a mixed one has all of it, and more at most; else the mixed one."""
    if held.mixture is None:
        return held
    pushed, mixed = pushed_of(held), held
    while mixed.mixture is not None:
        if not mixed.mixture.kept.isdisjoint(pushed.resources):
            return held
        mixed = mixed.mixture.base
    return pushed
