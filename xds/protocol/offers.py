"""The offers of one stream: for each type, the response to send now, or none.

``DiscoveryStream`` decides when types are offered, and ``content`` computes the content of a response. After a NACK,
offers leave out the rejected resources (`Rejections`). Heartbeats are sent here too. `note_answer` updates what is
known of the client's content after an ACK or NACK. docs/protocol.md#response-states has the states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from xds.model.names import NO_NAMES
from xds.model.resource_type import PARENTS
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol import warming
from xds.protocol.ack import ResponseState
from xds.protocol.client import ClientState
from xds.protocol.cluster_parts import PARTS, may_be_in_use
from xds.protocol.dialect import Dialect
from xds.protocol.events import Event, OfferTimedOut, Send, Synced
from xds.protocol.heartbeats import next_heartbeat_s, renewable, separated
from xds.protocol.watch import Watch
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.content import ResponseKey
from xds.snapshots.responses import Response


class Offers:
    """The offers of one stream; ``watches`` are the watches of its types, by type URL, in rank order."""

    __slots__ = ("_cache", "_dialect", "_offer_timeout_s", "watches")

    def __init__(self, cache: SnapshotCache, dialect: Dialect, offer_timeout_s: float) -> None:
        self._cache = cache
        self._dialect = dialect
        self._offer_timeout_s = offer_timeout_s
        self.watches: Mapping[str, Watch] = {}

    def offer_all(self, client: ClientState, events: list[Event], now_s: float, encoded_limit: int) -> bool:
        """Offer type by type. True if types remain for the next call, which is due at once.

        Types remain once `ResponseBuilder.encoded_bytes` exceeds ``encoded_limit``. The first stream of a group encodes
        for all other streams: 10,000 new resources in one call would stop the event loop for 25 ms.
        """
        responses = self._cache.responses
        for watch in self.watches.values():
            if watch.is_pending or watch.type.narrowed_by:
                if responses.encoded_bytes > encoded_limit:
                    return True
                self._offer_type(watch, client, events, now_s)
        return False

    def _offer_type(self, watch: Watch, client: ClientState, events: list[Event], now_s: float) -> None:
        """Offer the resources of one type that the client lacks, if its response state and transition allow it."""
        if client.transition is not None and watch.type.type_url in client.transition.held.withheld_types:
            return
        released = client.release_of(watch.type.type_url)
        ack = watch.ack
        if watch.type.narrowed_by:
            self._narrow_wildcard(watch, client)
            if watch.is_synced_with(released):
                return
        if ack.state is ResponseState.IN_FLIGHT and not self._may_supersede(watch, released, events, now_s):
            return
        if watch.pending_release:  # what still waits is found again
            watch.known.mark_unanswered(watch.pending_release)
        client.watches.join_search(watch)
        if watch.rejections is not None:
            goal = client.goal.get(watch.type.type_url)
            push_id = (client.goal.revision, goal.id)
            names_n, is_unknown = _wanted_n(watch, released), watch.shown.is_unknown
            watch.rejections.note_content(released, goal, push_id, names_n, is_unknown=is_unknown)
        if watch.rejections:
            self._offer_beside_rejected(watch, client, released, events, now_s)
        else:
            self._offer(watch, client, released, events, now_s)
        if not watch.is_pending:
            client.update(watch, now_s)

    def _offer_beside_rejected(
        self, watch: Watch, client: ClientState, released: ResourceSet, events: list[Event], now_s: float
    ) -> None:
        """Offer a type of which the client rejects resources.

        docs/protocol.md#rejections: "new content is sent without the suspects, alternating with halves of the
        suspects".
        """
        rejections = watch.rejections
        assert rejections is not None
        is_full = self._dialect.sends_whole_set(watch.type)
        if is_full and client.watches.may_hold_anything(watch.type.type_url):
            self._offer_to_unknown(watch, client, released, events, now_s)
            return
        if is_full and rejections.rejected_set_id == released.id:
            watch.ack.remain_rejected()  # "a rejected full-state set ... waits until its content changes"
            return
        rejections.rejected_set_id = 0
        # A full-state set without all suspects would remove those that the client has applied.
        may_probe = is_full or not rejections.is_new_content_due or not rejections.narrowed
        is_probe = may_probe and rejections.begin_probe(released)
        if self._offer_without(watch.left_out(released), watch, client, released, events, now_s):
            rejections.is_new_content_due = is_probe
        elif not is_probe and rejections.begin_probe(released):
            self._offer_without(watch.left_out(released), watch, client, released, events, now_s)
            rejections.is_new_content_due = True

    def _offer_to_unknown(
        self, watch: Watch, client: ClientState, released: ResourceSet, events: list[Event], now_s: float
    ) -> None:
        """Offer a full set to a client that may have anything, and rejected a set before.

        What is left out of it is deleted. So of the suspects only those are left out that no client is known to have,
        those that the newest set lacks before the others (or no repair would be taken), of each those of the latest
        push first, and none whose assignment it requests, unless another version takes its place.
        If it rejects the set without them as well, they are not suspect any more.
        """
        rejections = watch.rejections
        assert rejections is not None
        left_out = rejections.rejected_in(released)
        if rejections.suspects and watch.type.is_route_target and not rejections.is_spent:
            facts, url = client.facts(), watch.type.type_url
            replaced = facts.logs.stand_ins(url, frozenset(rejections.suspects), rejections).resources
            kept = may_be_in_use(facts, released) - replaced.keys()
            suspects = {name: version for name, version in rejections.suspects.items() if name not in kept}
            gone = {name: version for name, version in suspects.items() if name not in client.goal.get(url).resources}
            left_out |= facts.logs.latest_unaccepted(url, gone) or facts.logs.latest_unaccepted(url, suspects)
        self._offer_without(left_out, watch, client, released, events, now_s)

    def _offer_without(
        self,
        left_out: frozenset[str],
        watch: Watch,
        client: ClientState,
        released: ResourceSet,
        events: list[Event],
        now_s: float,
    ) -> bool:
        """Offer the released set with the last accepted versions of the names ``left_out``.

        docs/protocol.md#rejections: "If the client rejects that too, a partial response leaves the name out; a
        full-state set has the latest earlier version that the client did not reject".
        """
        url, mixed_of, rejections = watch.type.type_url, self._cache.releases.mixed, watch.rejections
        assert rejections is not None
        known = watch.known.base or client.watches.accepted(url, left_out) or empty_set(url)
        mixed = mixed_of(released, known, left_out)
        silent, is_whole = rejections.refused.among(left_out, mixed), self._dialect.sends_whole_set(watch.type)
        lacking = silent if is_whole else NO_NAMES
        if watch.type.alias in PARTS or client.watches.may_hold_anything(url):
            # A cluster may wait for the name, or the client may have an earlier version of it.
            lacking = silent | left_out.difference(mixed.resources)
        if lacking:
            earlier = client.facts().logs.stand_ins(url, lacking, rejections)
            mixed = mixed_of(mixed, earlier, earlier.among(lacking))
        if silent and is_whole and (rejections.is_spent or not silent <= earlier.resources.keys()):
            watch.ack.remain_rejected()
            return False
        if silent := rejections.refused.among(silent, mixed):
            mixed = mixed_of(mixed, watch.known.base or empty_set(url), silent)
        return self._offer(watch, client, mixed, events, now_s, left_out, silent)

    def _offer(
        self,
        watch: Watch,
        client: ClientState,
        released: ResourceSet,
        events: list[Event],
        now_s: float,
        left_out: frozenset[str] = NO_NAMES,
        silent: frozenset[str] = NO_NAMES,
    ) -> bool:
        """Send the resources of this set that the client lacks; False if nothing is sent.

        The client may hold the names ``left_out`` in any version. The response does not correct them, and contains none
        of the names ``silent``, even if they were requested.
        """
        goal = released if watch.rejections is None else client.release_of(watch.type.type_url)
        key = self._response_key(watch, client, released)
        if left_out:  # they exist, so none of them is reported as missing
            key = key._replace(awaited_names=key.awaited_names | left_out)
        if silent:
            key = key._replace(unanswered=key.unanswered - silent, resend_names=key.resend_names - silent)
        uncertain = watch.known.uncertain
        if uncertain and left_out:
            uncertain = {name: version for name, version in uncertain.items() if name not in left_out}
        built = self._cache.responses.build(key, uncertain)
        if built is None or built.response is None:
            pending_release = built.content.pending_release if built is not None else NO_NAMES
            self._settle(watch, released, pending_release, events)
            self._dialect.plan_heartbeat(watch, now_s, None)
            client.update(watch, now_s)
            return False
        rejections, is_answer = watch.rejections, bool(built.content.absent or built.content.errors)
        is_other = is_answer or self._dialect.sends_whole_set(watch.type)
        if rejections is not None and rejections.is_tried(built.response, is_other=is_other):
            watch.ack.remain_rejected()  # rule 16: "Rejected content is not re-sent until it changes"
            return False
        if rejections is not None:
            rejections.sent_n += 1
        nonce, body = self._nonce_and_body(watch, built.response)
        if watch.type.type_url in PARENTS:
            for child in self.watches.values():
                if watch.type.type_url in child.type.parents:
                    self.note_sent_before(watch, child, released, client, now_s)
        watch.offer(built.response, nonce, built.content, goal, client.next_position())
        events.append(Send(watch.type.type_url, nonce, body, built.response))
        self._dialect.plan_heartbeat(watch, now_s, built.response)
        return True

    def _may_supersede(self, watch: Watch, released: ResourceSet, events: list[Event], now_s: float) -> bool:
        """Whether newer content may be sent now, although a response is in flight.

        Rule 20: "At most one response per type is in flight". Newer content replaces it after ``offer_timeout_s``.
        docs/protocol.md#additions: "a CDS response counts as read when something sent after it is answered; a newer CDS
        response is then sent at once", because Envoy withholds the ACK of CDS while a cluster warms.
        """
        ack = watch.ack
        if not watch.has_newer_content(released):
            ack.dirty_since_s = None
            return False
        if ack.dirty_since_s is None:
            ack.dirty_since_s = now_s
        if not (watch.type.is_route_target and ack.in_flight is not None and ack.in_flight.is_read):
            if now_s < ack.dirty_since_s + self._offer_timeout_s:  # the sum of `DiscoveryStream.deadline`, to the bit
                return False
            events.append(OfferTimedOut(watch.type.type_url, ack.nonce))
        watch.note_removed(watch.supersede().resource_set, self._cache.releases)
        return True

    def _response_key(self, watch: Watch, client: ClientState, released: ResourceSet) -> ResponseKey:
        known = watch.known
        upcoming_set, url = None, watch.type.type_url
        if watch.rejections:
            upcoming_set = client.goal.get(url)
        elif client.transition is not None:
            upcoming_set = client.transition.upcoming_set(client.goal.get(url))
        return ResponseKey(
            self._dialect,
            known.offered_from,
            released,
            watch.subscription.interest,
            upcoming_set,
            known.unanswered,
            watch.resend_names,
            watch.ack.state is ResponseState.NEW,
            watch.allows_placeholders,
            watch.reported_missing,
            watch.reads_errors,
            client.awaited_names(url),
        )

    def _settle(
        self, watch: Watch, released: ResourceSet, pending_release: frozenset[str], events: list[Event]
    ) -> None:
        changed = watch.known.base is not released or watch.ack.state is ResponseState.NEW
        watch.settle(released, pending_release)
        if changed:
            events.append(Synced(watch.type.type_url, released))

    def _nonce_and_body(self, watch: Watch, response: Response) -> tuple[str, bytes]:
        """The nonce and body of a response for this stream. Rule 12: "Nonces are unique per stream and type".

        A response that may have been sent on this stream before gets a fresh nonce.
        """
        if response.number > watch.ack.newest_number:
            return response.nonce, response.body
        body, nonce = self._cache.responses.with_fresh_nonce(response)
        return nonce, body

    def note_sent_before(
        self, parent: Watch, child: Watch, released: ResourceSet, client: ClientState, now_s: float
    ) -> None:
        """A response of ``parent`` is sent: re-send after it what clusters and listeners wait for (`warming`)."""
        names = warming.names_behind(parent, child, released, self._cache.diffs)
        if names:
            client.resend(child, names, now_s)
            if child.type.rank < parent.type.rank:
                client.note_sendable()

    def _narrow_wildcard(self, watch: Watch, client: ClientState) -> None:
        """Narrow a VHDS wildcard to the subscribed routes.

        Rule 29: "An empty VHDS request means the hosts of the subscribed routes". A route configuration without hosts
        needs an answer too. Envoy holds its listener for 15 s unless a VHDS response concerns the route configuration;
        an empty response does not (docs/internals/clients.md#vhds).
        """
        routes = client.watches.names(watch.type.narrowed_by)
        before = watch.subscription.interest
        if not routes or not watch.subscription.narrow(routes, self._cache.interests):
            return
        resources = client.release_of(watch.type.type_url).resources
        # The listener waits for the hosts of a newly named route configuration, so they need an answer even if the
        # client got them by the wildcard. This happens if a listener has an inline route configuration beside one by
        # RDS.
        named = routes - (before.routes or NO_NAMES)
        watch.known.mark_unanswered(name for name in resources if name.rpartition("/")[0] in named)
        empty = named - {name.rpartition("/")[0] for name in resources}
        watch.known.mark_unanswered(f"{route}/*" for route in empty)

    def send_heartbeats(self, events: list[Event], now_s: float) -> None:
        """Send the heartbeats that are due."""
        for watch in self.watches.values():
            heartbeats, known = watch.heartbeats, watch.known.base
            if heartbeats is None or heartbeats.due_s > now_s:
                continue
            known = known or empty_set(watch.type.type_url)
            renewed = renewable(known, watch.offered, watch.subscription.interest)
            ttls_s = [each.ttl_s for each in renewed.values() if each.ttl_s is not None]
            heartbeats.due_s = next_heartbeat_s(now_s, min(ttls_s)) if ttls_s else math.inf
            uncertain = heartbeats.uncertain_names(watch.known.uncertain, watch.rejections, watch.offered)
            if uncertain:
                renewed = {name: each for name, each in renewed.items() if name not in uncertain}
            for resources in separated(renewed, watch.offered):
                response = self._cache.responses.heartbeat(known, resources)
                heartbeats.note_sent(response)
                events.append(Send(watch.type.type_url, response.nonce, response.body, response))


def _wanted_n(watch: Watch, released: ResourceSet) -> int:
    """The number of resources of a set that a client may want."""
    interest = watch.subscription.interest
    return len(released) if interest.wildcard or interest.globs else min(len(released), len(interest.names))
