"""What a response must contain: the difference between what a client holds and what it is to hold.

Pure functions of values: the content computed for one stream serves every stream in the same situation, which is what
`ResponseKey` says. What SotW and Delta do differently is asked of the `Dialect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from xds.model.snapshot import Change, ResourceSet
from xds.protocol.dialect import AnyDialect
from xds.protocol.subscription import Interest

NOTHING: frozenset[str] = frozenset()


class ResponseKey(NamedTuple):
    """The situation of one type on one stream, as the key of its response.

    * ``base``: what the client holds; None for nothing;
    * ``goal``: what it is to hold;
    * ``coming``: what a transition will release later: its names are not told as missing meanwhile;
    * ``owed``: names to be answered even if unchanged;
    * ``forced``: names to be sent again if the client wants them (EDS behind its CDS);
    * ``first``: nothing of this type was sent on the stream yet;
    * ``placeholders``: an empty assignment may stand for a missing one (the client shows no earlier version);
    * ``told``: names that were told as missing already;
    * ``reads_errors``: the client reads resource_errors, so that these alone are worth a response.
    """

    dialect: AnyDialect
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
class ResponseContent:
    """What a response contains.

    * ``names``: resources of the goal;
    * ``removed``: names in removed_resources;
    * ``absent``: names that are told by a placeholder;
    * ``withheld``: names that were asked for, and will be answered when a transition releases them;
    * ``errors``: names that a SotW client is told not to exist, in resource_errors (TP3).
    """

    names: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    withheld: frozenset[str] = NOTHING
    errors: tuple[str, ...] = ()

    def digest(self, goal: ResourceSet) -> bytes:
        """Hash of the content: names, resource versions, removals."""
        gone = [(name, "removed") for name in self.removed] + [(name, "absent") for name in self.absent]
        if self.errors and not (self.names or gone):
            gone = [(name, "missing") for name in self.errors]
        return goal.digest_of(self.names, gone)


ChangeOf = Callable[[ResourceSet | None, ResourceSet], Change]


def missing_content(demand: ResponseKey, doubted: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """The content to send now; None when the client holds all it wants.

    ``doubted`` maps names that the client may hold in another version than that of ``base`` to that version.
    """
    if demand.dialect.sends_whole_set(demand.goal.type):
        return _compose_full(demand, doubted, change_of)
    return _compose_partial(demand, doubted, change_of)


def _compose_full(demand: ResponseKey, doubted: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
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
    return ResponseContent(
        names=_selected(interest, goal),
        withheld=withheld,
        # Rule 39: "send once". A name that a push takes away is told as well.
        errors=tuple(name for name in missing if name not in withheld and name not in demand.told),
    )


def _compose_partial(demand: ResponseKey, doubted: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """All that differs from what the client holds, and all that is to be answered."""
    goal, interest = demand.goal, demand.interest
    names, removed = _difference(demand, doubted, change_of)
    missing = interest.missing(goal, demand.owed & interest.names)
    withheld = _withheld(missing, demand.coming)
    lacking = [name for name in (*missing, *_gone(demand)) if name not in withheld]
    dialect, type = demand.dialect, goal.type
    told_removed, absent = dialect.tell_absent(type, removed, lacking, has_placeholders=demand.placeholders)
    untold = [name for name in missing if name not in withheld and name not in absent]
    errors = dialect.tell_errors(type, untold)
    is_worth_it = bool(names or told_removed or absent or (errors and demand.reads_errors))
    if not is_worth_it and not (demand.first and interest.wildcard):
        return ResponseContent(withheld=withheld) if withheld else None
    return ResponseContent(names=names, removed=told_removed, absent=absent, withheld=withheld, errors=errors)


def _difference(
    demand: ResponseKey, doubted: Mapping[str, str], change_of: ChangeOf
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
    """The names of resources, for names and aliases."""
    by_alias = goal.by_alias
    return [by_alias.get(name, name) for name in names] if by_alias else names


def _gone(demand: ResponseKey) -> list[str]:
    """Names to be answered that only a wildcard asks for and that do not exist: told as removed (rule 59)."""
    interest, goal = demand.interest, demand.goal
    return sorted(
        name
        for name in demand.owed
        if name not in interest.names and name not in goal.resources and interest.wants_name(name)
    )


def _withheld(missing: Iterable[str], coming: ResourceSet | None) -> frozenset[str]:
    if coming is None:
        return NOTHING
    return frozenset(name for name in missing if name in coming.resources or name in coming.by_alias)


def _selected(interest: Interest, goal: ResourceSet) -> tuple[str, ...]:
    if interest.everything:
        return tuple(goal.resources)
    return tuple(interest.select(goal))


def _touches(change: Change, demand: ResponseKey) -> bool:
    """True when a change concerns what the client wants."""
    goal, interest = demand.goal.resources, demand.interest
    if any(interest.wants(goal[name]) for name in (*change.added, *change.changed)):
        return True
    return any(interest.wants_name(name) for name in change.removed)
