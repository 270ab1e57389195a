"""Why a node is served what it is served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.endpoints import AssignmentOwner
from xds.admin.models.groups import LoweredOrigin
from xds.admin.models.nodes import StreamAnswer
from xds.admin.models.values import NodeLocality
from xds.admin.models.writing import present_if

if TYPE_CHECKING:
    from xds.push.explain import Explanation
    from xds.snapshots.membership import GroupCandidate

BY_SELECTOR = "selector"  # a rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedNode:
    """The node that is explained.

    * ``id``: its id;
    * ``cluster``: the cluster that the node names; not a resource;
    * ``locality``: its locality;
    * ``user_agent``: the name and version of the client;
    * ``connected``: whether it has an open stream;
    * ``principals``: the authenticated principals of its connections; empty without authentication.
    """

    id: str
    cluster: str
    locality: NodeLocality
    user_agent: str
    connected: bool
    principals: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedGroup:
    """A group that the node may belong to.

    * ``rule``: why it is tried: ``selector``, ``node.id``, ``node.cluster``, ``default``; ``function`` if the program
      that embeds the server chose it;
    * ``selector``: present for the rule ``selector``;
    * ``priority``: present for the rule ``selector``;
    * ``matched``: whether it matches the node and has a snapshot;
    * ``detail``: why it matches or does not.
    """

    schema_name: ClassVar[str] = "GroupCandidateItem"

    group: str
    rule: str
    selector: str = field(default="", metadata=present_if(lambda tried: tried.rule == BY_SELECTOR))
    priority: int = field(default=0, metadata=present_if(lambda tried: tried.rule == BY_SELECTOR))
    matched: bool
    detail: str

    @classmethod
    def from_domain(cls, candidate: GroupCandidate) -> TriedGroup:
        """A candidate."""
        return copied(cls, candidate, group=candidate.match.group, rule=candidate.match.rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSource:
    """An endpoint that comes from an instance of a service.

    * ``address``: its IP address;
    * ``port``: its port;
    * ``health``: ``passing``, ``warning``, ``critical`` or ``draining``;
    * ``source``: the name of the source;
    * ``instance``: the id of the instance;
    * ``since``: when it was first seen.
    """

    schema_name: ClassVar[str] = "OriginItem"

    address: str
    port: int
    health: str
    source: str
    instance: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedResource:
    """What the node gets for one resource.

    * ``answer``: ``served`` (the node is not connected and would get it), ``sent`` (ACKed), ``pending`` (not ACKed
      yet), ``refused`` (NACKed), ``held`` (waits for clusters), ``lingering`` (removed, and kept for a while),
      ``missing`` (the group does not have it), ``unexpressed`` (the v2 API cannot express it), ``not_subscribed`` or
      ``no_group``;
    * ``version``: present if there is something to serve: its version, a hash of its content;
    * ``pushed_version``: present if live endpoints or a traffic assignment replace the pushed resource: the version of
      the pushed one;
    * ``owner``: present for a served assignment: its owner;
    * ``sources``: present for an assignment that follows a service: the number of instances by source;
    * ``instances``: present with ``sources`` if ``name`` is given: the first thousand instances;
    * ``lowered``: present for a lowered resource: where it comes from.
    """

    schema_name: ClassVar[str] = "AnswerItem"

    type: str
    name: str
    answer: str
    detail: str
    version: str = ""
    pushed_version: str = ""
    owner: AssignmentOwner | None = None
    sources: Mapping[str, int] | None = None
    instances: tuple[EndpointSource, ...] | None = None
    lowered: LoweredOrigin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """Why a node is served what it is served.

    * ``node``: the node;
    * ``group``: its group; null if no group matches;
    * ``rule``: why it is in this group, as in ``candidates``; null if no group matches;
    * ``revision``: the present revision of the group; null if no group matches;
    * ``overlay``: the locality whose traffic assignment the node is served; null if it is served the pushed weights;
    * ``candidates``: the groups that were tried, in order; the first that matched is the group of the node;
    * ``resources``: what the node gets, at most a thousand resources;
    * ``resources_total``: the number of resources;
    * ``rollout``: present while the group has a careful rollout: which revision the node is served, and why;
    * ``linkerd``: present for a Linkerd proxy: the last answer on each of its streams;
    * ``partial``: present if servers did not answer: their names. One of them may have a stream of the node.
    """

    schema_name: ClassVar[str] = "ExplanationItem"

    node: ExplainedNode
    group: str | None
    rule: str | None
    revision: int | None
    overlay: NodeLocality | None
    candidates: tuple[TriedGroup, ...]
    resources: tuple[ExplainedResource, ...]
    resources_total: int
    rollout: str = ""
    linkerd: tuple[StreamAnswer, ...] = ()
    partial: tuple[str, ...] = ()

    @classmethod
    def from_domain(
        cls,
        explanation: Explanation,
        principals: Iterable[str],
        resources: Iterable[ExplainedResource],
        linkerd: Iterable[StreamAnswer] = (),
    ) -> NodeExplanation:
        """An explanation."""
        node, chosen = explanation.node, explanation.chosen
        return cls(
            node=copied(ExplainedNode, node, connected=explanation.connected, principals=tuple(principals)),
            group=chosen.match.group if chosen is not None else None,
            rule=chosen.match.rule if chosen is not None else None,
            revision=explanation.revision,
            overlay=NodeLocality.from_domain(explanation.source) if explanation.source is not None else None,
            candidates=tuple(map(TriedGroup.from_domain, explanation.candidates)),
            resources=tuple(resources),
            resources_total=explanation.total,
            rollout=explanation.rollout,
            linkerd=tuple(linkerd),
        )
