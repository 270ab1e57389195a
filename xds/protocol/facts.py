"""What the rules of the engine know of one client: its state at one moment.

`ClientState` makes the facts, and is the only one that changes the state. The rules (`transition`, `readiness`,
`removals`, `returning` and what they use) are functions of the facts; what they decide, they return. Nothing in the
facts identifies the client: no node, peer or stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from xds.model.resource_type import TRAFFIC_TYPES, V2_URLS, V3_TYPES
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.group_logs import GroupLogs, LeftGroup
from xds.protocol.proof import Proof
from xds.protocol.rejections import RefusedVersions
from xds.protocol.watches import V2_TYPE_URLS, Watches
from xds.snapshots.cache import SnapshotCache, View
from xds.snapshots.linger import Lingering
from xds.snapshots.memo import Situation
from xds.snapshots.order import OrderRules
from xds.snapshots.release import Releases
from xds.snapshots.removal_log import RemovalLog

_V3_URLS = {type.alias: type.type_url for type in V3_TYPES}


class ClientFacts(NamedTuple):
    """The state of a client for one decision. The attributes of `ClientState` explain the fields.

    ``urls`` are those of `urls_of`. ``is_awaited``: it is expected to request further types soon (phase
    RETURNING).
    """

    cache: SnapshotCache
    rules: OrderRules
    view: View
    goal: Snapshot
    released: Snapshot
    watches: Watches
    urls: Mapping[str, str]
    lingering: Lingering
    proof: Proof
    is_aggregated: bool
    has_requested_assignments: bool
    returned_s: float | None
    former_groups: tuple[LeftGroup, ...]
    is_awaited: bool

    @property
    def releases(self) -> Releases:
        """The computed releases, which all clients share."""
        return self.cache.releases

    @property
    def log(self) -> RemovalLog:
        """The removal log of its group."""
        return self.view.log

    @property
    def logs(self) -> GroupLogs:
        """The removal logs of its group and of its former groups."""
        return GroupLogs(self.cache, self.log, self.former_groups, self.view.api_version)

    @property
    def refused(self) -> RefusedVersions:
        """The versions that the client is known to refuse, by type URL and name."""
        return self.watches.refused

    @property
    def has_returned(self) -> bool:
        """Whether a request showed that the client held content before this connection."""
        return self.returned_s is not None

    @property
    def is_in_return(self) -> bool:
        """Whether it has reconnected and may request further types soon."""
        return self.is_awaited and self.returned_s is not None

    @property
    def is_live(self) -> bool:
        """Whether the client may serve traffic: it has returned, or it ACKed a listener or a route."""
        return self.has_returned or self.watches.have_acked(TRAFFIC_TYPES)

    @property
    def situation(self) -> Situation:
        """All that a step of a transition reads (`advance`); empty if the client rejected something.

        Only lasting objects that clients share are in it. `RemovalLog.number` changes with every answer of the log.
        """
        watched = self.watches.situation()
        if not watched or self.former_groups:
            return ()
        log = self.view.log
        return (
            self.goal,
            self.released,
            self.lingering,
            self.proof.clusters,
            self.proof.overdue,
            log,
            log.number,
            self.is_aggregated,
            self.has_requested_assignments,
            self.returned_s is not None,
            self.is_awaited,
            watched,
        )

    def url_of(self, alias: str) -> str:
        """The type URL of an alias in the API version that the client uses, v2 or v3."""
        return self.urls[alias]

    def rejected_versions(self, type_url: str) -> frozenset[str]:
        """The names that the client rejects in the newest version, and of which it never accepted another version."""
        return self.watches.rejected_versions(type_url, self.goal.get(type_url))

    def unproved(self, clusters: ResourceSet) -> frozenset[str]:
        """The clusters of a set that are not proved to be warm, in this version or in an earlier one."""
        proved = self.proof.clusters
        return self.releases.diff(proved, clusters).added if proved is not None else frozenset(clusters.resources)


def urls_of(watches: Watches, goal: Snapshot) -> Mapping[str, str]:
    """The type URLs of all aliases in the API version that a client uses, v2 or v3."""
    if not watches.has_v2 and V2_TYPE_URLS.isdisjoint(goal.sets):
        return _V3_URLS
    return {alias: _url_of(url, watches, goal) for alias, url in _V3_URLS.items()}


def _url_of(url: str, watches: Watches, goal: Snapshot) -> str:
    old_url = V2_URLS.get(url, "")
    return old_url if old_url in watches or (old_url in goal.sets and url not in goal.sets) else url
