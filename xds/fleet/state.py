"""The state of the fleet as operators see it: frozen values, built on demand. Times are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Sync(StrEnum):
    """The state of a client with respect to one type.

    ``synced``: it has ACKed everything. ``pending``: it has not answered yet. ``nacked``: it has rejected something.
    ``not_subscribed``: it does not subscribe to the type. ``orphaned``: no group matches it.
    """

    SYNCED = "synced"
    PENDING = "pending"
    NACKED = "nacked"
    NOT_SUBSCRIBED = "not_subscribed"
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True)
class TypeState:
    """One type on one node.

    ``revision`` is the newest revision of the group whose content the client has ACKed; None if it is not known.
    ``subscribed`` counts the subscribed names, ``names`` lists some of them; with ``wildcard`` the client subscribes to
    all resources besides. ``missing`` lists subscribed names that do not exist, ``error`` is the message of the last
    NACK, ``guilty`` are the names known to be rejected. ``since`` is when the state was entered.
    """

    type: str
    type_url: str
    state: Sync
    version_sent: str = ""
    version_acked: str = ""
    revision: int | None = None
    wildcard: bool = False
    subscribed: int = 0
    names: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    error: str = ""
    guilty: tuple[str, ...] = ()
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamState:
    """One gRPC stream. ``variant`` is ``sotw`` or ``delta``; ``service`` is the short name, such as ``ADS``.

    ``api`` is ``v2`` for a stream on the v2 transport, else empty. ``principal`` is the authenticated principal of the
    connection, empty without one.
    """

    id: int
    peer: str
    service: str
    variant: str
    opened: float
    types: tuple[TypeState, ...] = ()
    api: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True)
class LingeringResources:
    """Resources of a type that the push of ``revision`` removed and the node keeps for a while.

    They are removed at ``until``; None while the client has not ACKed all resources that may refer to them. ``names``
    are some of ``count`` (docs/internals/design.md#order-of-updates).
    """

    type: str
    revision: int
    count: int
    until: float | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldResources:
    """Resources that are not sent yet. ``resources``, pairs of type and name, are some of ``count``.

    They wait until the clusters in ``waits_for`` are warm, and until the node accepts the resources in
    ``waits_for_others``, which it rejects or does not have yet. With ``any_cluster`` their clusters cannot be
    determined, so they wait for all new clusters.
    """

    resources: tuple[tuple[str, str], ...]
    count: int
    waits_for: tuple[str, ...]
    any_cluster: bool = False
    waits_for_others: tuple[tuple[str, str], ...] = ()


class NodeStanding(NamedTuple):
    """What a server has of a node; of several servers, the one with the greatest answers for it.

    A proxy that finds several servers by one name opens each stream to any of them: that of load reports is the least.
    """

    has_streams: bool
    is_present: bool
    last_seen: float


class NackState(StrEnum):
    """Whether a NACK record is open or resolved."""

    OPEN = "open"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class NackRecord:
    """A NACK of a node: what it rejected, and why.

    There is one open record per node, type and rejected content. A repeated NACK increases ``count``, as does each NACK
    while the server searches for the rejected resources. ``message`` is the client's message (bounded). ``names`` are
    some of the ``resources`` names that may be rejected, ``guilty`` those that are known to be. The record is resolved
    when the node ACKs other content of these names, when they are no longer pushed or subscribed to, or when the node
    is forgotten.
    """

    id: int
    node: str
    group: str
    type: str
    type_url: str
    version: str
    nonce: str
    code: int
    message: str
    first: float
    last: float
    names: tuple[str, ...] = ()
    resources: int = 0
    count: int = 1
    state: NackState = NackState.OPEN
    resolved: float | None = None
    guilty: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Convergence:
    """How many nodes have a push, among the connected nodes of its group that subscribe to a changed type.

    ``held`` pairs a pending node with its held resources. The lists are bounded; the counts are not.
    """

    synced: int = 0
    pending: int = 0
    nacked: int = 0
    pending_nodes: tuple[str, ...] = field(default=())
    nacks: tuple[NackRecord, ...] = field(default=())
    held: tuple[tuple[str, HeldResources], ...] = field(default=())

    @property
    def total(self) -> int:
        """The number of nodes that count."""
        return self.synced + self.pending + self.nacked
