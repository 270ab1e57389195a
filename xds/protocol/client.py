"""The state of one client: the content released to it, its subscriptions, and the resources that linger for it.

A client is a proxy, identified by peer address and node id. Its streams share one state, so a client with one stream
per type is ordered too. The state refers to shared snapshots and sets, so it does not grow with their resources.

    phase          content released to the client        what waits, and for what       what ends the phase
    NO GROUP       none, or what it was sent before      the client, for a group        `follow`: a group matches
    IDLE           the newest snapshot, and what         nothing (``transition`` is     `follow`: part of a push has to
                   lingers                               None)                          wait; `join`: older content
    IN TRANSITION  the same, without what has to wait    listener trees, for the ACKs   `advance`: all is ACKed and all
                                                         and proofs in `transition`     clusters are warm
    phase of a removed resource
    NO END YET     the resource as it was                its end, for the ACKs of all   `advance`: these ACKs
                                                         that could refer to it
    LINGERING      the resource as it was                its removal, for its end       `expire`; `let_go`; `follow`: it
                                                                                        is pushed again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

from xds.model.names import NO_NAMES
from xds.model.resource_type import V2_URLS, V3_TYPES, resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.ack import ResponseState
from xds.protocol.awaited import awaits_clusters, awaits_content, is_returning
from xds.protocol.cache import SnapshotCache, View
from xds.protocol.events import HeldContent
from xds.protocol.linger import NO_NAMES_BY_TYPE, NOTHING_LINGERS, Lingering, Removal
from xds.protocol.memory import ClientMemory, Past
from xds.protocol.order import DEFAULT_ORDER, GroupOrder, OrderRules
from xds.protocol.release import Releases, joined
from xds.protocol.removals import (
    removed_in_use,
    sent_of,
    start_clock,
    still_lingering,
    with_accepted,
    with_removed,
    with_sent_clusters,
    without_unsent,
)
from xds.protocol.returning import Shown, come_back, is_early
from xds.protocol.transition import Transition
from xds.protocol.watch import Watch
from xds.protocol.watches import Watches

_URLS = {type.alias: (type.type_url, V2_URLS.get(type.type_url, "")) for type in V3_TYPES}
NO_SNAPSHOT = Snapshot("", 0)  # of a client whose node no group has matched yet


class ClientState:
    """The state of one client. Its streams share it and change it only through the methods below.

    * ``goal``: the newest snapshot of its group; ``released``: what may be sent to it, the same object in the end;
    * ``watches``: its subscriptions; ``past``: what is remembered of earlier connections;
    * ``shown``: the clusters that it showed when it reconnected; ``has_clusters``: it requested clusters since;
    * ``left_s``: when a stream with clusters or listeners ended;
    * ``warm``: the clusters that were all warm when the last transition ended; None if that is unknown;
    * ``returned_s``: since when it is known to have held content before it connected; None for a new client;
    * ``undecided``: the watches of requests that came too early to know what the client holds (`is_early`);
    * ``unknown_until_s``: when names that a Delta client showed and no revision has are reported as removed;
    * ``drain_until_s``: when the old connections of changed listeners have ended;
    * ``cut``: removals that ``linger_max`` ended early and no event has reported yet;
    * ``told_lingering``, ``told_held``: what events reported last.
    """

    __slots__ = (
        "_has_moved",
        "_position",
        "cache",
        "cut",
        "drain_until_s",
        "goal",
        "has_clusters",
        "is_aggregated",
        "left_s",
        "lingering",
        "order",
        "past",
        "released",
        "returned_s",
        "rules",
        "shown",
        "streams",
        "told_held",
        "told_lingering",
        "transition",
        "undecided",
        "unknown_until_s",
        "warm",
        "watches",
    )

    def __init__(
        self, cache: SnapshotCache, rules: OrderRules, view: View | None, memories: Sequence[ClientMemory]
    ) -> None:
        self.cache = cache
        self.rules = rules
        self.order: GroupOrder = DEFAULT_ORDER
        self.streams = 0
        self.goal: Snapshot = NO_SNAPSHOT
        self.released: Snapshot = NO_SNAPSHOT
        self.watches = Watches()
        self.lingering: Lingering = NOTHING_LINGERS
        self.transition: Transition | None = None
        self.past = Past(memories)
        self.is_aggregated = False
        self.shown: ResourceSet | None = None
        self.has_clusters = False
        self.left_s: float | None = None
        self.drain_until_s = 0.0
        self.warm: ResourceSet | None = None
        self.returned_s: float | None = None
        self.undecided: tuple[Watch, ...] = ()
        self.unknown_until_s: float | None = None
        self.told_lingering: Lingering = NOTHING_LINGERS
        self.told_held: tuple[HeldContent, ...] = ()
        self.cut: tuple[Removal, ...] = ()
        self._has_moved = False
        self._position = 0
        if view is not None:
            self.goal = self.released = view.snapshot
            self.order = view.order

    def copy(self) -> tuple[ClientState, dict[Watch, Watch]]:
        """An independent client in the same state, and the copy of each watch for the copies of its streams.

        Snapshots, sets and everything computed from them are immutable, so the copy shares them.
        """
        made = copy(self)
        made.watches, copies = self.watches.copy()
        made.undecided = tuple(copies[watch] for watch in self.undecided if watch in copies)
        made.past = copy(self.past)
        made.transition = self.transition.copy() if self.transition is not None else None
        return made, copies

    @property
    def releases(self) -> Releases:
        """What is computed from released content, shared by all clients."""
        return self.cache.releases

    @property
    def is_idle(self) -> bool:
        """Whether nothing has to wait: every type is released in full, but for what lingers."""
        return self.transition is None

    @property
    def has_returned(self) -> bool:
        """Whether a request showed that the client held content before this connection."""
        return self.returned_s is not None

    def release_of(self, type_url: str) -> ResourceSet:
        """The content of a type that may be sent to the client now. Requests are answered from it at once."""
        return self.released.get(type_url)

    def is_silent(self, type_url: str) -> bool:
        """Whether nothing of this type may be sent, because it is unknown what the client holds of it."""
        return self.transition is not None and type_url in self.transition.silent

    def coming(self, type_url: str) -> ResourceSet | None:
        """The newest set of a type while some of it is held back: its names are not reported as missing meanwhile.

        None if nothing is, and after `order_timeout_s`: "a name that exists only in held content is reported as missing
        after `order_timeout_s`, and sent when the content is released" (docs/protocol.md#additions).
        """
        transition = self.transition
        if transition is None or transition.is_pending_release_told or not transition.keeps(type_url):
            return None
        return self.goal.get(type_url)

    def is_held_back(self, type_url: str) -> bool:
        """Whether newer content of this type waits in the transition."""
        transition = self.transition
        return transition is not None and (type_url in transition.silent or transition.keeps(type_url))

    def names_wanted(self, type_url: str) -> frozenset[str]:
        """All names of a type to which the client's streams subscribe."""
        return self.watches.names(type_url)

    def next_position(self) -> int:
        """The next number in the order of what the client requests, ACKs and is sent, over all its streams."""
        self._position += 1
        return self._position

    # -- what streams tell ------------------------------------------------------------------------------------------

    def follow(self, view: View, now_s: float) -> None:
        """Serve this view from now on: at once if no part of the change has to wait, else by a transition."""
        self.order = view.order
        goal = view.snapshot
        if goal is self.goal:
            return
        if self.goal is NO_SNAPSHOT or not self.rules.ordered:
            self.goal = goal
            self.release(goal, now_s)
            return
        is_move = self.released.group != goal.group
        if is_move:
            self.released = with_sent_clusters(self, self.released)
        if self.transition is not None:
            self.transition.readiness.note_warm(self)
        self.goal = goal
        releases, lingering = self.cache.releases, self.lingering
        if lingering is not NOTHING_LINGERS:
            lingering = self.lingering = still_lingering(self)
        step = releases.step(self.released, goal, lingering)
        if (
            step.is_simple
            and self.transition is None
            and not self.watches.lagging_types
            and not lingering.is_pending
            and (not step.has_trees or not awaits_content(self, now_s))
        ):
            # The most frequent pushes: no part of the change has to wait.
            if lingering is NOTHING_LINGERS:
                self.release(goal, now_s)
            else:
                kept = releases.lingerings.kept(lingering, goal)
                self.release(releases.release(self.released, goal, kept), now_s)
            return
        transition = self._begin(now_s)
        transition.drains = transition.drains or step.drains
        removed = without_unsent(self, step.removed) if is_move else step.removed
        self.lingering = with_removed(self, joined(removed, removed_in_use(self)), goal.revision)

    def strand(self, now_s: float) -> None:
        """No group matches the client any more: it keeps its content. Secrets and endpoints that it was not sent go."""
        self.goal = sent_of(self, self.goal)
        self.release(sent_of(self, self.released), now_s)

    def join(self, watch: Watch, names: frozenset[str], shown: Shown | None, now_s: float) -> None:
        """A stream requested a type for the first time; ``shown`` is the earlier content that the request shows."""
        url = watch.type.type_url
        watch.refusals = self.watches.refusals_of(url)
        self.watches.add(watch, now_s)
        self.has_clusters = self.has_clusters or watch.type.is_route_target
        if shown is None or not self.rules.ordered or self.goal is NO_SNAPSHOT:
            if self.has_returned:  # it has reconnected, and never accepted anything of this type
                watch.refusals = watch.refusals or self.past.refusals(url)
            if is_early(self, watch, names):
                self.undecided = (*self.undecided, watch)
                transition = self.begin_return(now_s)
                transition.returning_until_s = transition.returning_until_s or now_s + self.rules.return_s
                transition.silent |= {url}
            return
        come_back(self, watch, shown, now_s, is_first=len(self.watches.of(url)) == 1)

    def take_undecided(self) -> tuple[Watch, ...]:
        """The watches of early requests that still have no response, once it can be decided what the client holds."""
        undecided, self.undecided = self.undecided, ()
        if self.transition is not None:
            self.transition.silent -= {watch.type.type_url for watch in undecided}
        self._has_moved = True
        return tuple(watch for watch in undecided if watch.ack.state is ResponseState.NEW)

    def leave(self, watch: Watch, now_s: float) -> None:
        """The stream of this watch ended."""
        if is_awaited := watch.type.is_route_target or watch.type.alias == "listeners":
            self.left_s = now_s
        if self.transition is not None:
            self.transition.readiness.note_warm(self)
        if self.transition is not None and (watch.lags or is_awaited):
            # The connection may be broken: then the other streams end next, and the client still uses its old content.
            self.transition.broken_until_s = now_s + self.rules.return_s
        self.past.keep(watch)
        self.watches.remove(watch)
        if self.undecided:
            self.undecided = tuple(other for other in self.undecided if other is not watch)

    def update(self, watch: Watch, now_s: float) -> None:
        """Note whether the watch is in sync with the released content, after a response or a request."""
        if watch.in_step_with(self.released.get(watch.type.type_url)):
            self.watches.mark_synced(watch)
        else:
            self.watches.mark_pending(watch, now_s)

    # -- what comes next --------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> bool:
        """Release all content that no longer has to wait; True when the client's streams may have something to send."""
        moved, self._has_moved = self._has_moved, False
        transition = self.transition
        if transition is None:
            return moved
        silent = transition.silent
        keep = transition.keep(self, now_s)
        self._has_moved = self._has_moved or transition.silent is not silent
        lingering = self.releases.lingerings.kept(self.lingering, self.goal)
        released = with_accepted(self, self.released, lingering)
        self.release(self.releases.release(released, self.goal, joined(keep, lingering)), now_s)
        if transition.is_shown(self):
            start_clock(self, transition, now_s)
            if transition.is_over(self):
                self.transition = None
                self.warm = self._warm_now(transition.readiness.before)
        moved, self._has_moved = moved or self._has_moved, False
        return moved

    def expire(self, now_s: float) -> list[str]:
        """Give up waits that lasted too long and end lingering; returns the types whose ACK is no longer waited for."""
        if self.unknown_until_s is not None and self.unknown_until_s <= now_s:
            self.unknown_until_s = None
            self._doubt_unknown(now_s)
        if self.lingering.next_end_s is not None and self.lingering.next_end_s <= now_s:
            self._set_lingering(self.releases.lingerings.without_ended(self.lingering, now_s), now_s)
        transition = self.transition
        if transition is None:
            return []
        silent = transition.silent
        ended = transition.expire(self, now_s)
        self._has_moved = self._has_moved or transition.silent is not silent
        return [self.url_of("clusters")] if ended else []

    def deadline_s(self) -> float | None:
        """When `expire` should be called although nothing happened."""
        if self.transition is None and self.lingering is NOTHING_LINGERS and self.unknown_until_s is None:
            return None
        due = [self.lingering.next_end_s, self.unknown_until_s]
        if self.transition is not None:
            due.append(self.transition.deadline_s(self))
        return min((each for each in due if each is not None), default=None)

    def let_go(self, now_s: float) -> bool:
        """End all lingering, on the order of an operator (`xds release`). False when nothing lingered."""
        if not self.lingering:
            return False
        self.drain_until_s = 0.0
        self._set_lingering(NOTHING_LINGERS, now_s)
        return True

    def held(self) -> tuple[HeldContent, ...]:
        """The trees that wait for clusters now, each "with the clusters that it waits for"."""
        transition = self.transition
        if transition is None or not transition.held:
            return ()
        cold = transition.readiness.cold
        return tuple(
            HeldContent(
                joined(tree.first, tree.then),
                tuple(sorted(cold if tree.is_unreadable else cold.intersection(tree.leads_to))),
                tree.is_unreadable,
            )
            for tree in transition.held
        )

    def untell(self) -> None:
        """A stream ended: another stream of the client reports again what lingers and what is held."""
        self.told_lingering, self.told_held = NOTHING_LINGERS, ()

    # -- what a transition asks -------------------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Whether the client may serve traffic: it ACKed or showed a listener or a route, or its content is unknown."""
        if self.transition is not None and self.transition.silent:
            return True
        return any(
            watch.acked_set is not None
            for url in self.watches
            if resource_type(url).alias in ("listeners", "routes")
            for watch in self.watches.of(url)
        )

    def url_of(self, alias: str) -> str:
        """The type URL of an alias in the API version that the client uses, v2 or v3."""
        url, old_url = _URLS[alias]
        if old_url in self.watches or (old_url in self.goal.sets and url not in self.goal.sets):
            return old_url
        return url

    def refused(self, type_url: str) -> Mapping[str, str]:
        """Name to version of the newest resources that the client rejects and never accepted in another version."""
        return self.watches.refused(type_url, self.goal.get(type_url))

    def last_acked(self, type_url: str) -> ResourceSet | None:
        """The set of a type that the client ACKed last, on this connection or before it; None if it ACKed none."""
        found = self.watches.acked(type_url)
        return found if found is not None else self.past.acked(type_url, self.releases)

    def release(self, release: Snapshot, now_s: float) -> None:
        """Make this the released content: streams whose types changed have something to send."""
        before, self.released = self.released, release
        if before is release:
            return
        changed = self.watches.mark_changed(before, release, now_s)
        if changed:
            self._has_moved = True
        if self.warm is not None or self.transition is not None:
            for url in changed:
                if resource_type(url).is_route_target:
                    self._cool(url, release)

    def _cool(self, url: str, release: Snapshot) -> None:
        """Forget that removed clusters were warm: if they are pushed again, they become warm again."""
        if self.warm is not None and self.warm.type.type_url == url:
            self.warm = self.releases.common(self.warm, release.get(url))
        if self.transition is not None:
            self.transition.readiness.note_released(release.get(url), self.releases.common)

    def _begin(self, now_s: float) -> Transition:
        if self.transition is None:
            self.transition = Transition(self, now_s)
            self.transition.drains = self.has_returned and self.past.drains
            if awaits_clusters(self, now_s):
                self.transition.returning_until_s = now_s + self.rules.return_s
            elif self.returned_s is not None and is_returning(self, now_s):
                self.transition.returning_until_s = self.returned_s + self.rules.return_s
        self.transition.is_fetch_over = self.transition.is_pending_release_told = False
        return self.transition

    def begin_return(self, now_s: float) -> Transition:
        """Begin the phase RETURNING: a reconnected client "may request its types in any order", so content waits."""
        is_new = self.transition is None
        transition = self._begin(now_s)
        if is_new:
            transition.returning_until_s = now_s + self.rules.return_s
        return transition

    def _warm_now(self, before: ResourceSet | None) -> ResourceSet | None:
        """The clusters that are warm: those of the newest snapshot, and lingering ones that were warm before."""
        url = self.url_of("clusters")
        acked, goal = self.watches.acked(url), self.goal.get(url)
        if acked is None or acked is goal:
            return acked
        never = self.releases.added(goal, acked)
        if before is not None:
            never = never.difference(before.resources)
        return self.releases.mixed(acked, empty_set(url), never)

    def _set_lingering(self, lingering: Lingering, now_s: float) -> None:
        self.lingering = lingering
        keep = self.transition.kept if self.transition is not None else NO_NAMES_BY_TYPE
        kept = self.releases.lingerings.kept(lingering, self.goal)
        self.release(self.releases.release(self.released, self.goal, joined(keep, kept)), now_s)

    def look_at_pending_release(self, now_s: float) -> None:
        """Offer all types of which the client requested held names: these are reported as missing now (`coming`)."""
        for url in self.watches:
            for watch in self.watches.of(url):
                if watch.pending_release:
                    self.watches.mark_pending(watch, now_s)
                    self._has_moved = True

    def _doubt_unknown(self, now_s: float) -> None:
        for url in self.watches:
            for watch in self.watches.of(url):
                if watch.unknown:
                    watch.known.mark_uncertain(watch.unknown)
                    watch.unknown = NO_NAMES
                    self.watches.mark_pending(watch, now_s)
        self._has_moved = True
