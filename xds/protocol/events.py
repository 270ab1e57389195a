"""What the engine returns: events.

The engine writes no logs: logs, metrics and the fleet's state are all made of these events. The events that come with
every push and ACK are named tuples, which take a third of the time of a frozen dataclass to create.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xds.model.node import Node
from xds.model.snapshot import ResourceSet
from xds.protocol.linger import Lingering, Names, Removal
from xds.protocol.requests import ErrorDetail
from xds.protocol.responses import Response


@dataclass(frozen=True, slots=True)
class Identified:
    """The first request of the stream carried its node. ``group`` is empty while no group matches."""

    node: Node
    group: str


class Send(NamedTuple):
    """Write ``body`` to the stream. ``response`` is shared by all streams it is sent on."""

    type_url: str
    nonce: str
    body: bytes
    response: Response


class Acked(NamedTuple):
    """The client ACKed the response in flight."""

    type_url: str
    nonce: str
    response: Response


@dataclass(frozen=True, slots=True)
class Nacked:
    """The client NACKed the response in flight. ``guilty`` are the names of the resources now known to be rejected."""

    type_url: str
    nonce: str
    response: Response
    error: ErrorDetail
    guilty: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stale:
    """A request carried a nonce that is not that of the last response; its interest was recorded."""

    type_url: str
    nonce: str


@dataclass(frozen=True, slots=True)
class AckRepeated:
    """An ACK was repeated: it changes nothing and needs no answer."""

    type_url: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The interest of the client in a type changed. ``missing`` names do not exist in what it is served."""

    type_url: str
    wildcard: bool
    names: frozenset[str]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """The client holds all it wants of ``resource_set``, and nothing had to be sent for it."""

    type_url: str
    resource_set: ResourceSet

    @property
    def version_info(self) -> str:
        """That of the set."""
        return self.resource_set.version_info


@dataclass(frozen=True, slots=True)
class AckWaitTimedOut:
    """Content is sent after ``order_timeout_s``, though no ACK of ``type_url`` proves that the client is ready."""

    type_url: str


@dataclass(frozen=True, slots=True)
class OfferTimedOut:
    """A response was not answered for ``offer_timeout_s`` while there was newer content, which is sent now."""

    type_url: str
    nonce: str


@dataclass(frozen=True, slots=True)
class NodeMismatch:
    """A later request carried another node; the first one counts (rule 2)."""

    node: Node


@dataclass(frozen=True, slots=True)
class TransitionAdvanced:
    """The transition of the client advanced: its other streams have something to send."""


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The stream follows another group; empty when no group matches any more (``orphaned``)."""

    group: str


class LingerChanged(NamedTuple):
    """The removed content that lingers for the client has changed (docs/protocol.md#removals).

    All streams of the client share it; any of them may report it.
    """

    lingering: Lingering


@dataclass(frozen=True, slots=True)
class LingerCut:
    """More pushes removed content than may linger (``linger_max``): the oldest removals end early.

    Clients that hold the same content are affected by the same push.
    """

    removals: tuple[Removal, ...]


@dataclass(frozen=True, slots=True)
class HeldContent:
    """Content that is held back: ``names`` by type URL, and the clusters that must be warm first.

    ``is_unreadable``: its references cannot be read, so that it may refer to any of these clusters.
    """

    names: Names
    waits_for: tuple[str, ...]
    is_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """The content that is held back from the client has changed; ``held`` is empty when nothing is held back."""

    held: tuple[HeldContent, ...]


Event = (
    Identified
    | Send
    | Acked
    | Nacked
    | Stale
    | AckRepeated
    | Subscribed
    | Synced
    | AckWaitTimedOut
    | OfferTimedOut
    | NodeMismatch
    | TransitionAdvanced
    | ViewChanged
    | LingerChanged
    | LingerCut
    | HoldChanged
)
