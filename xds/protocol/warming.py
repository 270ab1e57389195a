"""Assignments for warming clusters: Envoy uses and ACKs a changed cluster only after its assignment is re-sent.

Rule 43: "A changed EDS cluster needs an EDS response after its CDS response, even if the endpoints did not change".
``Watch.resend_names`` has the names of the assignments to re-send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xds.model.snapshot import ResourceSet
from xds.protocol.ack import ResponseState
from xds.protocol.cache import SnapshotCache
from xds.protocol.watch import Watch

WatchesByType = Mapping[str, Watch]
ReleaseOf = Callable[[str], ResourceSet]


def note_changed_clusters(parent: Watch, child: Watch, released: ResourceSet, cache: SnapshotCache) -> bool:
    """Note in ``child`` the assignments to re-send after a CDS response; False if ``child`` watches another type.

    ``parent`` watches the clusters; ``released`` is the set in the response.
    """
    if not (
        parent.type.is_route_target and child.type.alias == "endpoints" and parent.type.type_url in child.type.parents
    ):
        return False
    names = cache.diffs.assignments(parent.known.base, released, parent.known.uncertain)
    child.resend_names = child.resend_names | names if child.resend_names else names
    return True


def note_repeated_ack(watch: Watch, watches: WatchesByType) -> bool:
    """Whether a repeated SotW ACK must be answered. If so, all subscribed names are noted to be re-sent.

    Envoy requests the assignment of a warming cluster by repeating its ACK (docs/clients.md#envoy). The repeat is
    answered if a parent type was sent after this type. An answer to any other repeat would cause a loop (rule 14).
    """
    if not _parents_sent_since(watch, watches) or watch.ack.state is not ResponseState.SETTLED:
        return False
    watch.resend_names = watch.resend_names | watch.subscription.interest.names
    return True


def note_uncertain_clusters(watch: Watch, watches: WatchesByType, release_of: ReleaseOf, cache: SnapshotCache) -> None:
    """Note the assignments that a SotW request with other names requests again, because their clusters may warm.

    These are the assignments of clusters in unanswered responses. The client may hold such a cluster in any version
    (rule 18), so the cluster may change for it. `note_changed_clusters` notes the assignments of changed clusters.
    """
    for parent in _parents_sent_since(watch, watches):
        if parent.type.is_route_target and parent.known.uncertain:
            released = release_of(parent.type.type_url)
            names = cache.diffs.assignments(parent.known.base, released, parent.known.uncertain)
            watch.resend_names = watch.resend_names | names


def _parents_sent_since(watch: Watch, watches: WatchesByType) -> list[Watch]:
    """The watches of the parent types that were sent after the last response of this type."""
    parents = map(watches.get, watch.type.parents)
    return [parent for parent in parents if parent is not None and parent.response_position > watch.response_position]
