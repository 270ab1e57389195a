"""The resources of one type that a client wants, by wildcard, names, aliases and globs.

`Interest` keys caches. `Subscription` has the interest of one stream and as much of its history as decides the meaning
of an empty list of names (rules 27, 28, 61, 62).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Interest:
    """The wanted resources of one type: all (``wildcard``), those with these ``names``, or both.

    ``routes`` narrows a wildcard to names under these route names; only VHDS has it (rule 29). ``globs`` are the names
    among ``names`` that are xdstp collections. Interests are compared by identity, because they key caches:
    `InterestTable` has one object for equal interests.
    """

    wildcard: bool = False
    names: frozenset[str] = NO_NAMES
    globs: tuple[str, ...] = ()
    routes: frozenset[str] | None = None

    @classmethod
    def of(cls, wildcard: bool, names: frozenset[str], routes: frozenset[str] | None = None) -> Interest:
        """The interest with these fields, and the globs among its names."""
        globs = tuple(sorted(filter(is_glob, names))) if XDSTP in "\n".join(names) else ()
        return cls(wildcard, names, globs, routes)

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
        """As ``wants``, for a name without a resource: aliases do not count."""
        if name in self.names or (self.wildcard and self._in_routes(name)):
            return True
        return any(matches_glob(glob, name) for glob in self.globs)

    def select(self, resource_set: ResourceSet) -> list[str]:
        """The names of the set that the client wants; in the order of the set for a wildcard or glob, else sorted."""
        if self.wildcard or self.globs:
            return [name for name, resource in resource_set.resources.items() if self.wants(resource)]
        found = {name for name in self.names if name in resource_set.resources}
        found.update(resource_set.by_alias[name] for name in self.names if name in resource_set.by_alias)
        return sorted(found)

    def missing(self, resource_set: ResourceSet, among: Iterable[str] | None = None) -> list[str]:
        """The subscribed names (or the names ``among`` them) that no resource of the set has, sorted."""
        names = self.names if among is None else frozenset(among)
        missing = names.difference(resource_set.resources).difference(resource_set.by_alias)
        if not self.globs:
            return sorted(missing - {WILDCARD} if WILDCARD in missing else missing)
        return sorted(name for name in missing if name != WILDCARD and not _is_answered_glob(name, resource_set))

    def _in_routes(self, name: str) -> bool:
        return self.routes is None or name.rpartition("/")[0] in self.routes


class InterestTable:
    """The interests of all streams. Equal interests are one object.

    So the thousands of names to which a whole fleet subscribes are stored once, and the results for one stream are
    found for other streams by identity.
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
    """The change of the interest by a request.

    * ``added``: names that need an answer, even if they were sent before (rules 25, 53);
    * ``dropped``: names that the client no longer wants;
    * ``still_covered``: unsubscribed names that the wildcard still covers: they need an answer too (rule 59);
    * ``everything``: the client subscribed to the wildcard, perhaps again.
    """

    added: frozenset[str] = NO_NAMES
    dropped: frozenset[str] = NO_NAMES
    still_covered: frozenset[str] = NO_NAMES
    everything: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.still_covered or self.everything)

    @property
    def unanswered(self) -> frozenset[str]:
        """The names that need an answer."""
        return self.added | self.still_covered if self.still_covered else self.added


UNCHANGED = InterestChange()


class Subscription:
    """The interest in one type on one stream. ``legacy_wildcard``: an empty first request means all resources."""

    __slots__ = ("_explicit", "_legacy_allowed", "_started", "interest")

    def __init__(self, *, legacy_wildcard: bool) -> None:
        self.interest = Interest()
        self._legacy_allowed = legacy_wildcard
        self._explicit = False  # a request on this stream had a name or "*"
        self._started = False

    def replace(self, names: frozenset[str], interests: InterestTable) -> InterestChange:
        """Replace the interest (SotW).

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
        """Change the interest (Delta). Rule 63: "subscribe comes before unsubscribe".

        Rule 61: "a legacy wildcard stays when names are added", until ``*`` is unsubscribed. Rule 62: "Unsubscribing
        the last name leaves an empty subscription, not a wildcard".
        """
        if self._started and not subscribe and not unsubscribe:
            return UNCHANGED  # an ACK alone must not cost a comparison of all names
        before = self.interest
        is_legacy = not self._started and not subscribe and self._legacy_allowed
        self._started = True
        wildcard = (before.wildcard or is_legacy or WILDCARD in subscribe) and WILDCARD not in unsubscribe
        names = before.names | subscribe if before.names else subscribe
        if unsubscribe or WILDCARD in names:
            names = names - unsubscribe - {WILDCARD}
        if names != before.names or wildcard != before.wildcard:
            self.interest = interests.get(wildcard, names, before.routes)
        names = self.interest.names
        unsubscribed = before.names & unsubscribe - {WILDCARD} if unsubscribe else NO_NAMES
        still_covered = frozenset(name for name in unsubscribed if self.interest.wants_name(name))
        return InterestChange(
            added=subscribe & names if before.names or unsubscribe else names,
            dropped=unsubscribed - still_covered,
            still_covered=still_covered,
            everything=wildcard and (not before.wildcard or WILDCARD in subscribe),
        )

    def narrow(self, routes: frozenset[str], interests: InterestTable) -> bool:
        """Narrow the wildcard to names under these route names; True if the wanted resources changed."""
        if self.interest.routes == routes:
            return False
        self.interest = interests.get(self.interest.wildcard, self.interest.names, routes)
        return self.interest.wildcard


def _is_answered_glob(name: str, resource_set: ResourceSet) -> bool:
    return is_glob(name) and any(matches_glob(name, member) for member in resource_set.resources)
