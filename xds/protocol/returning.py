"""Clients that return: what their first requests show, and what is released to them until they are in step.

docs/internals/engine.md#a-client-that-returns has the rules by type. Such a client "may hold anything that its group
had within the time that old connections live. The engine does not find out what. It leaves alone what the client shows,
and adds what it may still need".

What a client has in a version that is neither the newest nor in the log is a `Leftover`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.cluster_parts import PARTS, clusters_in_use, lacking_parts
from xds.protocol.expected_requests import proved_by_assignments
from xds.protocol.facts import ClientFacts
from xds.protocol.group_logs import has_refused
from xds.protocol.known_content import ShownContent
from xds.protocol.requests import NO_VERSIONS, Shown
from xds.protocol.watch import Watch
from xds.snapshots.cluster_references import assignments_of
from xds.snapshots.leftover import SOME_VERSION, Leftover
from xds.snapshots.linger import Lingering, NamesByType, names_by_type
from xds.snapshots.removal_log import RemovalLog


def shows_return(facts: ClientFacts, watch: Watch, shown: Shown, names: frozenset[str]) -> bool:
    """Whether a first request shows that its client has returned.

    If it was sent nothing yet, a name that no newest resource has and that the log has is requested because of what the
    client holds.
    """
    if shown:
        return True
    if facts.watches.have_acked(facts.watches):
        return False
    url = watch.type.type_url
    unserved = names.difference(facts.goal.get(url).resources)
    return bool(unserved) and not unserved.isdisjoint(facts.log.names(url))


def at_return(facts: ClientFacts) -> tuple[Snapshot, Lingering]:
    """The release and the lingering resources at the first request that shows a return.

    Nothing of the listener trees is released, and the assignments and secrets of the log may be requested.
    """
    if facts.former_groups or any(facts.refused.values()):
        return _at_return(facts)
    key = (facts.released, facts.lingering, facts.goal, facts.watches.has_v2, facts.log, facts.log.state)
    return facts.releases.results.by(key, _at_return, facts)


def _at_return(facts: ClientFacts) -> tuple[Snapshot, Lingering]:
    released = facts.released
    for released_set in released:
        if released_set.type.in_tree:
            released = facts.releases.replaced(released, empty_set(released_set.type.type_url))
    return _with_left_parts(facts._replace(released=released))


def with_left_clusters(facts: ClientFacts, label: str) -> tuple[Snapshot, Lingering]:
    """As `with_left` of clusters; and of assignments and secrets, of which pushes may have removed some meanwhile."""
    released, lingering = with_left(facts, facts.url_of("clusters"), label)
    return _with_left_parts(facts._replace(released=released, lingering=lingering))


def _with_left_parts(facts: ClientFacts) -> tuple[Snapshot, Lingering]:
    for alias in PARTS:
        released, lingering = with_left(facts, facts.url_of(alias))
        facts = facts._replace(released=released, lingering=lingering)
    return facts.released, facts.lingering


def with_left(facts: ClientFacts, url: str, label: str = "") -> tuple[Snapshot, Lingering]:
    """The release with what the log has of a type as removed, and of clusters with the last versions of what changed.

    What was removed lingers: returned as well.
    """
    last = _last(facts, url, label)
    if not last.resources:
        return facts.released, facts.lingering
    key = (facts.released, facts.lingering, facts.goal, last.id, facts.log, facts.log.number)
    return facts.releases.results.by(key, _with_left, facts, last)


def _with_left(facts: ClientFacts, last: ResourceSet) -> tuple[Snapshot, Lingering]:
    url = last.type.type_url
    removed = frozenset(last.resources.keys() - facts.goal.get(url).resources.keys())
    names = frozenset(last.resources) if last.type.is_route_target else removed
    mixed = facts.releases.mixed(facts.released.get(url), last, names)
    return facts.releases.replaced(facts.released, mixed), _with_lingering(facts, url, removed)


def with_shown(facts: ClientFacts, watch: Watch, known: ResourceSet) -> tuple[Snapshot, Lingering]:
    """The release with the content that the client has of a type, and what of it lingers.

    What the newest set lacks of it is left alone.
    """
    untold_names, log = watch.shown.untold_names, facts.log
    key = (facts.released, facts.lingering, facts.goal, known.id, untold_names, log, log.number)
    return facts.releases.results.by(key, _with_shown, facts, known, untold_names)


def _with_shown(facts: ClientFacts, known: ResourceSet, untold_names: frozenset[str]) -> tuple[Snapshot, Lingering]:
    url, present, lingering = known.type.type_url, known, facts.lingering
    if not known.type.full_state:
        present = facts.releases.mixed(facts.released.get(url), known, facts.releases.diff(None, known).added)
    if known.type.alias != "listeners":
        goal = facts.goal.get(url)
        untold_names = untold_names - goal.resources.keys()
        lingering = _with_lingering(facts, url, facts.releases.diff(goal, present).added | untold_names)
    return facts.releases.replaced(facts.released, present), lingering


def shown_content(facts: ClientFacts, known: ResourceSet, shown: Shown) -> tuple[ShownContent, frozenset[str]]:
    """What a first request says of a client that has this set; and the names that it may have in another version."""
    url, untold_names, uncertain = known.type.type_url, NO_NAMES, NO_NAMES
    if shown.versions and known.type.full_state:
        # A refused response may have brought another version of what was taken away and came back, or a cluster or a
        # listener that Envoy does not show.
        uncertain = known.among(facts.log.came_back(url))
        if known.type.is_route_target:
            untold_names = facts.releases.diff(known, _last(facts, url)).added
        else:
            logged = frozenset[str]().union(*(log.names(url) for log in facts.logs.all))
            uncertain |= logged.difference(known.resources, facts.goal.get(url).resources)
    return ShownContent(has_set=True, untold_names=untold_names, has_versions=bool(shown.versions)), uncertain


def taken_back(facts: ClientFacts, goal: Snapshot) -> list[tuple[Watch, frozenset[str]]]:
    """The names of which a push takes back what a client that showed versions was never sent: they need an answer.

    These are names that it has again in the version that the client has, and listeners that the client has not. A
    rejected response may have brought it the version between, which it does not show.
    """
    back = []
    for watch in (watch for url in facts.watches for watch in facts.watches.of(url)):
        known, newest = watch.known.base, goal.get(watch.type.type_url)
        if known is not None and watch.shown.has_versions and newest.type.full_state:
            diff, resources = facts.releases.diff(facts.goal.get(watch.type.type_url), newest), known.resources
            changed = diff.added_or_changed & resources.keys()
            names = {name for name in changed if resources[name].version == newest.resources[name].version}
            if not newest.type.is_route_target:
                names |= diff.removed - resources.keys()
            if names:
                back.append((watch, frozenset(names)))
    return back


def _last(facts: ClientFacts, url: str, label: str = "") -> ResourceSet:
    return facts.logs.last(facts.goal.get(url), label, facts.refused)


def _with_lingering(facts: ClientFacts, url: str, names: frozenset[str]) -> Lingering:
    """These names linger too, those that one push removed together: they end together."""
    lingering, pushes = facts.lingering, dict[int, set[str]]()
    for name in names - facts.lingering.names.get(url, NO_NAMES):
        pushes.setdefault(facts.log.removed_by(url, name) or facts.goal.revision, set()).add(name)
    for revision, removed in sorted(pushes.items()):
        lingering = facts.releases.lingerings.with_removed(lingering, revision, names_by_type({url: removed}))
    return lingering


def known_set(facts: ClientFacts, watch: Watch, shown: Shown, names: frozenset[str]) -> ResourceSet | None:
    """What the client has of a type; None if it may have anything, or nothing of what it requests."""
    goal = facts.goal.get(watch.type.type_url)
    if shown.versions:
        former = facts.logs.former_sets(watch.type.type_url)
        key = (goal.id, *(each.id for each in former), *(each.number for each in facts.logs.all), id(shown.versions))
        make = partial(_set_of_versions, goal, former, facts.logs.all, shown.versions)
        return facts.releases.shown_sets.get(key, make)[1]
    if not shown.label:
        return None
    if watch.type.full_state:
        return _labelled_set(facts, watch, shown.label)
    wanted = _without_newly_named(facts, watch.type.type_url, shown.label, names or frozenset(goal.resources))
    refused = facts.refused.get(watch.type.type_url, {})
    if refused:  # the node may have no version of these, but those that listeners named with this label
        named = facts.log.named_at(watch.type.type_url, shown.label) or NO_NAMES
        wanted -= refused.keys() - named
    return facts.releases.shown_sets.get((goal.id, shown.label, wanted), _some_versions, goal, shown.label, wanted)[1]


def _without_newly_named(facts: ClientFacts, url: str, label: str, names: frozenset[str]) -> frozenset[str]:
    """Without the names that only a later push than that of the label named in listeners that the client may have.

    A listener that warms requests them, and the client has no version of them.
    """
    listeners, before = facts.watches.acked(facts.url_of("listeners")), facts.log.named_at(url, label)
    if before is None:
        return names
    if listeners is None:  # it may have any
        return names & before
    named = {each.name for one in listeners.resources.values() for each in one.references if each.type_url == url}
    return names.difference(named - before)


def _labelled_set(facts: ClientFacts, watch: Watch, label: str) -> ResourceSet | None:
    """The set with a label, if it is known what the client has of it.

    Envoy applies the other listeners of a refused response and shows the label before. So if the node has refused one,
    no later push may have changed a listener of the set, but to a version that the node refused.
    """
    url = watch.type.type_url
    goal = facts.goal.get(url)
    labelled = facts.log.labelled(url, label)
    if labelled is None or facts.logs.labelled(url, label) is not labelled:
        return None
    if label == goal.version_info:
        return goal if labelled.digest == goal.digest else None
    if watch.type.is_route_target:
        return None
    refused = facts.refused
    if not has_refused(facts.log, url, refused):
        return labelled
    changed = labelled.among(facts.log.changed_since(url, label))
    return labelled if all(_has_kept(facts, labelled.resources[name]) for name in changed) else None


def _has_kept(facts: ClientFacts, before: Resource) -> bool:
    """Whether one push alone changed a resource, to a version that the node refused."""
    url, name = before.type_url, before.name
    newest, refused = facts.goal.get(url).resources.get(name), facts.refused.get(url, {}).get(name)
    last = next(facts.log.versions(url, name), None)
    return (
        newest is not None and newest.version in (refused or ()) and last is not None and last.version == before.version
    )


def _set_of_versions(
    goal: ResourceSet, former: Sequence[ResourceSet], logs: Sequence[RemovalLog], versions: Mapping[str, str]
) -> tuple[Mapping[str, str], ResourceSet]:
    """The set with these versions, and ``versions``: the memo refers to them, so that their id is not reused."""
    if len(goal) == len(versions) and goal.versions() == dict(versions):
        return versions, goal
    url, newest = goal.type.type_url, (goal, *former)
    resources = dict[str, Resource]()
    for name, version in versions.items():
        known = next((each for each in _candidates(url, name, newest, logs) if each.version == version), None)
        if known is None:
            known = _leftover(url, name, version, _candidates(url, name, newest, logs))
        resources[name] = known
    return versions, ResourceSet(goal.type, "", resources)


def _candidates(url: str, name: str, newest: Sequence[ResourceSet], logs: Sequence[RemovalLog]) -> Iterator[Resource]:
    """The versions of a name that a client may have: those of the newest sets, then those of the logs."""
    logged = (each for log in logs for each in log.versions(url, name))
    return chain((each.resources[name] for each in newest if name in each.resources), logged)


def _leftover(url: str, name: str, version: str, others: Iterable[Resource]) -> Leftover:
    """What a client has of a name in a version that is not known, with the TTL of the first of the ``others`` with one.

    It may have it as well, and would drop the name without heartbeats.
    """
    ttl_s = next((each.ttl_s for each in others if each.ttl_s is not None), None)
    return Leftover(url, name, b"", version, ttl_s=ttl_s)


def _some_versions(goal: ResourceSet, label: str, names: Collection[str]) -> tuple[Mapping[str, str], ResourceSet]:
    url = goal.type.type_url
    resources = {name: Leftover(url, name, b"", SOME_VERSION) for name in sorted(names)}
    return NO_VERSIONS, ResourceSet(goal.type, label, resources)


def with_earlier_routes(
    facts: ClientFacts, released: Snapshot, held: NamesByType, cold: frozenset[str]
) -> tuple[Snapshot, Lingering]:
    """The release with earlier versions of what a warming listener requests and the client has not, and what lingers.

    These are names that are ``held``, and those that the newest set lacks, which linger from then on.
    docs/internals/engine.md#a-client-that-returns: "the last version, not refused, that was served with this
    listener, or an earlier one"; "each cluster of it is in *newest* or known, and none is cold".
    """
    held_names = dict(held)
    for watch in facts.watches.with_pending_release():
        url = watch.type.type_url
        present, newest = released.get(url), facts.goal.get(url).resources
        wanted = watch.pending_release.difference(present.resources) if watch.type.is_below_listeners else NO_NAMES
        wanted = wanted.difference(newest.keys() - held_names.get(url, NO_NAMES))
        routes = ((name, earlier_route(facts, url, name, cold)) for name in wanted)
        if fitting := {name: each for name, each in routes if each is not None}:
            released = facts.releases.replaced(released, present.amended(present.version_info, fitting))
            facts = facts._replace(lingering=_with_lingering(facts, url, frozenset(fitting.keys() - newest.keys())))
    return released, facts.lingering


def left_names(facts: ClientFacts, url: str) -> frozenset[str]:
    """The requested names of a type that the newest set lacks and the log has: a listener may warm for them."""
    return facts.watches.names(url).intersection(facts.log.names(url)).difference(facts.goal.get(url).resources)


def earlier_route(facts: ClientFacts, url: str, name: str, cold: frozenset[str] = NO_NAMES) -> Resource | None:
    """The last version of a route that no node refused, that leads to warm clusters, and that the client's listeners
    may have had.

    Later ones may open what only later listeners guard. So it is the first one of the log if the listeners are unknown.
    A filter comes in no version before that which was served with the listener: routes may open what it does not guard.
    """
    log, listeners_url = facts.log, facts.url_of("listeners")
    sent_sets = [each for watch in facts.watches.of(listeners_url) for each in watch.sent_sets()]
    named = ([each for each in listeners.resources.values() if _names(each, url, name)] for listeners in sent_sets)
    naming = next(filter(None, named), None)
    versions = log.served_with(url, name, naming) if naming else log.stand_ins(url, name)
    if not sent_sets or facts.watches.may_hold_anything(listeners_url):
        versions = iter([*versions][-1:])
    elif resource_type(url).alias == "extension_configs":
        versions = islice(versions, 1)
    unrefused = filter(log.is_unrefused, versions)
    return next((each for each in unrefused if _leads_to_warm(facts, each, cold)), None)


def _names(listener: Resource, url: str, name: str) -> bool:
    return any(each.type_url == url and each.name == name for each in listener.references)


def _leads_to_warm(facts: ClientFacts, route: Resource, cold: frozenset[str]) -> bool:
    """Whether the client has all clusters that a route leads to, and none is cold.

    It has those whose assignments its first request named. Others of the log it may never have had, as those without
    assignments: these count once they are ACKed.
    """
    url = facts.url_of("clusters")
    watches, clusters, logged = facts.watches.of(url), facts.released.get(url), _last(facts, url)
    kept = clusters_in_use(facts, logged)
    if not watches:  # Envoy does not request clusters while one warms
        kept &= proved_by_assignments(facts, url)
        clusters = facts.releases.mixed(clusters, logged, kept.difference(clusters.resources))
    names = {each.name for each in route.references if each.type_url == url}
    if left := names & clusters.resources.keys() - facts.goal.get(url).resources.keys() - kept:
        acked = facts.watches.acked(url) or empty_set(url)
        lacking = lacking_parts(facts, acked)
        if not facts.is_aggregated:  # it ACKs clusters before it requests their assignments
            lacking |= {name for name in acked.among(left) if assignments_of((name,), acked)}
        if not left <= acked.resources.keys() - lacking:
            return False
    return names <= clusters.resources.keys() and cold.isdisjoint(names)


def unsaid_names(facts: ClientFacts, type_url: str) -> frozenset[str]:
    """The assignments and secrets of which nothing is said: they may belong to clusters that the log lacks.

    These are `Leftover`s that linger, or clusters of a former group, also before clusters are requested.
    """
    url = facts.url_of("clusters")
    lingering = facts.lingering.names.get(url, NO_NAMES)
    may_follow_former = facts.former_groups and (lingering or (not facts.watches.of(url) and facts.is_in_return))
    if not may_follow_former and lingering.isdisjoint(facts.releases.leftovers(facts.released.get(url))):
        return NO_NAMES
    return facts.watches.names(type_url).difference(facts.goal.get(type_url).resources, facts.log.names(type_url))
