"""One type on one stream: its subscription, its ack state, and what the client holds.

The content that a client holds is kept as one reference to a shared set, so a watch does not grow with the number of
resources. Deviations from the set are kept beside it (`KnownContent`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from xds.model.names import NO_NAMES
from xds.model.resource_type import ResourceType
from xds.model.snapshot import ResourceSet
from xds.protocol.ack import AckState, ResponseState
from xds.protocol.content import ResponseContent
from xds.protocol.rejections import Rejections, named_in
from xds.protocol.responses import Response
from xds.protocol.subscription import Subscription

if TYPE_CHECKING:
    from xds.protocol.client import ClientState
    from xds.protocol.delta import Heartbeats


UNKNOWN_VERSION = ""
NONE_UNCERTAIN: Mapping[str, str] = MappingProxyType({})
# Names. Above it, what the client holds counts as unknown: everything is sent again, and no removals are sent.
UNCERTAIN_LIMIT = 10_000
_SUPERSEDED_LIMIT = 8


class KnownContent:
    """What the client holds of one type, as far as ACKs prove it.

    * ``base``: a set of which the client holds all subscribed resources; None for nothing;
    * ``unanswered``: names that the client asked for and that were not answered since, even if ``base`` has them
      (rules 25, 53);
    * ``uncertain``: names that the client may hold in another version than that of ``base``: it showed them in
      ``initial_resource_versions``, or was offered them and did not ACK the response. Rule 18: "After a NACK the client
      may hold any part of the rejected response", so the version is ``""`` if it is unknown.

    The mappings are shared: they are replaced, never changed.
    """

    __slots__ = ("base", "unanswered", "uncertain")

    def __init__(self) -> None:
        self.base: ResourceSet | None = None
        self.unanswered = NO_NAMES
        self.uncertain = NONE_UNCERTAIN

    def become(self, base: ResourceSet) -> None:
        """The client holds what it wants of ``base``. Names that it asked for since then stay unanswered."""
        self.base = base
        self.uncertain = NONE_UNCERTAIN

    def mark_unanswered(self, names: Iterable[str]) -> None:
        """These names need an answer, whatever the client may hold."""
        # Where nothing else is unanswered, the given set is kept, which all streams in the same situation share.
        self.unanswered = self.unanswered.union(names) if self.unanswered else frozenset(names)

    def forget(self, names: Iterable[str]) -> None:
        """The client unsubscribed from these names: they need no answer, and nothing is known of them."""
        gone = frozenset(names)
        if self.unanswered:
            self.unanswered = self.unanswered - gone
        if self.uncertain:
            self.uncertain = {name: version for name, version in self.uncertain.items() if name not in gone}

    def forget_all(self) -> None:
        """The client asked for the wildcard again: everything is to be sent (rule 53)."""
        self.uncertain = dict.fromkeys(self.held_versions(), UNKNOWN_VERSION)
        self.base = None

    def mark_uncertain(self, names: Iterable[str]) -> None:
        """A response with these names was not ACKed: the client may hold them in any version, or not at all."""
        uncertain = dict.fromkeys(names, UNKNOWN_VERSION)
        if not uncertain:
            return
        self.uncertain = {**self.uncertain, **uncertain}
        if len(self.uncertain) > UNCERTAIN_LIMIT:
            self.base, self.uncertain = None, NONE_UNCERTAIN

    def mark_certain(self, names: Iterable[str]) -> None:
        """The client holds these names as it did before the last response."""
        if self.uncertain and names:
            gone = frozenset(names)
            self.uncertain = {
                name: version for name, version in self.uncertain.items() if name not in gone
            } or NONE_UNCERTAIN

    def held_versions(self) -> dict[str, str]:
        """Name to version of all resources that the client may hold."""
        versions = self.base.versions() if self.base is not None else {}
        versions.update(self.uncertain)
        return versions


class Watch:
    """Everything the engine keeps for one type of one stream.

    What the client asked for and holds:

    * ``subscription``; ``known``;
    * ``acked_set``: the set that it accepted last, as far as that is proved; when it returns, the set that it showed;
    * ``possible_set``: if it reconnected and showed one of several sets, the largest; None once it ACKs a response;
    * ``acked_label``: the version_info of the last response that it ACKed;
    * ``reported_missing``: requested names that were reported to it as missing (rule 39);
    * ``unknown_names``: names that a reconnecting Delta client showed and no retained set has: removed later;
    * ``rejections``: the resources that it rejects; None until the first NACK;
    * ``allows_placeholders``: it shows no earlier version, so an empty assignment may stand for a missing one;
    * ``reads_errors``: as in `ResponseKey`.

    What is to be sent:

    * ``resend_names``: names to be sent if wanted, though unchanged (a cluster that warms needs its assignment again);
    * ``pending_release``: names that it asked for and that its transition will release; ``pending_release_from`` is
      what was released then;
    * ``heartbeats``: when they are due, while a resource has a TTL (Delta);
    * ``is_pending``: the client was not in sync with the released content at the last `ClientState.update`.

    The response in flight (``ack.offered``):

    * ``goal``: the set that was released when it was made, whatever the client rejects of that;
    * ``answered_names``: the names that it answers because they were asked for, whatever ``acked_set`` has; not those
      that the client showed when it reconnected (``shown_set``, until it ACKs a response);
    * ``resent_names``: the names that it contains because they were ``resend_names``;
    * ``is_read``: the client answered something that was sent later, so it has read this response;
    * ``interest_replaced``: the interest changed so much since that its ACK will prove nothing;
    * ``superseded_sets``: the sets of responses since the last ACK that newer ones replaced: any may be in use.

    ``request_position`` and ``response_position`` are positions in the order of all that the client does: of the first
    request of the type, and of the last response; ``last_sent_set`` is the set of that.
    """

    __slots__ = (
        "ack",
        "acked_label",
        "acked_set",
        "allows_placeholders",
        "answered_names",
        "heartbeats",
        "interest_replaced",
        "is_pending",
        "is_read",
        "known",
        "last_sent_set",
        "offered_goal",
        "pending_release",
        "pending_release_from",
        "possible_set",
        "reads_errors",
        "rejections",
        "reported_missing",
        "request_position",
        "resend_names",
        "resent_names",
        "response_position",
        "shown_set",
        "subscription",
        "superseded_sets",
        "type",
        "unknown_names",
    )

    def __init__(self, type: ResourceType, request_position: int = 0) -> None:
        self.type = type
        self.subscription = Subscription(legacy_wildcard=type.legacy_wildcard)
        self.ack = AckState()
        self.known = KnownContent()
        self.resend_names: frozenset[str] = NO_NAMES
        self.resent_names: frozenset[str] = NO_NAMES
        self.pending_release: frozenset[str] = NO_NAMES
        self.pending_release_from: ResourceSet | None = None
        self.allows_placeholders = False
        self.reads_errors = False
        self.reported_missing: frozenset[str] = NO_NAMES
        self.interest_replaced = False
        self.answered_names: frozenset[str] = NO_NAMES
        self.shown_set: ResourceSet | None = None
        self.offered_goal: ResourceSet | None = None
        self.is_read = False
        self.is_pending = False
        self.request_position = request_position
        self.response_position = 0
        self.last_sent_set: ResourceSet | None = None
        self.superseded_sets: tuple[ResourceSet, ...] = ()
        self.acked_set: ResourceSet | None = None
        self.possible_set: ResourceSet | None = None
        self.acked_label = ""
        self.rejections: Rejections | None = None
        self.heartbeats: Heartbeats | None = None
        self.unknown_names: frozenset[str] = NO_NAMES

    def copy(self) -> Watch:
        """An independent watch in the same state. Sets, responses and interests are immutable and shared."""
        made = copy(self)
        made.subscription, made.ack, made.known = copy(self.subscription), copy(self.ack), copy(self.known)
        made.rejections = self.rejections.copy() if self.rejections is not None else None
        made.heartbeats = self.heartbeats.copy() if self.heartbeats is not None else None
        return made

    @property
    def is_rejected(self) -> bool:
        """Whether the client rejects resources of the type."""
        return self.ack.state is ResponseState.REJECTED or bool(self.rejections)

    def is_synced_with(self, released: ResourceSet) -> bool:
        """Whether ACKs prove that the client holds all it wants of ``released``."""
        known = self.known
        return (
            self.ack.state is ResponseState.SETTLED
            and known.base is released
            and not known.unanswered
            and not known.uncertain
            and not self.resend_names
        )

    def has_newer_content(self, released: ResourceSet) -> bool:
        """Whether there is anything to send that the response in flight does not contain."""
        offered = self.ack.in_flight
        stale = offered is not None and self.offered_goal is not released
        return stale or bool(self.known.unanswered or self.resend_names) or self.interest_replaced

    def collect_pending_release(self, released: ResourceSet) -> None:
        """A transition released new content: names that waited for it need an answer."""
        if self.pending_release and self.pending_release_from is not released:
            self.known.mark_unanswered(self.pending_release)
            self.pending_release = NO_NAMES

    def left_out(self, released: ResourceSet) -> frozenset[str]:
        """The names of what was released that are not sent now, since the client rejects them."""
        if not self.rejections:
            return NO_NAMES
        wants = self.subscription.interest.wants_name
        return frozenset(name for name in self.rejections.left_out(released) if wants(name))

    def settle(self, released: ResourceSet, pending_release: frozenset[str], goal: ResourceSet) -> None:
        """There is nothing to send: the client holds ``released``, except for names that wait for a release.

        ``goal`` is as in `offer`.
        """
        self._note_held(released)
        self._clear_unanswered(pending_release, goal)
        self.ack.become_settled()
        self.acked_set = released

    def offer(self, response: Response, nonce: str, content: ResponseContent, goal: ResourceSet, position: int) -> None:
        """A response was handed to the wire, on the way to ``goal``; it answers what was unanswered.

        ``position`` is that of ``response_position``.
        """
        self.offered_goal = goal
        self.answered_names, self.resent_names = self.known.unanswered, self.resend_names
        if content.errors or self.reported_missing:
            reported = self.reported_missing.union(content.errors)
            self.reported_missing = reported.difference(response.resource_set.resources)
        self._clear_unanswered(content.pending_release, goal)
        self.ack.become_in_flight(response, nonce)
        self.response_position = position
        self.last_sent_set = response.resource_set
        self.interest_replaced = self.is_read = False

    def accept(self) -> Response:
        """The client ACKed the response in flight; returns it."""
        response = self.ack.become_accepted()
        self.superseded_sets = ()
        if self.heartbeats is not None:
            self.heartbeats.superseded_names = NO_NAMES
        self.answered_names = self.resent_names = NO_NAMES  # large sets are not kept for nothing
        self.shown_set = self.possible_set = None
        if self.rejections is not None:
            self.rejections.note_ack(response.versions())
            if not self.rejections:
                self.rejections = None
        if self.interest_replaced:
            self.known.mark_uncertain((*response.names, *response.removed))
        else:
            self._note_held(response.resource_set, response)
        self.acked_set = response.resource_set
        self.acked_label = response.resource_set.version_info
        return response

    def accept_superseded(self, version_info: str) -> None:
        """The client says beside an error that it accepted this version: if a newer response replaced it, note that.

        Only of full-state types: for them a version stands for one set.
        """
        for at, each in enumerate(self.superseded_sets):
            if self.type.full_state and each.version_info == version_info:
                self.acked_set, self.acked_label = each, version_info
                self.superseded_sets = self.superseded_sets[at + 1 :]
                return

    def accept_part(self, accepted: ResourceSet) -> None:
        """It is proved that the client uses all of this set, which has new names, though it withholds the ACK."""
        if self.rejections is not None and self.acked_set is not None:
            new = accepted.resources.keys() - self.acked_set.resources.keys()
            self.rejections.note_proved({name: accepted.resources[name].version for name in new})
        self.acked_set = accepted

    def reject(self, message: str, *, is_whole: bool = False) -> tuple[Response, tuple[str, ...]]:
        """The client NACKed the response in flight with this message: it may hold any part of it (rule 18).

        ``is_whole``: the response contains all that the client is to have. Returns the response, and the names of the
        resources that are now known to be rejected.
        """
        response = self._mark_uncertain(self.ack.become_rejected())
        # A cluster that warms has no assignment yet: it is sent the last accepted one.
        self.resend_names, self.resent_names = self.resend_names | self.resent_names, NO_NAMES
        offered = self._new_versions_in(response)
        if not offered:
            return response, ()
        if self.rejections is None:
            self.rejections = Rejections()
            self.rejections.rejected_set = self.offered_goal
        guilty = self.rejections.note_nack(offered, named_in(message, offered), is_whole=is_whole)
        # A name that it unsubscribed from meanwhile may be the bad one, and is not sent again.
        wants, resources = self.subscription.interest.wants, response.resource_set.resources
        self.rejections.forgive([name for name in offered if not wants(resources[name])])
        self.known.mark_certain(guilty)  # the client kept its version of what it rejected
        return response, guilty

    def is_of_earlier(self, message: str, version_info: str) -> bool:
        """Whether an error message is about an earlier response, which a newer one superseded.

        While CDS is paused, Envoy answers the newest SotW response with the error of an earlier one. The message names
        resources that only the earlier one had; or the request carries the ``version_info`` of the newest response,
        which says that the client accepted that.
        """
        offered = self.ack.in_flight
        if offered is None or not self.known.uncertain:
            return False
        if version_info == offered.version_info != self.acked_label:
            # It may have accepted an earlier response with parts of the same set.
            return all(each.version_info != version_info for each in self.superseded_sets)
        return bool(named_in(message, self.known.uncertain)) and not named_in(message, offered.names)

    def accepted_names(self) -> frozenset[str]:
        """The subscribed names whose resources the client has accepted, or that it knows to be missing."""
        names = self.subscription.interest.names
        if self.acked_set is None:
            return NO_NAMES
        if not self.is_pending:
            return names
        known, offered = self.known, self.ack.in_flight
        names = (names - known.unanswered - self.resend_names).intersection(self.acked_set.resources)
        if known.uncertain:
            names = names.difference(known.uncertain)
        return names.difference(offered.names, offered.removed) if offered is not None else names

    def sent_sets(self) -> Iterable[ResourceSet]:
        """The sets of which the client may use some resource."""
        offered = (self.ack.in_flight.resource_set,) if self.ack.in_flight is not None else ()
        held = (each for each in (self.acked_set, self.possible_set) if each is not None)
        return (*held, *offered, *self.superseded_sets)

    def sent_names(self) -> frozenset[str]:
        """The subscribed names that were sent to it, if that is known."""
        interest, offered = self.subscription.interest, self.ack.in_flight
        names = self.accepted_names()
        if (interest.everything or interest.globs) and self.acked_set is not None:
            names = names.union(interest.select(self.acked_set)) - self.known.unanswered
        return names.union(offered.names) if offered is not None else names

    def has_accepted(self, name: str) -> bool:
        """Whether the client asked for this resource and accepted it."""
        return self.acked_set is not None and name in self.acked_set.resources and name in self.accepted_names()

    def supersede(self) -> Response:
        """A newer response replaces the one in flight, which is not answered yet; returns the older one."""
        response = self._mark_uncertain(self.ack.supersede())
        if self.heartbeats is not None:
            self.heartbeats.superseded_names = self.heartbeats.superseded_names.union(response.names)
        self.superseded_sets = (*self.superseded_sets, response.resource_set)[-_SUPERSEDED_LIMIT:]
        return response

    def _new_versions_in(self, response: Response) -> dict[str, str]:
        """The names in a response that the NACK may be about, with their versions: not what the client had accepted."""
        accepted = self.acked_set.resources if self.acked_set is not None else {}
        versions = response.versions()
        news = {
            name: version
            for name, version in versions.items()
            if (held := accepted.get(name)) is None or held.version != version or name in self.answered_names
        }
        return news or versions

    def _mark_uncertain(self, response: Response) -> Response:
        self.known.mark_uncertain((*response.names, *response.removed))
        return response

    def _note_held(self, released: ResourceSet, response: Response | None = None) -> None:
        """The client holds this set, but any version of suspects that the response ``response`` does not contain."""
        if self.rejections is None or not self.rejections.suspects:
            self.known.become(released)
            return
        known = frozenset((*response.names, *response.removed)) if response is not None else NO_NAMES
        uncertain = [name for name in self.rejections.suspects if name in self.known.uncertain and name not in known]
        self.known.become(released)
        self.known.mark_uncertain(uncertain)

    def _clear_unanswered(self, pending_release: frozenset[str], goal: ResourceSet) -> None:
        self.known.unanswered = NO_NAMES
        self.resend_names = NO_NAMES
        self.pending_release, self.pending_release_from = pending_release, goal if pending_release else None


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """The state of one type on one stream, as operators see it.

    ``held_back``: a transition has newer content that it did not release yet.
    """

    type_url: str
    state: str  # synced | pending | nacked
    wildcard: bool
    names: frozenset[str]
    missing: tuple[str, ...]
    version_sent: str
    version_acked: str
    held_back: bool


def status_of(watch: Watch, client: ClientState) -> TypeStatus:
    """The status of one of a client's watches."""
    released = client.release_of(watch.type.type_url)
    held_back = client.is_held_back(watch.type.type_url)
    interest = watch.subscription.interest
    synced = watch.is_synced_with(released) and not held_back
    return TypeStatus(
        type_url=watch.type.type_url,
        state="nacked" if watch.is_rejected else "synced" if synced else "pending",
        wildcard=interest.wildcard,
        names=interest.names,
        missing=tuple(interest.missing(released)),
        version_sent=watch.last_sent_set.version_info if watch.last_sent_set is not None else "",
        version_acked=watch.acked_set.version_info if watch.acked_set is not None else "",
        held_back=held_back,
    )
