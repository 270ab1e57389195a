"""What is re-sent though it did not change, because a warming cluster or listener of the client waits for it.

Rule 43: "A changed EDS cluster needs an EDS response after its CDS response, even if the endpoints did not change".
docs/protocol.md#additions: "a resource that the client has, and that a new or changed resource names by another config
source, is sent once more behind it". ``Watch.resend_names`` has the names to re-send.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.model.names import NO_NAMES, WILDCARD
from xds.model.snapshot import ResourceSet
from xds.protocol.ack import ResponseState
from xds.protocol.watch import Watch
from xds.snapshots.diffs import Diffs, resolve

WatchesByType = Mapping[str, Watch]


def names_behind(parent: Watch, child: Watch, released: ResourceSet, diffs: Diffs) -> frozenset[str]:
    """The names of the type of ``child`` to re-send after a response of the type of ``parent``.

    ``released`` is the set in the response. The client may hold the ``uncertain`` resources in any version (rule 18).
    A resource that is re-sent itself may be new to a second subscription.
    """
    if parent.type.type_url not in child.type.parents:
        return NO_NAMES
    known, url = parent.known, child.type.type_url
    if child.type.alias == "endpoints":
        return diffs.assignments(known.base, released, known.uncertain)
    resent = parent.ack.in_flight.resent_names if parent.ack.in_flight is not None else NO_NAMES
    anew = (*known.uncertain, *resolve(parent.resend_names | resent, released))
    wants = child.subscription.interest.wants_name
    names = diffs.begun(known.base, released, anew, url)
    return frozenset(name for name in names if name == WILDCARD or wants(name))


def note_repeated_ack(watch: Watch, watches: WatchesByType) -> bool:
    """Whether a repeated SotW ACK must be answered. If so, all subscribed names are noted to be re-sent.

    Envoy requests the assignment of a warming cluster by repeating its ACK (docs/internals/clients.md#envoy). The
    repeat is answered if a parent type was sent after this type. An answer to any other repeat would cause a loop
    (rule 14).
    """
    if not _parents_sent_since(watch, watches) or watch.ack.state is not ResponseState.SETTLED:
        return False
    interest = watch.subscription.interest
    watch.resend(interest.names | {WILDCARD} if interest.wildcard else interest.names)
    return True


def _parents_sent_since(watch: Watch, watches: WatchesByType) -> list[Watch]:
    """The watches of the parent types that were sent after the last response of this type."""
    parents = map(watches.get, watch.type.parents)
    return [parent for parent in parents if parent is not None and parent.response_position > watch.response_position]
