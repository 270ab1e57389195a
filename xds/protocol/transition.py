"""The transition of one client to the newest snapshot: what has to wait, and for what (docs/protocol.md#order).

A transition is not tied to one push. What may be sent is always the difference between the content released to this
client and the newest snapshot. The difference is split into listener trees (`trees`), and each tree is in one phase:

    phase of a tree  what the client is sent              what the tree waits for          what ends the phase
    CLUSTERS         the clusters that the tree refers    every cold cluster that it       the ACK of CDS, or proof for
                     to, with EDS and SDS; nothing of     refers to (`readiness`)          single clusters;
                     the tree itself                                                       order_timeout_s
    LISTENERS        extension configurations, listeners  the ACKs of LDS and ECDS         the ACKs
                     and new routes; a listener after the
                     changed ones that it names
    FETCHING         the same                             everything that the listeners    the ACKs; order_timeout_s
                                                          newly name
    ROUTES           changed routes too                   their ACKs                       the ACKs
    LINGERING        everything but removals              nothing                          the end of lingering

    phase of a client
    RETURNING        updates of what it shows that it     its requests for the types that  return_s; order_timeout_s
                     holds; nothing of types of which     it had before, above all CDS     while it is known to use CDS
                     the server knows nothing                                              and has not requested it

"Routes" are scoped routes, route configurations and virtual hosts. A tree with warm clusters only skips CLUSTERS.
Lingering outlasts the transition (`ClientState.lingering`). A rejected resource stops its tree in the phase it is in.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot, empty_set
from xds.protocol.awaited import may_have_unready, over_unshown_filters, takes_clusters
from xds.protocol.kept import (
    aggregates_of_cold,
    outdated_names,
    over_absent_listeners,
    routes_in_use,
    without_endpoints,
)
from xds.protocol.linger import NO_NAMES_BY_TYPE, Names, keep_of, without
from xds.protocol.readiness import Readiness
from xds.protocol.release import joined
from xds.protocol.trees import Part, Tree, listeners_naming, without_parts

if TYPE_CHECKING:
    from xds.protocol.client import ClientState

_NO_PARTS: frozenset[Part] = frozenset()
_MET_LIMIT = 8


class Transition:
    """The transition of one client.

    * ``origin``: the release under which all listeners were ready last, so that new connections use it;
    * ``is_origin_shown``: a client that has returned shows these listeners, so it is not known whether they are ready:
      all that they name counts as newly named;
    * ``met``: the releases with listeners that were ACKed since; new connections may use these as well;
    * ``held``: the trees of which nothing is released yet: they wait for clusters or internal listeners, or for the
      repair of a rejected resource;
    * ``kept``: all names that keep their released version, except lingering ones;
    * ``drains``: a listener changed or was removed, so old connections drain;
    * ``silent``: the type URLs of which nothing is sent, because it is unknown what the client holds;
    * ``fetch_since_s``: since when listeners are in the phase FETCHING; ``is_fetch_over``: this wait was given up;
    * ``is_pending_release_told``: names that only held content has are reported as missing;
    * ``returning_until_s``: the end of the phase RETURNING; None outside of it;
    * ``broken_until_s``: a stream ended during the transition, and until then the others may end as well.
    """

    __slots__ = (
        "began_s",
        "broken_until_s",
        "drains",
        "fetch_since_s",
        "held",
        "is_fetch_over",
        "is_origin_shown",
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
        self.is_origin_shown = may_have_unready(client, now_s)
        # A client that has just started goes live when its clusters are warm: the clusters that it ACKed count as warm.
        acked = client.watches.acked(client.url_of("clusters"))
        self.readiness = Readiness(client.warm or (acked if not client.has_returned else None))
        self.held: tuple[Tree, ...] = ()
        self.kept: Names = NO_NAMES_BY_TYPE
        self.drains = False
        self.silent: frozenset[str] = NO_NAMES
        self.fetch_since_s: float | None = None
        self.is_fetch_over = False
        self.is_pending_release_told = False
        self.returning_until_s: float | None = None
        self.broken_until_s: float | None = None

    def copy(self) -> Transition:
        """An independent transition in the same state."""
        made = copy(self)
        made.readiness = self.readiness.copy()
        return made

    def begin_at(self, release: Snapshot) -> None:
        """All listeners of this release are ready."""
        self.origin, self.met, self.is_origin_shown = release, (), False

    def keeps(self, type_url: str) -> bool:
        """Whether some resources of this type stay as they were released."""
        return any(url == type_url for url, _ in self.kept)

    # -- what may be released ---------------------------------------------------------------------------------------

    def keep(self, client: ClientState, now_s: float) -> Names:
        """The names that keep their released version, except lingering ones. All others may be released."""
        awaited = self.returning_until_s is not None or self.broken_until_s is not None
        cold = self.readiness.look(client, now_s, is_awaited=awaited)
        if self.silent and not cold and self._is_known_what_is_there(client):
            self.silent = NO_NAMES
        back = self._take_back(client, now_s)
        unready = self._unready_listeners(client, now_s, is_awaited=awaited)
        self.held, kept = (), []
        if cold or back or unready is None or unready:
            absent = self._absent_listeners(client, unready, is_awaited=awaited) | self._new(client, back)
            kept = [*self._held_parts(client, unready, back, absent), over_absent_listeners(client, absent)]
        if cold:
            kept.append(aggregates_of_cold(client, self.readiness))
        kept.append(without_endpoints(client))
        self.kept = joined(*kept)
        return self.kept

    def _held_parts(
        self, client: ClientState, unready: frozenset[str] | None, back: frozenset[str], absent: frozenset[str]
    ) -> list[Names]:
        trees = client.releases.trees(client.released, client.goal)
        held = [
            tree
            for tree in trees
            if not tree.needs.isdisjoint(absent)
            or self.readiness.holds(client, tree.leads_to, is_unreadable=tree.is_unreadable)
            or not tree.listeners.isdisjoint(back)
        ]
        partly = [tree for tree in trees if tree not in held and not tree.within.isdisjoint(absent)]
        unshown = self._used_by_unshown(client)
        stale = outdated_names(client, (self.origin, *self.met), is_returning=self.returning_until_s is not None)
        stale = without_parts(stale, unshown)
        behind = listeners_naming(stale, client.goal) if stale else NO_NAMES
        changing = self._filters_changing(client)
        if changing:
            url = client.url_of("listeners")
            changed = client.releases.renewed(client.released.get(url), client.goal.get(url))
            behind |= changed & listeners_naming(changing, client.goal)
        after = [tree for tree in trees if tree not in held and not tree.listeners.isdisjoint(behind)]
        if any(tree.has_added_listener for tree in (*held, *partly, *after)):
            # "listeners are replaced within one response, because the old one may hold the port of the new one"
            # (docs/protocol.md#additions).
            held += [tree for tree in trees if tree.has_removed_listener and tree not in (*held, *partly, *after)]
        self.held = tuple(held)
        kept = [part for tree in held for part in (tree.first, tree.then)]
        kept += [tree.besides for tree in partly]
        kept += [without(tree.first, joined(stale, changing)) for tree in after]
        # Until a listener is ready, new connections use its earlier versions and what those refer to.
        used = _NO_PARTS
        if unready:
            used = unshown.union(*(client.releases.used_by(unready, each) for each in (self.origin, *self.met)))
        waiting = joined(*(tree.changed for tree in trees if tree not in held and _waits(tree, unready, used)))
        if waiting:
            # A listener does not become ready without the resources that it newly names: these do not wait for it.
            waiting = self._without_needed(client, waiting, used)
        return [*kept, without(waiting, stale)]

    def _used_by_unshown(self, client: ClientState) -> frozenset[Part]:
        """The routes in use that earlier versions of listeners may name, which a returned client does not show.

        New connections use these while a listener that it shows lacks something that this server serves or served. A
        listener lacks nothing that the client rejects: it becomes ready without it.
        """
        if not self.is_origin_shown:
            return _NO_PARTS
        missing = self._not_fetched(client, client.watches.never_accepted())
        return routes_in_use(client) if any(_is_from_here(client, *each) for each in missing) else _NO_PARTS

    def _absent_listeners(
        self, client: ClientState, unready: frozenset[str] | None, *, is_awaited: bool
    ) -> frozenset[str]:
        """New listeners that are not ready: nothing may refer to an internal one of them yet.

        A changed listener is not among them: it "serves its previous content meanwhile" (docs/protocol.md#additions).
        All of them are while a client that has returned is still to show its listeners.
        """
        if unready is not None and not unready:
            return NO_NAMES
        url = client.url_of("listeners")
        listeners = frozenset(client.goal.get(url).resources)
        if not client.watches.of(url):
            return listeners if is_awaited else NO_NAMES
        return self._new(client, listeners if unready is None else unready & listeners)

    def _new(self, client: ClientState, listeners: frozenset[str]) -> frozenset[str]:
        """Those of these listeners that no new connection uses yet, in any version, as far as that is known."""
        if not listeners:
            return listeners
        url = client.url_of("listeners")
        used, acked = self.origin.get(url).resources.keys(), client.watches.acked(url)
        # A listener that is rejected keeps the origin as it is while others are removed.
        new = listeners.difference(used if acked is None else used & acked.resources.keys())
        if self.is_origin_shown and (missing := self._not_fetched(client)):
            new |= listeners & listeners_naming(missing, client.released)
        return new

    def _without_needed(self, client: ClientState, waiting: Names, used: frozenset[Part]) -> Names:
        """``waiting`` without the names that listeners newly name, and without what the client rejects and never had.

        Rejected names do not wait, so that a repair is sent at once, except for the filters of the listeners that use
        them; a client that serves an accepted version can wait for its listener. Names that an unready listener
        ``used`` before wait in any case: its new version becomes ready with what the client holds under them.
        """
        url = client.url_of("listeners")
        goal, acked = client.goal.get(url), client.watches.acked(url) or self.origin.get(url)
        in_flight = [watch.ack.offered for watch in client.watches.of(url) if watch.ack.offered is not None]
        needed = client.releases.newly_named(acked, goal)
        for each in in_flight:
            if needed:
                needed = without(needed, client.releases.newly_named(acked, each.resource_set))
        if filtered := self._filters_unready(client):
            # The filters come on their own, so the listener gets both.
            used |= client.releases.used_by(filtered, client.goal)
        needed = without_parts(needed, used)
        return without(without(waiting, needed), self._repairs(client))

    def _repairs(self, client: ClientState) -> Names:
        """What the client rejects and never had, unless a listener that uses it lacks its newest version or others."""
        refused = client.watches.never_accepted()
        if not refused:
            return NO_NAMES_BY_TYPE
        url = client.url_of("listeners")
        goal, acked = client.goal.get(url), client.watches.acked(url) or self.origin.get(url)
        missing = self._not_fetched(client, refused)
        unready = client.releases.renewed(acked, goal) | self._filters_unready(client)
        used = client.releases.used_by(unready | listeners_naming(missing, client.released), client.goal)
        return without_parts(refused, used)

    def _unready_listeners(self, client: ClientState, now_s: float, *, is_awaited: bool) -> frozenset[str] | None:
        """The listeners that are not ready: the client has not ACKed the newest version and all that it newly names.

        None means every listener. Routes do not overtake these: "within a tree a route never overtakes the listener
        that refers to it, the resources that the listener newly names" (docs/protocol.md#additions).
        """
        url = client.url_of("listeners")
        goal = client.goal.get(url)
        if not client.watches.of(url):
            return None if is_awaited and goal.resources else NO_NAMES
        acked = client.watches.acked(url)
        if acked is None:
            return None if url in self.silent else NO_NAMES
        self._note_met(client, acked)
        unready = client.releases.renewed(acked, goal)
        if unready and client.order.proceed_on_nack:
            unready = unready.difference(client.refused(url))
        unready = unready | self._filters_unready(client) | self._fetching(client, now_s)
        if not unready and acked is client.released.get(url) and not self.is_fetch_over:
            self.begin_at(client.released)  # new connections use this release from now on
        return unready

    def _note_met(self, client: ClientState, acked: ResourceSet) -> None:
        url = acked.type.type_url
        if acked is not client.goal.get(url) and all(acked is not each.get(url) for each in (self.origin, *self.met)):
            met = Snapshot(client.released.group, client.released.revision, {**client.released.sets, url: acked})
            self.met = (*self.met, met)[-_MET_LIMIT:]

    def _filters_unready(self, client: ClientState) -> frozenset[str]:
        """The listeners that name a changed extension configuration that is not ACKed: no route may overtake that.

        All that name any are while it is unknown which one a client that has returned holds.
        """
        changing = self._filters_changing(client)
        unready = listeners_naming(changing, client.goal) if changing else NO_NAMES
        return unready | over_unshown_filters(client) if self.returning_until_s is not None else unready

    def _filters_changing(self, client: ClientState) -> Names:
        """The changed extension configurations that are not ACKed.

        A listener that a client shows that has returned may still warm for one that it did not have before.
        """
        url = client.url_of("extension_configs")
        goal = client.goal.get(url)
        if not goal.resources:
            return NO_NAMES_BY_TYPE
        if url in self.silent:
            return keep_of({url: goal.resources})
        proceeds, is_new = bool(client.order.proceed_on_nack), not client.has_returned
        return keep_of({url: client.watches.changing(url, goal, besides_refused=proceeds, besides_new=is_new)})

    def _fetching(self, client: ClientState, now_s: float) -> frozenset[str]:
        """The listeners in the phase FETCHING: released, but the client has not ACKed all that they newly name.

        docs/protocol.md#additions: a route "waits at most `order_timeout_s` for resources that never come".
        """
        missing = self._not_fetched(client)
        if not missing:
            self.fetch_since_s = None
            return NO_NAMES
        if self.fetch_since_s is None:
            self.fetch_since_s = now_s
        return listeners_naming(missing, client.released)

    def _not_fetched(self, client: ClientState, besides: Names = NO_NAMES_BY_TYPE) -> Names:
        """The names that released listeners newly name and that the client did not ACK yet, without ``besides``.

        Those that listeners name which it shows and which were not replaced yet are among them.
        """
        if self.is_fetch_over:
            return NO_NAMES_BY_TYPE
        url = client.url_of("listeners")
        before = empty_set(url) if self.is_origin_shown else self.origin.get(url)
        named = client.releases.newly_named(before, client.released.get(url))
        if self.is_origin_shown:
            named = joined(named, client.releases.newly_named(before, client.watches.acked(url) or before))
        named = without(named, besides)
        return client.watches.not_fetched(named) if named else NO_NAMES_BY_TYPE

    def _is_known_what_is_there(self, client: ClientState) -> bool:
        """Whether the client's clusters are known, so that silent types may be sent.

        docs/protocol.md#coming-back: "if the content of a client is unknown, no removal is sent before its clusters are
        known".
        """
        url = client.url_of("clusters")
        if not client.watches.of(url):
            return self.returning_until_s is None
        return client.watches.acked(url) is not None

    # -- refusals ---------------------------------------------------------------------------------------------------

    def _take_back(self, client: ClientState, now_s: float) -> frozenset[str]:
        """Release the last accepted version of listeners that newly name a rejected resource; returns the listeners.

        docs/protocol.md#refusals: "a rejected route or extension configuration that a listener newly names takes the
        listener back to its last accepted version, because Envoy would go live without it".
        """
        back = self._refused_listeners(client)
        stuck = self._stuck_listeners(client)
        if back or stuck:
            url = client.url_of("listeners")
            client.release(client.releases.reverted(client.released, self.origin, url, back | stuck), now_s)
        return back

    def _stuck_listeners(self, client: ClientState) -> frozenset[str]:
        """The released listeners that newly name a rejected resource that the newest snapshot lacks: it stays bad."""
        never = client.watches.never_accepted()
        if not never:
            return NO_NAMES
        url = client.url_of("listeners")
        named = dict(client.releases.newly_named(self.origin.get(url), client.released.get(url)))
        gone = {
            kind: names & named.get(kind, NO_NAMES) - client.goal.get(kind).resources.keys() for kind, names in never
        }
        return listeners_naming(keep_of(gone), client.released)

    def _refused_listeners(self, client: ClientState) -> frozenset[str]:
        """The newest listeners that newly name a resource that the client rejects and never accepted."""
        if not client.watches.refuses_anything:
            return NO_NAMES
        url = client.url_of("listeners")
        named = client.releases.newly_named(self.origin.get(url), client.goal.get(url))
        bad = tuple(
            (type_url, names.intersection(client.refused(type_url)))
            for type_url, names in named
            if resource_type(type_url).in_tree and not names.isdisjoint(client.refused(type_url))
        )
        return listeners_naming(bad, client.goal) if bad else NO_NAMES

    # -- its end ----------------------------------------------------------------------------------------------------

    def is_shown(self, client: ClientState) -> bool:
        """Whether the client has ACKed everything that can refer to clusters.

        docs/protocol.md#removals: "the clock starts when everything that could refer to the resource is ACKed".
        """
        if self.kept or self.silent or self.fetch_since_s is not None:
            return False
        if self.returning_until_s is not None or self.broken_until_s is not None:
            return False
        return not any(resource_type(url).in_tree for url in client.watches.lagging_types)

    def is_over(self, client: ClientState) -> bool:
        """Whether all clusters are warm, CDS is ACKed, and all removals have an end.

        Once `is_shown` holds as well, the transition ends.
        """
        if self.readiness.cold or client.lingering.is_pending:
            return False
        return not any(resource_type(url).is_route_target for url in client.watches.lagging_types)

    def expire(self, client: ClientState, now_s: float) -> bool:
        """Give up waits that lasted too long; True when content is released without proof that the client is ready."""
        rules = client.rules
        over = self.readiness.expire(client, now_s)
        is_unreadable = any(tree.is_unreadable for tree in self.held)
        ended = any(is_unreadable or not self.readiness.is_endless(client, name) for name in over if self.held)
        if self.returning_until_s is not None and now_s >= self._returning_until_s(client):
            self.returning_until_s = None
            ended = ended or (takes_clusters(client) and not client.has_clusters)
        if self.broken_until_s is not None and now_s >= self.broken_until_s:
            self.broken_until_s = None
        if self.silent and now_s >= self.began_s + rules.order_timeout_s:
            self.silent = NO_NAMES
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
        """When the phase RETURNING ends.

        docs/protocol.md#coming-back: "New trees wait for the CDS request of such a client, at most
        `order_timeout_s`".
        """
        assert self.returning_until_s is not None
        if not client.watches.of(client.url_of("clusters")) and takes_clusters(client):
            return self.began_s + client.rules.order_timeout_s
        return self.returning_until_s


def _waits(tree: Tree, unready: frozenset[str] | None, used: frozenset[Part]) -> bool:
    if unready is None or not tree.listeners.isdisjoint(unready):
        return True
    return any((url, name) in used for url, names in tree.changed for name in names)


def _is_from_here(client: ClientState, type_url: str, names: frozenset[str]) -> bool:
    """Whether one of these names is in the newest snapshot, the released one or a retained revision."""
    if any(not names.isdisjoint(each.get(type_url).resources) for each in (client.goal, client.released)):
        return True
    return bool(client.cache.no_longer_served(client.goal, type_url, names))
