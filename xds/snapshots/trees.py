"""Listener trees: the units in which the difference between two snapshots is released.

docs/protocol.md#order: "The unit is the *listener tree*: a listener and the scoped routes, route configurations,
virtual hosts and extension configurations that it refers to by name, as far as they differ. Trees that share a part
are one tree. A resource that no listener refers to is a tree of its own." A tree also has the clusters that its new
content refers to, so that it can be held while one of them is cold.

An *internal listener* is a listener that endpoints name as their address, so that requests pass several listeners.

All functions are pure. `Releases` keeps their results for all clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from xds.model.names import WILDCARD
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Change, Snapshot
from xds.snapshots.linger import NamesByType, names_by_type

ResourceId = tuple[str, str]  # type URL and name


class Tree(NamedTuple):
    """The difference of one listener tree between two snapshots.

    * ``listener_parts``: its listeners and extension configurations;
    * ``route_parts``: its scoped routes, route configurations and virtual hosts;
    * ``used_route_parts``: the ``route_parts`` that the client may already use or request, so they must not overtake
      their listener; another one is not used before a listener that names it;
    * ``listeners``: the names of all listeners that refer to a part of the tree, changed or not;
    * ``clusters``: the names of the clusters that the new content refers to;
    * ``needed_listeners``: the internal listeners of other trees that endpoints of these clusters name and that do not
      refer back to this tree; the tree waits for those that are new;
    * ``is_unreadable``: the new content has references that cannot be read, so it may refer to any cluster;
    * ``has_added_listener``, ``has_removed_listener``: a listener is new, or was removed.
    """

    listener_parts: NamesByType
    route_parts: NamesByType
    used_route_parts: NamesByType
    listeners: frozenset[str]
    clusters: frozenset[str]
    needed_listeners: frozenset[str]
    is_unreadable: bool
    has_added_listener: bool
    has_removed_listener: bool


def changed_trees(released: Snapshot, goal: Snapshot, change: Mapping[str, Change]) -> tuple[Tree, ...]:
    """The trees in which ``goal`` differs from ``released``; ``change`` has the changes by type URL."""
    changed = {  # a lingering resource waits for no tree
        (url, name)
        for url, each in change.items()
        if resource_type(url).in_tree
        for name in ((*each.added, *each.changed) if resource_type(url).lingers else each.names)
    }
    if not changed:
        return ()
    groups = _Groups(changed)
    listeners_of: dict[ResourceId, set[str]] = {}
    for url in (url for url in {**released.sets, **goal.sets} if alias_of(url) == "listeners"):
        before, after = released.get(url).resources, goal.get(url).resources
        for name in {**before, **after}:
            parts = _parts_below(before.get(name), released, changed) | _parts_below(after.get(name), goal, changed)
            if (url, name) in changed:
                parts |= {(url, name)}
            if parts:
                groups.join(parts)
                for part in parts:
                    listeners_of.setdefault(part, set()).add(name)
    return tuple(_tree(parts, listeners_of, released, goal) for parts in groups)


class _Groups:
    """Groups of parts that belong to one tree. At first, each part is a group of its own."""

    def __init__(self, parts: Iterable[ResourceId]) -> None:
        self._group_of = {part: [part] for part in sorted(parts)}

    def join(self, parts: Iterable[ResourceId]) -> None:
        groups = {id(group): group for group in map(self._group_of.__getitem__, parts)}
        largest, *others = sorted(groups.values(), key=len, reverse=True)
        for group in others:
            largest.extend(group)
            for part in group:
                self._group_of[part] = largest

    def __iter__(self) -> Iterator[list[ResourceId]]:
        return iter({id(group): group for group in self._group_of.values()}.values())


def _parts_below(listener: Resource | None, snapshot: Snapshot, among: Iterable[ResourceId]) -> frozenset[ResourceId]:
    """The parts in ``among`` that a listener of a snapshot refers to, directly or indirectly."""
    if listener is None:
        return frozenset()
    return frozenset(part for part in _references_below(listener, snapshot) if part in among)


def _references_below(resource: Resource, snapshot: Snapshot) -> Iterator[ResourceId]:
    """All tree parts that a listener, a scoped route or a route configuration refers to, directly or indirectly."""
    for reference in resource.references:
        url, type = reference.type_url, resource_type(reference.type_url)
        if not type.in_tree or type.alias == "listeners":
            continue
        members = snapshot.get(url).resources
        names = _expand(resource, reference.name, members, is_under_route=bool(type.narrowed_by))
        for name in names:
            yield url, name
            below = members.get(name)
            if below is not None and below is not resource:
                yield from _references_below(below, snapshot)


def _expand(resource: Resource, name: str, members: Mapping[str, Resource], *, is_under_route: bool) -> Iterable[str]:
    """The names among ``members`` that a reference of ``resource`` to ``name`` means: the name, unless it is ``*``."""
    if name != WILDCARD:
        return (name,)
    if is_under_route and alias_of(resource.type_url) == "routes":
        return [each for each in members if each.rpartition("/")[0] == resource.name]
    return members  # all scoped routes, or all virtual hosts: an inline route configuration has no known name


def _tree(
    parts: list[ResourceId], listeners_of: Mapping[ResourceId, set[str]], released: Snapshot, goal: Snapshot
) -> Tree:
    listener_parts: dict[str, set[str]] = {}
    route_parts: dict[str, set[str]] = {}
    led_to: set[str] = set()
    has_added = has_removed = False
    for url, name in parts:
        type = resource_type(url)
        (route_parts if type.after_listeners else listener_parts).setdefault(url, set()).add(name)
        resource = goal.get(url).resources.get(name)
        if resource is not None:
            led_to |= _clusters(resource, goal)
            has_added |= type.alias == "listeners" and name not in released.get(url).resources
        elif type.alias == "listeners":
            has_removed = True
    named_by = frozenset(name for part in parts for name in listeners_of.get(part, ()))
    clusters = with_members(led_to - {WILDCARD}, goal)
    requested = used_by(named_by, released)
    used = {
        url: [n for n in names if n in released.get(url).resources or (url, n) in requested]
        for url, names in route_parts.items()
    }
    return Tree(
        names_by_type(listener_parts),
        names_by_type(route_parts),
        names_by_type(used),
        named_by,
        clusters,
        _needed_listeners(clusters, named_by, goal),
        WILDCARD in led_to,
        has_added,
        has_removed,
    )


def _clusters(resource: Resource, goal: Snapshot) -> set[str]:
    """The clusters that a resource and all parts below it refer to; ``*`` stands for unreadable references."""
    clusters = _named_clusters(resource)
    if alias_of(resource.type_url) in ("listeners", "scoped_routes"):
        for url, name in _references_below(resource, goal):
            below = goal.get(url).resources.get(name)
            if below is not None:
                clusters |= _named_clusters(below)
    return clusters


def _needed_listeners(clusters: Iterable[str], listeners: frozenset[str], goal: Snapshot) -> frozenset[str]:
    """The internal listeners that endpoints of clusters name, but those in ``listeners`` or that refer back to them.

    docs/protocol.md#additions: "Listeners that refer to each other are sent together".
    """
    return frozenset(
        name
        for name in _internal_listeners_of(clusters, goal) - listeners
        if listeners.isdisjoint(_all_internal_listeners(name, goal))
    )


def _internal_listeners_of(clusters: Iterable[str], snapshot: Snapshot) -> set[str]:
    """The internal listeners that the endpoints of clusters name, in the clusters or in their assignments."""
    listeners = set[str]()
    for resource_set in snapshot.sets.values():
        if resource_set.type.is_route_target:
            for name in clusters:
                if name in resource_set.resources:
                    listeners |= _internal_listeners_named(resource_set.resources[name], snapshot)
    return listeners


def _internal_listeners_named(resource: Resource, snapshot: Snapshot) -> set[str]:
    """The internal listeners that the endpoints of one cluster or assignment name."""
    listeners = set[str]()
    for each in resource.references:
        alias = alias_of(each.type_url)
        if alias == "listeners":
            listeners.add(each.name)
        elif alias == "endpoints":
            assignment = snapshot.get(each.type_url).resources.get(each.name)
            if assignment is not None and assignment.references:
                listeners.update(listener.name for listener in assignment.references)
    return listeners


def _all_internal_listeners(listener: str, goal: Snapshot) -> set[str]:
    """The internal listeners to which a listener leads through clusters, directly or through other listeners."""
    listeners, pending = set[str](), [listener]
    while pending:
        name = pending.pop()
        for url in (url for url in goal.sets if alias_of(url) == "listeners"):
            resource = goal.get(url).resources.get(name)
            if resource is not None:
                more = (
                    _internal_listeners_of(with_members(_clusters(resource, goal) - {WILDCARD}, goal), goal) - listeners
                )
                listeners |= more
                pending += more
    return listeners


def _named_clusters(resource: Resource) -> set[str]:
    return {each.name for each in resource.references if resource_type(each.type_url).is_route_target}


def with_members(names: Iterable[str], goal: Snapshot) -> frozenset[str]:
    """The clusters, and all members of aggregates among them: Envoy activates an aggregate before its members."""
    reached, pending = set[str](), list(names)
    sets = [goal.sets[url].resources for url in goal.sets if resource_type(url).is_route_target]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            for resources in sets:
                if name in resources:
                    pending += _named_clusters(resources[name])
    return frozenset(reached)


def used_by(listeners: frozenset[str], snapshot: Snapshot) -> frozenset[ResourceId]:
    """All tree parts that these listeners of a snapshot refer to, directly or indirectly."""
    users: set[ResourceId] = set()
    for url in snapshot.sets:
        if alias_of(url) == "listeners":
            resources = snapshot.get(url).resources
            for name in listeners & resources.keys():
                users.update(_references_below(resources[name], snapshot))
    return frozenset(users)


def without_resources(names: NamesByType, excluded: frozenset[ResourceId]) -> NamesByType:
    """``names`` without the names of these resources."""
    if not excluded:
        return names
    return names_by_type({url: [name for name in each if (url, name) not in excluded] for url, each in names})


def listeners_naming(names: NamesByType, snapshot: Snapshot) -> frozenset[str]:
    """The listeners of a snapshot that refer directly to one of these names."""
    if not names:
        return frozenset()
    targets = {(url, name) for url, each in names for name in each}
    return frozenset(
        listener.name
        for url in snapshot.sets
        if alias_of(url) == "listeners"
        for listener in snapshot.get(url).resources.values()
        if any((each.type_url, each.name) in targets for each in listener.references)
    )


def routes_wait(tree: Tree, unready: frozenset[str] | None, used: frozenset[ResourceId]) -> bool:
    """Whether the routes of a tree wait: a listener of it is in ``unready`` (None: all), or they are in ``used``."""
    if unready is None or not tree.listeners.isdisjoint(unready):
        return True
    return any((url, name) in used for url, names in tree.used_route_parts for name in names)
