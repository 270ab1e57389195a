"""Assignments for clusters that warm: Envoy puts a changed cluster to use, and ACKs it, when EDS has followed.

Rule 43: "Cluster warming needs an EDS response AFTER each CDS update that changes the cluster". What is sent with its
parent, though unchanged, is ``Watch.forced``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xds.model.snapshot import ResourceSet
from xds.protocol.ack import State
from xds.protocol.cache import SnapshotCache
from xds.protocol.watch import Watch

Watches = Mapping[str, Watch]
ReleaseOf = Callable[[str], ResourceSet]


def warm(parent: Watch, child: Watch, released: ResourceSet, cache: SnapshotCache) -> bool:
    """A parent is sent: the assignments of its changed clusters go out behind it. False where nothing is to follow."""
    if not (
        parent.type.is_route_target and child.type.alias == "endpoints" and parent.type.type_url in child.type.parents
    ):
        return False
    names = cache.assignments(parent.known.base, released, parent.known.doubted)
    child.forced = child.forced | names if child.forced else names
    return True


def repeat(watch: Watch, watches: Watches) -> bool:
    """A second ACK of the same SotW response; False when it is one too many, and answering it would loop (rule 14).

    Envoy asks so for the assignment of a cluster that warms (real_clients 0.1): it is answered if a parent type was
    sent after this type.
    """
    if not _parents_sent_since(watch, watches) or watch.ack.state is not State.SETTLED:
        return False
    watch.forced = watch.forced | watch.subscription.interest.names
    return True


def warm_doubted(watch: Watch, watches: Watches, release_of: ReleaseOf, cache: SnapshotCache) -> None:
    """A SotW client asks again for what warms, and for other names in the same request: that is no repeat.

    What warms is known from what was released, but for clusters whose earlier offers were not answered: those may
    change back in the client's eyes (rule 18).
    """
    for parent in _parents_sent_since(watch, watches):
        if parent.type.is_route_target and parent.known.doubted:
            released = release_of(parent.type.type_url)
            names = cache.assignments(parent.known.base, released, parent.known.doubted)
            watch.forced = watch.forced | names


def _parents_sent_since(watch: Watch, watches: Watches) -> list[Watch]:
    """The parent types that were sent after this one."""
    parents = map(watches.get, watch.type.parents)
    return [parent for parent in parents if parent is not None and parent.sent > watch.sent]
