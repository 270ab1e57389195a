"""One client on its way from what it was shown to the newest snapshot (docs/design.md#additions).

It exists only while one is under way. Nothing is pinned to a snapshot: what goes out is always what differs between
what was released to this client and the newest snapshot, tree by tree (`trees`).

    phase of a tree  what the client sees of it               what it waits for              what moves it on
    CLUSTERS         as before; what it leads to goes out:    every cold cluster that it     ACK of CDS, proof of one
                     CDS, EDS, SDS, each at once              leads to (`readiness`)         cluster; order_timeout_s
    LISTENERS        extension configurations, listeners      ACK of LDS and ECDS            the ACKs
    FETCHING         the same                                 all that the listeners newly   the ACKs; order_timeout_s
                                                              name
    ROUTES           scopes, routes, virtual hosts too        their ACKs                     the ACKs
    LINGERING        all; what went is not told yet           nobody waits (`linger`)        its end

    phase of a client that comes back
    RETURNING        what it shows it holds, nothing of       its requests for the types     the requests; return_s, or
                     types of which that is not known         it took before, clusters       order_timeout_s where CDS
                                                              before all                     is known to come

A tree that leads to nothing cold is past CLUSTERS at once. A refusal holds the tree where it is; a refused route or
extension configuration of a listener that is new takes the listener back to its last accepted version.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.linger import NO_NAMES, Names, keep_of, without
from xds.protocol.readiness import Readiness
from xds.protocol.release import joined
from xds.protocol.trees import Part, Tree, listeners_naming

if TYPE_CHECKING:
    from xds.protocol.client import ClientState

_NOTHING: frozenset[str] = frozenset()
_NO_PARTS: frozenset[Part] = frozenset()
_MET_LIMIT = 8


class Transition:
    """The transition of one client.

    ``origin`` is what was released when its listeners were ready last; ``met`` has the listeners that were ACKed since,
    which new connections may meet as well. ``held`` are the trees that wait for clusters
    now. ``silent`` are the types of which nothing is told, since nobody knows what the client holds. ``drains``: a
    listener changed or went.
    """

    __slots__ = (
        "began_s",
        "broken_until_s",
        "drains",
        "fetch_since_s",
        "held",
        "is_fetch_over",
        "is_pending_release_told",
        "kept",
        "met",
        "origin",
        "readiness",
        "returning_until_s",
        "silent",
    )

    def __init__(self, client: ClientState, now_s: float) -> None:
        self.began_s = now_s
        self.origin: Snapshot = client.released
        self.met: tuple[Snapshot, ...] = ()
        # Of a client that has just started all was warm before it went live.
        acked = client.watches.acked(client.url_of("clusters"))
        self.readiness = Readiness(client.warm or (acked if not client.has_returned else None))
        self.held: tuple[Tree, ...] = ()
        self.kept: Names = NO_NAMES
        self.drains = False
        self.silent: frozenset[str] = _NOTHING
        self.fetch_since_s: float | None = None
        self.is_fetch_over = False
        self.is_pending_release_told = False
        self.returning_until_s: float | None = None
        self.broken_until_s: float | None = None  # a stream ended amid it

    def copy(self) -> Transition:
        """An independent transition in the same state."""
        made = copy(self)
        made.readiness = self.readiness.copy()
        return made

    def keeps(self, type_url: str) -> bool:
        """Is some of this type kept as it was released?"""
        return any(url == type_url for url, _ in self.kept)

    # -- what may be seen -------------------------------------------------------------------------------------------

    def keep(self, client: ClientState, now_s: float) -> Names:
        """The names that stay as they were released, besides those that linger."""
        awaited = self.returning_until_s is not None or self.broken_until_s is not None
        cold = self.readiness.look(client, now_s, is_awaited=awaited)
        if self.silent and not cold and self._is_known_what_is_there(client):
            self.silent = _NOTHING
        back = self._take_back(client, now_s)
        unready = self._unready_listeners(client, now_s, is_awaited=awaited)
        self.held, kept = (), []
        if cold or back or unready is None or unready:
            kept = self._held_parts(client, unready, back)
        if cold:
            kept.append(self._aggregates(client, cold))
        self.kept = joined(*kept)
        return self.kept

    def _held_parts(self, client: ClientState, unready: frozenset[str] | None, back: frozenset[str]) -> list[Names]:
        trees = client.releases.trees(client.released, client.goal)
        absent = self._absent_listeners(client, unready) if any(tree.needs for tree in trees) else _NOTHING
        held = [
            tree
            for tree in trees
            if not tree.needs.isdisjoint(absent)
            or self.readiness.holds(client, tree.leads_to, is_unreadable=tree.is_unreadable)
            or not tree.listeners.isdisjoint(back)
        ]
        if any(tree.has_added_listener for tree in held):
            # The new one may take the port of the old one: both go in one response, or none.
            held += [tree for tree in trees if tree.has_removed_listener and tree not in held]
        self.held = tuple(held)
        kept = [part for tree in held for part in (tree.first, tree.then)]
        # Until a listener is ready, new connections meet what it was before.
        used = _NO_PARTS
        if unready:
            used = used.union(*(client.releases.used_by(unready, each) for each in (self.origin, *self.met)))
        waiting = joined(*(tree.changed for tree in trees if tree not in held and _waits(tree, unready, used)))
        if waiting:
            # A listener that warms waits for what it newly names, not the other way round.
            waiting = self._without_needed(client, waiting, used)
        return [*kept, waiting]

    def _absent_listeners(self, client: ClientState, unready: frozenset[str] | None) -> frozenset[str]:
        """New listeners that are not ready: nothing may lead to one that is internal. A changed one serves on."""
        url = client.url_of("listeners")
        if not client.watches.of(url):
            return _NOTHING
        new = frozenset(client.goal.get(url).resources).difference(self.origin.get(url).resources)
        return new if unready is None else new & unready

    def _without_needed(self, client: ClientState, waiting: Names, used: frozenset[Part]) -> Names:
        """What waits for listeners, but for what they newly name, and for what the client refuses and is repaired.

        What an unready listener ``used`` before waits all the same: the new one warms with what that had.
        """
        url = client.url_of("listeners")
        goal, acked = client.goal.get(url), client.watches.acked(url) or self.origin.get(url)
        in_flight = [watch.ack.offered for watch in client.watches.of(url) if watch.ack.offered is not None]
        needed = client.releases.newly_named(acked, goal)
        for each in in_flight:
            if needed:
                needed = without(needed, client.releases.newly_named(acked, each.resource_set))
        if used:
            needed = keep_of({kind: [n for n in names if (kind, n) not in used] for kind, names in needed})
        return without(without(waiting, needed), client.watches.all_refused())

    def _aggregates(self, client: ClientState, cold: frozenset[str]) -> Names:
        """ "Within CDS: new members go out with the old aggregate, then the aggregate, then removals"."""
        url = client.url_of("clusters")
        found = client.releases.aggregates(client.released.get(url), client.goal.get(url))
        names = frozenset(
            name for name, members in found.items() if self.readiness.holds(client, members, is_unreadable=False)
        )
        return ((url, names),) if names else NO_NAMES

    def _unready_listeners(self, client: ClientState, now_s: float, *, is_awaited: bool) -> frozenset[str] | None:
        """The listeners whose newest version, or what it newly names, is not ACKed yet; None: every one."""
        url = client.url_of("listeners")
        goal = client.goal.get(url)
        if not client.watches.of(url):
            return None if is_awaited and goal.resources else _NOTHING
        acked = client.watches.acked(url)
        if acked is None:
            return None if url in self.silent else _NOTHING
        self._note_met(client, acked)
        unready = client.releases.renewed(acked, goal)
        if unready and client.order.proceed_on_nack:
            unready = unready.difference(client.refused(url))
        unready = unready | self._filters_unready(client) | self._fetching(client, now_s)
        if not unready and acked is client.released.get(url) and not self.is_fetch_over:
            self.origin, self.met = client.released, ()  # what new connections meet from now on
        return unready

    def _note_met(self, client: ClientState, acked: ResourceSet) -> None:
        url = acked.type.type_url
        if acked is not client.goal.get(url) and all(acked is not each.get(url) for each in (self.origin, *self.met)):
            met = Snapshot(client.released.group, client.released.revision, {**client.released.sets, url: acked})
            self.met = (*self.met, met)[-_MET_LIMIT:]

    def _filters_unready(self, client: ClientState) -> frozenset[str]:
        """Listeners with an extension configuration that is on its way: a route must not overtake it either."""
        url = client.url_of("extension_configs")
        watches = client.watches.lagging(url)
        if not watches:
            return _NOTHING
        acked = client.watches.acked(url)
        if acked is None:
            return _NOTHING
        changed = client.releases.renewed(acked, client.goal.get(url))
        return listeners_naming(((url, changed),), client.goal) if changed else _NOTHING

    def _fetching(self, client: ClientState, now_s: float) -> frozenset[str]:
        """Listeners that were ACKed and still warm: what they newly name is not ACKed yet."""
        url = client.url_of("listeners")
        named = client.releases.newly_named(self.origin.get(url), client.released.get(url))
        missing = client.watches.not_fetched(named) if named and not self.is_fetch_over else NO_NAMES
        if not missing:
            self.fetch_since_s = None
            return _NOTHING
        if self.fetch_since_s is None:
            self.fetch_since_s = now_s
        return listeners_naming(missing, client.released)

    def _is_known_what_is_there(self, client: ClientState) -> bool:
        """ "Anything else counts as unknown: nothing is told as removed before CDS is shown"."""
        url = client.url_of("clusters")
        if not client.watches.of(url):
            return self.returning_until_s is None
        return client.watches.acked(url) is not None

    # -- refusals ---------------------------------------------------------------------------------------------------

    def _take_back(self, client: ClientState, now_s: float) -> frozenset[str]:
        """A refused route or extension configuration of a new listener: Envoy would go live with nothing behind it.

        "a new route or extension configuration takes its listener back to its last accepted version".
        """
        back = self._refused_listeners(client)
        if back:
            url = client.url_of("listeners")
            client.release(client.releases.reverted(client.released, self.origin, url, back), now_s)
        return back

    def _refused_listeners(self, client: ClientState) -> frozenset[str]:
        """The newest listeners that newly name what the client refuses and never had."""
        if not client.watches.refuses_anything:
            return _NOTHING
        url = client.url_of("listeners")
        named = client.releases.newly_named(self.origin.get(url), client.goal.get(url))
        bad = tuple(
            (type_url, names.intersection(client.refused(type_url)))
            for type_url, names in named
            if resource_type(type_url).in_tree and not names.isdisjoint(client.refused(type_url))
        )
        return listeners_naming(bad, client.goal) if bad else _NOTHING

    # -- its end ----------------------------------------------------------------------------------------------------

    def is_shown(self, client: ClientState) -> bool:
        """True when the client has ACKed all that can refer to clusters: the clock of what lingers may start."""
        if self.kept or self.silent or self.fetch_since_s is not None:
            return False
        if self.returning_until_s is not None or self.broken_until_s is not None:
            return False
        return not any(resource_type(url).in_tree for url in client.watches.lagging_types)

    def is_over(self, client: ClientState) -> bool:
        """True when nothing is left to wait for."""
        return not self.readiness.cold and not any(
            resource_type(url).is_route_target for url in client.watches.lagging_types
        )

    def expire(self, client: ClientState, now_s: float) -> bool:
        """Give up what waited too long; True when content goes out that nothing proves ready."""
        rules = client.rules
        over = self.readiness.expire(client, now_s)
        is_unreadable = any(tree.is_unreadable for tree in self.held)
        ended = any(is_unreadable or not self.readiness.is_endless(client, name) for name in over if self.held)
        if self.returning_until_s is not None and now_s >= self._returning_until_s(client):
            self.returning_until_s = None
            ended = ended or (client.takes_clusters and not client.has_clusters)
        if self.broken_until_s is not None and now_s >= self.broken_until_s:
            self.broken_until_s = None
        if self.silent and now_s >= self.began_s + rules.order_timeout_s:
            self.silent = _NOTHING
        if self.fetch_since_s is not None and now_s >= self.fetch_since_s + rules.order_timeout_s:
            self.fetch_since_s, self.is_fetch_over, ended = None, True, True
        if not self.is_pending_release_told and now_s >= self.began_s + rules.order_timeout_s:
            self.is_pending_release_told = True
            client.look_at_pending_release(now_s)
        return ended

    def deadline_s(self, client: ClientState) -> float | None:
        """When `expire` should be called although nothing happened."""
        rules, due = client.rules, []
        ready_s = self.readiness.deadline_s(client)
        if ready_s is not None:
            due.append(ready_s)
        if self.returning_until_s is not None:
            due.append(self._returning_until_s(client))
        if self.broken_until_s is not None:
            due.append(self.broken_until_s)
        if self.fetch_since_s is not None:
            due.append(self.fetch_since_s + rules.order_timeout_s)
        if self.silent or (self.kept and not self.is_pending_release_told):
            due.append(self.began_s + rules.order_timeout_s)
        return min(due, default=None)

    def _returning_until_s(self, client: ClientState) -> float:
        """ "Until its CDS request comes (order_timeout_s at most) new trees wait, and silence keeps what Envoy has"."""
        assert self.returning_until_s is not None
        if not client.watches.of(client.url_of("clusters")) and client.takes_clusters:
            return self.began_s + client.rules.order_timeout_s
        return self.returning_until_s


def _waits(tree: Tree, unready: frozenset[str] | None, used: frozenset[Part]) -> bool:
    if unready is None or not tree.listeners.isdisjoint(unready):
        return True
    return any((url, name) in used for url, names in tree.changed for name in names)
