"""Listener trees: the difference between two snapshots, in the units in which it is released.

docs/protocol.md#order: "The unit is the *listener tree*: a listener and the scoped routes, route configurations,
virtual hosts and extension configurations that it refers to by name, as far as they differ. Trees that share a part
are one tree. A resource that no listener refers to is a tree of its own." A tree also has the clusters that its new
content refers to, so that it can be held while one of them is cold.

Pure functions of values: `Releases` keeps the results for all clients alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from xds.model.names import WILDCARD
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import Change, ResourceSet, Snapshot
from xds.protocol.linger import Names, keep_of

Part = tuple[str, str]  # type URL and name
NewlyBehind = Mapping[Part, frozenset[str]]  # the internal listeners that clusters and assignments newly name
RedirectedOf = Callable[[ResourceSet, ResourceSet], Iterable[str]]  # `Releases.redirected`


class Tree(NamedTuple):
    """The differences of one listener tree between two snapshots.

    * ``first``: its extension configurations and listeners;
    * ``then``: its scoped routes, route configurations and virtual hosts;
    * ``changed``: those of ``then`` that the client may use already, so that they must not overtake their listener; new
      ones are not used before a listener that names them;
    * ``listeners``: the names of all listeners that refer to a part of the tree, changed or not;
    * ``leads_to``: the names of the clusters that the new content refers to;
    * ``needs``: the internal listeners that endpoints in these clusters name, except those that refer back to this
      tree. The tree waits for new ones;
    * ``within``: the internal listeners among its own that endpoints in these clusters name, and that refer to none of
      its listeners; ``besides``: the names that wait for new ones of these: all but resources that nothing uses yet;
    * ``is_unreadable``: the new content has references that cannot be read, so it may refer to any cluster;
    * ``has_added_listener``, ``has_removed_listener``: a listener is new, or was removed.
    """

    first: Names
    then: Names
    changed: Names
    listeners: frozenset[str]
    leads_to: frozenset[str]
    needs: frozenset[str]
    within: frozenset[str]
    besides: Names
    is_unreadable: bool
    has_added_listener: bool
    has_removed_listener: bool


def changed_trees(released: Snapshot, goal: Snapshot, change: Mapping[str, Change]) -> tuple[Tree, ...]:
    """The trees in which ``goal`` differs from ``released``; ``change`` has the changes by type URL."""
    changed = {
        (url, name)
        for url, each in change.items()
        if resource_type(url).in_tree
        for name in each.names
        if not (resource_type(url).lingers and name in each.removed)  # it lingers, and waits for no tree
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
    """Groups of parts that belong to one tree; each part is a group of its own at first."""

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
    """The parts in ``among`` that a listener refers to in a snapshot, directly or not."""
    if listener is None:
        return frozenset()
    return frozenset(part for part in _reached(listener, snapshot) if part in among)


def _reached(resource: Resource, snapshot: Snapshot) -> Iterator[Part]:
    """All parts of trees that a listener, a scoped route or a route configuration refers to, directly or not."""
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
    return members  # all scoped routes; or all virtual hosts, because an inline route configuration has no known name


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
    needs, within = _needs(clusters, named_by, goal)
    return Tree(
        keep_of(first),
        keep_of(then),
        keep_of(changed),
        named_by,
        clusters,
        needs,
        within,
        _besides({**first, **then}, within, released, goal),
        WILDCARD in leads_to,
        has_added,
        has_removed,
    )


def _clusters(resource: Resource, goal: Snapshot) -> set[str]:
    """The clusters that a resource and all parts below it refer to; ``*`` for unreadable references."""
    found = _mentioned(resource)
    if alias_of(resource.type_url) in ("listeners", "scoped_routes"):
        for url, name in _reached(resource, goal):
            below = goal.get(url).resources.get(name)
            if below is not None:
                found |= _mentioned(below)
    return found


def _needs(clusters: Iterable[str], listeners: frozenset[str], goal: Snapshot) -> tuple[frozenset[str], frozenset[str]]:
    """The internal listeners that endpoints in clusters name: those beside ``listeners``, and those among them.

    Both without those that refer back to ``listeners``. docs/protocol.md#additions: "Listeners that refer to each other
    are sent together".
    """
    needed = frozenset(name for name in _behind(clusters, goal) if listeners.isdisjoint(_all_behind(name, goal)))
    return needed - listeners, needed & listeners


def _besides(parts: Mapping[str, Iterable[str]], within: frozenset[str], released: Snapshot, goal: Snapshot) -> Names:
    """What waits for the internal listeners ``within``: other listeners, and what is in use already.

    Not extension configurations that do not lead over these: the internal listeners may wait for their ACK.
    """
    if not within:
        return ()
    found = {}
    for url, names in parts.items():
        type, before, after = resource_type(url), released.get(url).resources, goal.get(url).resources
        if type.alias == "listeners":
            found[url] = {name for name in names if name not in within}
        elif type.after_listeners:
            found[url] = {name for name in names if name in before}
        else:
            found[url] = {name for name in names if name in before and _leads_over(after.get(name), within, goal)}
    return keep_of(found)


def _leads_over(resource: Resource | None, listeners: frozenset[str], goal: Snapshot) -> bool:
    """Whether the clusters that a resource refers to have endpoints that name one of these internal listeners."""
    if resource is None:
        return False
    clusters = with_members(_clusters(resource, goal) - {WILDCARD}, goal)
    return not listeners.isdisjoint(_behind(clusters, goal))


def _behind(clusters: Iterable[str], snapshot: Snapshot) -> set[str]:
    """The internal listeners that the endpoints of clusters name, in the clusters or in their assignments."""
    found = set[str]()
    for held in snapshot.sets.values():
        if held.type.is_route_target:
            for name in clusters:
                if name in held.resources:
                    found |= _behind_one(held.resources[name], snapshot)
    return found


def _behind_one(resource: Resource, snapshot: Snapshot) -> set[str]:
    """The same of one cluster or assignment."""
    found = set[str]()
    for each in resource.references:
        alias = alias_of(each.type_url)
        if alias == "listeners":
            found.add(each.name)
        elif alias == "endpoints":
            assignment = snapshot.get(each.type_url).resources.get(each.name)
            if assignment is not None and assignment.references:
                found.update(listener.name for listener in assignment.references)
    return found


def newly_behind(
    released: Snapshot, goal: Snapshot, change: Mapping[str, Change], redirected: RedirectedOf
) -> NewlyBehind:
    """The clusters and assignments in use that newly name internal listeners, with these listeners.

    A cluster also names those that its assignment names: a push may give it another assignment. An assignment is in use
    too if it is new and a released cluster refers to it.
    """
    found = dict[Part, frozenset[str]]()
    for url, each in change.items():
        type = resource_type(url)
        if type.is_route_target or type.alias == "endpoints":
            old, new = released.get(url), goal.get(url)
            before, after = old.resources, new.resources
            for name in redirected(old, new):
                listeners = _behind_one(after[name], goal) - _behind_one(before[name], released)
                if listeners:
                    found[url, name] = frozenset(listeners)
            if type.alias == "endpoints":
                found |= _added_in_use(
                    url, [after[name] for name in each.added if after[name].references], released, goal
                )
    return found


def _added_in_use(
    url: str, added: Iterable[Resource], released: Snapshot, goal: Snapshot
) -> dict[Part, frozenset[str]]:
    """New assignments of released clusters, with the internal listeners that they name and that do not refer back."""
    found = dict[Part, frozenset[str]]()
    for assignment in added:
        if _has_user(url, assignment.name, released):
            listeners = {name for name in _behind_one(assignment, goal) if name not in _all_behind(name, goal)}
            if listeners:
                found[url, assignment.name] = frozenset(listeners)
    return found


def _has_user(url: str, assignment: str, snapshot: Snapshot) -> bool:
    """Whether some cluster of a snapshot refers to this assignment."""
    clusters = (
        each for held in snapshot.sets.values() if held.type.is_route_target for each in held.resources.values()
    )
    return any(each.type_url == url and each.name == assignment for cluster in clusters for each in cluster.references)


def _all_behind(listener: str, goal: Snapshot) -> set[str]:
    """The internal listeners that a listener refers to through clusters, directly or through other listeners."""
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
    """The clusters and all members of aggregates among them: Envoy activates an aggregate before its members."""
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
    """The names in changed listeners that no listener named before, of resources that this server serves."""
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
    """All parts of trees that these listeners of a snapshot refer to, directly or not."""
    found: set[Part] = set()
    for url in snapshot.sets:
        if alias_of(url) == "listeners":
            resources = snapshot.get(url).resources
            for name in listeners & resources.keys():
                found.update(_reached(resources[name], snapshot))
    return frozenset(found)


def without_parts(names: Names, parts: frozenset[Part]) -> Names:
    """``names`` without those of these parts."""
    if not parts:
        return names
    return keep_of({url: [name for name in each if (url, name) not in parts] for url, each in names})


def listeners_naming(names: Names, snapshot: Snapshot) -> frozenset[str]:
    """The listeners of a snapshot that refer directly to one of these names."""
    wanted = {(url, name) for url, each in names for name in each}
    return frozenset(
        listener.name
        for url in snapshot.sets
        if alias_of(url) == "listeners"
        for listener in snapshot.get(url).resources.values()
        if any((each.type_url, each.name) in wanted for each in listener.references)
    )
