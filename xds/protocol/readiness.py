"""Which clusters of a client are cold, that is not proved to be warm. Content that refers to a cold cluster waits.

    cluster                       what proves that it is warm (docs/protocol.md#additions)
    on an aggregated stream       "the CDS ACK, together with the ACK of the assignment sent after it": Envoy withholds
                                  the ACK and the NACK of CDS while a cluster warms
    the same, after               the ACK of its assignment too, if the cluster has no health checks and the client has
    ``offer_timeout_s``           all its secrets
    on separate streams           the ACK of the assignment requested since, its secrets, and the time of its first
                                  health check
    rejected, or its assignment   nothing, until its content changes
    is rejected

"only a readable reference to a new cluster whose readiness can be proved holds content without a time limit";
"everything else waits at most `order_timeout_s`" (docs/protocol.md#additions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING

from xds.model.names import NO_NAMES
from xds.model.resource import Reference, Resource
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.protocol.awaited import not_remembered

if TYPE_CHECKING:
    from xds.protocol.client import ClientState


class Readiness:
    """The clusters that one transition waits for.

    * ``before``: the clusters that were warm when the transition began, at the last push since, or when a stream ended;
      None if that is unknown;
    * ``cold``: the clusters that are cold now; ``cold_since_s``: since when;
    * ``given_up``: cold clusters that are no longer waited for;
    * ``refused``: clusters that the client rejects, or whose assignments it rejects;
    * ``is_one_by_one``: CDS was not ACKed for ``offer_timeout_s``, so clusters are checked one by one;
    * ``proved``: clusters that are proved to be warm one by one; a later version of one becomes warm while it serves;
    * ``acked_s``: since when CDS is ACKed; None while it is not;
    * ``acked_at``, on separate streams: the version of a cluster that was ACKed, and the position of the ACK;
    * ``warm_at_s``, on separate streams: when the first health check of a cluster ends; 0 once it is over.
    """

    __slots__ = (
        "acked_at",
        "acked_s",
        "before",
        "cold",
        "cold_since_s",
        "given_up",
        "is_one_by_one",
        "proved",
        "refused",
        "warm_at_s",
    )

    def __init__(self, before: ResourceSet | None) -> None:
        self.before = before
        self.cold: frozenset[str] = NO_NAMES
        self.cold_since_s: dict[str, float] = {}
        self.given_up: frozenset[str] = NO_NAMES
        self.refused: frozenset[str] = NO_NAMES
        self.is_one_by_one = False
        self.proved: frozenset[str] = NO_NAMES
        self.acked_at: dict[str, tuple[str, int]] = {}
        self.acked_s: float | None = None
        self.warm_at_s: dict[str, float] = {}

    def copy(self) -> Readiness:
        """An independent object in the same state."""
        made = copy(self)
        made.cold_since_s, made.acked_at = dict(self.cold_since_s), dict(self.acked_at)
        made.warm_at_s = dict(self.warm_at_s)
        return made

    def look(self, client: ClientState, now_s: float, *, is_awaited: bool) -> frozenset[str]:
        """The clusters of the newest snapshot that are cold now.

        ``is_awaited``: the client is expected to request clusters. If it has not yet, its clusters may be cold.
        """
        if client.watches.lagging(client.url_of("clusters")):
            self.acked_s = None
        elif self.acked_s is None:
            self.acked_s = now_s
        cold = self._unproved(client, now_s, is_awaited=is_awaited)
        if cold is not self.cold:
            self.cold = cold
            self.cold_since_s = {name: self.cold_since_s.get(name, now_s) for name in cold}
            self.given_up &= cold
        if cold and (self.refused or client.watches.refuses_anything):
            self._note_refused(client, now_s)
        return cold

    def _note_refused(self, client: ClientState, now_s: float) -> None:
        """Wait for rejected clusters without a time limit. For one that is no longer rejected, the limit begins now."""
        before = self.refused
        self.refused = self._unfit(client).union(client.refused(client.url_of("clusters")))
        self.cold_since_s |= {name: now_s for name in before - self.refused if name in self.cold_since_s}

    def note_released(self, clusters: ResourceSet, common: Callable[[ResourceSet, ResourceSet], ResourceSet]) -> None:
        """Forget that clusters that are not released any more were warm: pushed again, they become warm again.

        ``common`` is `Releases.common`.
        """
        self.proved = self.proved.intersection(clusters.resources)
        if self.before is not None and self.before.type is clusters.type:
            self.before = common(self.before, clusters)

    def note_warm(self, client: ClientState) -> None:
        """Note which clusters have become warm, before a push or a broken connection changes what can be proved.

        A later snapshot may lack them. They linger in these versions, and the client shows them when it reconnects. An
        aggregate cluster stays as it was: its newer version may need members that the later snapshot lacks.
        """
        url = client.url_of("clusters")
        acked, goal = client.watches.acked(url), client.goal.get(url).resources
        if self.before is None or acked is None or acked is self.before:
            return
        new = client.releases.renewed(self.before, acked) - self.cold
        warm = {name for name in new if name in goal and goal[name].version == acked.resources[name].version}
        if warm:
            warm -= self._over_any_absent(client, acked).union(client.releases.members(acked))
            self.before = client.releases.mixed(self.before, acked, frozenset(warm))

    def _over_any_absent(self, client: ClientState, clusters: ResourceSet) -> frozenset[str]:
        """The clusters that name an internal listener that the client does not have, or whose assignments do."""
        releases, assigned = client.releases, client.release_of(client.url_of("endpoints"))
        acked = client.watches.acked(client.url_of("listeners"))
        named = releases.internal_listeners(clusters) | releases.internal_listeners(assigned)
        absent = named.difference(acked.resources if acked is not None else ())
        if not absent:
            return NO_NAMES
        users = releases.clusters_of(clusters, _naming(assigned, absent))
        return users | _naming(clusters, absent)

    def holds(self, client: ClientState, leads_to: Iterable[str], *, is_unreadable: bool) -> bool:
        """Whether content that refers to these clusters waits. Unreadable content may refer to every cold cluster."""
        cold = self.cold
        named = cold.intersection(leads_to)
        if any(name not in self.given_up or self.is_endless(client, name) for name in named):
            return True
        return is_unreadable and not cold <= self.given_up

    def let_through(self, names: frozenset[str]) -> frozenset[str]:
        """The clusters among ``names`` that no content waits for: they are warm or given up."""
        return names - (self.cold - self.given_up)

    def is_endless(self, client: ClientState, name: str) -> bool:
        """Whether this cold cluster is waited for without a time limit: it is rejected, or can still be proved.

        On an aggregated stream the ACK of CDS also proves a cluster without a proof of its own, unless another cluster
        without one is cold: that one may withhold the ACK.
        """
        if name in self.refused:
            return True
        if client.is_aggregated:
            others = (other for other in self.cold if other != name)
            return self._has_own_proof(client, name) or all(self._has_own_proof(client, other) for other in others)
        return self._has_own_proof(client, name) and self._is_asked_for(client, name)

    def expire(self, client: ClientState, now_s: float) -> frozenset[str]:
        """Give up waits that lasted too long; returns the clusters that are given up now."""
        clusters_since_s = client.watches.lagging_since_s(client.url_of("clusters"))
        if clusters_since_s is not None and now_s >= clusters_since_s + client.rules.offer_timeout_s:
            self.is_one_by_one = True
        self.warm_at_s = {name: due_s if due_s > now_s else 0.0 for name, due_s in self.warm_at_s.items()}
        since = self.cold_since_s.items()
        over = frozenset(
            name for name, since_s in since if self._due_s(client, since_s) <= now_s and name not in self.refused
        )
        ended = over - self.given_up
        self.given_up |= over
        return ended

    def deadline_s(self, client: ClientState) -> float | None:
        """When `expire` or `look` should be called although nothing happened."""
        ended = self.given_up | self.refused if self.refused else self.given_up
        waiting = [since_s for name, since_s in self.cold_since_s.items() if name not in ended]
        due = [self._due_s(client, min(waiting))] if waiting else []
        due += filter(None, self.warm_at_s.values())
        clusters_since_s = client.watches.lagging_since_s(client.url_of("clusters"))
        if self.cold and clusters_since_s is not None and not self.is_one_by_one:
            due.append(clusters_since_s + client.rules.offer_timeout_s)
        return min(due, default=None)

    def _due_s(self, client: ClientState, since_s: float) -> float:
        """When a wait for a cluster ends that began at ``since_s``."""
        rules = client.rules
        if client.is_aggregated or self.acked_s is None or client.watches.of(client.url_of("endpoints")):
            return since_s + rules.order_timeout_s
        # No stream requests assignments: another server serves them, or the first stream comes soon after the ACK.
        return max(since_s, self.acked_s) + min(rules.return_s, rules.order_timeout_s)

    def _unproved(self, client: ClientState, now_s: float, *, is_awaited: bool) -> frozenset[str]:
        url = client.url_of("clusters")
        goal = client.goal.get(url)
        if not client.watches.of(url):
            return self._unseen(client, goal) if is_awaited else NO_NAMES
        acked = client.watches.acked(url)
        if acked is None:
            return frozenset(goal.resources) if client.is_live else NO_NAMES
        cold = client.releases.added(acked, goal)
        if acked is not goal:
            cold |= client.releases.orphans(acked, client.release_of(url)).intersection(goal.resources)
        for watch in client.watches.lagging(url):
            if watch.ack.offered is not None:  # the response in flight may have removed clusters already
                cold |= client.releases.added(watch.ack.offered.resource_set, goal)
        if client.is_aggregated:
            cold |= self._on_its_way(client, acked, is_awaited=is_awaited)
        elif acked is not self.before:
            cold |= self._settling(client, acked, now_s)
        cold |= self._over_absent(client)
        unfit = self._unfit(client)
        if unfit:
            cold |= unfit
        if cold and client.order.proceed_on_nack:
            cold = cold.difference(client.refused(url), unfit)
        if cold and self.is_one_by_one and client.is_aggregated:
            proved = self._proved(client, cold)
            if not proved <= self.proved:
                self.proved |= proved
                self._note_accepted(client, proved)
            cold -= self.proved
        return cold if cold != self.cold else self.cold

    def _unseen(self, client: ClientState, goal: ResourceSet) -> frozenset[str]:
        """The clusters that are not known to be warm, while no stream subscribes to clusters."""
        if self.before is not None and client.has_clusters:
            return client.releases.added(self.before, goal)  # the stream that subscribed to them has just ended
        return not_remembered(client, goal.type.type_url)

    def _proved(self, client: ClientState, cold: frozenset[str]) -> frozenset[str]:
        """The clusters in the CDS response in flight that are warm, though its ACK is withheld.

        If the client rejects the response, it keeps the version that it was sent before: both versions must be proved.
        """
        url = client.url_of("clusters")
        watches = client.watches.of(url)
        offered = [watch.ack.offered.resource_set for watch in watches if watch.ack.offered is not None]
        sent = [*offered, *(each for watch in watches for each in watch.superseded)]
        arrived = self._arrived(client)
        goal = client.goal.get(url).resources

        def is_proved(cluster: Resource) -> bool:
            return self._proves_itself(client, cluster) and arrived.issuperset(
                each.name for each in _assignments(cluster)
            )

        return frozenset(
            name
            for name in cold
            if offered
            and all(name in each.resources for each in offered)
            and all(is_proved(each) for each in _versions(name, (goal, *(found.resources for found in sent))))
        )

    def _note_accepted(self, client: ClientState, proved: frozenset[str]) -> None:
        """Clusters that are proved while the ACK of CDS is withheld are accepted: they linger, and are no suspects."""
        for watch in client.watches.of(client.url_of("clusters")):
            offered, held = watch.ack.offered, watch.acked_set
            if offered is not None and held is not None:
                new = proved.difference(held.resources).intersection(offered.resource_set.resources)
                watch.accept_part(client.releases.mixed(held, offered.resource_set, new))

    def _on_its_way(self, client: ClientState, acked: ResourceSet, *, is_awaited: bool) -> frozenset[str]:
        """New clusters whose assignments are not ACKed yet, on an aggregated stream.

        The ACK of CDS alone does not prove them: Envoy also uses a cluster if it rejected the assignment, or
        if it was sent that there is none. The assignments of the version that the client holds count too. A client
        that has returned requests its assignments last.
        """
        url = client.url_of("endpoints")
        goal = client.goal.get(client.url_of("clusters"))
        new = client.releases.added(self.before, goal) if self.before is not None else None
        if new is not None and not new:
            return NO_NAMES
        if is_awaited and client.has_returned and not client.watches.of(url):
            resources = goal.resources
            return frozenset(name for name in (resources if new is None else new) if _is_fed(resources[name]))
        if not client.watches.lagging(url):
            return NO_NAMES
        served = client.release_of(url).resources
        pending = client.watches.names(url).intersection(served) - self._arrived(client)
        if not pending:
            return NO_NAMES
        users = client.releases.clusters_of(goal, pending)
        if acked is not goal:
            users |= client.releases.clusters_of(acked, pending).intersection(goal.resources)
        return users if new is None else users & new

    def _over_absent(self, client: ClientState) -> frozenset[str]:
        """New clusters that name an internal listener that the client does not have, or whose assignments do.

        The client has an earlier version, whose listener a push removed before it was sent or that was rejected: the
        client is to get the newer version first.
        """
        url, goal = client.url_of("endpoints"), client.goal.get(client.url_of("clusters"))
        users = self._held_over_absent(client, goal.type.type_url).intersection(goal.resources)
        assignments = self._held_over_absent(client, url)
        if assignments:
            users |= client.releases.clusters_of(goal, assignments)
        if not users or self.before is None:
            return users
        return users & client.releases.added(self.before, goal)

    def _held_over_absent(self, client: ClientState, url: str) -> frozenset[str]:
        """The clusters or assignments that the client has in an earlier version, which names such a listener."""
        found, goal = set[str](), client.goal.get(url)
        for watch in client.watches.of(url):
            held, interest = watch.acked_set, watch.subscription.interest
            if held is not None and held is not goal and (named := client.releases.internal_listeners(held)):
                acked = client.watches.acked(client.url_of("listeners"))
                absent = named.difference(acked.resources if acked is not None else ())
                found |= {
                    name
                    for name, each in (held.resources.items() if absent else ())
                    if interest.wants_name(name)
                    and (name not in goal.resources or goal.resources[name].version != each.version)
                    and any(listener.name in absent for listener in each.references)
                }
        return frozenset(found)

    def _settling(self, client: ClientState, acked: ResourceSet, now_s: float) -> frozenset[str]:
        """On separate streams: clusters that are not warm yet, of those ACKed since the transition began.

        docs/protocol.md#additions: "a cluster is warm when the assignment requested since is ACKed, its secrets are
        ACKed, and its first health check may have finished".
        """
        goal = client.goal.get(client.url_of("clusters")).resources
        names = client.releases.added(self.before, acked) if self.before is not None else acked.resources.keys()
        opened = self._opened(client)
        self._forget_versions(acked)
        found = set()
        for name in names & goal.keys():
            cluster, held = goal[name], acked.resources.get(name)
            if held is None or held.version != cluster.version:
                found.add(name)
                continue
            if not self._is_there(client, cluster, opened) or self._is_checked(cluster, now_s):
                found.add(name)
        return frozenset(found)

    def _forget_versions(self, acked: ResourceSet) -> None:
        """Forget versions that another ACKed version replaced: pushed again, they become warm again."""
        for name, (version, _) in list(self.acked_at.items()):
            held = acked.resources.get(name)
            if held is None or held.version != version:
                del self.acked_at[name]
                self.warm_at_s.pop(name, None)

    def _is_there(self, client: ClientState, cluster: Resource, opened: Mapping[str, int]) -> bool:
        """Whether the client has the assignments, requested since, and the secrets of a cluster on separate streams."""
        since = self._acked_at(client, cluster)
        asked = (each.name for each in _assignments(cluster) if each.source == "api")
        return all(opened.get(name, -1) >= since for name in asked) and self._has_secrets(client, cluster)

    def _is_checked(self, cluster: Resource, now_s: float) -> bool:
        """Whether the first health check of a cluster still runs."""
        if not cluster.first_check_s:
            return False
        return bool(self.warm_at_s.setdefault(cluster.name, now_s + cluster.first_check_s))

    def _acked_at(self, client: ClientState, cluster: Resource) -> int:
        """The position from which on a stream that requests the cluster's assignment requests it for this version.

        Envoy opens another stream for each version of a cluster, so an older stream proves nothing about this version.
        """
        name, version = cluster.name, cluster.version
        found = self.acked_at.get(name)
        if found is None or found[0] != version:
            shown = client.shown.resources.get(name) if client.shown is not None else None
            is_old = shown is not None and shown.version == version
            found = self.acked_at[name] = (version, 0 if is_old else client.next_position())
        return found[1]

    def _is_asked_for(self, client: ClientState, name: str) -> bool:
        """Whether a stream requests the assignment of a cluster for the version that was ACKed."""
        names = {each.name for each in _assignments(client.goal.get(client.url_of("clusters")).resources[name])}
        since = self.acked_at.get(name, ("", 0))[1]
        return any(
            watch.opened >= since and not names.isdisjoint(watch.subscription.interest.names)
            for watch in client.watches.of(client.url_of("endpoints"))
        )

    def _opened(self, client: ClientState) -> dict[str, int]:
        """The names of ACKed assignments, with the position of the latest stream that requested each."""
        found: dict[str, int] = {}
        for watch in client.watches.of(client.url_of("endpoints")):
            for name in watch.arrived():
                found[name] = max(watch.opened, found.get(name, 0))
        return found

    def _has_own_proof(self, client: ClientState, name: str) -> bool:
        """Whether the ACK of its assignment can prove that a cluster is warm."""
        cluster = client.goal.get(client.url_of("clusters")).resources.get(name)
        return cluster is not None and self._proves_itself(client, cluster)

    def _proves_itself(self, client: ClientState, cluster: Resource) -> bool:
        if cluster.first_check_s or not self._has_secrets(client, cluster):
            return False
        source = "ads" if client.is_aggregated else "api"
        return any(each.source == source for each in _assignments(cluster))

    def _has_secrets(self, client: ClientState, cluster: Resource) -> bool:
        """Whether the client has the secrets without which a cluster does not become warm."""
        return all(
            any(watch.has(each.name) for watch in client.watches.of(each.type_url))
            for each in cluster.references
            if alias_of(each.type_url) == "secrets" and each.source in ("ads", "api")
        )

    def _arrived(self, client: ClientState) -> frozenset[str]:
        """The names of the assignments that the client has ACKed."""
        return frozenset().union(*(watch.arrived() for watch in client.watches.of(client.url_of("endpoints"))))

    def _unfit(self, client: ClientState) -> frozenset[str]:
        """Clusters of which the client rejects an assignment and never accepted an earlier version of it.

        docs/protocol.md#refusals: "a rejected cluster, or a cluster whose assignment is rejected, holds the trees that
        refer to it".
        """
        refused = client.refused(client.url_of("endpoints"))
        if not refused:
            return NO_NAMES
        return client.releases.clusters_of(client.goal.get(client.url_of("clusters")), frozenset(refused))


def _naming(held: ResourceSet, listeners: frozenset[str]) -> frozenset[str]:
    """The clusters or assignments of a set whose own endpoints name one of these internal listeners."""
    return frozenset(
        name
        for name, each in held.resources.items()
        if any(alias_of(named.type_url) == "listeners" and named.name in listeners for named in each.references)
    )


def _assignments(cluster: Resource) -> list[Reference]:
    return [each for each in cluster.references if alias_of(each.type_url) == "endpoints"]


def _is_fed(cluster: Resource) -> bool:
    """Whether its endpoints come on the aggregated stream."""
    return any(each.source == "ads" for each in _assignments(cluster))


def _versions(name: str, sets: Iterable[Mapping[str, Resource]]) -> list[Resource]:
    """The resources that a name has in these sets, each version once."""
    return list({each.version: each for found in sets if (each := found.get(name)) is not None}.values())
