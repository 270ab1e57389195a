"""The Delta dialect (incremental xDS)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xds.model.resource_type import Missing, ResourceType
from xds.model.snapshot import ResourceSet
from xds.protocol.decode import RequestDecoder
from xds.protocol.dialect import Dialect, Variant
from xds.protocol.heartbeats import next_heartbeat_s, renewable
from xds.protocol.requests import Request
from xds.protocol.subscription import InterestChange, Subscription
from xds.protocol.warming import WatchesByType
from xds.protocol.watch import Watch
from xds.snapshots.content import EncodedParts, ResponseContent
from xds.snapshots.diffs import Diffs
from xds.snapshots.interest import InterestTable
from xds.snapshots.responses import Response, encode_alias_only, encode_delta


class DeltaDialect(Dialect):
    """Requests contain changes of the interest; responses contain the difference to the content of the client."""

    variant = Variant.DELTA
    states_whole_interest = False

    def decoder(self, decoder: RequestDecoder) -> Callable[..., Request]:
        return decoder.decode_delta

    def names_after(self, request: Request, subscribed: frozenset[str]) -> frozenset[str]:
        return subscribed | request.names if subscribed and request.names else subscribed or request.names

    def change_interest(self, subscription: Subscription, request: Request, interests: InterestTable) -> InterestChange:
        return subscription.change(request.names, request.unsubscribe, interests)

    def note_repeated_ack(self, watch: Watch, watches: WatchesByType) -> bool:
        return False

    def note_subscribed(self, watch: Watch, names: frozenset[str], *, is_first: bool) -> None:
        """Rule 53: "Re-subscribing to a held name is answered", even if the client rejected the resource before."""
        if watch.rejections is not None and not is_first:
            watch.rejections.forget(names)
            watch.rejections.refused.forgive(names)

    def unanswered_at_first(
        self, watch: Watch, names: frozenset[str], released: ResourceSet, diffs: Diffs
    ) -> frozenset[str]:
        """Rule 56: "Names that are subscribed at their current version may be skipped on the first message"."""
        if watch.known.base is None and not watch.known.uncertain:
            return names
        return diffs.lacking(names, watch.known.base, released)

    def sends_whole_set(self, type: ResourceType) -> bool:
        return False

    def report_absent(
        self, type: ResourceType, removed: Sequence[str], missing: Sequence[str], *, has_placeholders: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """In removed_resources (rule 57); virtual hosts by placeholders, extension configurations not at all."""
        if type.missing is Missing.SILENT:  # rule 49: "ECDS never reports `removed_resources`"
            return (), ()
        if type.missing is Missing.ALIAS_ONLY:
            return tuple(removed), tuple(missing)
        return tuple(dict.fromkeys((*removed, *missing))), ()

    def report_errors(self, type: ResourceType, missing: Sequence[str]) -> tuple[str, ...]:
        """No names: Delta reports missing names in removed_resources (rule 57)."""
        return ()

    def encode(
        self,
        goal: ResourceSet,
        content: ResponseContent,
        nonce: str,
        control_plane: bytes,
        parts: list[EncodedParts],
    ) -> bytes:
        absent = [encode_alias_only(name) for name in content.absent]
        url, version_info = goal.type.type_url, goal.version_info
        return encode_delta(url, version_info, nonce, parts, content.removed, control_plane, absent)

    def plan_heartbeat(self, watch: Watch, now_s: float, sent: Response | None) -> None:
        """A response with all resources that the next heartbeat would renew postpones that heartbeat (rule 72)."""
        known = sent.resource_set if sent is not None else watch.known.base
        ttl_s = known.shortest_ttl_s if known is not None else None
        if ttl_s is None:
            if sent is None:
                watch.renew_at(None)
            return
        assert known is not None
        due_s = next_heartbeat_s(now_s, ttl_s)
        if watch.heartbeats is None:
            # Without a response, the client has reconnected: its TTLs have run since its last connection.
            watch.renew_at(due_s if sent is not None else now_s)
        elif sent is not None and renewable(known, None, watch.subscription.interest).keys() <= set(sent.names):
            watch.renew_at(due_s)


DELTA: Dialect = DeltaDialect()
