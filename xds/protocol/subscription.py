"""What one client wants of one type: wildcard, names, aliases, globs. Shared by both variants.

``Interest`` is the frozen value, fit to key caches; ``Subscription`` is its history on a stream, which decides what an
empty list of names means (rules 27, 28, 61, 62).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from xds.model.names import (
    WILDCARD,
    XDSTP,
    is_glob,
    matches_glob,
)
from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet

NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Interest:
    """Everything (``wildcard``), or ``names``, or both.

    ``routes`` narrows a wildcard to names under these route names: only VHDS has that (rule 29). ``globs`` are the
    names among ``names`` that are xdstp collections. It keys caches, so its hash is found once.
    """

    wildcard: bool = False
    names: frozenset[str] = NO_NAMES
    globs: tuple[str, ...] = ()
    routes: frozenset[str] | None = None
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.wildcard, self.names, self.routes)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def everything(self) -> bool:
        """True when no name is left out."""
        return self.wildcard and self.routes is None

    def wants(self, resource: Resource) -> bool:
        """True when the client is to be told of this resource, by name, alias, glob or wildcard."""
        if resource.name in self.names or (self.wildcard and self._in_routes(resource.name)):
            return True
        if resource.aliases and not self.names.isdisjoint(resource.aliases):
            return True
        return any(matches_glob(glob, resource.name) for glob in self.globs)

    def wants_name(self, name: str) -> bool:
        """As ``wants`` for a name whose resource is not at hand (aliases are not seen)."""
        if name in self.names or (self.wildcard and self._in_routes(name)):
            return True
        return any(matches_glob(glob, name) for glob in self.globs)

    def select(self, resource_set: ResourceSet) -> list[str]:
        """Names of the set that the client wants, in the order of the set for a wildcard, else sorted."""
        if self.wildcard or self.globs:
            return [name for name, resource in resource_set.resources.items() if self.wants(resource)]
        found = {name for name in self.names if name in resource_set.resources}
        found.update(resource_set.by_alias[name] for name in self.names if name in resource_set.by_alias)
        return sorted(found)

    def missing(self, resource_set: ResourceSet, among: Iterable[str] | None = None) -> list[str]:
        """Names asked for that nothing in the set answers, sorted."""
        asked = self.names if among is None else frozenset(among)
        left = asked.difference(resource_set.resources).difference(resource_set.by_alias)
        return sorted(name for name in left if name != WILDCARD and not _is_answered_glob(name, resource_set))

    def _in_routes(self, name: str) -> bool:
        return self.routes is None or name.rpartition("/")[0] in self.routes


@dataclass(slots=True)
class Shift:
    """What a request did to an interest.

    ``added`` names are owed an answer even if the client was sent them before (rules 25, 53). ``everything`` says
    that the wildcard was (re)asked for. ``dropped`` names are forgotten; ``returned`` ones stay wanted through the
    wildcard and are owed an answer, too (rule 59).
    """

    added: frozenset[str] = NO_NAMES
    dropped: frozenset[str] = NO_NAMES
    returned: frozenset[str] = NO_NAMES
    everything: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.returned or self.everything)

    @property
    def owed(self) -> frozenset[str]:
        return self.added | self.returned if self.returned else self.added


NO_SHIFT = Shift()


class Subscription:
    """The interest of one type on one stream, and how it came about."""

    __slots__ = ("_explicit", "_legacy_allowed", "_started", "interest")

    def __init__(self, *, legacy_wildcard: bool) -> None:
        self.interest = Interest()
        self._legacy_allowed = legacy_wildcard
        self._explicit = False  # a name, or "*", was given on this stream
        self._started = False

    def replace(self, names: frozenset[str]) -> Shift:
        """SotW: the request states the whole interest.

        Rule 27: "Legacy wildcard: every request so far on this stream for this type had empty resource_names";
        after any explicit name, an empty list is "unsubscribe all".
        """
        self._explicit = self._explicit or bool(names)
        before = self.interest
        wildcard = WILDCARD in names or (self._legacy_allowed and not self._explicit)
        names = names - {WILDCARD} if WILDCARD in names else names
        if self._started and wildcard == before.wildcard and (names is before.names or names == before.names):
            return NO_SHIFT
        self._started = True
        self.interest = _interest(wildcard, names, before.routes)
        names = self.interest.names
        return Shift(
            added=names - before.names if before.names else names,
            dropped=before.names - names,
            everything=wildcard and not before.wildcard,
        )

    def change(self, subscribe: frozenset[str], unsubscribe: frozenset[str]) -> Shift:
        """Delta: the request states changes; subscribe is honoured before unsubscribe (rule 63).

        Rule 61: a legacy wildcard stays until ``*`` is unsubscribed; rule 62: unsubscribing the last name leaves
        nothing, not a wildcard.
        """
        if self._started and not subscribe and not unsubscribe:
            return NO_SHIFT  # a mere ACK must not cost a look at all names
        added, gone, before = subscribe, unsubscribe, self.interest
        legacy = not self._started and not added and self._legacy_allowed
        self._started = True
        wildcard = (before.wildcard or legacy or WILDCARD in added) and WILDCARD not in gone
        names = before.names | added if before.names else added
        if gone or WILDCARD in names:
            names = names - gone - {WILDCARD}
        if names != before.names or wildcard != before.wildcard:
            self.interest = _interest(wildcard, names, before.routes)
        names = self.interest.names
        left = before.names & gone - {WILDCARD} if gone else NO_NAMES
        returned = frozenset(name for name in left if self.interest.wants_name(name))
        return Shift(
            added=added & names if before.names or gone else names,
            dropped=left - returned,
            returned=returned,
            everything=wildcard and (not before.wildcard or WILDCARD in added),
        )

    def narrow(self, routes: frozenset[str]) -> bool:
        """Limit the wildcard to these route names; True when that changed what is wanted."""
        if self.interest.routes == routes:
            return False
        self.interest = _interest(self.interest.wildcard, self.interest.names, routes)
        return self.interest.wildcard


def _interest(wildcard: bool, names: frozenset[str], routes: frozenset[str] | None) -> Interest:
    key = wildcard, names, routes
    found = _interests.get(key)
    if found is None:
        globs = tuple(sorted(filter(is_glob, names))) if XDSTP in "\n".join(names) else ()
        found = _interests[key] = Interest(wildcard, names, globs, routes)
    return found


def _is_answered_glob(name: str, resource_set: ResourceSet) -> bool:
    return is_glob(name) and any(matches_glob(name, member) for member in resource_set.resources)


# Equal interests are one object: a fleet that asks for the same thousands of names holds them once, and finds what was
# computed for one stream for all others by identity.
_interests: WeakValueDictionary[tuple[bool, frozenset[str], frozenset[str] | None], Interest] = WeakValueDictionary()
