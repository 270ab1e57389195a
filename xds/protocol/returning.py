"""Clients that return: what their first requests show, and what is released to them until they are in step.

docs/internals/engine.md#a-client-that-returns: such a client "may hold anything that its group had within the time that
old connections live. The engine does not find out what. It leaves alone what the client shows, and adds what it may
still need".

    type                    it shows              the client counts as having   it is sent
    CDS, LDS, SotW          the label of a set    that set                      what differs and is not held
    CDS, SotW               another label         anything                      the newest set, and removals of the log
    LDS, SRDS, SotW         another label         anything                      the newest set, once no tree is held
    RDS, VHDS, ECDS, SotW   a label               each requested name, in       what is not held
                                                  some version
    tree types, CDS, Delta  versions              these                         what differs and is not held
    EDS, SDS                anything              nothing                       every requested name at once

What a client has in a version that is neither the newest nor in the log is a `Leftover`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.cluster_parts import PARTS
from xds.protocol.diffs import leads_within
from xds.protocol.group_logs import has_refused
from xds.protocol.leftover import SOME_VERSION, Leftover
from xds.protocol.linger import NamesByType, names_by_type
from xds.protocol.removal_log import RemovalLog
from xds.protocol.set_diff import assignments_of

if TYPE_CHECKING:
    from xds.protocol.client import ClientState
    from xds.protocol.watch import Watch

_NO_VERSIONS: Mapping[str, str] = MappingProxyType({})


class Shown(NamedTuple):
    """What the first request of a type shows: the version_info (SotW), or resource versions by name (Delta)."""

    label: str = ""
    versions: Mapping[str, str] = _NO_VERSIONS

    def __bool__(self) -> bool:
        return bool(self.label or self.versions)


def shows_return(client: ClientState, watch: Watch, shown: Shown, names: frozenset[str]) -> bool:
    """Whether a first request shows that its client has returned.

    A name that no newest resource has and that the log has is requested because of what the client holds, if it was
    sent nothing yet.
    """
    if shown or client.has_returned:
        return True
    if any(each.acked_set is not None for url in client.watches for each in client.watches.of(url)):
        return False
    url = watch.type.type_url
    unserved = names.difference(client.goal.get(url).resources)
    return bool(unserved) and not unserved.isdisjoint(client.log.names(url))


def resume(client: ClientState, watch: Watch, shown: Shown, names: frozenset[str], now_s: float) -> None:
    """Begin the phase RETURNING, or continue it with a further type. ``names`` are the requested names."""
    url, type = watch.type.type_url, watch.type
    if not client.has_returned:
        _begin(client, now_s)
    watch.rejections = watch.rejections or client.rejections_before(url)
    if type.alias in PARTS:
        return
    held = _known_set(client, watch, shown, names)
    if held is None:
        watch.is_unknown = type.full_state and bool(shown)
        if type.is_route_target:
            _release_left(client, url, shown.label)
        elif type.full_state and shown:
            transition = client.begin_return(now_s)
            transition.withheld_types |= {url}
            transition.drains = True
            # A listener that cannot become ready is taken back to the version before.
            transition.ready_release = client.releases.replaced(transition.ready_release, client.logs.earlier(url))
        return
    watch.acked_set = watch.shown_set = watch.known.base = held
    watch.leftover_names = frozenset(n for n, each in held.resources.items() if isinstance(each, Leftover))
    if watch.rejections is not None and shown.versions:
        watch.rejections.note_ack(held.versions())  # a client does not reject resources that it holds
    if shown.versions and type.full_state:
        # A refused response may have brought another version of what was taken away and came back, or a cluster that
        # Envoy does not show.
        watch.known.mark_uncertain(held.among(client.log.came_back(url)))
        if type.is_route_target:
            watch.untold_names = frozenset(_last(client, url).resources.keys() - held.resources.keys())
    if type.in_tree or type.is_route_target:
        _release_known(client, watch, held, now_s)


def _begin(client: ClientState, now_s: float) -> None:
    """Nothing of the listener trees is released, and no cluster is proved."""
    client.returned_s = now_s
    client.note_proved(empty_set(client.url_of("clusters")))
    for url in client.released.sets:
        if resource_type(url).in_tree and client.watches.acked(url) is None:
            client.released = client.releases.replaced(client.released, empty_set(url))
    for alias in PARTS:
        _release_left(client, client.url_of(alias))
    client.begin_return(now_s).ready_release = client.released


def _release_left(client: ClientState, url: str, label: str = "") -> None:
    """Release what the log has of a type as removed, and of clusters the last versions of what changed."""
    last, released = _last(client, url, label), client.released.get(url)
    if last.resources:
        removed = frozenset(last.resources.keys() - client.goal.get(url).resources.keys())
        names = frozenset(last.resources) if resource_type(url).is_route_target else removed
        client.released = client.releases.replaced(client.released, client.releases.mixed(released, last, names))
        _linger(client, url, removed)


def _release_known(client: ClientState, watch: Watch, held: ResourceSet, now_s: float) -> None:
    """Release the content that the client has of a type, and leave alone what the newest set lacks of it."""
    url, present = watch.type.type_url, held
    if not watch.type.full_state:
        released = client.released.get(url)
        present = client.releases.mixed(released, held, frozenset(held.resources))
    client.released = client.releases.replaced(client.released, present)
    if watch.type.alias != "listeners":
        names = present.resources.keys() | watch.untold_names
        _linger(client, url, frozenset(names - client.goal.get(url).resources.keys()))
    transition = client.begin_return(now_s)
    transition.ready_release = client.releases.replaced(transition.ready_release, present)
    transition.is_ready_release_unproved = True
    step = client.releases.step(client.released, client.goal, client.lingering)
    transition.drains = transition.drains or step.drains
    transition.note_missing_secrets(client, step.missing_secrets, now_s)


def _last(client: ClientState, url: str, label: str = "") -> ResourceSet:
    return client.logs.last(client.goal.get(url), label, client.refused_before)


def _linger(client: ClientState, url: str, names: frozenset[str]) -> None:
    """Let these names linger, those that one push removed together: they end together."""
    pushes: dict[int, set[str]] = {}
    for name in names - client.lingering.names.get(url, NO_NAMES):
        pushes.setdefault(client.log.removed_by(url, name) or client.goal.revision, set()).add(name)
    for revision, removed in sorted(pushes.items()):
        lingerings = client.releases.lingerings
        client.lingering = lingerings.with_removed(client.lingering, revision, names_by_type({url: removed}))


def _known_set(client: ClientState, watch: Watch, shown: Shown, names: frozenset[str]) -> ResourceSet | None:
    """What the client has of a type; None if it may have anything, or nothing of what it requests."""
    goal = client.goal.get(watch.type.type_url)
    if shown.versions:
        former = client.logs.former_sets(watch.type.type_url)
        key = (goal.id, *(each.id for each in former), *(each.number for each in client.logs.all), id(shown.versions))
        make = partial(_set_of_versions, goal, former, client.logs.all, shown.versions)
        return client.releases.shown_sets.get(key, make)[1]
    if not shown.label:
        return None
    if watch.type.full_state:
        return _labelled_set(client, watch, shown.label)
    wanted = _without_newly_named(client, watch.type.type_url, shown.label, names or frozenset(goal.resources))
    return client.releases.shown_sets.get((goal.id, shown.label, wanted), _some_versions, goal, shown.label, wanted)[1]


def _without_newly_named(client: ClientState, url: str, label: str, names: frozenset[str]) -> frozenset[str]:
    """Without the names that only a later push than that of the label named in listeners that the client has.

    A listener that warms requests them, and the client has no version of them.
    """
    listeners, before = client.watches.acked(client.url_of("listeners")), client.log.named_at(url, label)
    if listeners is None or before is None:
        return names
    named = {each.name for one in listeners.resources.values() for each in one.references if each.type_url == url}
    return names.difference(named - before)


def _labelled_set(client: ClientState, watch: Watch, label: str) -> ResourceSet | None:
    """The set with a label, if it is known what the client has of it.

    Envoy applies the other listeners of a refused response and shows the label before. So if the node has refused one,
    no later push may have changed a listener of the set, but to a version that the node refused.
    """
    url = watch.type.type_url
    goal = client.goal.get(url)
    found = client.log.labelled(url, label)
    if found is None or client.logs.labelled(url, label) is not found:
        return None
    if label == goal.version_info:
        return goal if found.digest == goal.digest else None
    if watch.type.is_route_target:
        return None
    refused = client.refused_before
    if not has_refused(client.log, url, refused):
        return found
    changed = found.among(client.log.changed_since(url, label))
    return found if all(_has_kept(client, found.resources[name]) for name in changed) else None


def _has_kept(client: ClientState, before: Resource) -> bool:
    """Whether one push alone changed a resource, to a version that the node refused."""
    url, name = before.type_url, before.name
    newest, refused = client.goal.get(url).resources.get(name), client.refused_before.get(url, {}).get(name)
    last = next(client.log.versions(url, name), None)
    return (
        newest is not None and newest.version in (refused or ()) and last is not None and last.version == before.version
    )


def _set_of_versions(
    goal: ResourceSet, former: Sequence[ResourceSet], logs: Sequence[RemovalLog], versions: Mapping[str, str]
) -> tuple[Mapping[str, str], ResourceSet]:
    """The set with these versions, and ``versions``: the memo refers to them, so that their id is not reused."""
    if goal.versions() == dict(versions):
        return versions, goal
    url, newest = goal.type.type_url, (goal, *former)
    resources = dict[str, Resource]()
    for name, version in versions.items():
        logged = (each for log in logs for each in log.versions(url, name))
        candidates = (*(each.resources[name] for each in newest if name in each.resources), *logged)
        known = next((each for each in candidates if each.version == version), None)
        resources[name] = known if known is not None else Leftover(url, name, b"", version)
    return versions, ResourceSet(goal.type, "", resources)


def _some_versions(goal: ResourceSet, label: str, names: Collection[str]) -> tuple[Mapping[str, str], ResourceSet]:
    url = goal.type.type_url
    resources = {name: Leftover(url, name, b"", SOME_VERSION) for name in sorted(names)}
    return _NO_VERSIONS, ResourceSet(goal.type, label, resources)


def with_earlier_routes(client: ClientState, released: Snapshot, held: NamesByType) -> Snapshot:
    """The release with earlier versions of held names that a warming listener requests and the client has not.

    docs/internals/engine.md#a-client-that-returns: "the last version of the log, if each cluster of it is in *newest*
    or known, and none is cold".
    """
    for url, names in held:
        watches = client.watches.of(url) if resource_type(url).after_listeners else ()
        wanted = frozenset().union(*(watch.pending_release for watch in watches)) & names
        if wanted := wanted.difference(released.get(url).resources):
            versions = ((name, next(client.log.stand_ins(url, name), None)) for name in wanted)
            fitting = {name: each for name, each in versions if each is not None and _leads_to_warm(client, each)}
            if fitting:
                put = released.get(url).amended(released.get(url).version_info, fitting)
                released = client.releases.replaced(released, put)
    return released


def _leads_to_warm(client: ClientState, route: Resource) -> bool:
    assert client.transition is not None, "a client that has returned is in a transition"
    url, cold = client.url_of("clusters"), client.transition.readiness.cold
    clusters = client.release_of(url)
    if not client.watches.of(url):  # Envoy does not request clusters while one warms: it has those whose assignments it
        requested = client.names_wanted(client.url_of("endpoints"))  # requests
        logged = _last(client, url)
        kept = (n for n, each in logged.resources.items() if requested.issuperset(assignments_of((n,), logged)))
        clusters = client.releases.mixed(clusters, logged, frozenset(kept).difference(clusters.resources))
    return leads_within(route, clusters) and cold.isdisjoint(each.name for each in route.references)


def unsaid_names(client: ClientState, type_url: str) -> frozenset[str]:
    """The assignments and secrets of which nothing is said: they may belong to clusters that the log lacks.

    These are `Leftover`s that linger, or clusters of a former group, also before clusters are requested.
    """
    if not client.has_returned or not resource_type(type_url).kept_on_move:
        return NO_NAMES
    url = client.url_of("clusters")
    lingering, watches = client.lingering.names.get(url, NO_NAMES), client.watches.of(url)
    has_leftovers = not all(lingering.isdisjoint(watch.leftover_names) for watch in watches)
    may_follow_former = client.former_groups and (lingering or (not watches and client.is_in_return))
    if not may_follow_former and not has_leftovers:
        return NO_NAMES
    return client.names_wanted(type_url).difference(client.goal.get(type_url).resources, client.log.names(type_url))
