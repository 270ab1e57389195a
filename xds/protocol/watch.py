"""One type on one stream: its subscription, its response state, and the content that the client holds.

Only the methods of `Watch` write its fields, but for those that objects in them keep by themselves: the ACK state, the
subscription, and which watches are pending (`watches`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy

from xds.model.names import NO_NAMES
from xds.model.resource_type import ResourceType
from xds.model.snapshot import ResourceSet, empty_set
from xds.protocol.ack import AckState, Offer, ResponseState
from xds.protocol.heartbeats import Heartbeats
from xds.protocol.known_content import GONE_LIMIT, NOTHING_SHOWN, UNCERTAIN_LIMIT, KnownContent, ShownContent
from xds.protocol.rejections import Refused, Rejections, named_in
from xds.protocol.subscription import Subscription
from xds.snapshots.content import ResponseContent
from xds.snapshots.diffs import Diffs
from xds.snapshots.release import Releases
from xds.snapshots.responses import Response

_SUPERSEDED_LIMIT = 8


class Watch:
    """The state of one type on one stream.

    The requests and the content of the client:

    * ``subscription``; ``known``;
    * ``acked_label``: the version_info of the last response that it ACKed;
    * ``reported_missing``: the requested names that were reported to it as missing (rule 39);
    * ``shown``: what it showed when it returned;
    * ``rejections``: the search for resources that it rejects; None as long as the client refuses nothing of the type;
    * ``allows_placeholders``, ``reads_errors``: as in `ResponseKey`.

    What is to be sent:

    * ``resend_names``: the names to re-send if wanted, though unchanged (a warming cluster needs its assignment again);
    * ``pending_release``: the requested names that its transition will release;
    * ``heartbeats``: while a resource has a TTL (Delta), else None;
    * ``is_pending``: the client lacked some of the released content at the last `ClientState.update`.

    What was sent (`AckState` has the response in flight):

    * ``superseded``: the responses since the last ACK that newer ones superseded, with their nonces. Any may be in use.

    ``response_position`` is the position of the last response (`ClientState.next_position`), and ``sent_label`` its
    version_info.
    """

    __slots__ = (
        "ack",
        "acked_label",
        "allows_placeholders",
        "heartbeats",
        "is_pending",
        "known",
        "pending_release",
        "reads_errors",
        "rejections",
        "reported_missing",
        "resend_names",
        "response_position",
        "sent_label",
        "shown",
        "subscription",
        "superseded",
        "type",
    )

    def __init__(self, type: ResourceType, *, reads_errors: bool = False) -> None:
        self.type = type
        self.subscription = Subscription(legacy_wildcard=type.legacy_wildcard)
        self.ack = AckState()
        self.known = KnownContent()
        self.resend_names: frozenset[str] = NO_NAMES
        self.pending_release: frozenset[str] = NO_NAMES
        self.allows_placeholders = False
        self.reads_errors = reads_errors
        self.reported_missing: frozenset[str] = NO_NAMES
        self.shown: ShownContent = NOTHING_SHOWN
        self.is_pending = False
        self.response_position = 0
        self.sent_label = ""
        self.superseded: tuple[tuple[str, Response], ...] = ()
        self.acked_label = ""
        self.rejections: Rejections | None = None
        self.heartbeats: Heartbeats | None = None

    def copy(self) -> Watch:
        """An independent watch in the same state. Sets, responses and interests are immutable and shared."""
        clone = copy(self)
        clone.subscription, clone.ack, clone.known = copy(self.subscription), self.ack.copy(), copy(self.known)
        clone.heartbeats = self.heartbeats.copy() if self.heartbeats is not None else None
        return clone

    @property
    def offered(self) -> Response | None:
        """The response in flight."""
        return self.ack.in_flight.response if self.ack.in_flight is not None else None

    @property
    def superseded_sets(self) -> tuple[ResourceSet, ...]:
        """The sets of the responses that newer ones superseded."""
        return tuple(response.resource_set for _, response in self.superseded)

    @property
    def is_rejected(self) -> bool:
        """Whether the client rejects resources of the type."""
        return self.ack.state is ResponseState.REJECTED or bool(self.rejections)

    def is_synced_with(self, released: ResourceSet) -> bool:
        """Whether ACKs prove that the client holds all resources of ``released`` that it wants."""
        known = self.known
        return (
            self.ack.state is ResponseState.SETTLED
            and known.base is released
            and not known.is_doubtful
            and not known.unanswered
            and not known.uncertain
            and not self.resend_names
        )

    def has_newer_content(self, released: ResourceSet) -> bool:
        """Whether there is content to send that the response in flight does not contain."""
        if self.known.unanswered or self.resend_names:
            return True
        offer = self.ack.in_flight
        return offer is not None and (offer.released_id != released.id or offer.is_interest_replaced)

    # -- what the client requests, shows and lacks -------------------------------------------------------------------

    def note_label(self, version_info: str) -> None:
        """The first request has this version_info, empty for none."""
        self.allows_placeholders = not version_info
        self.acked_label = version_info  # until it ACKs a response on this stream

    def begin_search(self, refused: Refused) -> None:
        """The client refuses these versions of the type, or will."""
        if self.rejections is None:
            self.rejections = Rejections(refused, sent_n=0 if self.ack.in_flight is None else 1)

    def hold_unknown(self, shown: ShownContent) -> None:
        """Its first request does not show which set it has, but this."""
        self.shown = shown

    def know_shown(self, known: ResourceSet, shown: ShownContent, uncertain: frozenset[str]) -> None:
        """The client has this set, as its first request shows, but the names ``uncertain`` in some version."""
        self.known.base, self.shown = known, shown
        self.known.mark_uncertain(uncertain)

    def tell_removed(self, names: frozenset[str], absent: frozenset[str]) -> None:
        """These untold names lingered, and have ended. Those ``absent`` from the newest set are told as removed."""
        self.known.mark_uncertain(absent)
        self.shown = self.shown._replace(untold_names=self.shown.untold_names - names)

    def forget_names(self, dropped: frozenset[str]) -> None:
        """The client unsubscribed from these names."""
        self.known.forget(dropped)
        self.shown = self.shown._replace(has_set=False)
        self.reported_missing -= dropped
        if self.rejections is not None:
            self.rejections.forget(dropped)

    def forget_all(self) -> None:
        """The client subscribed to the wildcard again: everything must be sent (rule 53)."""
        self.known.forget_all()
        if self.ack.in_flight is not None:
            self.ack.in_flight.is_interest_replaced = True

    def resend(self, names: frozenset[str]) -> None:
        """Re-send these names once, if the client wants them, although they did not change."""
        self.resend_names = self.resend_names | names if self.resend_names else names

    def become_read(self) -> None:
        """The client has read the response in flight, even if it withholds the answer."""
        if self.ack.in_flight is not None:
            self.ack.in_flight.is_read = True

    def renew_at(self, due_s: float | None) -> None:
        """The next heartbeat is due then; None: no resource has a TTL."""
        if due_s is None:
            self.heartbeats = None
        elif self.heartbeats is None:
            self.heartbeats = Heartbeats(due_s)
        else:
            self.heartbeats.due_s = due_s

    # -- what is sent, and its answers -------------------------------------------------------------------------------

    def left_out(self, released: ResourceSet) -> frozenset[str]:
        """The wanted names of the released set that are not sent now, because the client rejects them."""
        if not self.rejections:
            return NO_NAMES
        wants = self.subscription.interest.wants_name
        return frozenset(name for name in self.rejections.left_out(released) if wants(name))

    def settle(self, released: ResourceSet, pending_release: frozenset[str]) -> None:
        """Nothing has to be sent: the client holds ``released``, except the names that wait for a release."""
        self._note_held(released)
        self._clear_unanswered(pending_release)
        self.ack.become_settled()

    def offer(self, response: Response, nonce: str, content: ResponseContent, goal: ResourceSet, position: int) -> None:
        """A response is sent. It answers all unanswered names.

        ``goal`` is the released set, even if ``response`` leaves out rejected resources. ``position`` becomes
        ``response_position``.
        """
        offer = Offer(response, goal.id, self.known.unanswered, self.resend_names)
        if content.errors or self.reported_missing:
            reported = self.reported_missing.union(content.errors)
            self.reported_missing = reported.difference(response.resource_set.resources)
        self._clear_unanswered(content.pending_release)
        self.ack.become_in_flight(offer, nonce)
        self.response_position = position
        self.sent_label = response.resource_set.version_info

    def accept(self) -> Response:
        """The client ACKed the response in flight; returns it."""
        offer = self.ack.end_flight(ResponseState.SETTLED)
        response = offer.response
        self.superseded = ()
        if self.heartbeats is not None:
            self.heartbeats.superseded_names = NO_NAMES
        is_first = self.shown.is_unknown
        if self.shown.has_set or is_first:
            self.shown = self.shown._replace(has_set=False, is_unknown=False)
        if self.rejections is not None:
            if is_first:
                self.rejections.begin_search()
            self.rejections.note_ack(response.versions())
            self.rejections.forget_absent(response.resource_set)
            if self.rejections.is_empty:
                self.rejections = None
        self._note_held(response.resource_set, response)
        if offer.is_interest_replaced:
            self.known.mark_uncertain((*response.names, *response.removed))
        if self.pending_release:  # some may not wait any longer
            self.known.mark_unanswered(self.pending_release)
        self.acked_label = response.resource_set.version_info
        return response

    def accept_part(self, accepted: ResourceSet) -> None:
        """Note that the client uses this set with new names, as proved although it withholds the ACK."""
        if self.rejections is not None and self.known.base is not None:
            new = accepted.resources.keys() - self.known.base.resources.keys()
            self.rejections.note_proved({name: accepted.resources[name].version for name in new})
        self.known.base = accepted

    def reject(self, message: str, releases: Releases, *, is_whole: bool = False) -> tuple[Offer, tuple[str, ...]]:
        """The client NACKed the response in flight with this message, and may hold any part of it (rule 18).

        ``is_whole``: the response contains all resources of the client. Returns the response, and the names of the
        resources that are now known to be rejected.
        """
        offer = self.ack.end_flight(ResponseState.REJECTED)
        guilty = self._refuse(offer, message, is_whole=is_whole)
        self.note_removed(offer.response.resource_set, releases)
        # Envoy applies the others where it names the bad ones.
        is_applied = not self.shown.is_unknown or bool(named_in(message, guilty))
        self._keep_applied(offer, frozenset(guilty) if is_applied else NO_NAMES, releases)
        return offer, guilty

    def _refuse(self, offer: Offer, message: str, *, is_whole: bool) -> tuple[str, ...]:
        response = self._mark_uncertain(offer.response)
        versions = response.versions()
        rejections = self.rejections
        assert rejections is not None, "the search begins before a NACK"
        if versions and not rejections:
            rejections.rejected_set_id = offer.released_id
        rejections.note_rejected(response)
        if not versions:
            return ()
        news = self._new_versions_in(versions, offer.answered_names)
        if news:  # a warming cluster has no assignment yet, so the last accepted one is sent
            self.resend_names = self.resend_names | offer.resent_names
        named, is_unknown = named_in(message, versions), self.shown.is_unknown
        guilty = rejections.note_nack(versions, news, named, is_whole=is_whole, is_unknown=is_unknown)
        # A name from which the client has unsubscribed meanwhile may be the bad one. It is not sent again.
        wants, resources = self.subscription.interest.wants, response.resource_set.resources
        rejections.forget([name for name in news or versions if not wants(resources[name])])
        return guilty

    def _keep_applied(self, offer: Offer, guilty: frozenset[str], releases: Releases) -> None:
        """What the client has after it NACKed a response, because of the names ``guilty`` if these are known."""
        base, response = self.known.base, offer.response
        if base is not None and (lacking := offer.answered_names & self.subscription.interest.names):
            # The client does not hold the resources that it requested, even if it had ACKed the rest of the set. What
            # it showed in another version than the rejected one it holds in some version: the label of a partial type
            # does not prove in which.
            versions = response.versions()
            if self.shown.has_set:
                lacking -= {n for n, known in base.resources.items() if versions.get(n) != known.version}
            base = self.known.base = releases.mixed(base, empty_set(self.type.type_url), lacking)
        if self.type.full_state and guilty and not (self.rejections and self.rejections.suspects):
            # Rule 18: "clients apply the valid resources of CDS and LDS".
            known = base or empty_set(self.type.type_url)
            self.known.base = releases.mixed(response.resource_set, known, guilty)
            self.superseded = ()

    def note_removed(self, sent: ResourceSet, releases: Releases) -> None:
        """The client may have applied a set of clusters that it has not ACKed: it lacks what this removed (rule 18)."""
        if self.type.is_route_target and self.known.base is not None:
            self.known.base = releases.without_removed(self.known.base, sent)

    def accept_superseded(self, nonce: str, releases: Releases) -> None:
        """The client ACKed a response that a newer one superseded.

        It has what that one brought, unless a later one has removed it.
        """
        nonces = [sent for sent, _ in self.superseded]
        if nonce not in nonces or self.known.base is None:
            return
        response, *later = [sent for _, sent in self.superseded[nonces.index(nonce) :]]
        brought = frozenset((*response.names, *response.removed))
        self.known.base = releases.mixed(self.known.base, response.resource_set, brought)
        for each in later:
            self.note_removed(each.resource_set, releases)

    def refuse_superseded(self, message: str) -> None:
        """The client NACKed a response that a newer one superseded: what the message names is rejected (rule 16).

        A name that superseded responses had in several versions is left alone: it is unknown which one is bad.
        """
        versions: dict[str, set[str]] = {}
        named = named_in(message, self.known.uncertain)
        for superseded in self.superseded_sets:
            for name in superseded.among(named):
                versions.setdefault(name, set()).add(superseded.resources[name].version)
        refused = {name: version for name, (version, *others) in versions.items() if not others}
        if self.rejections is not None:
            self.rejections.note_refused(refused)

    def is_of_earlier(self, message: str, version_info: str) -> bool:
        """Whether the error message in a request is about an earlier response, which a newer one superseded.

        While CDS is paused, Envoy answers the newest SotW response with the error of an earlier one. Then the message
        names resources that only the earlier response had, or the request has the ``version_info`` of the newest
        response, so the client accepted that response; or the newest response has nothing new.
        """
        offered = self.offered
        if offered is None or not self.known.uncertain:
            return False
        if self.superseded_sets and not self._new_versions_in(offered.versions(), NO_NAMES):
            return True  # the client has accepted all of this one before
        # The client may have accepted an earlier response of the same label.
        is_unique = all(each.version_info != version_info for each in self.superseded_sets)
        if is_unique and version_info == offered.version_info != self.acked_label:
            return True
        return bool(named_in(message, self.known.uncertain)) and not named_in(message, offered.names)

    def accepted_names(self) -> frozenset[str]:
        """The subscribed names whose resources the client accepted, in whatever version. It may reject a later one."""
        if self.known.base is None:
            return NO_NAMES
        names = self.known.base.among(self.subscription.interest.names)
        return names.difference(*self._doubted_names()) if self.is_pending else names

    def unaccepted_names(self, diffs: Diffs) -> frozenset[str]:
        """The subscribed names that are not among `accepted_names`. They are few, so this costs little."""
        interest = self.subscription.interest
        if self.known.base is None:
            return interest.names
        if not self.is_pending:
            return frozenset(diffs.missing(interest, self.known.base))
        sent, uncertain = self.ack.in_flight, self.known.uncertain
        doubted = (self.known.unanswered, self.resend_names, sent.answered_names if sent is not None else NO_NAMES)
        response = sent.response if sent is not None else None
        number, offered = (response.number, (response.names, response.removed)) if response is not None else (0, ())
        unaccepted = diffs.unaccepted(interest, self.known.base, doubted, number, offered)
        return unaccepted.union(uncertain) & interest.names if uncertain else unaccepted

    def _doubted_names(self) -> tuple[Collection[str], ...]:
        """The names that the client may lack, whatever ``known.base`` has."""
        known, sent = self.known, self.ack.in_flight
        doubted = (known.unanswered, self.resend_names, known.uncertain)
        return (*doubted, sent.answered_names, sent.response.names, sent.response.removed) if sent else doubted

    def sent_sets(self) -> Iterable[ResourceSet]:
        """All sets of which the client may use some resources."""
        offered = (self.offered.resource_set,) if self.offered is not None else ()
        sets = (self.known.base,) if self.known.base is not None else ()
        return (*sets, *offered, *self.superseded_sets)

    def sent_names(self) -> frozenset[str]:
        """The subscribed names that were sent to the client, as far as that is known."""
        interest, offered = self.subscription.interest, self.offered
        names = self.accepted_names()
        if (interest.everything or interest.globs) and self.known.base is not None:
            names = names.union(interest.select(self.known.base)) - self.known.unanswered
        return names.union(offered.names) if offered is not None else names

    def has_accepted(self, name: str) -> bool:
        """Whether the client subscribes to this resource and accepted it."""
        return self.known.base is not None and name in self.known.base.resources and name in self.accepted_names()

    def supersede(self) -> Response:
        """A newer response replaces the unanswered one in flight; returns the older response."""
        response = self._mark_uncertain(self.ack.end_flight(ResponseState.SETTLED).response)
        if self.heartbeats is not None:
            self.heartbeats.superseded_names = self.heartbeats.superseded_names.union(response.names)
        self.superseded = (*self.superseded, (self.ack.nonce, response))[-_SUPERSEDED_LIMIT:]
        return response

    def _new_versions_in(self, versions: Mapping[str, str], answered: frozenset[str]) -> dict[str, str]:
        """The resources among these, name to version, that the client did not accept before; always those answered."""
        accepted = self.known.base.resources if self.known.base is not None else {}
        return {
            name: version
            for name, version in versions.items()
            if (resource := accepted.get(name)) is None or resource.version != version or name in answered
        }

    def _mark_uncertain(self, response: Response) -> Response:
        # The names in responses that a silent client never answers are bounded by what it is served.
        limit = min(UNCERTAIN_LIMIT, len(response.resource_set) + GONE_LIMIT)
        base, gone = self.known.base, frozenset[str]()
        if self.type.full_state and base is not None and base is not response.resource_set:  # absence means removal
            gone = frozenset(base.resources.keys() - response.resource_set.resources.keys())
        self.known.mark_uncertain((*response.names, *response.removed, *gone), limit)
        return response

    def _note_held(self, released: ResourceSet, response: Response | None = None) -> None:
        """The client holds this set, but suspects in any version unless ``response`` contains them."""
        if self.rejections is None or not self.rejections.suspects:
            self.known.become(released)
            return
        known = frozenset((*response.names, *response.removed)) if response is not None else NO_NAMES
        uncertain = [name for name in self.rejections.suspects if name in self.known.uncertain and name not in known]
        self.known.become(released)
        self.known.mark_uncertain(uncertain)

    def _clear_unanswered(self, pending_release: frozenset[str]) -> None:
        self.known.unanswered = self.resend_names = NO_NAMES
        self.pending_release = pending_release
