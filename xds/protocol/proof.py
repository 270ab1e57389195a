"""The proof that the clusters of a client are warm, so that content may refer to them.

A proof is a positive fact about a cluster since it was sent to the client: the client ACKed the cluster, and ACKed the
assignment that it requested for it. That nothing speaks against a cluster proves nothing: a refusal is forgotten when a
push takes its resource back, and a client also ACKs a cluster whose assignment it rejects or does not get. A proved
cluster stays proved until it is removed from the client: an earlier version serves while a later one warms.
docs/internals/engine.md#proof has all cases.
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet


@dataclass(frozen=True, slots=True)
class Proof:
    """What is proved of the clusters of one client.

    * ``clusters``: a set whose members are all proved, in these versions or in earlier ones; None if nothing is known
      of the client yet;
    * ``overdue``: cold clusters for which content has waited long enough. After a transition, those without an
      assignment: while it does not exist, nothing waits for them again.
    """

    clusters: ResourceSet | None = None
    overdue: frozenset[str] = NO_NAMES

    def of(self, clusters: ResourceSet | None) -> Proof:
        """All of these clusters are proved, and no others; None: nothing is known."""
        return self if clusters is self.clusters else Proof(clusters, self.overdue)

    def with_overdue(self, overdue: frozenset[str]) -> Proof:
        """Content has waited long enough for these clusters, and for no others."""
        return self if overdue == self.overdue else Proof(self.clusters, overdue)


NO_PROOF = Proof()
