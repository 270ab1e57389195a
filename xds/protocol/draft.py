"""What a response must contain: the difference between what a client holds and what it is to hold.

Pure functions of values, so that a draft made for one stream serves every stream in the same situation (the cache keys
on ``Demand``). The two dialects differ here only in ``full_state`` and in how absence is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from xds.model.resource_type import Missing
from xds.model.snapshot import Change, ResourceSet
from xds.protocol.subscription import Interest


class Variant(StrEnum):
    """The two forms of the protocol."""

    SOTW = "sotw"
    DELTA = "delta"


NOTHING: frozenset[str] = frozenset()


class Demand(NamedTuple):
    """A client's situation for one type.

    ``base`` is what it holds, ``goal`` what it is to hold, ``coming`` what a transition will release later (its names
    are not told as missing meanwhile). ``owed`` names are answered even when unchanged; ``forced`` names are sent if
    the client wants them (EDS behind its CDS). ``first``: nothing of this type was sent on the stream yet.
    ``placeholders``: a missing assignment is told by an empty one (the client shows no earlier version).
    ``told`` names were told as missing already; ``reads_errors``: the client is worth a response for that alone.
    """

    variant: Variant
    base: ResourceSet | None
    goal: ResourceSet
    interest: Interest
    coming: ResourceSet | None = None
    owed: frozenset[str] = NOTHING
    forced: frozenset[str] = NOTHING
    first: bool = False
    placeholders: bool = False
    told: frozenset[str] = NOTHING
    reads_errors: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of a response: ``names`` of the goal, ``removed`` ones, and ``absent`` ones told by a stand-in.

    ``whole``: the names are all of the goal. ``withheld`` names were asked for and will be answered when a transition
    releases them. ``errors`` are names that a SotW client is told not to exist (TP3).
    """

    names: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    withheld: frozenset[str] = NOTHING
    errors: tuple[str, ...] = ()

    def digest(self, goal: ResourceSet) -> bytes:
        """Identifies the whole content: names, versions, removals."""
        gone = [(name, "removed") for name in self.removed] + [(name, "absent") for name in self.absent]
        if self.errors and not (self.names or gone):
            gone = [(name, "missing") for name in self.errors]
        return goal.digest_of(self.names, gone)


ChangeOf = Callable[[ResourceSet | None, ResourceSet], Change]


def compose(demand: Demand, doubted: Mapping[str, str], change_of: ChangeOf) -> Draft | None:
    """What to send now; None when the client already holds all it wants."""
    if demand.variant is Variant.SOTW and demand.goal.type.full_state:
        return _compose_full(demand, doubted, change_of)
    return _compose_partial(demand, doubted, change_of)


def _compose_full(demand: Demand, doubted: Mapping[str, str], change_of: ChangeOf) -> Draft | None:
    """Rule 34: "every resource the client is subscribed to, on every response; absence = deletion"."""
    goal, interest = demand.goal, demand.interest
    if not (demand.first or demand.owed or doubted or demand.base is None):
        change = change_of(demand.base, goal)
        if not change or not _touches(change, demand):
            return None
    if not demand.first and not interest.wildcard and not interest.names:
        return None
    missing = interest.missing(goal)
    withheld = _withheld(missing, demand.coming)
    return Draft(
        names=_selected(interest, goal),
        withheld=withheld,
        # Rule 39: "send once". A name that a push takes away is told as well.
        errors=tuple(name for name in missing if name not in withheld and name not in demand.told),
    )


def _compose_partial(demand: Demand, doubted: Mapping[str, str], change_of: ChangeOf) -> Draft | None:
    """All that differs from what is known, and all that is owed an answer."""
    goal, interest = demand.goal, demand.interest
    names, removed = _difference(demand, doubted, change_of)
    missing = interest.missing(goal, demand.owed & interest.names)
    withheld = _withheld(missing, demand.coming)
    lacking = [name for name in (*missing, *_gone(demand)) if name not in withheld]
    told_removed, absent = _told(demand, removed, lacking)
    errors = _errors(demand, [name for name in missing if name not in withheld and name not in absent])
    is_worth_it = bool(names or told_removed or absent or (errors and demand.reads_errors))
    if not is_worth_it and not (demand.first and interest.wildcard):
        return Draft(withheld=withheld) if withheld else None
    return Draft(names=names, removed=told_removed, absent=absent, withheld=withheld, errors=errors)


def _errors(demand: Demand, missing: Iterable[str]) -> tuple[str, ...]:
    """Rule 39 for partial types: what is owed an answer was asked for just now, so it is told once. "A name must not be
    in both lists": Delta has removed_resources."""
    if demand.variant is Variant.DELTA or demand.goal.type.missing is Missing.SILENT:
        return ()
    return tuple(missing)


def _difference(
    demand: Demand, doubted: Mapping[str, str], change_of: ChangeOf
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    goal, interest = demand.goal, demand.interest
    resources = goal.resources
    if demand.base is None and not doubted:
        return _selected(interest, goal), ()
    change = change_of(demand.base, goal)
    ask = demand.owed | demand.forced
    candidates = dict.fromkeys((*change.added, *change.changed, *_resolve(ask, goal), *doubted))
    for glob in interest.globs:
        if glob in demand.owed:
            candidates.update(dict.fromkeys(interest.select(goal)))
    wanted = [name for name in candidates if name in resources]
    if not interest.everything:
        asked = interest.names
        wanted = [name for name in wanted if name in asked or interest.wants(resources[name])]
    if doubted:
        wanted = [name for name in wanted if doubted.get(name) != resources[name].version or name in ask]
    names = tuple(wanted)
    gone = dict.fromkeys((*change.removed, *doubted))
    removed = tuple(name for name in gone if name not in resources and interest.wants_name(name))
    return names, removed


def _resolve(names: Iterable[str], goal: ResourceSet) -> Iterable[str]:
    """Names and aliases to the names of the resources they mean."""
    by_alias = goal.by_alias
    return [by_alias.get(name, name) for name in names] if by_alias else names


def _gone(demand: Demand) -> list[str]:
    """Owed names wanted only through a wildcard that do not exist: told as removed (rule 59)."""
    interest, goal = demand.interest, demand.goal
    return sorted(
        name
        for name in demand.owed
        if name not in interest.names and name not in goal.resources and interest.wants_name(name)
    )


def _told(demand: Demand, removed: Iterable[str], lacking: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How absence is told: (removed_resources, stand-ins), by the type table."""
    missing = demand.goal.type.missing
    if missing is Missing.SILENT:  # rule 49: never removed_resources for ECDS
        return (), ()
    if demand.variant is Variant.SOTW:
        # Rule 35: absence means nothing in a partial response; only an assignment has a form that says "none".
        tell = missing is Missing.EMPTY_ASSIGNMENT and demand.placeholders
        return (), tuple(name for name in lacking if name) if tell else ()
    if missing is Missing.ALIAS_ONLY:
        return tuple(removed), tuple(lacking)
    return tuple(dict.fromkeys((*removed, *lacking))), ()


def _withheld(missing: Iterable[str], coming: ResourceSet | None) -> frozenset[str]:
    if coming is None:
        return NOTHING
    return frozenset(name for name in missing if name in coming.resources or name in coming.by_alias)


def _selected(interest: Interest, goal: ResourceSet) -> tuple[str, ...]:
    if interest.everything:
        return tuple(goal.resources)
    return tuple(interest.select(goal))


def _touches(change: Change, demand: Demand) -> bool:
    """True when a change concerns what the client wants."""
    goal, interest = demand.goal.resources, demand.interest
    if any(interest.wants(goal[name]) for name in (*change.added, *change.changed)):
        return True
    return any(interest.wants_name(name) for name in change.removed)
