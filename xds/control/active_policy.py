"""One traffic assignment policy in force: its last observation and decision, and the overlays made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from xds.assignment.assignment import (
    Allotment,
    Assignment,
    Decision,
    Observation,
)
from xds.assignment.decision_history import DecisionHistory
from xds.assignment.policy import Policy
from xds.control.policies import Key
from xds.lower.load_assignment import PushedLocality, overlay_assignment, pushed_localities
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.protocol.overlay import Override


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision with its inputs. ``decided_at`` is epoch seconds."""

    observed: Observation
    decision: Decision
    decided_at: float


Served = tuple[tuple[Allotment, ...], float]  # allotments, and the fraction of requests to be dropped


class ActivePolicy:
    """A policy in force.

    ``assignment`` is served; ``outcome`` is the latest decision, None before the first. ``waits_for`` says what is
    missing for a decision, empty when nothing is. ``endpoints`` names the ClusterLoadAssignment of the cluster.
    ``history`` has the changes of before.
    """

    def __init__(
        self, key: Key, policy: Policy, assignment: Assignment | None = None, history: DecisionHistory | None = None
    ) -> None:
        self.key = key
        self.policy = policy
        self.assignment = assignment
        self.history = history if history is not None else DecisionHistory()
        self.outcome: PolicyDecision | None = None
        self.waits_for = ""
        self.due_at = 0.0
        self.endpoints = ""
        self.is_unsaved = False
        self.saved_at = 0.0
        self.stand_ins: dict[Locality, Override] = {}
        self._served: dict[Locality, Served] = {}
        self._seen = ""  # version of the pushed assignment that was read last
        self._localities: Mapping[Locality, PushedLocality] = {}
        self._make_overlays()

    def is_news(self, pushed: Resource) -> bool:
        """Whether the pushed assignment has changed since the last decision."""
        return pushed.version != self._seen or pushed.name != self.endpoints

    def look(self, pushed: Resource) -> Mapping[Locality, PushedLocality]:
        """The localities of the pushed assignment. Reading a changed one takes time proportional to its endpoints."""
        if self.is_news(pushed):
            self._localities = pushed_localities(pushed)
            self._seen, self.endpoints = pushed.version, pushed.name
        return self._localities

    @property
    def addresses(self) -> Iterator[frozenset[bytes]]:
        """The addresses of the endpoints as read last, locality by locality."""
        return (own.addresses for own in self._localities.values())

    def follow(self, outcome: PolicyDecision) -> None:
        """Serve a decision."""
        self.outcome, self.waits_for = outcome, ""
        self.assignment = outcome.decision.assignment
        self._make_overlays()

    def prepare(self, pushed: Resource) -> None:
        """Build the overlaid resources for all sources."""
        for stand_in in self.stand_ins.values():
            stand_in.of(pushed)

    def _make_overlays(self) -> None:
        sources = self.assignment.sources if self.assignment is not None else {}
        wanted = {source: (own.allotments, own.shed) for source, own in sources.items() if own.is_overlay}
        kept = {source: one for source, one in self.stand_ins.items() if wanted.get(source) == self._served[source]}
        for source in wanted.keys() - kept.keys():
            allotments, shed = wanted[source]
            kept[source] = Override(partial(overlay_assignment, allotments=allotments, shed=shed))
        self.stand_ins, self._served = kept, wanted


def resumed(assignment: Assignment, now: float) -> Assignment:
    """The assignment from before a restart. Reports count as missing from ``now`` on."""
    assignment = assignment.moved_by(min(now - assignment.memory.observed_at, 0.0))  # the clock may have been set back
    memory = assignment.memory
    heard = {source: replace(own, heard_at=now) for source, own in memory.sources.items()}
    return replace(assignment, memory=replace(memory, observed_at=now, sources=heard))
