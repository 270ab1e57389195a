"""Make before break, gated on ACKs (DESIGN 3.2): which content of each type a client may see now.

A push is not shown to a client at once. Its types are released one by one, in the order that the type table states:

* a type that others refer to is released first, as the *union* of what the client holds and the new content;
* a type that waits (``waits_for``) is released when those are ACKed: on ADS, Envoy withholds the ACK of CDS until the
  clusters are warm, so that the ACK says "routes may point here now";
* names only the old content has are retired when all that could refer to them is ACKed (``removals_wait_for``).

The gate belongs to the client, (peer address, node id), so that a client with a stream per type is ordered as well.
It holds references to shared sets only; nothing here grows with the number of resources.

A transition is pinned to its snapshot. What is pushed meanwhile coalesces into one next snapshot; types that never
wait follow the newest. A transition that cannot finish (a NACK, a cluster that never warms) yields to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from xds.model.resource_type import ResourceType, resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.roster import Roster, names_of
from xds.protocol.track import Track


@dataclass(frozen=True, slots=True)
class OrderRules:
    """How a gate behaves.

    ``ordered=False`` releases everything at once (to show what the order is worth). ``return_s``: how long a client
    that comes back has to ask for all its types.
    """

    ordered: bool = True
    order_timeout_s: float = 30.0
    offer_timeout_s: float = 5.0
    return_s: float = 2.0


UnionOf = Callable[[ResourceSet, ResourceSet], ResourceSet]
AssignmentsOf = Callable[[ResourceSet | None, ResourceSet], frozenset[str]]


class Gate:
    """The transition of one client. Shared by its ``streams``, mutated only through the methods below."""

    __slots__ = (
        "_acked",
        "_active",
        "_assignments_of",
        "_cluster_position",
        "_cluster_released_s",
        "_clusters_before",
        "_floor",
        "_given_up",
        "_leaving_since_s",
        "_moved",
        "_next",
        "_next_since_s",
        "_position",
        "_released",
        "_returning_until_s",
        "_roster",
        "_rules",
        "_staged",
        "_target",
        "_types",
        "_union_of",
        "_waived",
        "proceed_on_nack",
        "streams",
    )

    def __init__(self, rules: OrderRules, union_of: UnionOf, assignments_of: AssignmentsOf) -> None:
        self._rules = rules
        self._union_of = union_of
        self._assignments_of = assignments_of
        self.streams = 0
        self.proceed_on_nack = False
        self._target: Snapshot | None = None
        self._next: Snapshot | None = None
        self._next_since_s = 0.0
        self._floor: Snapshot | None = None  # answers types that no stream asked for yet, until they are staged
        self._released: dict[str, ResourceSet] = {}
        self._acked: dict[str, ResourceSet] = {}
        self._staged: frozenset[str] = _NONE
        self._types: tuple[ResourceType, ...] = ()
        self._active = False
        self._moved = False  # something was released that nobody was told of yet
        self._roster = Roster()
        self._given_up: frozenset[str] = _NONE
        self._clusters_before: ResourceSet | None = None  # what was ACKed when clusters were last released
        self._cluster_position = 0
        self._cluster_released_s = 0.0
        self._leaving_since_s: float | None = None
        self._waived = False  # clients had their time to leave removed clusters
        self._position = 0
        self._returning_until_s: float | None = None

    # -- what streams ask -------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True when every type is released in full."""
        return not self._active

    def release_of(self, type_url: str) -> ResourceSet:
        """The content the client may see now. Requests are answered from it at once."""
        found = self._released.get(type_url)
        if found is not None:
            return found
        if self._floor is not None and type_url not in self._staged:
            return self._floor.get(type_url)
        return self._goal(type_url)

    def coming(self, type_url: str) -> ResourceSet | None:
        """What the type will become once released; None when there is nothing held back."""
        if not self._active:
            return None
        goal = self._goal(type_url)
        return goal if goal is not self.release_of(type_url) else None

    def names_wanted(self, type_url: str) -> frozenset[str]:
        """All names the client's streams subscribe to for a type."""
        return self._roster.names(type_url)

    def next_position(self) -> int:
        """A number that orders the client's tracks and releases."""
        self._position += 1
        return self._position

    # -- what streams tell ------------------------------------------------------------------------------------------

    def follow(self, snapshot: Snapshot, now_s: float) -> None:
        """The client's view is this snapshot from now on."""
        if self._target is None:
            self._target = snapshot
        elif snapshot is self._target:
            if self._next is not None:
                self._next = None
                self._unstage_followers()
        elif snapshot is not self._next:
            if self._next is None:
                self._next_since_s = now_s
            self._next = snapshot
            if self._staged and self._active:
                self._unstage_followers()
            self._begin_next(now_s)

    def join(self, track: Track, old: ResourceSet | None, now_s: float) -> None:
        """A stream asked for a type for the first time; ``old`` is what the client holds from an earlier stream."""
        type_url = track.type.type_url
        if type_url not in self._released:
            self._released[type_url] = self._first_release(type_url, old, now_s)
            if track.type not in self._types:
                self._types = _ranked(frozenset((type_url, *(type.type_url for type in self._types))))
        self._roster.add(track, now_s)

    def leave(self, track: Track) -> None:
        """The stream of this track ended."""
        self._roster.remove(track)
        self._catch_up(track)

    def update(self, track: Track, now_s: float) -> None:
        """The track sent something or heard from its client."""
        if track.in_step_with(self.release_of(track.type.type_url)):
            self._catch_up(track)
        else:
            self._roster.lag(track, now_s)

    def _catch_up(self, track: Track) -> None:
        type_url = track.type.type_url
        if self._roster.catch_up(track) and self._roster.of(type_url):
            self._acked[type_url] = self._released[type_url]

    def heard(self, track: Track) -> None:
        """The track's type was ACKed: it is waited for again."""
        if self._given_up:
            self._given_up -= {track.type.type_url}

    # -- the transition ---------------------------------------------------------------------------------------------

    def advance(self, now_s: float) -> bool:
        """Release what may be released; True when something was."""
        moved, self._moved = self._moved, False
        if not self._active or self._target is None:
            return moved
        staged = -1
        while staged < len(self._staged):  # what was staged last may let a type before it go on
            staged = len(self._staged)
            for type in self._types:
                moved = self._step(type, now_s) or moved
        if not (moved and self._next is not None) and self._is_complete():
            self._active = False
            self._floor = self._returning_until_s = None
        return self._begin_next(now_s) or moved

    def expire(self, now_s: float) -> list[str]:
        """Give up waits that lasted too long; returns the type URLs no longer waited for."""
        if self._returning_until_s is not None and self._returning_until_s <= now_s:
            self._returning_until_s = None
        if self._leaving_since_s is not None and now_s - self._leaving_since_s >= self._rules.order_timeout_s:
            self._leaving_since_s, self._waived = None, True
        expired = [type_url for type_url, due_s in self._waits() if due_s <= now_s]
        self._given_up = self._given_up.union(expired)
        for type_url in expired:
            # What waited will refer to this content now, so the next union must have it.
            self._acked[type_url] = self.release_of(type_url)
        return expired

    def deadline_s(self) -> float | None:
        """When ``expire`` or ``advance`` should be called although nothing happened."""
        if not self._active and self._leaving_since_s is None:
            return None  # all that is awaited is awaited by a transition
        due = [due_s for _, due_s in self._waits()]
        if self._next is not None:
            due.append(self._next_since_s + self._rules.offer_timeout_s)
        if self._returning_until_s is not None:
            due.append(self._returning_until_s)
        if self._leaving_since_s is not None:
            due.append(self._leaving_since_s + self._rules.order_timeout_s)
        return min(due, default=None)

    def _step(self, type: ResourceType, now_s: float) -> bool:
        type_url = type.type_url
        goal = self._goal(type_url)
        if type_url not in self._staged:
            if not all(self._is_open(url) for url in type.waits_for):
                return False
            self._staged |= {type_url}
            return self._release(type, self._staged_set(type, goal), now_s)
        if self.release_of(type_url) is goal or (not type.pinned and self._next is not None):
            return False
        if not all(self._is_retired(url) for url in type.removals_wait_for):
            return False
        if type.nack_holds and not self._has_left(type, goal, now_s):
            return False
        self._acked[type_url] = goal  # nothing refers to anything else: the next union starts from here
        return self._release(type, goal, now_s)

    def _staged_set(self, type: ResourceType, goal: ResourceSet) -> ResourceSet:
        held = self._held(type) if type.removals_wait_for and self._rules.ordered else None
        if held is None or goal.covers == held.id:
            return goal
        return self._union_of(held, goal)

    def _held(self, type: ResourceType) -> ResourceSet | None:
        """What the client may use: all that was released, as far as it was not refused.

        Of clusters, only what was ACKed: before that nothing refers to them, and content that never warms must not
        come back in the push that repairs it.
        """
        type_url = type.type_url
        if type.nack_holds or self._roster.has_rejected(type_url):
            return self._acked.get(type_url)
        return self._released.get(type_url)

    def _release(self, type: ResourceType, released: ResourceSet, now_s: float) -> bool:
        type_url = type.type_url
        if type_url not in self._released or self._released[type_url] is released:
            return type_url not in self._released
        self._released[type_url] = released
        if type.nack_holds:
            self._clusters_before = self._acked.get(type_url)
            self._cluster_position, self._cluster_released_s = self.next_position(), now_s
        for track in self._roster.of(type_url):
            self._roster.lag(track, now_s)
        return True

    def _begin_next(self, now_s: float) -> bool:
        """Start the transition to the next snapshot, if there is one and the present one is over or stuck."""
        if self._next is None or (self._active and not self._is_over(now_s)):
            return False
        idle = not self._active
        self._floor, self._target, self._next = self._target, self._next, None
        self._staged = _NONE
        if not (idle and self._release_at_once(now_s)):
            self._become_active()
        return True

    def _release_at_once(self, now_s: float) -> bool:
        """Without going through a transition, for the most frequent pushes: none of what changes waits for anything.

        True when that is so and all is released, which is what the transition would come to in its first step.
        """
        target, staged = self._target, []
        assert target is not None
        for type_url, released in self._released.items():
            goal = target.get(type_url)
            if goal is released:
                continue
            if released.type.waits_for or self._staged_set(released.type, goal) is not goal:
                return False
            staged.append(goal)
        for goal in staged:
            self._moved = self._release(goal.type, goal, now_s) or self._moved
        self._floor = None
        return True

    def _become_active(self) -> None:
        """A transition concerns every type of both sides, asked for or not: who has not asked yet may still refer."""
        snapshots = (snapshot for snapshot in (self._target, self._floor) if snapshot is not None)
        self._types = _ranked(frozenset(self._released).union(*(snapshot.sets for snapshot in snapshots)))
        self._active = True

    def _is_over(self, now_s: float) -> bool:
        if not self._rules.ordered:
            return True
        if now_s - self._next_since_s >= self._rules.offer_timeout_s:
            return True
        return any(track.is_rejected and track.type.pinned for track in self._roster.all_lagging())

    def _is_complete(self) -> bool:
        """Types that follow the newest snapshot belong to the next transition, if there is one."""
        return all(
            released is self._goal(type_url) or (self._next is not None and not resource_type(type_url).pinned)
            for type_url, released in self._released.items()
        )

    def _unstage_followers(self) -> None:
        """Types that never wait take the newest content at once."""
        self._staged = frozenset(url for url in self._staged if resource_type(url).pinned)

    def _goal(self, type_url: str) -> ResourceSet:
        if self._target is None:
            raise LookupError("no snapshot is followed yet")
        goal = self._target.get(type_url)
        if self._next is None or resource_type(type_url).pinned:
            return goal
        # The newest content, and what the present transition leads to: its clusters need their endpoints.
        return self._union_of(goal, self._next.get(type_url))

    def _first_release(self, type_url: str, old: ResourceSet | None, now_s: float) -> ResourceSet:
        if old is None or not self._rules.ordered:
            return self.release_of(type_url)
        goal = self._goal(type_url)
        if old.digest == goal.digest:
            self._acked[type_url] = goal
            return goal
        # The client was away while the snapshot changed: from here on this is a transition like any other. Its
        # streams may come in any order, so the types it has yet to ask for are waited for, too.
        if not self._active:
            self._returning_until_s = now_s + self._rules.return_s
        self._acked[type_url] = old
        self._staged -= {type_url}
        self._become_active()
        return old

    # -- who waits for whom -----------------------------------------------------------------------------------------

    def _is_open(self, type_url: str) -> bool:
        """May types that wait for this one be released?"""
        if not self._rules.ordered or not self._is_served(type_url):
            return True
        if type_url not in self._staged or self._is_awaited(type_url):
            return False
        lagging = self._roster.lagging(type_url)
        if lagging:
            return all(self._is_excused(track) for track in lagging)
        return self._assignments_arrived(type_url)

    def _is_excused(self, track: Track) -> bool:
        if track.is_rejected:
            return self.proceed_on_nack or not track.type.nack_holds
        return track.type.type_url in self._given_up

    def _is_retired(self, type_url: str) -> bool:
        """Does the client hold the new content of this type only? No timeout stands in for an ACK here."""
        if not self._rules.ordered or not self._is_served(type_url):
            return True
        if type_url not in self._staged or self._roster.lagging(type_url) or self._is_awaited(type_url):
            return False
        return self.release_of(type_url) is self._goal(type_url)

    def _is_awaited(self, type_url: str) -> bool:
        """Is this a type that a returning client may still ask for?"""
        return self._returning_until_s is not None and not self._roster.of(type_url)

    def _has_left(self, type: ResourceType, goal: ResourceSet, now_s: float) -> bool:
        """Have clients that name their clusters (gRPC) moved over to the new ones?

        gRPC ACKs a route before it asks for the clusters behind it, and fails calls when the cluster it still uses
        goes; it drops the name by itself once it has moved (old versions keep it for minutes). So a named cluster is
        retired when the client dropped it, when nothing it was sent could have moved it, or after ``order_timeout``.
        """
        if self._waived or self._moved_over(type, goal):
            self._leaving_since_s, self._waived = None, False
            return True
        if self._leaving_since_s is None:
            self._leaving_since_s = now_s
        return False

    def _moved_over(self, type: ResourceType, goal: ResourceSet) -> bool:
        named = self._roster.named(type.type_url)
        leaving = [t for t in named if any(name not in goal.resources for name in t.subscription.interest.names)]
        if not leaving:
            return True
        told = max((t.sent for url in type.removals_wait_for for t in self._roster.of(url)), default=0)
        if told > self._cluster_position or any(track.changed < told for track in leaving):
            return False  # it was sent routes that may move it, and will drop the names when it has moved
        endpoints = self._url_of("endpoints")
        arrived = self._references(leaving, goal, "endpoints") <= self._roster.names(endpoints)
        return arrived and not self._roster.lagging(endpoints)

    def _references(self, tracks: Iterable[Track], released: ResourceSet, alias: str) -> set[str]:
        """Names that the resources these tracks ask for refer to, of one type."""
        wanted = {name for track in tracks for name in track.subscription.interest.names if name in released.resources}
        references = (reference for name in wanted for reference in released.resources[name].references)
        return {each.name for each in references if resource_type(each.type_url).alias == alias}

    def _url_of(self, alias: str) -> str:
        """The type of this alias that the client uses: of v2 or of v3."""
        return next((type.type_url for type in self._types if type.alias == alias), "")

    def _is_served(self, type_url: str) -> bool:
        return any(type.type_url == type_url for type in self._types)

    def _assignments_arrived(self, type_url: str) -> bool:
        """Off ADS, the ACK of CDS does not say that new clusters are warm: their own EDS streams must have ACKed.

        A changed cluster needs no wait: Envoy uses the old one while the new one warms.
        """
        released, endpoints = self._released.get(type_url), self._url_of("endpoints")
        if not resource_type(type_url).nack_holds or released is None or endpoints in self._given_up:
            return True
        expected = self._assignments_of(self._clusters_before, released)
        if not expected:
            return True
        return expected <= names_of(track for track in self._roster.of(endpoints) if not track.lags)

    def _waits(self) -> Iterator[tuple[str, float]]:
        """Types that something waits for, and when that wait ends."""
        if not self._active:
            return
        for type_url in self._waited_for():
            since_s = self._roster.lagging_since_s(type_url)
            lagging = self._roster.lagging(type_url)
            if since_s is not None and type_url not in self._given_up and not any(t.is_rejected for t in lagging):
                yield type_url, since_s + self._rules.order_timeout_s
            elif since_s is None and not self._assignments_arrived(type_url):
                yield self._url_of("endpoints"), self._cluster_released_s + self._rules.order_timeout_s

    def _waited_for(self) -> Iterable[str]:
        return {
            url
            for type in self._types
            if type.type_url not in self._staged
            for url in type.waits_for
            if url in self._staged
        }


_NONE: frozenset[str] = frozenset()
_SCOPES = 1024


@lru_cache(maxsize=_SCOPES)
def _ranked(urls: frozenset[str]) -> tuple[ResourceType, ...]:
    """The types that a transition concerns, in the order of their ranks; one tuple for all clients in it."""
    return tuple(sorted(map(resource_type, urls), key=lambda type: (type.rank, type.type_url)))
