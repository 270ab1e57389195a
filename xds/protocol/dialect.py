"""The differences between the two variants of the protocol, State of the World (SotW) and Delta.

The engine calls the methods of a `Dialect` and never checks which variant it serves. The two dialects are the objects
``sotw.SOTW`` and ``delta.DELTA``.

    topic                                     SotW                                 Delta
    interest in a request                     all names                            names added and names removed
    content shown by a reconnecting client    the version_info that it ACKed last  initial_resource_versions
    first response                            all subscribed resources             resources that the client lacks
    request in a repeated ACK                 assignments of warming clusters      none
    content of a response                     full-state types: the whole set;     resources that differ from those of
                                              other types: resources that differ   the client
    report of an absent resource              it is left out; an empty             removed_resources
                                              ClusterLoadAssignment;
                                              resource_errors
    renewal of TTLs                           none (Envoy would remove resources)  heartbeats
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from xds.model.snapshot import ResourceSet
from xds.protocol.decode import RequestDecoder
from xds.protocol.requests import Request
from xds.protocol.subscription import InterestChange, Subscription
from xds.protocol.warming import WatchesByType
from xds.protocol.watch import Watch
from xds.snapshots.content import Encoding
from xds.snapshots.diffs import Diffs
from xds.snapshots.interest import InterestTable
from xds.snapshots.responses import Response


class Variant(StrEnum):
    """The names of the dialects, as operators see them."""

    SOTW = "sotw"
    DELTA = "delta"


class Dialect(Encoding, Protocol):
    """One variant of the protocol. Dialects have no state.

    ``states_whole_interest``: a request replaces the interest that earlier requests stated.
    """

    variant: Variant
    states_whole_interest: bool

    # -- requests ---------------------------------------------------------------------------------------------------

    def decoder(self, decoder: RequestDecoder) -> Callable[..., Request]:
        """The method of ``decoder`` that reads this dialect's requests."""
        ...

    def names_after(self, request: Request, subscribed: frozenset[str]) -> frozenset[str]:
        """The names that the client subscribes to after a request; those before it were ``subscribed``."""
        ...

    def change_interest(self, subscription: Subscription, request: Request, interests: InterestTable) -> InterestChange:
        """Apply the request to the interest; returns the change."""
        ...

    def note_repeated_ack(self, watch: Watch, watches: WatchesByType) -> bool:
        """Whether a repeated ACK requests assignments again. If so, they are noted in ``watch`` to be re-sent."""
        ...

    # -- a client that reconnects -----------------------------------------------------------------------------------

    def note_subscribed(self, watch: Watch, names: frozenset[str], *, is_first: bool) -> None:
        """Note that the client subscribed to these names, perhaps again."""
        ...

    def unanswered_at_first(
        self, watch: Watch, names: frozenset[str], released: ResourceSet, diffs: Diffs
    ) -> frozenset[str]:
        """The names among ``names`` of a first request that need an answer, given the content that the client shows."""
        ...

    # -- responses --------------------------------------------------------------------------------------------------

    def plan_heartbeat(self, watch: Watch, now_s: float, sent: Response | None) -> None:
        """Set the time of the next heartbeat, after the response ``sent``, or if no response was needed (None)."""
        ...
