"""Nodes: what each runs on its streams, what it keeps, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.values import NodeLocality, time_of
from xds.admin.models.writing import present_if

if TYPE_CHECKING:
    from xds.envoy.translation import UnexpressedResource
    from xds.fleet.node_state import NodeState
    from xds.fleet.polls import Polls
    from xds.fleet.state import StreamState, TypeState
    from xds.lrs.stream_states import ReportStream

_ALL = "*"  # all resources, among subscribed names
LOAD_SERVICE = "LRS"


@dataclass(frozen=True, slots=True)
class UnexpressedName:
    """A resource that the v2 API of the node cannot express.

    * ``problem``: what cannot be expressed.
    """

    schema_name: ClassVar[str] = "UnexpressedItem"

    name: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTypeStatus:
    """The state of one type on a node or a stream.

    * ``state``: ``synced`` (all is ACKed), ``pending`` (an answer is missing), ``nacked``, ``not_subscribed``, or
      ``orphaned`` (no group matches the node);
    * ``version_sent``: the ``version_info`` of the last response; empty before the first;
    * ``version_acked``: the ``version_info`` that was ACKed last; empty before the first ACK;
    * ``revision``: the newest revision whose content of this type is ACKed; null if it is not known;
    * ``subscribed``: the subscribed names, ``*`` for all resources; the list is bounded;
    * ``subscribed_total``: the number of subscribed names, without ``*``;
    * ``missing``: subscribed names that do not exist; the list is bounded;
    * ``since``: when this state began;
    * ``error``: present after a NACK: the error message of the client;
    * ``guilty``: present after a NACK: the names that are known to be rejected;
    * ``unexpressed``: present if the v2 API of the node cannot express subscribed resources, which are not sent.
    """

    schema_name: ClassVar[str] = "TypeItem"

    type_url: str
    state: str
    version_sent: str
    version_acked: str
    revision: int | None
    subscribed: tuple[str, ...]
    subscribed_total: int
    missing: tuple[str, ...]
    since: datetime
    error: str = ""
    guilty: tuple[str, ...] = field(default=(), metadata=present_if(lambda status: status.error))
    unexpressed: tuple[UnexpressedName, ...] = ()

    @classmethod
    def from_domain(cls, state: TypeState, unexpressed: Sequence[UnexpressedResource] = ()) -> NodeTypeStatus:
        """The state of a type."""
        return copied(
            cls,
            state,
            subscribed=(_ALL, *state.names) if state.wildcard else state.names,
            subscribed_total=state.subscribed,
            unexpressed=tuple(copied(UnexpressedName, each) for each in unexpressed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReports:
    """The load reports of a stream.

    * ``reports``: the number of reports;
    * ``reported``: the time of the latest report; null before the first;
    * ``refused``: the number of invalid reports of clusters;
    * ``left_out``: the number of values that a limit on memory left out.
    """

    schema_name: ClassVar[str] = "ReportsItem"

    reports: int
    reported: datetime | None
    refused: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAnswer:
    """The last answer on a stream of a Linkerd proxy.

    * ``method``: service and method, such as ``Destination/Get``;
    * ``authority``: the name or address that the proxy asks for;
    * ``source``: the service, cluster or instance behind the answer; ``nothing`` for none;
    * ``is_known``: false while the answer is not known yet;
    * ``exists``: false if the answer says that there is no such destination;
    * ``endpoints``: the number of endpoints; null if the answers of this method have none;
    * ``messages``: the number of sent messages;
    * ``sent``: when the last message was sent; null before the first;
    * ``skipped``: configuration that Linkerd's API cannot express, each with the reason.
    """

    schema_name: ClassVar[str] = "LinkerdItem"

    method: str
    authority: str
    source: str
    is_known: bool
    exists: bool
    endpoints: int | None
    messages: int
    sent: datetime | None
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStream:
    """A stream of a node: xDS, load reports, or Linkerd's API.

    * ``id``: its number, unique while the server runs;
    * ``peer``: the address of the client, as ``HOST:PORT``;
    * ``principal``: the authenticated principal of the connection; empty without authentication;
    * ``service``: the short name of the gRPC service, such as ``ADS``; ``LRS`` for load reports;
    * ``variant``: ``sotw`` or ``delta``; empty for a stream of load reports;
    * ``api``: ``v2`` or ``v3``;
    * ``opened``: when it was opened;
    * ``types``: the state of each type, by type alias; empty for a stream of load reports;
    * ``load``: present for a stream of load reports;
    * ``linkerd``: present for a stream of a Linkerd proxy.
    """

    schema_name: ClassVar[str] = "StreamItem"

    id: int
    peer: str
    principal: str
    service: str
    variant: str
    api: str
    opened: datetime
    types: Mapping[str, NodeTypeStatus]
    load: StreamReports | None = None
    linkerd: StreamAnswer | None = None

    @classmethod
    def from_domain(cls, stream: StreamState, linkerd: StreamAnswer | None = None) -> NodeStream:
        """An xDS stream, or one of a Linkerd proxy with its last answer."""
        return copied(cls, stream, api=stream.api or "v3", types=_statuses(stream.types), linkerd=linkerd)

    @classmethod
    def of_reports(cls, stream: ReportStream) -> NodeStream:
        """A stream of load reports."""
        reports = copied(StreamReports, stream, reported=time_of(stream.reported) if stream.reported else None)
        return copied(cls, stream, service=LOAD_SERVICE, variant="", api=stream.api or "v3", types={}, load=reports)


@dataclass(frozen=True, slots=True, kw_only=True)
class LingeringNames:
    """Removed resources of one type that a node keeps for a while.

    * ``revision``: the revision that removed them;
    * ``count``: the number of resources;
    * ``names``: some of their names;
    * ``until``: when they are removed from the node; null while the node has not ACKed everything that may refer to
      them.
    """

    schema_name: ClassVar[str] = "LingerItem"

    type: str
    revision: int
    count: int
    names: tuple[str, ...]
    until: datetime | None


@dataclass(frozen=True, slots=True)
class ResourceName:
    """The type and name of a resource."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldResourceNames:
    """Resources that are not sent until clusters are warm, or until the node accepts other resources.

    * ``resources``: some of the resources;
    * ``count``: the number of resources;
    * ``waits_for``: names of clusters that they wait for;
    * ``any_cluster``: true if their clusters cannot be determined, so that they wait for all new clusters;
    * ``waits_for_others``: other resources that they wait for, such as a listener: the node rejects them, or does not
      have them yet.
    """

    schema_name: ClassVar[str] = "HeldBackItem"

    resources: tuple[ResourceName, ...]
    count: int
    waits_for: tuple[str, ...]
    any_cluster: bool
    waits_for_others: tuple[ResourceName, ...]


@dataclass(frozen=True, kw_only=True)
class _OfNode:
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOnNode(HeldResourceNames, _OfNode):  # in this order, so that `node` is the first field
    """Resources that are held for a pending node."""

    schema_name: ClassVar[str] = "NodeHeldItem"


@dataclass(frozen=True, slots=True)
class NodePolls:
    """The polls of a node: REST xDS, and ``Fetch`` over gRPC.

    * ``last``: when the last poll was;
    * ``interval_s``: the longest time of late between two polls of one type, in seconds; at least 5.
    """

    schema_name: ClassVar[str] = "PollsItem"

    last: datetime
    interval_s: float

    @classmethod
    def from_domain(cls, polls: Polls) -> NodePolls:
        """The polls of a node since its last stream was opened."""
        return copied(cls, polls, interval_s=round(polls.interval_s, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node: what it runs on each stream, and what it keeps or waits for.

    * ``id``: the id of the node;
    * ``cluster``: the cluster that the node names; not a resource;
    * ``locality``: the locality of the node;
    * ``group``: the group of the node; empty if no group matches;
    * ``user_agent``: the name and version of the client;
    * ``connected``: whether it has an open stream, or polls and has not missed three polls;
    * ``first_seen``: when its first stream was opened, or its first poll was, as long as it is remembered;
    * ``last_seen``: when its latest stream was opened or closed, or its latest poll was;
    * ``streams``: its open streams;
    * ``types``: the state of each type over all streams, by type alias, or at its latest poll; after the last stream
      its last state;
    * ``lingering``: the oldest removed resources that the node keeps for a while;
    * ``lingering_total``: the number of all removed resources that the node keeps;
    * ``held``: resources that are not sent yet;
    * ``polls``: present if it polls, or did since its last stream was opened;
    * ``admin``: present if the metadata of the node has ``admin_address``: the address of Envoy's admin page on its
      machine;
    * ``line``: present while the group has a careful rollout: ``head`` for a node in the wave, ``base`` for others;
    * ``server``: present where several servers work on one store: the one that has the streams of the node, or saw it
      last;
    * ``partial``: present in the answer about one node without a stream, if servers did not answer: their names. One of
      them may have a stream of the node.
    """

    schema_name: ClassVar[str] = "NodeItem"

    id: str
    cluster: str
    locality: NodeLocality
    group: str
    user_agent: str
    connected: bool
    first_seen: datetime
    last_seen: datetime
    streams: tuple[NodeStream, ...]
    types: Mapping[str, NodeTypeStatus]
    lingering: tuple[LingeringNames, ...]
    lingering_total: int
    held: tuple[HeldResourceNames, ...]
    polls: NodePolls | None = None
    admin: str = ""
    line: str = ""
    server: str = ""
    partial: tuple[str, ...] = ()

    @classmethod
    def from_domain(
        cls,
        node: NodeState,
        now: float,
        unexpressed: Mapping[str, Sequence[UnexpressedResource]],
        reporting: Iterable[ReportStream] = (),
        linkerd: Mapping[int, StreamAnswer] | None = None,
        admin: str = "",
        server: str = "",
        line: str = "",
    ) -> NodeStatus:
        """A node at a time. ``unexpressed`` are resources by type alias, ``reporting`` its streams of load reports.

        ``linkerd`` has the last answers of its streams by their ids. ``server``: its name, where there are several.
        """
        polls, answers = node.polls, linkerd or {}
        types = _statuses(node.types, unexpressed)
        if polls is not None and polls.are_going_on(now):
            types = {**_statuses(polls.types, unexpressed), **types}
        xds = (NodeStream.from_domain(stream, answers.get(stream.id)) for stream in node.streams)
        reports = map(NodeStream.of_reports, reporting)
        return copied(
            cls,
            node,
            connected=node.is_present(now),
            streams=(*xds, *reports),
            types=types,
            polls=NodePolls.from_domain(polls) if polls is not None else None,
            admin=admin,
            line=line,
            server=server,
        )


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Counts of all nodes that match the filters, on all pages. A node counts once: in its worst state, or as gone.

    * ``total``: the number of nodes;
    * ``connected``: those that are connected, or poll; all others are gone;
    * ``by_state``: those that are connected, or poll, by the worst state of a type: ``nacked``, ``orphaned``,
      ``pending``, ``synced``, ``not_subscribed`` (also without a type); all states are present;
    * ``by_version``: by ``user_agent``, the most frequent ones;
    * ``by_group``: those that are connected, or poll, by group, of the 1,000 groups with the most; ``""``: in no group;
    * ``nacked_by_group``: as ``by_group``, those with a type in state ``nacked``.
    """

    total: int
    connected: int
    by_state: Mapping[str, int]
    by_version: Mapping[str, int]
    by_group: Mapping[str, int]
    nacked_by_group: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodePage:
    """A page of nodes, in the order that was asked for.

    * ``counts``: present with ``counts=true``;
    * ``partial``: present if servers did not answer: their names. Their nodes are missing.
    """

    items: tuple[NodeStatus, ...]
    next_page_token: str = ""
    partial: tuple[str, ...] = ()
    counts: NodeCounts | None = None


@dataclass(frozen=True, slots=True)
class DisconnectedNode:
    """The node whose streams were ended.

    * ``streams``: the number of ended streams.
    """

    schema_name: ClassVar[str] = "DisconnectedItem"

    node: str
    streams: int


@dataclass(frozen=True, slots=True)
class ReleasedNodes:
    """The nodes that no longer keep removed resources.

    * ``nodes``: the number of nodes that kept some;
    * ``clients``: the number of their connections;
    * ``released``: the number of names of these resources, by type alias;
    * ``partial``: present if servers did not answer: their names. Their nodes keep what they have.
    """

    schema_name: ClassVar[str] = "ReleaseItem"

    nodes: int
    clients: int
    released: Mapping[str, int]
    partial: tuple[str, ...] = ()


def _statuses(
    states: Iterable[TypeState], unexpressed: Mapping[str, Sequence[UnexpressedResource]] | None = None
) -> dict[str, NodeTypeStatus]:
    unexpressed_names = unexpressed or {}
    return {state.type: NodeTypeStatus.from_domain(state, unexpressed_names.get(state.type, ())) for state in states}
