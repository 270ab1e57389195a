"""Pushes: what a push did, and how many nodes have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.findings import Finding
from xds.admin.models.nacks import Nack
from xds.admin.models.nodes import HeldOnNode
from xds.admin.models.rollouts import LastRollout, PushedRollout, WaveNodes, rollout_fields

if TYPE_CHECKING:
    from xds.fleet.state import Convergence, HeldResources, Sync
    from xds.model.snapshot import Change
    from xds.push.progress import RolloutStatus
    from xds.push.request import PushResult
    from xds.rollouts.rollout import Rollout


@dataclass(frozen=True, slots=True)
class ChangedNames:
    """The resources of one type that a push changed.

    * ``added``: the names of new resources;
    * ``changed``: the names of resources with other content;
    * ``removed``: the names of removed resources.
    """

    schema_name: ClassVar[str] = "ChangeItem"

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    @classmethod
    def by_type(cls, changes: Mapping[str, Change]) -> dict[str, ChangedNames]:
        """Changes by type alias."""
        return {alias: copied(cls, change) for alias, change in changes.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PushProgress:
    """The progress of a push among the nodes that were connected at its commit. Lists are bounded, numbers are not.

    * ``verdict``: ``done`` if all nodes have ACKed the push, ``refused`` if a node has NACKed it, else ``pending``;
    * ``synced``: the number of nodes that have ACKed all changed types;
    * ``pending``: the number of nodes that have not answered yet;
    * ``nacked``: the number of nodes that have NACKed a changed type;
    * ``pending_nodes``: the ids of some pending nodes;
    * ``nacks``: some open NACKs of these nodes;
    * ``held``: resources that some pending nodes are not sent yet;
    * ``partial``: present if servers did not answer, or do not serve the revision yet: their names. The verdict is then
      not ``done``.
    """

    schema_name: ClassVar[str] = "ProgressItem"

    verdict: str
    synced: int
    pending: int
    nacked: int
    pending_nodes: tuple[str, ...]
    nacks: tuple[Nack, ...]
    held: tuple[HeldOnNode, ...]
    partial: tuple[str, ...] = ()

    @classmethod
    def from_domain(cls, domain: Convergence, verdict: str) -> PushProgress:
        """The progress of a push, and whether the nodes have it."""
        return copied(cls, domain, verdict=verdict, held=_held(domain.held))


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRollout:
    """The connected nodes of a group by their state for one type.

    * ``synced``: the number of nodes that have ACKed it;
    * ``pending``: the number of nodes that have not answered yet;
    * ``nacked``: the number of nodes that have NACKed it;
    * ``not_subscribed``: the number of nodes that do not subscribe to it;
    * ``at_base``: present if a careful rollout changes it: how many of ``synced`` are outside of the wave, and have
      ACKed what the base has.
    """

    schema_name: ClassVar[str] = "TypeRolloutItem"

    synced: int
    pending: int
    nacked: int
    not_subscribed: int
    at_base: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRollout(LastRollout):
    """The connected nodes of a group by their state at what each is to have. Nodes without subscriptions do not count.

    While a careful rollout runs, that is the head for nodes in the wave, and the base for all others.

    * ``revision``: the present revision;
    * ``synced``: the number of nodes that have ACKed all types;
    * ``pending``: the number of nodes that have not answered yet;
    * ``nacked``: the number of nodes that have NACKed a type;
    * ``types``: the states for single types, by type alias;
    * ``pending_nodes``: the ids of some pending nodes;
    * ``nacks``: some open NACKs;
    * ``held``: resources that some pending nodes are not sent yet;
    * ``partial``: present if servers did not answer: their names. Their nodes are not counted.
    """

    schema_name: ClassVar[str] = "RolloutItem"

    group: str
    revision: int
    synced: int
    pending: int
    nacked: int
    types: Mapping[str, TypeRollout]
    pending_nodes: tuple[str, ...]
    nacks: tuple[Nack, ...]
    held: tuple[HeldOnNode, ...]
    partial: tuple[str, ...] = ()

    @classmethod
    def from_domain(cls, domain: RolloutStatus, rollout: Rollout | None) -> GroupRollout:
        """The progress of a group, and its last careful rollout."""
        wave = domain.wave.convergence
        nodes = WaveNodes(wave=domain.wave.nodes_n, acked=wave.synced, nacked=wave.nacked, outside=domain.outside_n)
        return copied(
            cls,
            domain.all,
            group=domain.group,
            revision=domain.revision,
            types={
                alias: _counts(states, domain.at_base.get(alias, 0)) for alias, states in sorted(domain.types.items())
            },
            held=_held(domain.all.held),
            **(rollout_fields(rollout, nodes) if rollout is not None else {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """The result of a push; in a dry run, what it would change.

    * ``revision``: the revision of the group after the push; in a dry run, its present revision. 0: there is no group;
    * ``etag``: the etag of the group at this revision, without quotes; empty if there is no group;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``changes``: the changed resources, by type alias;
    * ``changed``: false if the push changed nothing, so that it made no revision;
    * ``moves``: present if a group is deleted: the number of its connected nodes by the group that they move to. Nodes
      under the empty name match no group and keep their configuration;
    * ``progress``: present after ``Prefer: wait``: the progress of the push when the wait was over. Nodes outside of
      a careful rollout have what they are to have;
    * ``rollout``: present if there is a careful rollout, or a plan for one: what the push does to it.
    """

    schema_name: ClassVar[str] = "PushAnswer"

    group: str
    revision: int
    etag: str
    versions: Mapping[str, str]
    changes: Mapping[str, ChangedNames]
    changed: bool
    warnings: tuple[Finding, ...]
    dry_run: bool = False
    moves: Mapping[str, int] = field(default_factory=dict)
    progress: PushProgress | None = None
    rollout: PushedRollout | None = None

    @classmethod
    def from_domain(
        cls,
        result: PushResult,
        warnings: tuple[Finding, ...],
        dry_run: bool = False,
        progress: PushProgress | None = None,
        rollout: PushedRollout | None = None,
    ) -> PushOutcome:
        """The result of a push, with all warnings."""
        changes = ChangedNames.by_type(result.changes)
        given = {"changes": changes, "warnings": warnings, "dry_run": dry_run, "progress": progress, "rollout": rollout}
        return copied(cls, result, **given)


def _counts(states: Mapping[Sync, int], at_base: int) -> TypeRollout:
    numbers = {state.value: number for state, number in states.items()}
    return TypeRollout(
        synced=numbers.get("synced", 0),
        pending=numbers.get("pending", 0),
        nacked=numbers.get("nacked", 0),
        not_subscribed=numbers.get("not_subscribed", 0),
        at_base=at_base,
    )


def _held(pairs: Iterable[tuple[str, HeldResources]]) -> tuple[HeldOnNode, ...]:
    return tuple(copied(HeldOnNode, held, node=node) for node, held in pairs)
