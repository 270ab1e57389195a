"""What a client that comes back shows it holds, dialect by dialect (DESIGN 3.2, Coming back)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xds.model.resource_type import ResourceType, resource_type
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.cache import SnapshotCache
from xds.protocol.events import DeltaRequest, Request, SotwRequest
from xds.protocol.holdings import leads_within
from xds.protocol.memory import Memory
from xds.protocol.watch import Watch

if TYPE_CHECKING:
    from xds.protocol.client import ClientState

_NAMED = ("endpoints", "secrets")  # what clusters and listeners name, beside what is in a tree


class Origin(NamedTuple):
    """Where a client may have its content from: its group, the groups it followed before, what is remembered of it."""

    group: str
    api: str
    former: Sequence[str]
    memories: Sequence[Memory]
    clusters: ResourceSet | None  # what the client is known to have
    released: ResourceSet  # what it would be told of the type that it asks for
    has_returned: bool = False  # it showed something of another type already
    # Where it asks for no clusters, since one warms: those whose assignments it asks for. Not all of them are warm.
    fed: ResourceSet | None = None

    @property
    def has_moved(self) -> bool:
        """Did it follow another group, or is that forgotten?"""
        return any(group != self.group for group in self.former) or (not self.former and bool(self.memories))

    @property
    def groups(self) -> Sequence[str]:
        """The groups whose history it may have its content from, the likelier ones first."""
        return (*self.former, self.group)

    def named(self, type_url: str, label: str) -> ResourceSet | None:
        """The set of a type that the client took under a version_info when it was here last.

        Proxies of one node id may have taken different parts of what they refused: what not all have counts as held
        only if it is there no more, so that it lingers.
        """
        found: dict[bytes, ResourceSet] = {}
        for memory in self.memories:
            held = memory.sets.get(type_url)
            if held is not None and label in (held.version_info, memory.labels.get(type_url)):
                found.setdefault(held.digest, held)
        if len(found) <= 1:
            return next(iter(found.values()), None)
        most, served = max(found.values(), key=len), self.released.resources
        unsure = [n for n in most.resources if n in served and any(n not in each.resources for each in found.values())]
        return most.amended(most.version_info, {}, unsure)

    def sets(self, type_url: str) -> list[ResourceSet]:
        """The sets of a type that are remembered, the latest first."""
        return [memory.sets[type_url] for memory in self.memories if type_url in memory.sets]


def origin_of(
    client: ClientState, cache: SnapshotCache, type_url: str, former: Sequence[str], group: str, api: str
) -> Origin:
    """Where a client may have content of a type from, as far as it is known now."""
    url = client.url_of("clusters")
    clusters, fed = client.last_acked(url), None
    if clusters is None and client.has_returned and client.is_aggregated and resource_type(type_url).in_tree:
        assignments = client.names_wanted(client.url_of("endpoints"))
        fed = cache.fed_by(assignments, url, (*former, group), api)
    memories, released = client.past.memories, client.release_of(type_url)
    return Origin(group, api, former, memories, clusters, released, client.has_returned, fed)


def names_asked(request: Request) -> frozenset[str]:
    """The names in the first request of a type."""
    return request.names if isinstance(request, SotwRequest) else request.subscribe


class Shown(NamedTuple):
    """A client shows an earlier version; ``held`` is what that is, None where nobody knows."""

    held: ResourceSet | None


def shown_by(watch: Watch, request: Request, cache: SnapshotCache, origin: Origin) -> Shown | None:
    """What the first request of a type shows that the client holds from before; None when it shows nothing."""
    if isinstance(request, SotwRequest):
        return _shown_by_version_info(watch, request, cache, origin)
    return _shown_by_versions(watch, request, cache, origin)


def _shown_by_version_info(watch: Watch, request: SotwRequest, cache: SnapshotCache, origin: Origin) -> Shown | None:
    """The set that a SotW client names by its version_info.

    Rule 13: the first request is answered in full all the same; what it holds only tells what must not go yet. Of a
    type that it names part of, it holds that part.
    """
    type, label = watch.type, request.version_info
    watch.placeholders = not label
    watch.acked_label = label  # what it took last, until it takes something on this stream
    if not label:
        return needed_by(watch, request.names, cache, origin)
    url = type.type_url
    held = origin.named(url, label) or cache.recall(origin.group, url, label, origin.api, origin.former)
    if held is not None and not _takes_all(type, request):
        groups = origin.groups
        if type.kept_on_move and origin.has_moved:
            # A label and names prove nothing: what only another group has stays with the client, and is not sent again.
            held, groups = empty_set(type.type_url), (origin.group,)
        held = cache.part(held, request.names, origin.clusters, groups, origin.api, origin.fed)
    return Shown(held)


def needed_by(watch: Watch, names: frozenset[str], cache: SnapshotCache, origin: Origin) -> Shown | None:
    """What a client that is back needs for a listener that it holds, and never got: "from the revision it holds"."""
    type = watch.type
    if not ((type.in_tree or type.alias in _NAMED) and names) or type.full_state:
        return None
    if not origin.has_returned:
        # Its streams come in any order: what it asks for and no new process could know of shows that it is back.
        served = cache.served_names(origin.group, type.type_url, origin.api)
        known = (each.resources for each in origin.sets(type.type_url))
        if names <= frozenset(served) or not any(names & each.keys() for each in known):
            return None
    released = origin.released.resources
    if all(name in released and leads_within(released[name], origin.clusters) for name in names):
        return None
    held = cache.part(empty_set(type.type_url), names, origin.clusters, origin.groups, origin.api, origin.fed)
    return Shown(held) if held.resources else None


def _takes_all(type: ResourceType, request: SotwRequest) -> bool:
    return type.full_state or (type.legacy_wildcard and not request.names)


def _shown_by_versions(watch: Watch, request: DeltaRequest, cache: SnapshotCache, origin: Origin) -> Shown | None:
    """What ``initial_resource_versions`` says the client holds; only the first message of a type may say so.

    Rule 54: use it "to suppress unchanged resources, to send changed ones, and to report in removed_resources those
    that vanished while disconnected. It does not itself subscribe." Versions that nobody knows stay as doubts; such a
    name that no longer exists is told as removed when what lingers ends.
    """
    versions = request.initial_versions
    if not versions:
        return needed_by(watch, request.subscribe, cache, origin)
    type = watch.type
    held = cache.recall_versions(
        origin.group, type.type_url, versions, origin.api, origin.former, origin.sets(type.type_url)
    )
    watch.known.base = held
    if held is not None and len(held) == len(versions):
        if type.in_tree and not request.subscribe <= held.resources.keys():
            names = request.subscribe.union(held.resources)
            held = cache.part(held, names, origin.clusters, origin.groups, origin.api, origin.fed)
        return Shown(held)
    unknown = {name: version for name, version in versions.items() if held is None or name not in held.resources}
    if type.in_tree:
        watch.known.doubted = unknown
        return Shown(None)
    served = cache.served_names(origin.group, type.type_url, origin.api)
    if type.lingers:
        watch.unknown = frozenset(name for name in unknown if name not in served)
    watch.known.doubted = {name: version for name, version in unknown.items() if name not in watch.unknown}
    return Shown(held)


def owed_at_first(watch: Watch, owed: frozenset[str], released: ResourceSet, cache: SnapshotCache) -> frozenset[str]:
    """Rule 56: "names both subscribed and in initial_resource_versions at the current version may be skipped"."""
    doubted = watch.known.doubted
    lacking = cache.lacking(owed, watch.known.base, released) - watch.unknown
    # What is told of another version is sent for that; what does not exist is told as removed when its time comes.
    current = [
        name
        for name, version in doubted.items()
        if name in lacking and ((resource := released.resources.get(name)) is None or resource.version == version)
    ]
    return lacking.difference(current) if current else lacking
