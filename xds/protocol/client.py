"""The state of one client: the content released to it, its subscriptions, and the resources that linger for it.

A client is a proxy, identified by peer address and node id. Its streams share one state, so a client with one stream
per type is ordered too. The state refers to shared snapshots and sets, so it does not grow with their resources.

docs/internals/engine.md#states-of-a-client has its states; ``transition`` is None where nothing waits or lacks an end.
"""

from __future__ import annotations

from copy import copy
from math import inf

from xds.model.names import NO_NAMES
from xds.model.resource_type import ROUTE_TARGETS, TRAFFIC_TYPES, resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.advance import find_advance
from xds.protocol.cluster_parts import PARTS, proved_at_start, unassigned
from xds.protocol.expected_requests import awaits_cluster_request, is_returning
from xds.protocol.facts import ClientFacts, urls_of
from xds.protocol.group_logs import LeftGroup
from xds.protocol.hold import Held
from xds.protocol.hold_reasons import Reports
from xds.protocol.known_content import ShownContent
from xds.protocol.proof import NO_PROOF, Proof
from xds.protocol.readiness import (
    find_warm_from_s,
    proved_at_end,
    proved_clusters,
    proved_one_by_one,
    with_cold_clusters,
)
from xds.protocol.rejections import NOTHING_REFUSED, RefusedVersions
from xds.protocol.removals import (
    with_ends,
    with_removed,
    with_sent_clusters,
    without_unsent_names,
    without_unsent_resources,
)
from xds.protocol.requests import Shown
from xds.protocol.returning import (
    at_return,
    known_set,
    left_names,
    shown_content,
    shows_return,
    taken_back,
    unsaid_names,
    with_left_clusters,
    with_shown,
)
from xds.protocol.transition import (
    Transition,
    deadline_s,
    expire,
    is_acked,
    is_over,
    with_missing_secrets,
    with_step,
    with_withheld,
)
from xds.protocol.watch import Watch
from xds.protocol.watches import Watches
from xds.snapshots.cache import NO_SNAPSHOT, SnapshotCache, View
from xds.snapshots.linger import NO_NAMES_BY_TYPE, NOTHING_LINGERS, Lingering
from xds.snapshots.order import OrderRules
from xds.snapshots.release import Releases, merge_names


class ClientState:
    """The state of one client. Its streams share it and change it only through the methods below.

    * ``goal``: the newest snapshot of its group; ``released``: the content that may be sent to it now, the same object
      as ``goal`` when nothing waits or lingers;
    * ``watches``: its subscriptions;
    * ``view``: what its group serves, with the settings and the removal log of the group;
    * ``refused_before``: the versions that its node rejected on earlier connections: those of a client that returns;
    * ``former_groups``: the groups that its node followed before, and may return to;
    * ``proof``: what is proved of its clusters;
    * ``transition``: what waits, and for what; None if every type is released in full, apart from what lingers;
    * ``returned_s``: when its requests first showed that it held content before it connected; None for a new client;
    * ``drain_until_s``: when the old connections of changed listeners have ended;
    * ``reports``: what its events have told.
    """

    __slots__ = (
        "_may_send", "_position", "cache", "drain_until_s", "former_groups", "goal", "has_requested_assignments",
        "is_aggregated", "lingering", "proof", "refused_before", "released", "reports",
        "returned_s", "rules", "streams", "transition", "view", "watches",
    )  # fmt: skip

    def __init__(self, cache: SnapshotCache, rules: OrderRules, view: View | None) -> None:
        self.cache = cache
        self.rules = rules
        self.view = view if view is not None else cache.no_view
        self.streams = 0
        self.goal = self.released = self.view.snapshot
        self.watches = Watches()
        self.lingering: Lingering = NOTHING_LINGERS
        self.transition: Transition | None = None
        self.refused_before: RefusedVersions = NOTHING_REFUSED
        self.former_groups: tuple[LeftGroup, ...] = ()
        self.is_aggregated = False
        self.has_requested_assignments = False
        self.drain_until_s = 0.0
        self.proof: Proof = NO_PROOF
        self.returned_s: float | None = None
        self.reports = Reports()
        self._may_send = False
        self._position = 0

    def copy(self) -> tuple[ClientState, dict[Watch, Watch]]:
        """An independent client in the same state, and the copy of each watch for the copies of its streams.

        Snapshots, sets and everything computed from them are immutable, so the copy shares them.
        """
        clone = copy(self)
        clone.watches, copies = self.watches.copy()
        clone.reports = copy(self.reports)
        return clone, copies

    def facts(self) -> ClientFacts:
        """The state for one decision."""
        transition = self.transition
        return ClientFacts(
            self.cache,
            self.rules,
            self.view,
            self.goal,
            self.released,
            self.watches,
            urls_of(self.watches, self.goal),
            self.lingering,
            self.proof,
            self.is_aggregated,
            self.has_requested_assignments,
            self.returned_s,
            self.former_groups,
            transition is not None and transition.returning_until_s is not None,
        )

    @property
    def releases(self) -> Releases:
        """The computed releases, which all clients share."""
        return self.cache.releases

    def release_of(self, type_url: str) -> ResourceSet:
        """The content of a type that may be sent to the client now, and with which its requests are answered."""
        return self.released.get(type_url)

    def awaited_names(self, type_url: str) -> frozenset[str]:
        """The requested names that are not reported as missing now, because a push may bring them soon."""
        awaited = self.transition.awaited_secrets(type_url) if self.transition is not None else NO_NAMES
        refused = self.watches.refused.get(type_url)
        if refused and resource_type(type_url).alias in PARTS:  # the cluster that names it would be used without it
            awaited |= refused.keys() - self.released.get(type_url).resources.keys()
        if self.returned_s is None:
            return awaited
        type = resource_type(type_url)
        if type.kept_on_move:
            return awaited | unsaid_names(self.facts(), type_url)
        return (
            left_names(self.facts(), type_url) if type.is_below_listeners and self.transition is not None else awaited
        )

    def next_position(self) -> int:
        """The next number in the order of the responses on all streams of the client."""
        self._position += 1
        return self._position

    # -- inputs from streams ----------------------------------------------------------------------------------------

    def follow(self, view: View, now_s: float) -> None:
        """Serve this view from now on: at once if no part of the change has to wait, else by a transition."""
        before, self.view, goal = self.view, view, view.snapshot
        if goal is self.goal:
            return
        is_same_log = before.log is view.log
        self.watches.note_push(self.goal, goal, view.log if is_same_log else None)
        if self.goal is NO_SNAPSHOT or not self.rules.ordered:
            self.goal = goal
            self.release(goal, now_s)
            return
        is_move = self.released.group != goal.group
        if is_move:
            url = self.url_of("clusters")
            self.released = with_sent_clusters(self.facts(), self.released.get(url).resources.keys())
            for watch in self.watches.of(url):
                watch.become_read()  # superseded: the client may wait for what is not sent any more
        if self.transition is not None:
            self.note_proof()
        if self.returned_s is not None:
            for watch, names_again in taken_back(self.facts(), goal):
                watch.known.mark_unanswered(names_again)
                self.watches.mark_pending(watch, now_s)
        self.goal = goal
        releases, lingering = self.cache.releases, self.lingering
        if lingering is not NOTHING_LINGERS:
            lingering = self.lingering = releases.lingerings.missing_in(lingering, goal)
        step = releases.step(self.released, goal, lingering)
        if (
            step.is_simple
            and self.transition is None
            and not self.watches.pending_types
            and not lingering.lacks_end
            and (not step.has_trees or not self._awaits_proof(now_s))
        ):
            # In the most frequent pushes, no part of the change has to wait.
            if self.proof.clusters is None and self.watches.have_acked(TRAFFIC_TYPES):
                self.note_proof()
            if lingering is NOTHING_LINGERS:
                self.release(goal, now_s)
            else:
                names = releases.lingerings.names_missing_in(lingering, goal)
                self.release(releases.release(self.released, goal, names), now_s)
            return
        transition = self._begin(now_s)
        transition = transition._replace(drains=transition.drains or step.drains)
        facts = self.facts()
        missing = step.missing_secrets if facts.is_live else NO_NAMES
        self.transition = with_missing_secrets(facts, transition, missing, now_s)
        removed = without_unsent_names(facts, step.removed) if is_move else step.removed
        self.released = with_sent_clusters(facts, dict(removed).get(facts.url_of("clusters"), NO_NAMES))
        self.lingering, cut = with_removed(facts, removed, goal.revision, transition.readiness.cold.names)
        self.reports.cut_removals += cut

    def become_orphaned(self, now_s: float) -> None:
        """No group matches the client any more. It keeps its content, except unsent secrets and endpoints."""
        facts = self.facts()
        self.goal = without_unsent_resources(facts, self.goal)
        self.release(without_unsent_resources(facts, self.released), now_s)

    def add_watch(self, watch: Watch, names: frozenset[str], shown: Shown, now_s: float) -> None:
        """A stream requests these names of a type for the first time."""
        self.watches.add(watch, now_s)
        self.has_requested_assignments = self.has_requested_assignments or watch.type.alias == "endpoints"
        if self.rules.ordered and self.goal is not NO_SNAPSHOT:
            facts = self.facts()
            if not facts.has_returned and shows_return(facts, watch, shown, names):
                self._return(facts, now_s)
                facts = self.facts()
            if facts.has_returned:
                self._resume(facts, watch, shown, names, now_s)

    def _return(self, facts: ClientFacts, now_s: float) -> None:
        """Begin the phase RETURNING."""
        self.returned_s = now_s
        self.watches.refuse(self.refused_before)
        if self.watches.have_acked(self.watches):  # another stream goes on: only this type comes back
            self._begin(now_s, is_return=True)
            return
        self.proof = self.proof.of(empty_set(self.url_of("clusters")))
        self.released, self.lingering = at_return(facts)
        transition = self._begin(now_s, is_return=True)
        if transition.held.ready is not self.released:
            self.transition = transition._replace(held=transition.held._replace(ready=self.released))

    def _resume(self, facts: ClientFacts, watch: Watch, shown: Shown, names: frozenset[str], now_s: float) -> None:
        """Note what the client has of a type, as its first request shows. ``names`` are the requested names."""
        url = watch.type.type_url
        if watch.type.full_state and shown.label:
            facts.logs.note_shown(url, shown.label)
        if watch.type.alias in PARTS:
            watch.hold_unknown(ShownContent(requested=names if shown else NO_NAMES))
            return
        known = known_set(facts, watch, shown, names)
        if known is not None:
            if shown.versions and url in self.watches.refused:
                self.watches.refused[url].note_accepted(known.versions())  # it does not reject what it holds
            watch.know_shown(known, *shown_content(facts, known, shown))
            if watch.type.in_tree or watch.type.is_route_target:
                self._release_shown(facts, watch, known, now_s)
            return
        watch.hold_unknown(ShownContent(is_unknown=watch.type.full_state and bool(shown)))
        if watch.type.is_route_target:
            self.released, self.lingering = with_left_clusters(facts, shown.label)
            self._begin(now_s, is_return=True)
        elif watch.shown.is_unknown:
            self.transition = with_withheld(facts, self._begin(now_s, is_return=True), url)

    def _release_shown(self, facts: ClientFacts, watch: Watch, held: ResourceSet, now_s: float) -> None:
        """Release the content that the client has of a type."""
        self.released, self.lingering = with_shown(facts, watch, held)
        transition = self._begin(now_s, is_return=True)
        ready = facts.releases.replaced(transition.held.ready, self.released.get(watch.type.type_url))
        step = facts.releases.step(self.released, self.goal, self.lingering)
        drains = transition.drains or step.drains
        unproved = transition.held._replace(ready=ready, is_ready_unproved=True)
        transition = transition._replace(held=unproved, drains=drains)
        self.transition = with_missing_secrets(facts, transition, step.missing_secrets, now_s)

    def remove_watch(self, watch: Watch, now_s: float) -> None:
        """The stream of this watch ended."""
        self.note_proof()
        if watch.type.is_route_target or watch.type.alias == "listeners":
            # If the connection is broken, the other streams end next. Else the client returns anew.
            self.returned_s = now_s
            if self.transition is not None:
                self.transition = self.transition._replace(returning_until_s=now_s + self.rules.return_s)
        self.watches.remove(watch)
        self.reports = Reports()  # another stream of the client reports once more

    def update(self, watch: Watch, now_s: float) -> None:
        """Note whether the watch is in sync with the released content, after a response or a request."""
        if watch.is_synced_with(self.released.get(watch.type.type_url)):
            self.watches.mark_synced(watch)
        else:
            self.watches.mark_pending(watch, now_s)

    def resend(self, watch: Watch, names: frozenset[str], now_s: float) -> None:
        """Re-send these names once, if the client wants them, although they did not change."""
        watch.resend(names)
        self.watches.mark_pending(watch, now_s)

    def note_sendable(self) -> None:
        """Offer all types once more: a type that was offered already has something to send."""
        self._may_send = True

    # -- progress ---------------------------------------------------------------------------------------------------

    def may_advance(self, *, has_settled: bool) -> bool:
        """Whether `advance` may release more after an offer. ``has_settled``: the client had all of some type."""
        if has_settled or self._may_send or self.transition is None:
            return True
        return self.returned_s is not None and bool(self.watches.with_pending_release())

    def advance(self, now_s: float) -> bool:
        """Release all content that no longer has to wait; True if the streams may have responses to send."""
        may_send, self._may_send, before = self._may_send, False, self.transition
        if before is None:
            return may_send
        facts = self.facts()
        warm_from_s = find_warm_from_s(facts, before.readiness.warm_from_s, now_s)
        proved = proved_one_by_one(facts) if before.readiness.is_one_by_one and facts.is_aggregated else NO_NAMES
        if proved:
            self._accept_withheld(proved)
            facts = self.facts()
        step = find_advance(facts, before.held, warm_from_s, proved)
        readiness = with_cold_clusters(facts, before.readiness, step.cold, warm_from_s, now_s)
        self.transition = transition = with_step(before, step.held, readiness, now_s)
        self.proof, self.lingering = step.proof, step.lingering
        self._may_send = self._may_send or step.held.withheld_types != before.held.withheld_types
        self.release(step.released, now_s)
        if is_acked(facts, transition):
            self._set_ends(transition, now_s)
        may_send, self._may_send = may_send or self._may_send, False
        return may_send

    def _set_ends(self, transition: Transition, now_s: float) -> None:
        """Set the ends of what was removed, and end the transition if it is over: all trees are ACKed."""
        facts = self.facts()
        self.lingering, self.drain_until_s = with_ends(facts, now_s, self.drain_until_s, drains=transition.drains)
        self.transition = transition.with_ready(self.released)._replace(drains=False)
        if is_over(facts := self.facts(), transition):
            self.transition = None
            self.offer_pending_release(now_s)
            cold = transition.readiness.cold.names
            self.proof = Proof(proved_at_end(facts, cold), cold)

    def _accept_withheld(self, proved: frozenset[str]) -> None:
        """Clusters are accepted and proved despite the withheld ACK: they may linger, and are not suspect.

        A later version of such a cluster is not cold, because this one serves while it warms.
        """
        url, mixed = self.url_of("clusters"), self.releases.mixed
        for watch in self.watches.of(url):
            if watch.offered is not None:
                offered, known = watch.offered.resource_set, watch.known.base or empty_set(url)
                watch.accept_part(mixed(known, offered, offered.among(proved.difference(known.resources))))
                self.view.log.note_accepted(offered.amended("", {}, offered.resources.keys() - proved))
                self.proof = self.proof.of(mixed(self.proof.clusters or empty_set(url), offered, proved))

    def expire(self, now_s: float) -> list[str]:
        """End waits and lingering that are over; returns the types without whose ACK content is sent now."""
        if self.lingering.next_end_s is not None and self.lingering.next_end_s <= now_s:
            self._set_lingering(self.releases.lingerings.without_ended(self.lingering, now_s), now_s)
        if self.transition is None:
            return []
        expired = expire(self.facts(), self.transition, now_s)
        self.transition = expired.transition
        self.proof = self.proof.with_overdue(self.proof.overdue | expired.overdue)
        if expired.is_missing_due:
            self.offer_pending_release(now_s)
        return [self.url_of("clusters")] if expired.is_unproved else []

    def deadline_s(self) -> float | None:
        """When `expire` is due if no request or push comes before; None if it is not needed."""
        due_s = self.lingering.next_end_s
        if self.transition is None:
            return due_s
        other_s = deadline_s(self.facts(), self.transition)
        return other_s if due_s is None or (other_s is not None and other_s < due_s) else due_s

    def end_lingering(self, now_s: float) -> bool:
        """Remove the lingering resources that have an end now, for an operator (`xds release`). False for none.

        A client that is not in step may still use the others for new requests.
        """
        without_end = self.releases.lingerings.without_ended(self.lingering, inf)
        if without_end is self.lingering:
            return False
        self.drain_until_s = 0.0
        self._set_lingering(without_end, now_s)
        return True

    # -- questions of a transition ----------------------------------------------------------------------------------

    def url_of(self, alias: str) -> str:
        """The type URL of an alias in the API version that the client uses, v2 or v3."""
        return urls_of(self.watches, self.goal)[alias]

    def release(self, release: Snapshot, now_s: float) -> None:
        """Make this the released content. Watches of changed types become pending."""
        before, self.released = self.released, release
        if before is release:
            return
        if changed := self.watches.mark_changed(before, release, now_s):
            self._may_send = True
        if self.proof is not NO_PROOF:
            for url in changed:
                if url in ROUTE_TARGETS:
                    self._forget_proof(release.get(url))

    def _begin(self, now_s: float, *, is_return: bool = False) -> Transition:
        """Begin a transition, or go on with it. Returns it.

        A new one of a client that returns is in the phase RETURNING: it "may request its types in any order".
        """
        transition = self.transition
        if transition is None:
            self.note_proof()
            facts = self.facts()
            until_s = None
            if is_return or awaits_cluster_request(facts, now_s):
                until_s = now_s + self.rules.return_s
            elif self.returned_s is not None and is_returning(facts, now_s):
                until_s = self.returned_s + self.rules.return_s
            transition = Transition(now_s, Held(facts.released), returning_until_s=until_s)
        if transition.held.is_fetch_over or transition.has_timed_out:
            transition = transition._replace(held=transition.held._replace(is_fetch_over=False), has_timed_out=False)
        self.transition = transition
        return transition

    # -- proof ------------------------------------------------------------------------------------------------------

    def note_proof(self) -> None:
        """Note which clusters are proved now, before a push or the end of a stream changes what is known."""
        if self.transition is not None:
            self.proof = self.proof.of(proved_clusters(self.facts(), self.transition.readiness.cold))
        elif self.proof.clusters is None and self.returned_s is None:
            self.proof = self.proof.of(proved_at_start(self.facts()))

    def _forget_proof(self, present: ResourceSet) -> None:
        """Forget the proof of the clusters that are not ``present``: they warm again when they are pushed again."""
        proved, overdue = self.proof.clusters, self.proof.overdue
        if proved is not None and proved.type is present.type and self.releases.diff(proved, present).removed:
            self.proof = self.proof.of(self.releases.without_removed(proved, present))
        if overdue:
            self.proof = self.proof.with_overdue(present.among(overdue))

    def _awaits_proof(self, now_s: float) -> bool:
        """Whether listener trees may have to wait, because some cluster is not proved to be warm."""
        if awaits_cluster_request(self.facts(), now_s):
            return True
        url = self.url_of("clusters")
        if not self.watches.of(url):
            return False
        self.note_proof()
        facts = self.facts()
        unproved = facts.unproved(self.goal.get(url))
        return bool(unproved) and not unproved <= self.proof.overdue & unassigned(facts)

    def _set_lingering(self, lingering: Lingering, now_s: float) -> None:
        url, before, self.lingering = self.url_of("clusters"), self.lingering, lingering
        for watch in self.watches.of(url):
            if watch.shown.untold_names:
                ended = watch.shown.untold_names & before.names.get(url, NO_NAMES) - lingering.names.get(url, NO_NAMES)
                watch.tell_removed(ended, ended - self.goal.get(url).resources.keys())
                self.watches.mark_pending(watch, now_s)
                self._may_send = True
        if self.returned_s is not None:
            self.offer_pending_release(now_s)  # what was not said of assignments and secrets
        held = self.transition.held.names if self.transition is not None else NO_NAMES_BY_TYPE
        names = self.releases.lingerings.names_missing_in(lingering, self.goal)
        self.release(self.releases.release(self.released, self.goal, merge_names(held, names)), now_s)

    def offer_pending_release(self, now_s: float) -> None:
        """Offer the types of which the client requested names that were held or awaited. They are missing now."""
        for watch in self.watches.with_pending_release():
            self.watches.mark_pending(watch, now_s)
            self._may_send = True
