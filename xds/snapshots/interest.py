"""The resources of one type that a client wants, by wildcard, names, aliases and globs. `Interest` keys caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from xds.model.names import NO_NAMES, WILDCARD, XDSTP, is_glob, matches_glob
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

    def among(self, names: Iterable[str], resource_set: ResourceSet) -> list[str]:
        """The names among these, all of which the set has, that the client wants."""
        if self.wildcard or self.globs or resource_set.by_alias:
            resources = resource_set.resources
            return [name for name in names if self.wants(resources[name])]
        wanted = self.names
        return [name for name in names if name in wanted]

    def select(self, resource_set: ResourceSet) -> list[str]:
        """The names of the set that the client wants; in the order of the set for a wildcard or glob, else sorted."""
        if self.wildcard or self.globs:
            return [name for name, resource in resource_set.resources.items() if self.wants(resource)]
        selected = {name for name in self.names if name in resource_set.resources}
        selected.update(resource_set.by_alias[name] for name in self.names if name in resource_set.by_alias)
        return sorted(selected)

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


def _is_answered_glob(name: str, resource_set: ResourceSet) -> bool:
    return is_glob(name) and any(matches_glob(name, member) for member in resource_set.resources)
