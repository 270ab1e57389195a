"""The SotW dialect (State of the World), and responses without a stream.

Unary Fetch and REST polling get one SotW response. Its version_info is that of the type with the hash of the resources
that match the requested names, so a request for another name is never answered with "not modified" (rule 76).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xds.model.errors import StatusCode
from xds.model.names import NO_NAMES
from xds.model.resource import Resource, derived_version_info
from xds.model.resource_type import Missing, ResourceType, resource_type
from xds.model.snapshot import ResourceSet, content_digest
from xds.protocol import warming
from xds.protocol.decode import RequestDecoder
from xds.protocol.dialect import Dialect, Variant
from xds.protocol.requests import Request
from xds.protocol.subscription import InterestChange, Subscription
from xds.protocol.warming import WatchesByType
from xds.protocol.watch import Watch
from xds.snapshots.cache import View
from xds.snapshots.content import EncodedParts, ResponseContent
from xds.snapshots.diffs import Diffs
from xds.snapshots.interest import Interest, InterestTable
from xds.snapshots.responses import (
    Response,
    encode_control_plane,
    encode_empty_assignment,
    encode_errors,
    encode_parts,
    encode_sotw,
)

NO_SUCH_RESOURCE = "no such resource"


class SotwDialect(Dialect):
    """Requests contain the whole interest. A full-state type is sent whole, and absence means deletion."""

    variant = Variant.SOTW
    states_whole_interest = True

    def decoder(self, decoder: RequestDecoder) -> Callable[..., Request]:
        return decoder.decode_sotw

    def names_after(self, request: Request, subscribed: frozenset[str]) -> frozenset[str]:
        return request.names

    def change_interest(self, subscription: Subscription, request: Request, interests: InterestTable) -> InterestChange:
        return subscription.replace(request.names, interests)

    def note_repeated_ack(self, watch: Watch, watches: WatchesByType) -> bool:
        """Rule 14: "a repeat of the last ACK after a changed parent is Envoy's re-request (rule 43)"."""
        return warming.note_repeated_ack(watch, watches)

    def note_subscribed(self, watch: Watch, names: frozenset[str], *, is_first: bool) -> None:
        """Nothing to note: every SotW request repeats all names, so a repeated name needs no answer."""

    def unanswered_at_first(
        self, watch: Watch, names: frozenset[str], released: ResourceSet, diffs: Diffs
    ) -> frozenset[str]:
        """All of them, but none of a client that shows the newest set by its label: it is in step.

        Rule 13: "The first request of a type on a stream is answered, even if its version is current".
        """
        if (
            watch.type.full_state
            and watch.shown.has_set
            and watch.known.base is released
            and watch.subscription.interest.everything
        ):
            watch.ack.become_settled()
            return NO_NAMES
        return names

    def sends_whole_set(self, type: ResourceType) -> bool:
        """Rule 34: "SotW LDS and CDS responses are full state: absence is deletion"."""
        return type.full_state

    def report_absent(
        self, type: ResourceType, removed: Sequence[str], missing: Sequence[str], *, has_placeholders: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Rule 35: in partial responses "absence means nothing". Only a missing assignment has a placeholder."""
        if type.missing is not Missing.EMPTY_ASSIGNMENT or not has_placeholders:
            return (), ()
        return (), tuple(name for name in missing if name)

    def report_errors(self, type: ResourceType, missing: Sequence[str]) -> tuple[str, ...]:
        """All of them: the engine passes each missing name once, when it is requested (rule 39)."""
        return () if type.missing is Missing.SILENT else tuple(missing)

    def encode(
        self,
        goal: ResourceSet,
        content: ResponseContent,
        nonce: str,
        control_plane: bytes,
        parts: list[EncodedParts],
    ) -> bytes:
        url = goal.type.type_url
        errors = encode_errors(content.errors, StatusCode.NOT_FOUND, NO_SUCH_RESOURCE)
        if content.absent:
            placeholders = (Resource(url, name, encode_empty_assignment(name), "") for name in content.absent)
            parts = [*parts, *map(encode_parts, placeholders)]
        return encode_sotw(url, goal.version_info, nonce, parts, control_plane, errors)

    def plan_heartbeat(self, watch: Watch, now_s: float, sent: Response | None) -> None:
        """No heartbeat. Rule 73: "No heartbeats in SotW", because Envoy would remove the cluster."""


SOTW: Dialect = SotwDialect()


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response to one request. ``modified`` is False if the request already has its version_info.

    ``content`` is the set of the type from which ``interest``, that of the request, takes the resources.
    """

    type_url: str
    version_info: str
    resources: tuple[Resource, ...]
    modified: bool
    content: ResourceSet
    interest: Interest

    def encode(self, control_plane: str = "") -> bytes:
        """The serialized DiscoveryResponse."""
        parts = map(encode_parts, self.resources)
        identifier = encode_control_plane(control_plane)
        return encode_sotw(self.type_url, self.version_info, self.version_info, parts, identifier)


def fetch(view: View, request: Request) -> Fetched:
    """The response to one request from a view. The ``type_url`` of the request must be set."""
    type = resource_type(request.type_url)
    subscription = Subscription(legacy_wildcard=type.legacy_wildcard)
    subscription.replace(request.names, InterestTable())
    released = view.snapshot.get(request.type_url)
    resources = tuple(released.resources[name] for name in subscription.interest.select(released))
    digest = content_digest((resource.name, resource.version) for resource in resources)
    version_info = derived_version_info(released.version_info, released.digest, digest)
    modified = version_info != request.version_info
    return Fetched(request.type_url, version_info, resources, modified, released, subscription.interest)
