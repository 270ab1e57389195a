"""The events that the engine returns.

The engine writes no logs: logs, metrics and the state of the fleet are made from these events. The events of every push
and ACK are named tuples, because creating one takes a third of the time of a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xds.model.node import Node
from xds.model.snapshot import ResourceSet
from xds.protocol.requests import ErrorDetail
from xds.snapshots.linger import Lingering, NamesByType, Removal
from xds.snapshots.responses import Response


@dataclass(frozen=True, slots=True)
class Identified:
    """The first request of the stream had its node. ``group`` is empty while no group matches."""

    node: Node
    group: str


class Send(NamedTuple):
    """Write ``body`` to the stream. All streams that get ``response`` share it."""

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
    """A request had a nonce that is not that of the last response. Its interest was recorded."""

    type_url: str
    nonce: str


@dataclass(frozen=True, slots=True)
class AckRepeated:
    """The client repeated an ACK. It changes nothing and needs no answer."""

    type_url: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The interest of the client in a type changed. The names ``missing`` do not exist in the released content."""

    type_url: str
    wildcard: bool
    names: frozenset[str]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """The client holds all resources of ``resource_set`` that it wants. No response was needed."""

    type_url: str
    resource_set: ResourceSet

    @property
    def version_info(self) -> str:
        """The version_info of the set."""
        return self.resource_set.version_info


@dataclass(frozen=True, slots=True)
class AckWaitTimedOut:
    """Content is sent after ``order_timeout_s`` although no ACK of ``type_url`` proves that the client is ready."""

    type_url: str


@dataclass(frozen=True, slots=True)
class OfferTimedOut:
    """Newer content is sent because a response was not answered for ``offer_timeout_s``."""

    type_url: str
    nonce: str


@dataclass(frozen=True, slots=True)
class NodeMismatch:
    """A later request had another node. The first node counts (rule 2)."""

    node: Node


@dataclass(frozen=True, slots=True)
class TransitionAdvanced:
    """The transition of the client advanced: its other streams may have responses to send."""


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The stream follows another group; empty if no group matches any more (``orphaned``)."""

    group: str


class LingerChanged(NamedTuple):
    """The lingering resources of the client changed (docs/protocol.md#removals).

    All streams of the client share them. Any of its streams may report the change.
    """

    lingering: Lingering


@dataclass(frozen=True, slots=True)
class LingerCut:
    """More pushes removed content than ``linger_max`` allows to linger: the oldest ``removals`` end early.

    The same push causes this event for all clients with the same content.
    """

    removals: tuple[Removal, ...]


@dataclass(frozen=True, slots=True)
class HeldContent:
    """Content that is held back: ``names`` by type URL, and the clusters in ``waits_for`` that must be warm first.

    ``is_unreadable``: the references of the content cannot be read, so it may refer to any of these clusters.
    ``waits_for_others``: the listeners, routes, extension configurations and assignments that it waits for, by type
    URL: the client rejects them, or has not accepted them yet.
    """

    names: NamesByType
    waits_for: tuple[str, ...]
    is_unreadable: bool = False
    waits_for_others: NamesByType = ()


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """The content that is held back from the client changed. ``held`` is empty if nothing is held back."""

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
