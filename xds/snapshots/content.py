"""The content of a response: the difference between what a client holds and what it should hold.

Pure functions of values. The content depends only on a `ResponseKey`, so the content computed for one stream serves
every stream with an equal key. The `Dialect` has the differences between SotW and Delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from xds.model.names import NO_NAMES, WILDCARD
from xds.model.resource import Resource
from xds.model.resource_type import ResourceType
from xds.model.snapshot import Change, ResourceSet
from xds.snapshots.diffs import ChangeOf, resolve
from xds.snapshots.interest import Interest
from xds.snapshots.leftover import Leftover

# A resource; the bytes before its body in a Delta response; the position in these bytes at which those begin that
# precede the body in a SotW response; the bytes after its body in a Delta response.
EncodedParts = tuple[Resource, bytes, int, bytes]


class Encoding(Protocol):
    """The part of a `Dialect` that decides what responses contain and how they are encoded."""

    def sends_whole_set(self, type: ResourceType) -> bool:
        """Whether every response of this type contains all subscribed resources, so that absence means deletion."""
        ...

    def report_absent(
        self, type: ResourceType, removed: Sequence[str], missing: Sequence[str], *, has_placeholders: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """How a partial response reports names that were ``removed`` and names that do not exist (``missing``).

        Returns the names for removed_resources, and the names for placeholders. ``has_placeholders``: an empty
        assignment may be the placeholder of a missing one.
        """
        ...

    def report_errors(self, type: ResourceType, missing: Sequence[str]) -> tuple[str, ...]:
        """The names among the ``missing`` ones of a partial type that are reported in resource_errors (rule 39)."""
        ...

    def encode(
        self,
        goal: ResourceSet,
        content: ResponseContent,
        nonce: str,
        control_plane: bytes,
        parts: list[EncodedParts],
    ) -> bytes:
        """The serialized response; ``parts`` are those of ``content.names``."""
        ...


class ResponseKey(NamedTuple):
    """All that the content of a response depends on; the key of the response.

    * ``base``: the set that the client holds; None for nothing;
    * ``goal``: the set that it should hold;
    * ``upcoming_set``: the set that a transition will release later; its names are not reported as missing meanwhile;
    * ``awaited_names``: the names that are not reported as missing meanwhile, because a push may bring them soon;
    * ``unanswered``: the names that need an answer even if they are unchanged;
    * ``resend_names``: the names to re-send if the client wants them (`warming`), in the form of `resolve`;
    * ``is_first``: nothing of this type was sent on the stream yet;
    * ``allows_placeholders``: an empty assignment may stand for a missing one (the client shows no earlier version);
    * ``reported_missing``: the names that were already reported as missing;
    * ``reads_errors``: the client reads resource_errors, so a response may contain nothing else.
    """

    dialect: Encoding
    base: ResourceSet | None
    goal: ResourceSet
    interest: Interest
    upcoming_set: ResourceSet | None = None
    unanswered: frozenset[str] = NO_NAMES
    resend_names: frozenset[str] = NO_NAMES
    is_first: bool = False
    allows_placeholders: bool = False
    reported_missing: frozenset[str] = NO_NAMES
    reads_errors: bool = False
    awaited_names: frozenset[str] = NO_NAMES


@dataclass(frozen=True, slots=True)
class ResponseContent:
    """The names in a response.

    * ``names``: the resources of the goal;
    * ``removed``: the names in removed_resources;
    * ``absent``: the names that a placeholder reports as missing;
    * ``pending_release``: requested names that are not answered until a transition releases them or ends;
    * ``errors``: the names that resource_errors reports as missing to a SotW client (rule 39).
    """

    names: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    pending_release: frozenset[str] = NO_NAMES
    errors: tuple[str, ...] = ()

    def digest(self, goal: ResourceSet) -> bytes:
        """The hash of the content: names, resource versions, removals."""
        missing = [(name, "removed") for name in self.removed] + [(name, "absent") for name in self.absent]
        if self.errors and not (self.names or missing):
            missing = [(name, "missing") for name in self.errors]
        return goal.digest_of(self.names, missing)


def missing_content(key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """The content to send now; None if the client holds all resources that it wants.

    ``uncertain``: the names that the client may hold in another version than ``base`` has, each with that version.
    """
    if key.dialect.sends_whole_set(key.goal.type):
        return _whole_content(key, uncertain, change_of)
    return _partial_content(key, uncertain, change_of)


def _whole_content(key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """Rule 34: "SotW LDS and CDS responses are full state: absence is deletion"."""
    goal, interest = key.goal, key.interest
    missing = interest.missing(goal)
    pending_release = pending_release_of(missing, key)
    if not (key.is_first or key.unanswered - pending_release or key.resend_names or uncertain or key.base is None):
        change = change_of(key.base, goal)
        if not change or not _touches(change, key):
            return ResponseContent(pending_release=pending_release) if pending_release else None
    if not key.is_first and not interest.wildcard and not interest.names:
        return None
    return ResponseContent(
        names=_selected(interest, goal),
        pending_release=pending_release,
        # Rule 39: each missing name is reported once, also if a push removed it.
        errors=tuple(name for name in missing if name not in pending_release and name not in key.reported_missing),
    )


def _partial_content(key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf) -> ResponseContent | None:
    """The resources that differ from those of the client, and the names that need an answer."""
    goal, interest = key.goal, key.interest
    names, removed = _difference(key, uncertain, change_of)
    missing = interest.missing(goal, key.unanswered & interest.names)
    pending_release = pending_release_of(missing, key)
    lacking = [name for name in (*missing, *_absent_names(key)) if name not in pending_release]
    dialect, type = key.dialect, goal.type
    removed, absent = dialect.report_absent(type, removed, lacking, has_placeholders=key.allows_placeholders)
    reported = pending_release.union(absent)  # a set: a client may request thousands of missing assignments
    unreported = [name for name in missing if name not in reported]
    errors = dialect.report_errors(type, unreported)
    is_needed = bool(names or removed or absent or (errors and key.reads_errors) or WILDCARD in key.resend_names)
    if not is_needed and not (key.is_first and interest.wildcard):
        return ResponseContent(pending_release=pending_release) if pending_release else None
    return ResponseContent(names=names, removed=removed, absent=absent, pending_release=pending_release, errors=errors)


def _difference(
    key: ResponseKey, uncertain: Mapping[str, str], change_of: ChangeOf
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of resources to send, and the names of removed resources."""
    goal, interest = key.goal, key.interest
    resources = goal.resources
    if key.base is None and not uncertain:
        return tuple([name for name in _selected(interest, goal) if type(resources[name]) is not Leftover]), ()
    change = change_of(key.base, goal)
    requested = key.unanswered | key.resend_names
    candidates = dict.fromkeys((*change.added, *change.changed, *resolve(requested, goal), *uncertain))
    for glob in interest.globs:
        if glob in key.unanswered:
            candidates.update(dict.fromkeys(interest.select(goal)))
    wanted = [name for name in candidates if name in resources]
    if not interest.everything:
        wanted = interest.among(wanted, goal)
    if uncertain:
        wanted = [name for name in wanted if uncertain.get(name) != resources[name].version or name in requested]
    names = tuple([name for name in wanted if type(resources[name]) is not Leftover])
    candidates = dict.fromkeys((*change.removed, *uncertain))
    removed = tuple(name for name in candidates if name not in resources and interest.wants_name(name))
    return names, removed


def _absent_names(key: ResponseKey) -> list[str]:
    """The unanswered names that only a wildcard covers and that do not exist: reported as removed (rule 59)."""
    interest, goal = key.interest, key.goal
    return sorted(
        name
        for name in key.unanswered
        if name not in interest.names and name not in goal.resources and interest.wants_name(name)
    )


def pending_release_of(missing: Iterable[str], key: ResponseKey) -> frozenset[str]:
    """The missing names that are not reported now, because a transition will release them or they are awaited."""
    upcoming, awaited = key.upcoming_set, key.awaited_names
    if upcoming is None:
        return awaited.intersection(missing) if awaited else NO_NAMES
    return frozenset(n for n in missing if n in upcoming.resources or n in upcoming.by_alias or n in awaited)


def _selected(interest: Interest, goal: ResourceSet) -> tuple[str, ...]:
    if interest.everything:
        return tuple(goal.resources)
    return tuple(interest.select(goal))


def _touches(change: Change, key: ResponseKey) -> bool:
    """Whether a change, which is not empty, affects resources that the client wants."""
    interest = key.interest
    if interest.everything or interest.among((*change.added, *change.changed), key.goal):
        return True
    return any(interest.wants_name(name) for name in change.removed)
