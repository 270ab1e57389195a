"""What a response must contain: the difference between what a client holds and what it is to hold.

Pure functions of values. `ResponseKey` has all that the content depends on, so the content computed for one stream
serves every stream with an equal key. The `Dialect` decides what SotW and Delta do differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.snapshot import Change, ResourceSet
from xds.protocol.dialect import AnyDialect
from xds.protocol.diffs import ChangeOf
from xds.protocol.subscription import Interest


class ResponseKey(NamedTuple):
    """The situation of one type on one stream, as the key of its response.

    * ``base``: what the client holds; None for nothing;
    * ``goal``: what it is to hold;
    * ``coming``: what a transition will release later: its names are not reported as missing meanwhile;
    * ``unanswered``: names to be answered even if unchanged;
    * ``resend``: names to be sent again if the client wants them (EDS behind its CDS);
    * ``first``: nothing of this type was sent on the stream yet;
    * ``placeholders``: an empty assignment may stand for a missing one (the client shows no earlier version);
    * ``told``: names that were reported as missing already;
    * ``reads_errors``: the client reads resource_errors, so that these alone are worth a response.
    """

    dialect: AnyDialect
    base: ResourceSet | None
    goal: ResourceSet
    interest: Interest
    coming: ResourceSet | None = None
    unanswered: frozenset[str] = NO_NAMES
    resend: frozenset[str] = NO_NAMES
    first: bool = False
    placeholders: bool = False
    told: frozenset[str] = NO_NAMES
    reads_errors: bool = False


@dataclass(frozen=True, slots=True)
class ResponseContent:
    """What a response contains.

    * ``names``: resources of the goal;
    * ``removed``: names in removed_resources;
    * ``absent``: names that are reported as missing by a placeholder;
    * ``pending_release``: names that were asked for, and will be answered when a transition releases them;
    * ``errors``: names that are reported as missing to a SotW client, in resource_errors (rule 39).
    """

    names: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    pending_release: frozenset[str] = NO_NAMES
    errors: tuple[str, ...] = ()

    def digest(self, goal: ResourceSet) -> bytes:
        """Hash of the content: names, resource versions, removals."""
        gone = [(name, "removed") for name in self.removed] + [(name, "absent") for name in self.absent]
        if self.errors and not (self.names or gone):
            gone = [(name, "missing") for name in self.errors]
        return goal.digest_of(self.names, gone)


def missing_content(key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """The content to send now; None when the client holds all it wants.

    ``uncertain`` maps names that the client may hold in another version than that of ``base`` to that version.
    """
    if key.dialect.sends_whole_set(key.goal.type):
        return _whole_content(key, uncertain, change_of)
    return _partial_content(key, uncertain, change_of)


def _whole_content(key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """Rule 34: "SotW LDS and CDS responses are full state: absence is deletion"."""
    goal, interest = key.goal, key.interest
    if not (key.first or key.unanswered or uncertain or key.base is None):
        change = change_of(key.base, goal)
        if not change or not _touches(change, key):
            return None
    if not key.first and not interest.wildcard and not interest.names:
        return None
    missing = interest.missing(goal)
    pending_release = _pending_release(missing, key.coming)
    return ResponseContent(
        names=_selected(interest, goal),
        pending_release=pending_release,
        # Rule 39: a missing name is reported once, and so is a name that a push removes.
        errors=tuple(name for name in missing if name not in pending_release and name not in key.told),
    )


def _partial_content(key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """The resources that differ from those that the client holds, and the names that need an answer."""
    goal, interest = key.goal, key.interest
    names, removed = _difference(key, uncertain, change_of)
    missing = interest.missing(goal, key.unanswered & interest.names)
    pending_release = _pending_release(missing, key.coming)
    lacking = [name for name in (*missing, *_gone(key)) if name not in pending_release]
    dialect, type = key.dialect, goal.type
    told_removed, absent = dialect.tell_absent(type, removed, lacking, has_placeholders=key.placeholders)
    untold = [name for name in missing if name not in pending_release and name not in absent]
    errors = dialect.tell_errors(type, untold)
    is_worth_it = bool(names or told_removed or absent or (errors and key.reads_errors))
    if not is_worth_it and not (key.first and interest.wildcard):
        return ResponseContent(pending_release=pending_release) if pending_release else None
    return ResponseContent(
        names=names, removed=told_removed, absent=absent, pending_release=pending_release, errors=errors
    )


def _difference(
    key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    goal, interest = key.goal, key.interest
    resources = goal.resources
    if key.base is None and not uncertain:
        return _selected(interest, goal), ()
    change = change_of(key.base, goal)
    ask = key.unanswered | key.resend
    candidates = dict.fromkeys((*change.added, *change.changed, *_resolve(ask, goal), *uncertain))
    for glob in interest.globs:
        if glob in key.unanswered:
            candidates.update(dict.fromkeys(interest.select(goal)))
    wanted = [name for name in candidates if name in resources]
    if not interest.everything:
        asked = interest.names
        wanted = [name for name in wanted if name in asked or interest.wants(resources[name])]
    if uncertain:
        wanted = [name for name in wanted if uncertain.get(name) != resources[name].version or name in ask]
    names = tuple(wanted)
    gone = dict.fromkeys((*change.removed, *uncertain))
    removed = tuple(name for name in gone if name not in resources and interest.wants_name(name))
    return names, removed


def _resolve(names: Iterable[str], goal: ResourceSet) -> Iterable[str]:
    """The names of resources, for names and aliases."""
    by_alias = goal.by_alias
    return [by_alias.get(name, name) for name in names] if by_alias else names


def _gone(key: ResponseKey) -> list[str]:
    """Names to be answered that only a wildcard covers and that do not exist: reported as removed (rule 59)."""
    interest, goal = key.interest, key.goal
    return sorted(
        name
        for name in key.unanswered
        if name not in interest.names and name not in goal.resources and interest.wants_name(name)
    )


def _pending_release(missing: Iterable[str], coming: ResourceSet | None) -> frozenset[str]:
    if coming is None:
        return NO_NAMES
    return frozenset(name for name in missing if name in coming.resources or name in coming.by_alias)


def _selected(interest: Interest, goal: ResourceSet) -> tuple[str, ...]:
    if interest.everything:
        return tuple(goal.resources)
    return tuple(interest.select(goal))


def _touches(change: Change, key: ResponseKey) -> bool:
    """Whether a change concerns resources that the client wants."""
    goal, interest = key.goal.resources, key.interest
    if any(interest.wants(goal[name]) for name in (*change.added, *change.changed)):
        return True
    return any(interest.wants_name(name) for name in change.removed)
