"""What the two variants of the protocol, State of the World and Delta, do differently.

The engine calls the methods of a `Dialect` and never checks which variant it serves. The two dialects are the objects
``sotw.SOTW`` and ``delta.DELTA``; all that is particular to SotW is in ``sotw``.

    question                                     SotW                               Delta
    what does a request state of the interest?   all of it                          what is added and removed
    what does a reconnecting client show?        the version_info it ACKed last     initial_resource_versions
    what must the first response contain?        everything that is subscribed      what the client does not show
    what does a repeated ACK ask for?            assignments of warming clusters    nothing
    what does a response contain?                full-state types: the whole set;   what differs from what the client
                                                 other types: what differs          holds
    how is an absent resource reported?          by leaving it out; by an empty     in removed_resources
                                                 ClusterLoadAssignment; in
                                                 resource_errors
    are TTLs renewed?                            no (Envoy would remove resources)  by heartbeats
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xds.model.resource_type import ResourceType

if TYPE_CHECKING:
    from xds.model.snapshot import ResourceSet
    from xds.protocol.cache import SnapshotCache
    from xds.protocol.content import ResponseContent
    from xds.protocol.decode import RequestDecoder
    from xds.protocol.origin import Origin
    from xds.protocol.requests import StreamLimits
    from xds.protocol.responses import EncodedParts, Response
    from xds.protocol.returning import Shown
    from xds.protocol.subscription import InterestChange, InterestTable, Subscription
    from xds.protocol.warming import ReleaseOf, WatchesByType
    from xds.protocol.watch import Watch


class Variant(StrEnum):
    """The names of the dialects, as operators see them."""

    SOTW = "sotw"
    DELTA = "delta"


R_contra = TypeVar("R_contra", contravariant=True)


class Dialect(Protocol[R_contra]):
    """One variant of the protocol; ``R_contra`` is the class of its requests. Dialects have no state."""

    variant: Variant
    states_whole_interest: bool  # a request replaces all that earlier ones asked for

    # -- requests ---------------------------------------------------------------------------------------------------

    def decoder(self, decoder: RequestDecoder) -> Callable[[bytes], Any]:
        """The method of ``decoder`` that reads this dialect's requests; it returns such requests."""
        ...

    def check_names(self, request: R_contra, subscribed: int, limits: StreamLimits) -> None:
        """Raise ``LimitError`` for too many names; ``subscribed`` is the number of names so far."""
        ...

    def count_names(self, request: R_contra) -> int:
        """The number of names in a request, of whatever field."""
        ...

    def names_asked(self, request: R_contra) -> frozenset[str]:
        """The names that the first request of a type subscribes to."""
        ...

    def change_interest(
        self, subscription: Subscription, request: R_contra, interests: InterestTable
    ) -> InterestChange:
        """Apply what the request says of the interest."""
        ...

    def accepted_version(self, request: R_contra) -> str:
        """The version_info that the client says it accepted last; empty where requests do not say."""
        ...

    def answers_repeat(self, watch: Watch, watches: WatchesByType) -> bool:
        """Whether a repeated ACK is a question; if so, what it asks for is noted in the watch."""
        ...

    def note_names_added(
        self, watch: Watch, watches: WatchesByType, release_of: ReleaseOf, cache: SnapshotCache
    ) -> None:
        """The interest changed after the first request: note which unchanged assignments the new names ask for."""
        ...

    # -- a client that returns --------------------------------------------------------------------------------------

    def shown_by(self, watch: Watch, request: R_contra, cache: SnapshotCache, origin: Origin) -> Shown | None:
        """What the first request of a type shows that the client holds; None when it shows nothing."""
        ...

    def note_subscribed(self, watch: Watch, names: frozenset[str], *, is_first: bool) -> None:
        """The client asked for these names, maybe again."""
        ...

    def unanswered_at_first(
        self, watch: Watch, names: frozenset[str], released: ResourceSet, cache: SnapshotCache
    ) -> frozenset[str]:
        """The names of a first request that need an answer, given what the client shows that it holds."""
        ...

    # -- responses --------------------------------------------------------------------------------------------------

    def sends_whole_set(self, type: ResourceType) -> bool:
        """Whether every response of this type contains all subscribed resources, so that absence means deletion."""
        ...

    def tell_absent(
        self, type: ResourceType, removed: Sequence[str], missing: Sequence[str], *, has_placeholders: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """How a partial response reports resources that were removed (``removed``) or do not exist (``missing``).

        Returns the names for removed_resources, and the names that are reported by a placeholder.
        """
        ...

    def tell_errors(self, type: ResourceType, missing: Sequence[str]) -> tuple[str, ...]:
        """The missing names of a partial type that are reported in resource_errors (rule 39)."""
        ...

    def encode(
        self,
        goal: ResourceSet,
        content: ResponseContent,
        nonce: str,
        control_plane: bytes,
        parts: list[EncodedParts],
    ) -> bytes:
        """The serialized response; ``parts`` are those of ``content.names``."""
        ...

    def plan_heartbeat(self, watch: Watch, now_s: float, sent: Response | None) -> None:
        """Set the time of the next heartbeat: after ``sent``; when there was nothing to send; when a client returns."""
        ...


AnyDialect = Dialect[Any]
