"""What operators are shown: frozen values, built on demand. Times are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from xds.model.node import Locality


class Sync(StrEnum):
    """Where a client stands with one type."""

    SYNCED = "synced"
    PENDING = "pending"
    NACKED = "nacked"
    NOT_SUBSCRIBED = "not_subscribed"
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True)
class TypeState:
    """One type on one node.

    ``revision`` is the newest revision of the group whose content the client has ACKed; None when it is not known.
    ``subscribed`` counts the names asked for, ``names`` lists some of them; with ``wildcard`` the client wants
    everything besides. ``missing`` lists names asked for that do not exist, ``error`` is the client's own word on
    what it refused, ``guilty`` are the names known to be refused. ``since`` is when the state was entered.
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

    ``api`` is the variant of the group's view that the stream follows: ``v2`` for the old transport, else empty.
    ``principal`` is who its connection has proved to be, empty for nobody.
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
    """What the push of ``revision`` removed of a type and the node keeps for a while (DESIGN 3.2, Removals).

    It goes at ``until``; None while something that could refer to it is not ACKed. ``names`` are some of ``count``.
    """

    type: str
    revision: int
    count: int
    until: float | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldResources:
    """Content that waits for clusters to be warm: ``resources``, each a type and a name, are some of ``count``.

    With ``any_cluster`` nobody can read which clusters it leads to: it waits for all that are new.
    """

    resources: tuple[tuple[str, str], ...]
    count: int
    waits_for: tuple[str, ...]
    any_cluster: bool = False


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node id with all its streams.

    ``types`` merges the streams (a client may use one per type, or several per type): the worst state wins.
    A node without streams has left at ``last_seen``; ``types`` is then what it had. ``lingering`` is the oldest of what
    lingers, ``lingering_total`` counts the resources in all of it; ``held`` is what is held back.
    """

    id: str
    cluster: str
    locality: Locality
    group: str
    user_agent: str
    first_seen: float
    last_seen: float
    streams: tuple[StreamState, ...] = ()
    types: tuple[TypeState, ...] = ()
    lingering: tuple[LingeringResources, ...] = ()
    lingering_total: int = 0
    held: tuple[HeldResources, ...] = ()

    @property
    def connected(self) -> bool:
        return bool(self.streams)

    @property
    def principals(self) -> tuple[str, ...]:
        """Who its connections have proved to be."""
        return tuple(sorted({stream.principal for stream in self.streams if stream.principal}))


class NackState(StrEnum):
    OPEN = "open"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class NackRecord:
    """Who refused what, and why.

    One record per node, type and refused content while it is open: a repetition raises ``count``, and so does each part
    of it that is refused while the server looks for what is wrong. ``message`` is the client's whole text (bounded).
    ``names`` are some of the ``resources`` names that may be meant, ``guilty`` those that are known to be refused. The
    record resolves when the node ACKs other content of them, when they are not pushed or not wanted any more, or when
    the node is forgotten.
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
    """How far a push has come among the connected nodes of its group that subscribe to what it changed.

    ``last_ack`` is when the last of the synced nodes came into step. ``held`` says what is held back from pending
    nodes, node by node. The lists are bounded; the counts are not.
    """

    synced: int = 0
    pending: int = 0
    nacked: int = 0
    last_ack: float = 0.0
    pending_nodes: tuple[str, ...] = field(default=())
    nacks: tuple[NackRecord, ...] = field(default=())
    held: tuple[tuple[str, HeldResources], ...] = field(default=())

    @property
    def total(self) -> int:
        return self.synced + self.pending + self.nacked
