"""The possible origins of the content that a reconnected client holds: groups, memories, sent sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import ResourceType, resource_type
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.cache import SnapshotCache
from xds.protocol.memory import Past

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


class Origin(NamedTuple):
    """Where the content that a client holds of a type may come from.

    * ``group``, ``api``: its group, and the version of the resource API;
    * ``former``: the groups that it followed before, the latest first;
    * ``past``: the memories of its node id;
    * ``held_clusters``: the clusters that it is known to hold; None if that is unknown;
    * ``clusters``: those of them that are not cold;
    * ``released``: the released set of the type;
    * ``is_aggregated``: it requests all types on one stream;
    * ``has_returned``: it has shown content of another type;
    * ``assigned_clusters``: the clusters whose assignments it requests, while it requests no clusters because one
      warms; some of them may be cold;
    * ``unready_names``: the names of the type in listeners of which it showed an earlier version.
    """

    group: str
    api: str
    former: Sequence[str]
    past: Past
    held_clusters: ResourceSet | None
    clusters: ResourceSet | None
    released: ResourceSet
    is_aggregated: bool = False
    has_returned: bool = False
    assigned_clusters: ResourceSet | None = None
    unready_names: frozenset[str] = NO_NAMES

    @property
    def has_moved(self) -> bool:
        """Whether the client followed another group before, or may have done so because its groups are forgotten."""
        return any(group != self.group for group in self.former) or (not self.former and bool(self.past.memories))

    @property
    def groups(self) -> Sequence[str]:
        """The groups from whose history the content may come, the most likely first."""
        return (*self.former, self.group)

    def is_guarded(self, type: ResourceType) -> bool:
        """Whether labels and names do not prove that resources of former groups were sent to the client.

        docs/protocol.md#removals: "Other secrets and assignments of that group are not sent to it, and those it has
        are not updated".
        """
        return type.kept_on_move and self.has_moved

    def named(self, type_url: str, label: str, names: frozenset[str]) -> Sequence[ResourceSet]:
        """The remembered sets of a type with the version_info ``label`` that the client ACKed, or that were sent to it.

        ``names``: the names that the stream with this label requests; empty for a wildcard.

        The ACK of a sent set may be lost with the stream, or withheld while a cluster warms. Several sets have the
        label if parts of a rejected response were applied, by another proxy with the node id or since a memory. A
        stream of this connection that ended takes precedence over memories.
        """
        if ended := self.past.named_on_ended_stream(type_url, label):
            return ended
        found: dict[bytes, ResourceSet] = {}
        for memory in self.past.own_memories:
            held = memory.sets.get(type_url)
            if held is not None and (label == held.version_info or memory.has_label(type_url, label, names)):
                found.setdefault(held.digest, held)
            for sent in memory.sent.get(type_url, ()):
                if sent.version_info == label:
                    found.setdefault(sent.digest, sent)
        return tuple(found.values())

    def surely_held(self, possible: Sequence[ResourceSet]) -> ResourceSet | None:
        """The content that a client with one of these sets holds; None if there is no set.

        A resource that only some sets have counts as held only if it is no longer released, so that it lingers.
        """
        if len(possible) <= 1:
            return possible[0] if possible else None
        most, served = max(possible, key=len), self.released.resources
        unsure = [n for n in most.resources if n in served and any(n not in each.resources for each in possible)]
        return most.amended(most.version_info, {}, unsure)

    def needed(self, names: frozenset[str], type_url: str) -> frozenset[str]:
        """The names among these that clusters of the client refer to; all names if its clusters are unknown.

        Clusters that were sent and not ACKed count, because the client may hold them.
        """
        if self.clusters is None or not names:
            return names
        sent = self.past.sent(self.clusters.type.type_url)
        clusters = (cluster for held in (self.clusters, *sent) for cluster in held.resources.values())
        references = (each for cluster in clusters for each in cluster.references)
        return names.intersection(each.name for each in references if each.type_url == type_url)

    def sets(self, type_url: str) -> list[ResourceSet]:
        """The remembered sets of a type, the latest first."""
        return [memory.sets[type_url] for memory in self.past.memories if type_url in memory.sets]


def origin_of(
    client: ClientState, cache: SnapshotCache, type_url: str, former: Sequence[str], group: str, api: str
) -> Origin:
    """The origin of the content that a client may hold of a type, as far as it is known now."""
    url = client.url_of("clusters")
    held_clusters = clusters = client.last_acked(url)
    assigned_clusters = None
    if clusters is None and client.has_returned and client.is_aggregated and resource_type(type_url).in_tree:
        assignments = client.names_wanted(client.url_of("endpoints"))
        assigned_clusters = cache.history.assigned_clusters(assignments, url, (*former, group), api)
    if clusters is not None and client.transition is not None:
        cold = clusters.among(client.transition.readiness.cold)
        clusters = client.releases.mixed(clusters, empty_set(url), cold)
    return Origin(
        group,
        api,
        former,
        client.past,
        held_clusters,
        clusters,
        client.release_of(type_url),
        client.is_aggregated,
        client.has_returned,
        assigned_clusters,
        _unready_names(client, type_url),
    )


def _unready_names(client: ClientState, type_url: str) -> frozenset[str]:
    """The names of a type that listeners refer to of which a reconnected client shows an earlier version."""
    url = client.url_of("listeners")
    held, goal = client.watches.acked(url), client.goal.get(url)
    if held is None or held is goal or not (client.has_returned and resource_type(type_url).after_listeners):
        return NO_NAMES
    earlier = held.among(client.releases.diff(held, goal).added_or_changed)
    return frozenset(name for kind, name in client.releases.used_by(earlier, client.released) if kind == type_url)
