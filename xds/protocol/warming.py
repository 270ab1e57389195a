"""Assignments for warming clusters: Envoy uses a changed cluster, and ACKs it, after its assignment was sent again.

Rule 43: "A changed EDS cluster needs an EDS response after its CDS response, even if the endpoints did not change". The
names of assignments to send for this reason are in ``Watch.resend``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xds.model.snapshot import ResourceSet
from xds.protocol.ack import ResponseState
from xds.protocol.cache import SnapshotCache
from xds.protocol.watch import Watch

WatchesByType = Mapping[str, Watch]
ReleaseOf = Callable[[str], ResourceSet]


def warm(parent: Watch, child: Watch, released: ResourceSet, cache: SnapshotCache) -> bool:
    """Note which assignments must follow a CDS response; False if ``child`` is not the watch of assignments."""
    if not (
        parent.type.is_route_target and child.type.alias == "endpoints" and parent.type.type_url in child.type.parents
    ):
        return False
    names = cache.diffs.assignments(parent.known.base, released, parent.known.uncertain)
    child.resend = child.resend | names if child.resend else names
    return True


def repeat(watch: Watch, watches: WatchesByType) -> bool:
    """Whether a repeated SotW ACK is a question; if so, all subscribed names are noted to be sent again.

    Envoy asks for the assignment of a warming cluster by repeating its ACK (docs/clients.md#envoy). It is answered if a
    parent type was sent after this type; to answer any other repeat would loop (rule 14).
    """
    if not _parents_sent_since(watch, watches) or watch.ack.state is not ResponseState.SETTLED:
        return False
    watch.resend = watch.resend | watch.subscription.interest.names
    return True


def warm_doubted(watch: Watch, watches: WatchesByType, release_of: ReleaseOf, cache: SnapshotCache) -> None:
    """Note which assignments a SotW request with other names asks for again, because their clusters warm.

    Assignments of changed clusters are sent anyway (`warm`). These are the assignments of clusters in unanswered
    responses: the client may hold such a cluster in any version (rule 18), so that it may change for the client.
    """
    for parent in _parents_sent_since(watch, watches):
        if parent.type.is_route_target and parent.known.uncertain:
            released = release_of(parent.type.type_url)
            names = cache.diffs.assignments(parent.known.base, released, parent.known.uncertain)
            watch.resend = watch.resend | names


def _parents_sent_since(watch: Watch, watches: WatchesByType) -> list[Watch]:
    """The watches of parent types that were sent after this type."""
    parents = map(watches.get, watch.type.parents)
    return [parent for parent in parents if parent is not None and parent.sent > watch.sent]
