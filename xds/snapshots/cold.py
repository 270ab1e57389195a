"""The clusters of a push that are cold for a client: a function of what was sent and accepted.

All clients in the same state share the result. `Readiness` adds what depends on time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet
from xds.snapshots.release import Releases


class ColdInputs(NamedTuple):
    """What the cold clusters of a client depend on.

    * ``goal``, ``released``, ``acked``: the clusters of the newest push, those released, and those that it ACKed;
    * ``offered``: the sets of the CDS responses in flight;
    * ``proved``: as ``Proof.clusters``;
    * ``unaccepted``: on an aggregated stream, the names of each type of parts (`PARTS`) that it requests and has not
      accepted in any version;
    * ``unassigned``: the clusters whose assignment it requests here and that does not exist;
    * ``unrequested``: the clusters whose assignment it does not request, if it showed versions and requests others;
    * ``rejected``: the clusters of which it rejects a part;
    * ``awaits_assignments``: it has returned, and may request assignments soon.
    """

    goal: ResourceSet
    released: ResourceSet
    acked: ResourceSet
    offered: tuple[ResourceSet, ...]
    proved: ResourceSet | None
    unaccepted: tuple[tuple[str, frozenset[str]], ...]
    unassigned: frozenset[str]
    unrequested: frozenset[str]
    rejected: frozenset[str]
    is_aggregated: bool
    awaits_assignments: bool


def find_cold(inputs: ColdInputs, releases: Releases) -> frozenset[str]:
    """The names of the cold clusters, but for those that warm on separate streams.

    Equal results are one object, which is compared at no cost.
    """
    goal, acked, diff = inputs.goal, inputs.acked, releases.diff
    cold = set(diff(acked, goal).added)
    if acked is not goal:
        cold |= goal.among(diff(inputs.released, acked).incomplete_aggregates)
    for offered in inputs.offered:  # it may have removed clusters already
        cold |= diff(offered, goal).added
    if inputs.is_aggregated:
        cold |= _lacking_parts(inputs, releases)
    if inputs.unrequested:
        cold |= diff(inputs.proved, goal).added & inputs.unrequested
    cold |= inputs.rejected
    if inputs.unassigned:  # of the clusters in use, those whose newest version leads to another assignment
        cold |= inputs.unassigned.intersection(diff(inputs.released, goal).newly_assigned)
    return releases.results.of(frozenset, frozenset(cold))


def _lacking_parts(inputs: ColdInputs, releases: Releases) -> frozenset[str]:
    """The unproved clusters whose assignments and secrets are not ACKed yet.

    The ACK of CDS alone does not prove these. Envoy also uses a cluster whose assignment or secret it rejected, or
    whose assignment was reported as missing. Those of the version that the client holds count too: a new version may
    take the place of an aggregate without a member that serves. A reconnected client requests its assignments last.
    """
    goal, acked = inputs.goal, inputs.acked
    unproved = releases.diff(inputs.proved, goal).added
    if not unproved:
        return NO_NAMES
    if inputs.awaits_assignments:
        return unproved & releases.unrequested(goal, NO_NAMES, "ads")
    sets = (goal, acked) if acked is not goal else (goal,)
    named = (releases.clusters_of(one, names, alias) for one in sets for alias, names in inputs.unaccepted)
    lacking = inputs.unassigned.union(*named)
    if acked is not goal and lacking:
        lacking |= _with_no_member(releases.members(acked), lacking)
    return lacking & unproved


def _with_no_member(members: Mapping[str, frozenset[str]], lacking: frozenset[str]) -> frozenset[str]:
    """The aggregate clusters of which every member is ``lacking``, or such an aggregate."""
    found = lacking
    while more := frozenset(name for name, each in members.items() if name not in found and each <= found):
        found |= more
    return found
