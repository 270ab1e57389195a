"""One active traffic assignment policy: its last observation and decision, and the overrides made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from xds.model.node import Locality
from xds.model.resource import Resource
from xds.snapshots.overlay import Override
from xds.steering.core.assignment import (
    Allotment,
    Assignment,
    Decision,
    Observation,
    Path,
    SourceDecision,
    Target,
)
from xds.steering.core.decision_history import DecisionHistory
from xds.steering.core.load_assignment import PushedLocality, overlay_assignment, pushed_localities
from xds.steering.core.policy import Policy
from xds.steering.core.policy_document import policy_document
from xds.steering.core.utilisation import PathFigures, TargetFigures, path_figures, target_figures
from xds.store.document_keys import Key


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision with its inputs. ``decided_at`` is epoch seconds."""

    observed: Observation
    decision: Decision
    decided_at: float

    def of_source(self, source: Locality) -> SourceDecision | None:
        """The decision about one source."""
        return next((each for each in self.decision.sources if each.source == source), None)

    def paths(self, assignment: Assignment) -> Mapping[Path, PathFigures]:
        """The figures of each source with each target, in an assignment."""
        return path_figures(self.observed, assignment)

    def targets(self) -> list[tuple[Locality, Target, TargetFigures]]:
        """The targets with their figures, by name."""
        figures, targets = target_figures(self.observed, self.decision), self.observed.targets
        return [(name, targets[name], figures[name]) for name in sorted(targets, key=str)]


Served = tuple[tuple[Allotment, ...], float]  # allotments, and the fraction of requests to be dropped


class ActivePolicy:
    """An active policy.

    ``assignment`` is served; ``outcome`` is the latest decision, None before the first. ``waits_for`` says what is
    missing for a decision; empty if nothing is. ``endpoints`` names the ClusterLoadAssignment of the cluster.
    ``history`` has the earlier changes; ``overrides`` are the overlaid assignments by source locality.
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
        self.overrides: dict[Locality, Override] = {}
        self._served: dict[Locality, Served] = {}
        self._read_version = ""  # of the pushed assignment that was read last
        self._localities: Mapping[Locality, PushedLocality] = {}
        self._make_overrides()

    def document(self) -> dict[str, Any]:
        """The policy with all defaults, as it is written."""
        return policy_document(self.policy)

    def is_changed(self, pushed: Resource) -> bool:
        """Whether the pushed assignment has changed since it was read last."""
        return pushed.version != self._read_version or pushed.name != self.endpoints

    def localities_of(self, pushed: Resource) -> Mapping[Locality, PushedLocality]:
        """The localities of the pushed assignment. Reading a changed one takes time proportional to its endpoints."""
        if self.is_changed(pushed):
            self._localities = pushed_localities(pushed)
            self._read_version, self.endpoints = pushed.version, pushed.name
        return self._localities

    @property
    def addresses(self) -> Iterator[frozenset[bytes]]:
        """The addresses of the endpoints that were read last, locality by locality."""
        return (own.addresses for own in self._localities.values())

    def serve(self, outcome: PolicyDecision) -> bool:
        """Make a decision the served one. True if other weights are served now."""
        before = self.overrides
        self.outcome, self.waits_for = outcome, ""
        self.assignment = outcome.decision.assignment
        self._make_overrides()
        return self.overrides != before

    def adopt(self, assignment: Assignment, history: DecisionHistory) -> None:
        """Serve what another server has decided."""
        self.assignment, self.history, self.outcome = assignment, history, None
        self._make_overrides()

    def wait(self, now: float) -> None:
        """Decide next in an interval, after reports of all clients. ``now`` is epoch seconds."""
        if self.assignment is not None:
            self.assignment = resumed(self.assignment, now)
        self.due_at = now + self.policy.interval_s

    def prepare(self, pushed: Resource) -> None:
        """Build the overlaid resources for all sources."""
        for override in self.overrides.values():
            override.of(pushed)

    def _make_overrides(self) -> None:
        sources = self.assignment.sources if self.assignment is not None else {}
        wanted = {source: (own.allotments, own.shed) for source, own in sources.items() if own.is_overlay}
        overrides = {
            source: one for source, one in self.overrides.items() if wanted.get(source) == self._served[source]
        }
        for source in wanted.keys() - overrides.keys():
            allotments, shed = wanted[source]
            overrides[source] = Override(partial(overlay_assignment, allotments=allotments, shed=shed))
        self.overrides, self._served = overrides, wanted


def resumed(assignment: Assignment, now: float) -> Assignment:
    """The assignment of before a restart. Reports count as missing from ``now`` on."""
    assignment = assignment.moved_by(min(now - assignment.memory.observed_at, 0.0))  # the clock may have been set back
    memory = assignment.memory
    heard = {source: replace(own, heard_at=now) for source, own in memory.sources.items()}
    return replace(assignment, memory=replace(memory, observed_at=now, sources=heard))
