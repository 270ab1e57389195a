"""Listener trees: what differs between two snapshots, in the units in which it is released.

The rules are in docs/design.md#additions.

A tree is a listener and the scopes, routes, virtual hosts and extension configurations that it leads to, as far as they
differ; trees that share a part are one. What no listener of the snapshot leads to is a tree of its own. A tree says
which clusters its new content leads to, so that it can be held while one of them is cold.

Pure functions of values: the cache keeps what they find for all clients in the same situation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from xds.model.names import WILDCARD
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Change, ResourceSet, Snapshot
from xds.protocol.linger import Names, internal_listeners, keep_of

Part = tuple[str, str]  # type URL and name


class Tree(NamedTuple):
    """What differs, and goes out together.

    ``first`` are extension configurations and listeners, ``then`` the scopes, routes and virtual hosts behind them.
    ``changed`` are those of ``then`` that the client may use already, so that they must not overtake their listener:
    what is new is not in use until a listener that names it is. ``listeners`` are all that lead to a part,
    changed or not. ``leads_to`` names the clusters behind the new content; ``is_unreadable``: it may lead to any.
    ``needs`` are the internal listeners that endpoints of those clusters stand for, but for those that lead back here:
    the new content waits until they are ready, if they are new.
    """

    first: Names
    then: Names
    changed: Names
    listeners: frozenset[str]
    leads_to: frozenset[str]
    needs: frozenset[str]
    is_unreadable: bool
    has_added_listener: bool
    has_removed_listener: bool


def changed_trees(released: Snapshot, goal: Snapshot, change: Mapping[str, Change]) -> tuple[Tree, ...]:
    """The trees in which ``goal`` differs from what was released; ``change`` leads from the one to the other."""
    changed = {
        (url, name)
        for url, each in change.items()
        if resource_type(url).in_tree
        for name in each.names
        if not (resource_type(url).lingers and name in each.removed)  # told by time, not by tree
    }
    if not changed:
        return ()
    groups = _Groups(changed)
    listeners: dict[Part, frozenset[Part]] = {}
    for url in (url for url in {**released.sets, **goal.sets} if alias_of(url) == "listeners"):
        before, after = released.get(url).resources, goal.get(url).resources
        for name in {**before, **after}:
            parts = _below(before.get(name), released, changed) | _below(after.get(name), goal, changed)
            if (url, name) in changed:
                parts |= {(url, name)}
            if parts:
                groups.join(parts)
                listeners[url, name] = parts
    return tuple(_tree(parts, listeners, released, goal) for parts in groups)


class _Groups:
    """Parts that belong together; each is alone at first."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._group_of = {part: [part] for part in sorted(parts)}

    def join(self, parts: Iterable[Part]) -> None:
        groups = {id(group): group for group in map(self._group_of.__getitem__, parts)}
        largest, *others = sorted(groups.values(), key=len, reverse=True)
        for group in others:
            largest.extend(group)
            for part in group:
                self._group_of[part] = largest

    def __iter__(self) -> Iterator[list[Part]]:
        return iter({id(group): group for group in self._group_of.values()}.values())


def _below(listener: Resource | None, snapshot: Snapshot, among: Iterable[Part]) -> frozenset[Part]:
    """The parts, of some, that a listener leads to in a snapshot."""
    if listener is None:
        return frozenset()
    return frozenset(part for part in _reached(listener, snapshot) if part in among)


def _reached(resource: Resource, snapshot: Snapshot) -> Iterator[Part]:
    """All that a listener, a scope or a route configuration leads to by name, step by step."""
    for reference in resource.references:
        url, type = reference.type_url, resource_type(reference.type_url)
        if not type.in_tree or type.alias == "listeners":
            continue
        members = snapshot.get(url).resources
        names = _named(resource, reference.name, members, is_under_route=bool(type.narrowed_by))
        for name in names:
            yield url, name
            below = members.get(name)
            if below is not None and below is not resource:
                yield from _reached(below, snapshot)


def _named(resource: Resource, name: str, members: Mapping[str, Resource], *, is_under_route: bool) -> Iterable[str]:
    if name != WILDCARD:
        return (name,)
    if is_under_route and alias_of(resource.type_url) == "routes":
        return [each for each in members if each.rpartition("/")[0] == resource.name]
    return members  # all scopes; the virtual hosts of an inline route configuration, whose name is not known


def _tree(parts: list[Part], listeners: Mapping[Part, frozenset[Part]], released: Snapshot, goal: Snapshot) -> Tree:
    members = frozenset(parts)
    first: dict[str, set[str]] = {}
    then: dict[str, set[str]] = {}
    leads_to: set[str] = set()
    has_added = has_removed = False
    for url, name in parts:
        type = resource_type(url)
        (then if type.after_listeners else first).setdefault(url, set()).add(name)
        resource = goal.get(url).resources.get(name)
        if resource is not None:
            leads_to |= _clusters(resource, goal)
            has_added |= type.alias == "listeners" and name not in released.get(url).resources
        elif type.alias == "listeners":
            has_removed = True
    named_by = frozenset(name for (_, name), below in listeners.items() if not members.isdisjoint(below))
    clusters = with_members(leads_to - {WILDCARD}, goal)
    changed = {url: names.intersection(released.get(url).resources) for url, names in then.items()}
    return Tree(
        keep_of(first),
        keep_of(then),
        keep_of(changed),
        named_by,
        clusters,
        _needs(clusters, named_by, goal),
        WILDCARD in leads_to,
        has_added,
        has_removed,
    )


def _clusters(resource: Resource, goal: Snapshot) -> set[str]:
    """The clusters that a resource and all below it lead to; ``*`` where content cannot be read."""
    found = _mentioned(resource)
    if alias_of(resource.type_url) in ("listeners", "scoped_routes"):
        for url, name in _reached(resource, goal):
            below = goal.get(url).resources.get(name)
            if below is not None:
                found |= _mentioned(below)
    return found


def _needs(clusters: Iterable[str], listeners: frozenset[str], goal: Snapshot) -> frozenset[str]:
    """The internal listeners behind clusters, but for those that lead back to one of these ``listeners``."""
    needed = _behind(clusters, goal) - listeners
    return frozenset(name for name in needed if listeners.isdisjoint(_all_behind(name, goal)))


def _behind(clusters: Iterable[str], goal: Snapshot) -> frozenset[str]:
    found = (internal_listeners(goal.get(url), clusters) for url in goal.sets)
    return frozenset().union(*found)


def _all_behind(listener: str, goal: Snapshot) -> set[str]:
    """The internal listeners that a listener leads to, through however many others; each is looked at once."""
    found, left = set[str](), [listener]
    while left:
        name = left.pop()
        for url in (url for url in goal.sets if alias_of(url) == "listeners"):
            resource = goal.get(url).resources.get(name)
            if resource is not None:
                more = _behind(with_members(_clusters(resource, goal) - {WILDCARD}, goal), goal) - found
                found |= more
                left += more
    return found


def _mentioned(resource: Resource) -> set[str]:
    return {each.name for each in resource.references if resource_type(each.type_url).is_route_target}


def with_members(names: Iterable[str], goal: Snapshot) -> frozenset[str]:
    """Clusters, and those that they name: an aggregate is active before its members are."""
    found, left = set[str](), list(names)
    sets = [goal.sets[url].resources for url in goal.sets if resource_type(url).is_route_target]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            for resources in sets:
                if name in resources:
                    left += _mentioned(resources[name])
    return frozenset(found)


def newly_named(before: ResourceSet, after: ResourceSet) -> Names:
    """What changed listeners name that no listener named before, and that the client asks this server for."""
    old, found = before.resources, dict[str, set[str]]()
    changed = [each for name, each in after.resources.items() if name not in old or old[name].version != each.version]
    if not changed:
        return ()
    had = {(each.type_url, each.name) for listener in old.values() for each in listener.references}
    for each in (each for listener in changed for each in listener.references):
        if each.source in ("ads", "api") and each.name != WILDCARD and (each.type_url, each.name) not in had:
            found.setdefault(each.type_url, set()).add(each.name)
    return keep_of(found)


def used_by(listeners: frozenset[str], snapshot: Snapshot) -> frozenset[Part]:
    """All that some listeners of a snapshot lead to by name."""
    found: set[Part] = set()
    for url in snapshot.sets:
        if alias_of(url) == "listeners":
            resources = snapshot.get(url).resources
            for name in listeners & resources.keys():
                found.update(_reached(resources[name], snapshot))
    return frozenset(found)


def listeners_naming(names: Names, snapshot: Snapshot) -> frozenset[str]:
    """The listeners of a snapshot that name one of these."""
    wanted = {(url, name) for url, each in names for name in each}
    return frozenset(
        listener.name
        for url in snapshot.sets
        if alias_of(url) == "listeners"
        for listener in snapshot.get(url).resources.values()
        if any((each.type_url, each.name) in wanted for each in listener.references)
    )
