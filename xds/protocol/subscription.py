"""What one client wants of one type: wildcard, names, aliases, globs.

`Interest` is a frozen value, which keys caches. `Subscription` is the history of the interest on one stream, which
decides what an empty list of names means (rules 27, 28, 61, 62).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from xds.model.names import (
    NO_NAMES,
    WILDCARD,
    XDSTP,
    is_glob,
    matches_glob,
)
from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Interest:
    """Everything (``wildcard``), or ``names``, or both.

    ``routes`` narrows a wildcard to names under these route names; only VHDS has that (rule 29). ``globs`` are the
    names among ``names`` that are xdstp collections. The hash is computed once, since interests key caches.
    """

    wildcard: bool = False
    names: frozenset[str] = NO_NAMES
    globs: tuple[str, ...] = ()
    routes: frozenset[str] | None = None
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, wildcard: bool, names: frozenset[str], routes: frozenset[str] | None = None) -> Interest:
        """The interest with these fields, and the globs among its names."""
        globs = tuple(sorted(filter(is_glob, names))) if XDSTP in "\n".join(names) else ()
        return cls(wildcard, names, globs, routes)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.wildcard, self.names, self.routes)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def everything(self) -> bool:
        """Whether the client wants every resource of the type."""
        return self.wildcard and self.routes is None

    def wants(self, resource: Resource) -> bool:
        """Whether the client wants this resource, by name, alias, glob or wildcard."""
        if resource.name in self.names or (self.wildcard and self._in_routes(resource.name)):
            return True
        if resource.aliases and not self.names.isdisjoint(resource.aliases):
            return True
        return any(matches_glob(glob, resource.name) for glob in self.globs)

    def wants_name(self, name: str) -> bool:
        """As ``wants``, for a name without its resource: aliases do not count."""
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
        """Subscribed names (those ``among`` them, if given) that no resource of the set has, sorted."""
        asked = self.names if among is None else frozenset(among)
        left = asked.difference(resource_set.resources).difference(resource_set.by_alias)
        return sorted(name for name in left if name != WILDCARD and not _is_answered_glob(name, resource_set))

    def _in_routes(self, name: str) -> bool:
        return self.routes is None or name.rpartition("/")[0] in self.routes


class InterestTable:
    """The interests of all streams: equal ones are one object.

    So the names of a fleet that subscribes to the same thousands are stored once, and results for one stream are found
    for the others by identity.
    """

    __slots__ = ("_interests",)

    def __init__(self) -> None:
        self._interests: WeakValueDictionary[tuple[bool, frozenset[str], frozenset[str] | None], Interest] = (
            WeakValueDictionary()
        )

    def __len__(self) -> int:
        """The number of different interests of all streams."""
        return len(self._interests)

    def get(self, wildcard: bool, names: frozenset[str], routes: frozenset[str] | None) -> Interest:
        """The interest with these fields."""
        key = wildcard, names, routes
        interest = self._interests.get(key)
        if interest is None:
            interest = self._interests[key] = Interest.of(wildcard, names, routes)
        return interest


@dataclass(slots=True)
class InterestChange:
    """What a request changed.

    * ``added``: names that need an answer, even if the client was sent them before (rules 25, 53);
    * ``dropped``: names that the client does not want any more;
    * ``returned``: unsubscribed names that the wildcard still covers: they need an answer, too (rule 59);
    * ``everything``: the client asked for the wildcard, maybe again.
    """

    added: frozenset[str] = NO_NAMES
    dropped: frozenset[str] = NO_NAMES
    returned: frozenset[str] = NO_NAMES
    everything: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.returned or self.everything)

    @property
    def unanswered(self) -> frozenset[str]:
        """The names that the response must contain: new ones, and those that were asked for again."""
        return self.added | self.returned if self.returned else self.added


UNCHANGED = InterestChange()


class Subscription:
    """The interest of one type on one stream, and whether a legacy wildcard is possible."""

    __slots__ = ("_explicit", "_legacy_allowed", "_started", "interest")

    def __init__(self, *, legacy_wildcard: bool) -> None:
        self.interest = Interest()
        self._legacy_allowed = legacy_wildcard
        self._explicit = False  # a name, or "*", was given on this stream
        self._started = False

    def replace(self, names: frozenset[str], interests: InterestTable) -> InterestChange:
        """SotW: the request states the whole interest.

        Rule 27: "An empty list of names is a wildcard until the client names anything; then it means nothing".
        """
        self._explicit = self._explicit or bool(names)
        before = self.interest
        wildcard = WILDCARD in names or (self._legacy_allowed and not self._explicit)
        names = names - {WILDCARD} if WILDCARD in names else names
        if self._started and wildcard == before.wildcard and (names is before.names or names == before.names):
            return UNCHANGED
        self._started = True
        self.interest = interests.get(wildcard, names, before.routes)
        names = self.interest.names
        return InterestChange(
            added=names - before.names if before.names else names,
            dropped=before.names - names,
            everything=wildcard and not before.wildcard,
        )

    def change(
        self, subscribe: frozenset[str], unsubscribe: frozenset[str], interests: InterestTable
    ) -> InterestChange:
        """Delta: the request states changes. Rule 63: "subscribe comes before unsubscribe".

        Rule 61: "a legacy wildcard stays when names are added", until ``*`` is unsubscribed. Rule 62: "Unsubscribing
        the last name leaves an empty subscription, not a wildcard".
        """
        if self._started and not subscribe and not unsubscribe:
            return UNCHANGED  # an ACK alone must not cost a comparison of all names
        added, gone, before = subscribe, unsubscribe, self.interest
        legacy = not self._started and not added and self._legacy_allowed
        self._started = True
        wildcard = (before.wildcard or legacy or WILDCARD in added) and WILDCARD not in gone
        names = before.names | added if before.names else added
        if gone or WILDCARD in names:
            names = names - gone - {WILDCARD}
        if names != before.names or wildcard != before.wildcard:
            self.interest = interests.get(wildcard, names, before.routes)
        names = self.interest.names
        left = before.names & gone - {WILDCARD} if gone else NO_NAMES
        returned = frozenset(name for name in left if self.interest.wants_name(name))
        return InterestChange(
            added=added & names if before.names or gone else names,
            dropped=left - returned,
            returned=returned,
            everything=wildcard and (not before.wildcard or WILDCARD in added),
        )

    def narrow(self, routes: frozenset[str], interests: InterestTable) -> bool:
        """Limit the wildcard to these route names; True when that changed what the client wants."""
        if self.interest.routes == routes:
            return False
        self.interest = interests.get(self.interest.wildcard, self.interest.names, routes)
        return self.interest.wildcard


def _is_answered_glob(name: str, resource_set: ResourceSet) -> bool:
    return is_glob(name) and any(matches_glob(name, member) for member in resource_set.resources)
