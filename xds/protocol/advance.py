"""One step of a transition: what a client may be sent now of the newest push, and what goes on waiting.

    cold clusters (`readiness`) -> what is held (`hold`) -> earlier versions for what warms (`returning`) -> the release

Nothing here depends on the time or on who the client is. So clients in the same situation share one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.snapshot import Snapshot
from xds.protocol.facts import ClientFacts
from xds.protocol.hold import Held, find_held
from xds.protocol.proof import Proof
from xds.protocol.readiness import ColdClusters, find_cold_clusters
from xds.protocol.removals import with_accepted_versions
from xds.protocol.returning import with_earlier_routes
from xds.snapshots.linger import Lingering
from xds.snapshots.release import merge_names


class Advance(NamedTuple):
    """The state of a client after a step. The attributes of `ClientState` and `Transition` explain the fields."""

    cold: ColdClusters
    proof: Proof
    held: Held
    released: Snapshot
    lingering: Lingering


def find_advance(
    facts: ClientFacts, before: Held, warm_from_s: Mapping[str, float], proved: frozenset[str] = NO_NAMES
) -> Advance:
    """The next step. ``before``: what was held; ``warm_from_s``: as in `Readiness`; ``proved``: as in
    `find_cold_clusters`.
    """
    situation = facts.situation if not proved and not warm_from_s else ()
    if not situation:
        return _find_advance(facts, before, warm_from_s, proved)
    key = (*situation, before.ready, before.is_ready_unproved, before.withheld_types, before.is_fetch_over)
    advance: Advance = facts.releases.advances.get(key, _find_advance, facts, before, warm_from_s, NO_NAMES)
    return advance


def _find_advance(
    facts: ClientFacts, before: Held, warm_from_s: Mapping[str, float], proved: frozenset[str]
) -> Advance:
    cold = find_cold_clusters(facts, warm_from_s, proved)
    facts = facts._replace(proof=facts.proof.with_overdue(facts.proof.overdue & cold.names))
    held, released = find_held(facts, before, cold)
    lingering, releases = facts.lingering, facts.releases
    if facts.has_returned:
        released, lingering = with_earlier_routes(facts, released, held.names, cold.names)
    left = releases.lingerings.names_missing_in(lingering, facts.goal)
    released = with_accepted_versions(facts, released, left)
    released = releases.release(released, facts.goal, merge_names(held.names, left))
    return Advance(cold, facts.proof, held, released, lingering)
