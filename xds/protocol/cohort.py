"""Clients in one state take one step: it is computed once, and the others take its events and the state after it.

A `Cohort` is a state that several clients are in. It is never changed. An `Outcome` is what the engine made of one of
its inputs: the events that it returned, and the cohort after it. The first member that has the input computes it on a
copy of the state; the others take it. `CohortStream` decides what is shared, and `DiscoveryStream` has the rules.
docs/internals/cohorts.md has the reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from xds.model.names import NO_NAMES
from xds.protocol.client import ClientState
from xds.protocol.decode import CUT_FROM_BYTES, CheckCount
from xds.protocol.events import Event, Send
from xds.protocol.requests import Request, check_type
from xds.protocol.stream import DiscoveryStream
from xds.protocol.watch import Watch
from xds.snapshots.cache import View

SHARED_S = 0.25  # an outcome is taken for so long, so the times in a state are wrong by so much at most
LONELY_REVISIONS = 16  # a client in whose situation nobody else was looks for others after each such revision only
_TICK = "tick"


class ShownVersions:
    """The resource versions that a request shows, as part of a key. They are compared as objects: they are many."""

    __slots__ = ("_versions",)

    def __init__(self, versions: Mapping[str, str]) -> None:
        self._versions = versions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShownVersions) and other._versions is self._versions

    def __hash__(self) -> int:
        return id(self._versions)


class RequestKey(NamedTuple):
    """A request without its node, as the key of an outcome.

    ``removed`` are the names that a Delta request gives up. ``shown`` is the version_info (SotW), or the resource
    versions (Delta).
    """

    type_url: str
    nonce: str
    names: frozenset[str]
    removed: frozenset[str]
    shown: str | ShownVersions = ""


class Outcome:
    """What one input of a cohort leads to. ``given`` keeps the input alive, whose id may be the key of the outcome.

    ``responses`` are among its events. ``data`` is the request as the members send it, a key of the outcome as well:
    they need not decode it. ``log_state`` is that of the removal log, which the step has read, and which answers of
    other clients change.
    """

    __slots__ = ("data", "events", "given", "log_state", "made_s", "responses", "to")

    def __init__(self, given: View | RequestKey | None, events: list[Event], to: Cohort, made_s: float) -> None:
        self.data: bytes | None = None
        self.given = given
        self.events = events
        self.responses = tuple(event for event in events if isinstance(event, Send))
        self.log_state = to.view.log.state
        self.to = to
        self.made_s = made_s

    def is_valid(self, now_s: float) -> bool:
        """Whether others can take it now."""
        return now_s - self.made_s <= SHARED_S and self.to.view.log.state == self.log_state


class Cohort:
    """The state of all its members: that of their client, the watches of their stream, and what they follow.

    ``due_s`` is the deadline of the state. ``users`` counts the members, and the outcomes that lead to it.
    ``is_shared``: it has had more than one member.
    """

    __slots__ = ("__weakref__", "client", "due_s", "is_in_step", "is_shared", "outcomes", "users", "view", "watches")

    def __init__(self, stream: CohortStream, client: ClientState, view: View, *, is_in_step: bool) -> None:
        self.client = client
        self.view = view
        self.watches = stream.watches
        self.due_s = stream.deadline()
        self.is_in_step = is_in_step
        self.is_shared = False
        self.users = 0
        self.outcomes: dict[Hashable, Outcome] = {}


class Cohorts:
    """The cohorts of a server: those whose clients are in step, by situation, and the outcomes that can be taken.

    All its streams have the same limits. The outcomes are few, and are forgotten soon. So what they lead to is not kept
    for members that do not come. ``arrivals``: the outcomes of the first requests of clients.
    """

    def __init__(self) -> None:
        self.arrivals: dict[Hashable, Outcome] = {}
        self._in_step: WeakValueDictionary[Hashable, Cohort] = WeakValueDictionary()
        self._outcomes: deque[tuple[Outcome, dict[Hashable, Outcome], Hashable]] = deque()  # the oldest first

    def find(self, situation: Hashable) -> Cohort | None:
        """The cohort in a situation; None if there is none."""
        cohort = self._in_step.get(situation)
        return cohort if cohort is not None and cohort.users else None

    def add(self, situation: Hashable, cohort: Cohort) -> None:
        """Let clients in a situation find a cohort."""
        self._in_step[situation] = cohort

    def add_outcome(self, outcomes: dict[Hashable, Outcome], key: Hashable, outcome: Outcome) -> None:
        """Let the members of a cohort that has these ``outcomes`` take one more for the next `SHARED_S`."""
        self.forget_outcomes(outcome.made_s)
        outcomes[key] = outcome
        outcome.to.users += 1
        self._outcomes.append((outcome, outcomes, key))

    def forget_outcomes(self, now_s: float) -> None:
        """Forget the outcomes that are not taken any more. Call it now and then: they keep old content alive."""
        while self._outcomes and now_s - self._outcomes[0][0].made_s > SHARED_S:
            outcome, outcomes, key = self._outcomes.popleft()
            outcome.to.users -= 1
            for each in (key, outcome.data):
                if outcomes.get(each) is outcome:
                    del outcomes[each]

    def __len__(self) -> int:
        return len(self._in_step) + len(self._outcomes)


class CohortStream(DiscoveryStream):
    """The engine of one gRPC stream, which shares its state with the streams that are in the same one.

    It is a member of a cohort, or has a state of its own: as long as its client has several streams, refuses something,
    has moved, or gets heartbeats.
    """

    __slots__ = ("_cohort", "_cohorts", "_has_unknown_names", "_is_lonely")

    def __init__(self, *, cohorts: Cohorts, **settings: Any) -> None:
        super().__init__(**settings)
        self._cohorts = cohorts
        self._cohort: Cohort | None = None
        self._has_unknown_names = False
        self._is_lonely = False  # nobody else was in its situation

    @property
    def client(self) -> ClientState | None:
        """The state of the client, which others may share."""
        return self._client

    @property
    def watches(self) -> Mapping[str, Watch]:
        """The watches of its types."""
        return self._offers.watches

    # -- inputs -----------------------------------------------------------------------------------------------------

    def receive(self, request: Request, now_s: float) -> list[Event]:
        if self.node is None:
            return self._arrive(request, now_s)
        key = self._key_of(request)
        outcome = self._take_outcome(key, now_s)
        if outcome is not None:
            return outcome.events
        cohort = self.leave_cohort()
        self._has_unknown_names = False
        events = super().receive(request, now_s)
        outcomes = self._outcomes_of(cohort) if not self._has_unknown_names else None
        self._enter_cohort(outcomes, key, key, events, now_s)
        return events

    def _arrive(self, request: Request, now_s: float) -> list[Event]:
        """Handle the first request of a stream. It says who the client is; what follows is the same for many."""
        type_url = check_type(request.type_url, self._type_url, self._limits)
        self._check_request(type_url, request, NO_NAMES, request.names)
        events: list[Event] = []
        self._identify(request, events, now_s)
        key = self._key_of(request)
        arrival = self._arrival(key)
        outcome = self._cohorts.arrivals.get(arrival)
        if outcome is not None and outcome.is_valid(now_s) and self.client_key is not None:
            self._clients.share(self.client_key, self)
            self._become_member(outcome.to)
            return [*events, *outcome.events]
        self._has_unknown_names = False
        following = super().receive(request, now_s)
        outcomes = self._cohorts.arrivals if not self._has_unknown_names else None
        self._enter_cohort(outcomes, arrival, key, following, now_s)
        return [*events, *following]

    def take_request(self, data: bytes, decode: Callable[[bytes, CheckCount], Request], now_s: float) -> Outcome | None:
        """As `receive`, but only for a request that others in the same state have sent just now, without a response.

        None for others: nothing has changed then. Raises what ``decode`` raises.
        """
        cohort = self._cohort
        if cohort is None or not cohort.outcomes:
            return None
        is_short = len(data) < CUT_FROM_BYTES  # a long request has a node of its own, or takes long to hash
        outcome = self._take_outcome(data, now_s, only_silent=True) if is_short else None
        if outcome is None:
            request = decode(data, self.check_count)
            outcome = self._take_outcome(self._key_of(request), now_s, only_silent=True)
            if is_short and outcome is not None and outcome.data is None and not request.node:
                outcome.data = data
                cohort.outcomes[data] = outcome
        return outcome

    def take_view(self, now_s: float) -> Outcome | None:
        """As `offer` of what it should follow now, but only if others in the same state were offered it just now."""
        return self._take_outcome(id(self.resolve()), now_s) if self._cohort is not None else None

    def offer(self, view: View | None, now_s: float) -> list[Event]:
        outcome = self._take_outcome(id(view), now_s)
        if outcome is not None:
            return outcome.events
        cohort = self.leave_cohort()
        events = super().offer(view, now_s)
        self._enter_cohort(self._outcomes_of(cohort), id(view), view, events, now_s)
        return events

    def tick(self, now_s: float) -> list[Event]:
        outcome = self._take_outcome(_TICK, now_s)
        if outcome is not None:
            return outcome.events
        cohort = self.leave_cohort()
        events = super().tick(now_s)
        self._enter_cohort(self._outcomes_of(cohort), _TICK, None, events, now_s)
        return events

    def end_lingering(self, now_s: float) -> list[Event]:
        self.leave_cohort()
        events = super().end_lingering(now_s)
        self._enter_cohort(None, None, None, events, now_s)
        return events

    def deadline(self) -> float | None:
        return self._cohort.due_s if self._cohort is not None else super().deadline()

    def close(self, now_s: float) -> bool:
        if self._cohort is not None:
            self._cohort.users -= 1
            self._cohort = None  # `DiscoveryStream.close` does not change the state of a client without other streams
        return super().close(now_s)

    def _spend_names(self, type_url: str, request: Request, subscribed: frozenset[str]) -> frozenset[str]:
        unknown = super()._spend_names(type_url, request, subscribed)
        self._has_unknown_names = bool(unknown)  # they count for the connection of this stream
        return unknown

    def _key_of(self, request: Request) -> RequestKey | None:
        """The key of a request; None for one that only one client can have."""
        if request.error is not None or (request.node and request.node[: len(self._node_prefix)] != self._node_prefix):
            return None
        type_url = request.type_url or self._type_url
        shown = ShownVersions(request.initial_versions) if request.initial_versions else request.version_info
        return RequestKey(type_url, request.nonce, request.names, request.unsubscribe, shown)

    def _arrival(self, key: RequestKey | None) -> Hashable | None:
        """The key of the first request of a new client; None if it has something of its own."""
        client, node = self._client, self.node
        if key is None or client is None or node is None or self.view is None or not self._is_shareable(client):
            return None
        return (self._dialect.variant, self._type_url, node.reads_errors, id(self.view), key)

    # -- cohorts ----------------------------------------------------------------------------------------------------

    def _take_outcome(self, key: Hashable | None, now_s: float, *, only_silent: bool = False) -> Outcome | None:
        """Go with others in the same state that had the same input; None if nobody had it."""
        cohort = self._cohort
        if cohort is None:
            return None
        outcome = cohort.outcomes.get(key)
        if outcome is None or not outcome.is_valid(now_s) or (only_silent and outcome.responses):
            return None
        cohort.users -= 1
        self._is_lonely = False
        self._become_member(outcome.to)
        return outcome

    def _become_member(self, cohort: Cohort) -> None:
        if cohort.users:
            cohort.is_shared = True
        cohort.users += 1
        self._cohort = cohort
        self._client, self._offers.watches, self.view = cohort.client, cohort.watches, cohort.view

    def leave_cohort(self) -> Cohort | None:
        """Go on with a state of its own: a copy, or that of a cohort that nobody else uses. Returns the cohort."""
        cohort, self._cohort = self._cohort, None
        if cohort is None or self.client_key is None:
            return None
        cohort.users -= 1
        if cohort.users:
            self._client, copies = cohort.client.copy()
            self._offers.watches = {url: copies[watch] for url, watch in cohort.watches.items()}
        if cohort.is_in_step:
            self._is_lonely = not cohort.users
        self._clients.own(self.client_key, self._require_client())
        return cohort

    def _enter_cohort(
        self,
        outcomes: dict[Hashable, Outcome] | None,
        key: Hashable | None,
        given: View | RequestKey | None,
        events: list[Event],
        now_s: float,
    ) -> None:
        """Share the state, if others may be in it.

        ``outcomes``: those of the state that it had before an input, if others may have the input ``given`` too.
        """
        client, view = self._client, self.view
        if client is None or view is None or self.client_key is None:
            return
        if self._is_lonely and client.goal.revision % LONELY_REVISIONS:
            return
        if not self._is_shareable(client):
            return
        situation = self._find_situation(now_s)
        if situation is not None:
            cohort = self._cohorts.find(situation)
            if cohort is None:
                cohort = Cohort(self, client, view, is_in_step=True)
                self._cohorts.add(situation, cohort)
        elif outcomes is not None and key is not None:
            cohort = Cohort(self, client, view, is_in_step=False)
        else:
            return
        self._clients.share(self.client_key, self)
        self._become_member(cohort)
        if outcomes is not None and key is not None:
            self._cohorts.add_outcome(outcomes, key, Outcome(given, events, cohort, now_s))

    def _outcomes_of(self, before: Cohort | None) -> dict[Hashable, Outcome] | None:
        """The outcomes of a cohort that it left, if others are likely to have the same input.

        A change of groups is told to each client.
        """
        if before is None or not before.users or not before.is_shared or before.view.group != self.group:
            return None
        return before.outcomes

    def _find_situation(self, now_s: float) -> Hashable | None:
        """All that the next steps read of a client that is in step; None for one that is not."""
        situation = _situation(self._require_client(), now_s)
        return (self._dialect.variant, self._type_url, *situation) if situation is not None else None

    def _is_shareable(self, client: ClientState) -> bool:
        """Whether nothing in the state is of this client alone."""
        if client.streams > 1 or client.former_groups or client.refused_before or any(client.watches.refused.values()):
            return False
        if self._remaining_since_s is not None or client.view is not self.view:
            return False
        watches = self._offers.watches.values()
        return all(watch.rejections is None and watch.heartbeats is None for watch in watches)


def _situation(client: ClientState, now_s: float) -> tuple[Hashable, ...] | None:
    """All that the next steps read of a client that is in step; None for one that is not.

    Objects that clients share are in it by their ids: a client in the situation keeps them alive. No time is in it: the
    end of a drain only while it lasts, which is a multiple of 5 s. A nonce stands for the last response.
    """
    watches = client.watches
    if client.transition is not None or watches.pending_types or client.reports.has_untold(client.lingering):
        return None
    if client.returned_s is not None and now_s < client.returned_s + client.rules.return_s:
        return None
    parts: list[Hashable] = [
        id(client.view),
        id(client.released),
        id(client.lingering),
        id(client.proof.clusters),
        client.proof.overdue,
        client.returned_s is not None,
        client.is_aggregated,
        client.has_requested_assignments,
        client.drain_until_s if client.drain_until_s > now_s else 0.0,
    ]
    in_order = []
    for url in watches:
        for watch in watches.of(url):
            if watch.pending_release or watch.superseded or not watch.is_synced_with(client.release_of(url)):
                return None
            subscription = watch.subscription
            parts += (url, id(subscription.interest), subscription.is_explicit, watch.ack.nonce, watch.acked_label)
            parts += (watch.reported_missing, watch.shown, watch.allows_placeholders, watch.reads_errors)
            in_order.append((watch.response_position, url))
    return (*parts, *(url for _, url in sorted(in_order)))
