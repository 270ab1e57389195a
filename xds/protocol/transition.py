"""The transition of one client to the newest snapshot: what has to wait, and for what (docs/protocol.md#order).

A transition is not tied to one push. It always covers the difference between the content released to this client and
the newest snapshot. The difference is split into listener trees (`trees`), each of which is in one of the phases there;
a rejected resource stops its tree in the phase it is in. A client that returns is in the phase RETURNING at first
(docs/internals/engine.md#states-of-a-client). Lingering outlasts the transition (`ClientState.lingering`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.resource_type import resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.cluster_parts import lacks_named_clusters
from xds.protocol.expected_requests import subscribes_to_clusters
from xds.protocol.facts import ClientFacts
from xds.protocol.hold import Held
from xds.protocol.readiness import (
    NO_TIMES,
    Readiness,
    expire_readiness,
    overdue_clusters,
    readiness_deadlines_s,
    waits_without_limit,
)
from xds.snapshots.awaited_secrets import still_named


class Transition(NamedTuple):
    """The transition of one client: what its last step found, and since when it waits.

    * ``held``: what of the newest push it is not sent yet; ``readiness``: the clusters that content waits for;
    * ``drains``: a listener changed or was removed, so old connections drain;
    * ``fetch_since_s``: since when listeners are in the phase FETCHING;
    * ``has_timed_out``: `order_timeout_s` has passed: names that exist only in held content are reported as missing,
      and clusters that a client did not request by name are not waited for;
    * ``returning_until_s``: the end of the phase RETURNING; None outside of it;
    * ``awaited_until_s``: the missing secrets that content in use newly names, and until when they may come.
    """

    began_s: float
    held: Held
    readiness: Readiness = Readiness()
    drains: bool = False
    fetch_since_s: float | None = None
    has_timed_out: bool = False
    returning_until_s: float | None = None
    awaited_until_s: Mapping[str, float] = NO_TIMES

    def with_ready(self, release: Snapshot) -> Transition:
        """All listeners of this release are ready."""
        return self._replace(held=self.held.with_ready(release))

    def holds_type(self, type_url: str) -> bool:
        """Whether some resources of this type keep their released version."""
        return any(url == type_url for url, _ in self.held.names)

    def holds_back(self, type_url: str) -> bool:
        """Whether newer content of this type is not released."""
        return type_url in self.held.withheld_types or self.holds_type(type_url)

    def upcoming_set(self, goal_set: ResourceSet) -> ResourceSet | None:
        """The newest set of a type while some of it is held. Its names are not reported as missing meanwhile.

        None if nothing is held, and after `order_timeout_s`: "a name that exists only in held content is reported as
        missing after `order_timeout_s`, and sent when the content is released" (docs/protocol.md#additions).
        """
        is_held = not self.has_timed_out and self.holds_type(goal_set.type.type_url)
        return goal_set if is_held else None

    def awaited_secrets(self, type_url: str) -> frozenset[str]:
        """The secrets that content in use newly names: not reported as missing for `order_timeout_s`."""
        if not self.awaited_until_s or resource_type(type_url).alias != "secrets":
            return NO_NAMES
        return frozenset(self.awaited_until_s)


class Expired(NamedTuple):
    """The waits that a deadline ends.

    * ``transition``: the state after them;
    * ``overdue``: all clusters that content has waited for long enough;
    * ``is_unproved``: content is released without proof that the client is ready for it;
    * ``is_missing_due``: requested names that waited are missing now.
    """

    transition: Transition
    overdue: frozenset[str]
    is_unproved: bool
    is_missing_due: bool


def with_step(before: Transition, held: Held, readiness: Readiness, now_s: float) -> Transition:
    """The transition after a step; the same object if it is as it was."""
    since_s = None
    if held.is_fetching:
        since_s = before.fetch_since_s if before.fetch_since_s is not None else now_s
    if readiness is before.readiness and since_s == before.fetch_since_s and held == before.held:
        return before
    return before._replace(held=held, readiness=readiness, fetch_since_s=since_s)


def with_withheld(facts: ClientFacts, transition: Transition, type_url: str) -> Transition:
    """Nothing of this type is sent: it is unknown what the client holds, and what changed may drain."""
    # A listener that cannot become ready is taken back to the version before.
    held = transition.held
    ready = facts.releases.replaced(held.ready, facts.logs.earlier(type_url))
    held = held._replace(ready=ready, withheld_types=held.withheld_types | {type_url})
    return transition._replace(held=held, drains=True)


def with_missing_secrets(
    facts: ClientFacts, transition: Transition, missing: frozenset[str], now_s: float
) -> Transition:
    """These secrets are waited for, and those that are waited for already as long as they are missing."""
    until_s, before = now_s + facts.rules.order_timeout_s, transition.awaited_until_s
    if not before and not missing:
        return transition
    names = still_named({*before, *missing}, facts.goal)
    return transition._replace(awaited_until_s={name: before.get(name, until_s) for name in names})


def is_acked(facts: ClientFacts, transition: Transition) -> bool:
    """Whether the client has ACKed everything that may refer to clusters.

    docs/protocol.md#removals: "the clock starts when everything that could refer to the resource is ACKed". One that
    requests clusters by name uses an old one until it has the new one (`lacks_named_clusters`).
    """
    is_waiting = facts.is_awaited or transition.awaited_until_s or transition.fetch_since_s is not None
    if is_waiting or transition.held.names or transition.held.withheld_types:
        return False
    if any(resource_type(url).in_tree for url in facts.watches.pending_types):
        return False
    return not lacks_named_clusters(facts, is_bounded=transition.has_timed_out)


def is_over(facts: ClientFacts, transition: Transition) -> bool:
    """Whether all clusters are warm or overdue (`Proof`), CDS is ACKed, and all removals have an end.

    Once `is_acked` holds as well, the transition ends.
    """
    cold = transition.readiness.cold
    if not cold.names <= overdue_clusters(facts, cold) or facts.lingering.lacks_end:
        return False
    return not any(resource_type(url).is_route_target for url in facts.watches.pending_types)


def expire(facts: ClientFacts, before: Transition, now_s: float) -> Expired:
    """End waits that have timed out."""
    order_timeout_s, until_s = facts.rules.order_timeout_s, before.awaited_until_s
    readiness, overdue = expire_readiness(facts, before.readiness, now_s)
    is_unreadable = any(tree.is_unreadable for tree in before.held.trees)
    is_unproved = any(
        is_unreadable or not waits_without_limit(facts, readiness.cold, name)
        for name in overdue - facts.proof.overdue
        if before.held.trees
    )
    is_return_over = before.returning_until_s is not None and now_s >= _returning_until_s(facts, before)
    is_fetch_over = before.fetch_since_s is not None and now_s >= before.fetch_since_s + order_timeout_s
    is_time_over = not before.has_timed_out and now_s >= before.began_s + order_timeout_s
    awaited = {name: each_s for name, each_s in until_s.items() if each_s > now_s}
    lacks_clusters = subscribes_to_clusters(facts) and not facts.watches.of(facts.url_of("clusters"))
    held = before.held._replace(is_fetch_over=True) if is_fetch_over else before.held
    after = before._replace(
        held=held,
        readiness=readiness,
        returning_until_s=None if is_return_over else before.returning_until_s,
        fetch_since_s=None if is_fetch_over else before.fetch_since_s,
        has_timed_out=before.has_timed_out or is_time_over,
        awaited_until_s=awaited,
    )
    is_unproved = is_unproved or (is_return_over and lacks_clusters) or is_fetch_over
    return Expired(after, overdue, is_unproved, is_missing_due=is_time_over or len(awaited) < len(until_s))


def deadline_s(facts: ClientFacts, transition: Transition) -> float | None:
    """When `expire` is due if no request or push comes before; None if it is not needed."""
    order_timeout_s = facts.rules.order_timeout_s
    due_s = readiness_deadlines_s(facts, transition.readiness)
    if transition.returning_until_s is not None:
        due_s.append(_returning_until_s(facts, transition))
    if transition.fetch_since_s is not None:
        due_s.append(transition.fetch_since_s + order_timeout_s)
    if transition.awaited_until_s:
        due_s += transition.awaited_until_s.values()
    if (transition.held.names or facts.lingering.lacks_end) and not transition.has_timed_out:
        due_s.append(transition.began_s + order_timeout_s)
    return min(due_s) if due_s else None


def _returning_until_s(facts: ClientFacts, transition: Transition) -> float:
    """When the phase RETURNING ends.

    docs/protocol.md#coming-back: "New trees wait for the CDS request of such a client, at most `order_timeout_s`".
    """
    assert transition.returning_until_s is not None
    if not facts.watches.of(facts.url_of("clusters")) and subscribes_to_clusters(facts):
        return transition.began_s + facts.rules.order_timeout_s
    return transition.returning_until_s
