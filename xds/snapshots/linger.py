"""Lingering: removed resources that a client is still served, because its old connections may use them.

The rules are in docs/protocol.md#removals. This module has the values. ``removals`` decides which removals linger for a
client, ``client`` ends them, and ``release`` makes the content that includes them. Clients share these values: without
lingering resources they have ``NOTHING_LINGERS``, and with the same ones they have the same `Lingering` (`Lingerings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Change, ResourceSet, Snapshot
from xds.snapshots.memo import Results

# docs/protocol.md#removals: ends are "rounded up to 5 s so that clients share responses".
GRID_S = 5.0

# Names by type URL, sorted by type URL, without empty sets. Hashable, so that it can key memos.
NamesByType = tuple[tuple[str, frozenset[str]], ...]
NO_NAMES_BY_TYPE: NamesByType = ()


@dataclass(frozen=True, slots=True, eq=False)
class Removal:
    """The names that one push removed, by type URL.

    ``revision`` is that of the push. ``ends_s`` is when the names stop lingering; None until the client has ACKed
    everything that could refer to them.
    """

    revision: int
    names: Mapping[str, frozenset[str]]
    ends_s: float | None = None


@dataclass(frozen=True, eq=False)
class Lingering:
    """The removals that were not sent to a client yet, oldest first."""

    removals: tuple[Removal, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removals)

    @cached_property
    def names(self) -> Mapping[str, frozenset[str]]:
        """All lingering names, by type URL."""
        by_type: dict[str, set[str]] = {}
        for removal in self.removals:
            for type_url, names in removal.names.items():
                by_type.setdefault(type_url, set()).update(names)
        return {type_url: frozenset(names) for type_url, names in by_type.items()}

    @cached_property
    def next_end_s(self) -> float | None:
        """When the first removal ends; None if no removal has an end."""
        return min((each.ends_s for each in self.removals if each.ends_s is not None), default=None)

    @cached_property
    def lacks_end(self) -> bool:
        """Whether some removal has no end yet."""
        return any(each.ends_s is None for each in self.removals)


NOTHING_LINGERS = Lingering()


def on_grid(time_s: float) -> float:
    """The time rounded up to a multiple of ``GRID_S``."""
    return ceil(time_s / GRID_S) * GRID_S


def names_by_type(names: Mapping[str, Iterable[str]]) -> NamesByType:
    """Names by type URL as a hashable value; types without names are left out."""
    return tuple(sorted((url, frozenset(each)) for url, each in names.items() if each))


def without_names(names: NamesByType, others: NamesByType) -> NamesByType:
    """``names`` without ``others``."""
    if not others:
        return names
    excluded = dict(others)
    return names_by_type({url: each - excluded.get(url, frozenset()) for url, each in names})


class Lingerings:
    """Makes `Lingering` values, each once for all clients."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def names_missing_in(self, lingering: Lingering, goal: Snapshot) -> NamesByType:
        """The lingering names that ``goal`` lacks."""
        if not lingering.removals:
            return NO_NAMES_BY_TYPE
        return self._results.of(_names_missing_in, lingering, goal)

    def with_removed(self, lingering: Lingering, revision: int, names: NamesByType) -> Lingering:
        """``lingering`` with one more removal: of these names, by the push of this revision."""
        if not names:
            return lingering
        return self._results.of(_with_removed, lingering, revision, names)

    def missing_in(self, lingering: Lingering, goal: Snapshot) -> Lingering:
        """``lingering`` without the names that ``goal`` has.

        docs/protocol.md#removals: "a resource that is pushed again stops lingering".
        """
        if not lingering.removals:
            return lingering
        return self._results.of(_missing_in, lingering, goal)

    def with_ends(
        self,
        lingering: Lingering,
        ends_s: float,
        used: NamesByType = NO_NAMES_BY_TYPE,
        later: tuple[tuple[Removal, float], ...] = (),
    ) -> Lingering:
        """``lingering`` with this end for the removals without an end, except removals of names in ``used``.

        ``later``: removals that end later than the others, with their ends.
        """
        return self._results.of(_with_ends, lingering, ends_s, used, later)

    def without_ended(self, lingering: Lingering, now_s: float) -> Lingering:
        """``lingering`` without the removals that have ended at ``now_s``."""
        remaining = tuple(each for each in lingering.removals if each.ends_s is None or each.ends_s > now_s)
        return lingering if len(remaining) == len(lingering.removals) else self._of(remaining)

    def latest(self, lingering: Lingering, limit: int, used: frozenset[tuple[str, str]]) -> Lingering:
        """``lingering`` with its latest ``limit`` removals; of the others, with the resources ``used`` (type, name)."""
        return self._results.of(_latest, lingering, limit, used)

    def _of(self, removals: tuple[Removal, ...]) -> Lingering:
        return self._results.of(Lingering, removals) if removals else NOTHING_LINGERS


def removed_names(
    released: Snapshot, goal: Snapshot, change: Mapping[str, Change], lingering: Lingering, *, is_draining: bool
) -> NamesByType:
    """The names that a push removes from a release and that linger. ``change`` has the changes, by type URL.

    docs/protocol.md#removals: "virtual hosts are removed at once, except those of a lingering route configuration",
    because Envoy looks them up for each request; "scoped routes too, unless the push removes all of them and a listener
    changes or goes" (``is_draining``). Of the listeners only internal ones linger: "an internal listener
    stays as long as a cluster whose endpoints name it".
    """
    removed = {url: frozenset(each.removed) for url, each in change.items() if each.removed}
    before = lingering.names
    names: dict[str, frozenset[str]] = {}
    for url, each in removed.items():
        type = resource_type(url)
        if type.lingers or (type.alias == "scoped_routes" and is_draining and not goal.get(url).resources):
            names[url] = each
        elif type.narrowed_by:
            routes = removed.get(type.narrowed_by, frozenset()) | before.get(type.narrowed_by, frozenset())
            names[url] = frozenset(name for name in each if name.rpartition("/")[0] in routes)
        elif type.alias == "listeners":
            names[url] = each & frozenset().union(*map(internal_listeners, released.sets.values()))
    return names_by_type({url: each - before.get(url, frozenset()) for url, each in names.items()})


def internal_listeners(resource_set: ResourceSet) -> frozenset[str]:
    """The internal listeners that the endpoints in a set of clusters or assignments name; none for other types."""
    if not (resource_set.type.is_route_target or resource_set.type.alias == "endpoints"):
        return frozenset()
    references = (each for resource in resource_set.resources.values() for each in resource.references)
    return frozenset(each.name for each in references if alias_of(each.type_url) == "listeners")


def _names_missing_in(lingering: Lingering, goal: Snapshot) -> NamesByType:
    return names_by_type({url: names.difference(goal.get(url).resources) for url, names in lingering.names.items()})


def _missing_in(lingering: Lingering, goal: Snapshot) -> Lingering:
    if all(names.isdisjoint(goal.get(url).resources) for url, names in lingering.names.items()):
        return lingering
    removals = []
    for each in lingering.removals:
        names = names_by_type({url: names.difference(goal.get(url).resources) for url, names in each.names.items()})
        if names:
            removals.append(replace(each, names=dict(names)))
    return Lingering(tuple(removals)) if removals else NOTHING_LINGERS


def _with_removed(lingering: Lingering, revision: int, names: NamesByType) -> Lingering:
    return Lingering((*lingering.removals, Removal(revision, dict(names))))


def _latest(lingering: Lingering, limit: int, used: frozenset[tuple[str, str]]) -> Lingering:
    kept = []
    for each in lingering.removals[:-limit]:
        names = names_by_type({url: [n for n in names if (url, n) in used] for url, names in each.names.items()})
        if names:
            kept.append(each if dict(names) == each.names else replace(each, names=dict(names)))
    return Lingering((*kept, *lingering.removals[-limit:]))


def _with_ends(
    lingering: Lingering, ends_s: float, used: NamesByType, later: tuple[tuple[Removal, float], ...]
) -> Lingering:
    later_s = dict(later)

    def is_unused(removal: Removal) -> bool:
        return all(names.isdisjoint(removal.names.get(url, ())) for url, names in used)

    return Lingering(
        tuple(
            replace(each, ends_s=later_s.get(each, ends_s)) if each.ends_s is None and is_unused(each) else each
            for each in lingering.removals
        )
    )
