"""One policy at work: what was observed and decided last, and what is laid over the push for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from xds.assignment.assignment import (
    Allotment,
    Assignment,
    Decision,
    Observation,
)
from xds.assignment.policy import Policy
from xds.control.policies import Key
from xds.lower.load_assignment import PushedLocality, overlay_assignment, pushed_localities
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.protocol.overlay import Override


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision with what it rests on."""

    observed: Observation
    decision: Decision
    decided_at: float


class Steering:
    """A policy in force.

    ``assignment`` is what is served, ``outcome`` the latest decision: None before the first. ``waits_for`` says what is
    missing to decide; empty when nothing is. ``endpoints`` names the ClusterLoadAssignment that the cluster uses.
    """

    def __init__(self, key: Key, policy: Policy, assignment: Assignment | None = None) -> None:
        self.key = key
        self.policy = policy
        self.assignment = assignment
        self.outcome: Outcome | None = None
        self.waits_for = ""
        self.due_at = 0.0
        self.endpoints = ""
        self.is_unsaved = False
        self.saved_at = 0.0
        self.stand_ins: dict[Locality, Override] = {}
        self._allotments: dict[Locality, tuple[Allotment, ...]] = {}
        self._seen = ""  # version of the pushed assignment that was looked at last
        self._localities: Mapping[Locality, PushedLocality] = {}
        self._put_in_place()

    def is_news(self, pushed: Resource) -> bool:
        """Whether the pushed assignment is another than at the last decision."""
        return pushed.version != self._seen or pushed.name != self.endpoints

    def look(self, pushed: Resource) -> Mapping[Locality, PushedLocality]:
        """The localities of the pushed assignment. Where it is news this costs as much as it has endpoints."""
        if self.is_news(pushed):
            self._localities = pushed_localities(pushed)
            self._seen, self.endpoints = pushed.version, pushed.name
        return self._localities

    def follow(self, outcome: Outcome) -> None:
        """Serve what was decided."""
        self.outcome, self.waits_for = outcome, ""
        self.assignment = outcome.decision.assignment
        self._put_in_place()

    def prepare(self, pushed: Resource) -> None:
        """Make what is served in the place of the pushed assignment."""
        for stand_in in self.stand_ins.values():
            stand_in.of(pushed)

    def _put_in_place(self) -> None:
        sources = self.assignment.sources if self.assignment is not None else {}
        wanted = {source: own.allotments for source, own in sources.items() if own.is_overlay}
        kept = {source: one for source, one in self.stand_ins.items() if wanted.get(source) == self._allotments[source]}
        for source in wanted.keys() - kept.keys():
            kept[source] = Override(partial(overlay_assignment, allotments=wanted[source]))
        self.stand_ins, self._allotments = kept, wanted


def resumed(assignment: Assignment, now: float) -> Assignment:
    """What was decided before a restart, held from now on as if reports had been missing only since."""
    memory = assignment.memory
    heard = {source: replace(own, heard_at=now) for source, own in memory.sources.items()}
    return replace(assignment, memory=replace(memory, observed_at=now, sources=heard))
