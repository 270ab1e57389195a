"""What goes into the engine and what comes out, as frozen values.

Requests are decoded by ``wire``; events are returned by ``DiscoveryStream``. The engine has no logger: logs,
metrics and the fleet view all read these events. What comes with every push and ACK is a tuple, or not frozen, since
that is made in a third of the time; nobody changes it all the same.
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
    """The stream's first request named its node. ``group`` is empty while no group matches."""

    node: Node
    group: str


class Send(NamedTuple):
    """Write ``body`` to the stream. ``response`` is shared by all streams it is sent on."""

    type_url: str
    nonce: str
    body: bytes
    response: Response


class Acked(NamedTuple):
    """The client took the response in flight."""

    type_url: str
    nonce: str
    response: Response


@dataclass(frozen=True, slots=True)
class Nacked:
    """The client refused the response in flight. ``guilty`` are the resources now known to be what it refuses."""

    type_url: str
    nonce: str
    response: Response
    error: ErrorDetail
    guilty: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stale:
    """A request named a nonce that is not the last one sent; its interest was recorded."""

    type_url: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """An ACK that changes nothing and needs no answer."""

    type_url: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What the client asks for of a type has changed. ``missing`` names do not exist in what it is served."""

    type_url: str
    wildcard: bool
    names: frozenset[str]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InStep:
    """The client holds all it wants of ``resource_set`` without having been sent anything."""

    type_url: str
    resource_set: ResourceSet

    @property
    def version_info(self) -> str:
        return self.resource_set.version_info


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """Content goes out though nothing of ``type_url`` proves it ready: it waited ``order_timeout_s`` (DESIGN 3.2)."""

    type_url: str


@dataclass(frozen=True, slots=True)
class OfferTimedOut:
    """A response stayed unanswered while newer content came: the newer content is sent now."""

    type_url: str
    nonce: str


@dataclass(frozen=True, slots=True)
class NodeMismatch:
    """A later request named another node; the first one is kept (rule 2)."""

    node: Node


@dataclass(frozen=True, slots=True)
class Moved:
    """The client's transition moved on: its other streams have something to offer."""


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """The stream follows another group now; empty when no group matches any more (``orphaned``)."""

    group: str


class LingerChanged(NamedTuple):
    """What lingers for the client is not what it was: removed content that it keeps for a while (DESIGN 3.2).

    Its streams share it; the stream that tells may be any of them.
    """

    lingering: Lingering


@dataclass(frozen=True, slots=True)
class LingerCut:
    """More pushes removed content than may linger (``linger_max``): what the oldest removed goes before its time.

    Clients that hold the same are cut at the same push.
    """

    removals: tuple[Removal, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """Content that waits: ``names`` by type URL, and the clusters that it waits for.

    ``is_unreadable``: it may lead to any cluster, and waits for all of these for that.
    """

    names: Names
    waits_for: tuple[str, ...]
    is_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """What is held back from the client is not what it was; nothing where ``held`` is empty."""

    held: tuple[Held, ...]


Event = (
    Identified
    | Send
    | Acked
    | Nacked
    | Stale
    | Repeated
    | Subscribed
    | InStep
    | WaitEnded
    | OfferTimedOut
    | NodeMismatch
    | Moved
    | ViewChanged
    | LingerChanged
    | LingerCut
    | HoldChanged
)
