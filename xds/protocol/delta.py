"""The Delta dialect (incremental xDS), and heartbeats, which only Delta has.

A heartbeat restarts the TTLs of resources that a client holds, and changes nothing else (rule 72). Heartbeats are sent
in every response state, also while a response is in flight. Each heartbeat has its own nonce, which identifies its
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from xds.model.names import NO_NAMES
from xds.model.resource import Resource
from xds.model.resource_type import Missing, ResourceType
from xds.protocol.dialect import Dialect, Variant
from xds.protocol.requests import DeltaRequest, StreamLimits, UnknownOf
from xds.protocol.responses import EncodedParts, encode_alias_only, encode_delta
from xds.protocol.returning import Shown

if TYPE_CHECKING:
    from xds.model.snapshot import ResourceSet
    from xds.protocol.cache import SnapshotCache
    from xds.protocol.content import ResponseContent
    from xds.protocol.decode import RequestDecoder
    from xds.protocol.responses import Response
    from xds.protocol.subscription import Interest, InterestChange, InterestTable, Subscription
    from xds.protocol.warming import ReleaseOf, WatchesByType
    from xds.protocol.watch import Watch

_HEARTBEATS_PER_TTL = 3
_UNANSWERED_LIMIT = 8  # heartbeats; the answer to an older one is stale


class DeltaDialect(Dialect[DeltaRequest]):
    """Requests contain changes of the interest; responses contain the difference to the content of the client."""

    variant = Variant.DELTA
    states_whole_interest = False

    def decoder(self, decoder: RequestDecoder) -> Callable[..., DeltaRequest]:
        return decoder.decode_delta

    def check_names(
        self, request: DeltaRequest, subscribed: frozenset[str], limits: StreamLimits, unknown_of: UnknownOf
    ) -> None:
        after = subscribed | request.subscribe if request.subscribe else subscribed
        limits.check_names((*request.subscribe, *request.unsubscribe), subscribed, after, unknown_of)

    def names_others(self, request: DeltaRequest, subscribed: frozenset[str]) -> bool:
        return bool(request.subscribe or request.unsubscribe or request.initial_versions)

    def count_names(self, request: DeltaRequest) -> int:
        return len(request.subscribe) + len(request.unsubscribe) + len(request.initial_versions)

    def requested_names(self, request: DeltaRequest) -> frozenset[str]:
        return request.subscribe

    def stated_names(self, request: DeltaRequest) -> frozenset[str]:
        return request.subscribe.union(request.initial_versions) if request.initial_versions else request.subscribe

    def change_interest(
        self, subscription: Subscription, request: DeltaRequest, interests: InterestTable
    ) -> InterestChange:
        return subscription.change(request.subscribe, request.unsubscribe, interests)

    def accepted_version(self, request: DeltaRequest) -> str:
        return ""

    def note_repeated_ack(self, watch: Watch, watches: WatchesByType) -> bool:
        return False

    def note_names_added(
        self, watch: Watch, watches: WatchesByType, release_of: ReleaseOf, cache: SnapshotCache
    ) -> None:
        """Nothing to note: in Delta every newly subscribed name is answered (rule 53)."""

    def shown(self, watch: Watch, request: DeltaRequest) -> Shown:
        return Shown(versions=request.initial_versions)

    def note_subscribed(self, watch: Watch, names: frozenset[str], *, is_first: bool) -> None:
        """Rule 53: "Re-subscribing to a held name is answered", even if the client rejected the resource before."""
        watch.ack.rejected_digest = b""
        if watch.rejections is not None and not is_first:
            watch.rejections.forgive(names)

    def unanswered_at_first(
        self, watch: Watch, names: frozenset[str], released: ResourceSet, cache: SnapshotCache
    ) -> frozenset[str]:
        """Rule 56: "Names that are subscribed at their current version may be skipped on the first message"."""
        if watch.known.base is None and not watch.known.uncertain:
            return names
        return cache.diffs.lacking(names, watch.known.base, released)

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
        held = sent.resource_set if sent is not None else watch.acked_set
        ttl_s = held.shortest_ttl_s if held is not None else None
        if ttl_s is None:
            if sent is None:
                watch.heartbeats = None
            return
        assert held is not None
        due_s = next_heartbeat_s(now_s, ttl_s)
        if watch.heartbeats is None:
            # Without a response, the client has reconnected: its TTLs have run since its last connection.
            watch.heartbeats = Heartbeats(due_s if sent is not None else now_s)
        elif sent is not None and renewable(held, None, watch.subscription.interest).keys() <= set(sent.names):
            watch.heartbeats.due_s = due_s


DELTA: Dialect[DeltaRequest] = DeltaDialect()


class Heartbeats:
    """The heartbeats of one watch.

    * ``due_s``: when the next heartbeat is due;
    * ``unanswered``: the names in unanswered heartbeats, by nonce;
    * ``superseded_names``: the names in responses that newer responses superseded since the last ACK.
    """

    __slots__ = ("due_s", "superseded_names", "unanswered")

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.superseded_names: frozenset[str] = NO_NAMES
        self.unanswered: dict[str, tuple[str, ...]] = {}

    def copy(self) -> Heartbeats:
        """An independent object in the same state."""
        clone = Heartbeats(self.due_s)
        clone.superseded_names = self.superseded_names
        clone.unanswered = dict(self.unanswered)
        return clone

    def uncertain_names(self, watch: Watch) -> Collection[str]:
        """The names that get no heartbeat, because their version is unknown (rule 18); they are sent whole next.

        Names in a rejected response get one. docs/clients.md#ttl: "After a NACK, Envoy continues with the versions and
        TTLs from before the rejected response".
        """
        uncertain = watch.known.uncertain
        if not uncertain or not watch.rejections:
            return uncertain
        offered = watch.ack.in_flight.names if watch.ack.in_flight is not None else ()
        return uncertain.keys() - (watch.rejections.suspects.keys() - self.superseded_names) - set(offered)

    def note_sent(self, response: Response) -> None:
        """Note that a heartbeat is sent."""
        self.unanswered[response.nonce] = response.names
        if len(self.unanswered) > _UNANSWERED_LIMIT:
            del self.unanswered[next(iter(self.unanswered))]

    def pop_answered(self, nonce: str) -> tuple[str, ...] | None:
        """The names in the unanswered heartbeat with this nonce, which is answered now; None if there is none."""
        return self.unanswered.pop(nonce, None)


def next_heartbeat_s(now_s: float, ttl_s: float) -> float:
    """A third of the TTL from now. Rule 72: a heartbeat "is sent well before the TTL ends"."""
    return now_s + ttl_s / _HEARTBEATS_PER_TTL


def renewable(held: ResourceSet, offered: Response | None, interest: Interest) -> dict[str, Resource]:
    """The resources with a TTL that the client holds when it reads a heartbeat that is sent now, by name.

    ``held`` is the set that the client ACKed. It reads the response in flight (``offered``) before the heartbeat.
    """
    resources = {name: each for name, each in held.resources.items() if each.ttl_s is not None and interest.wants(each)}
    if offered is not None:
        for name in offered.removed:
            resources.pop(name, None)
        for name in offered.names:
            each = offered.resource_set.resources[name]
            if each.ttl_s is not None:
                resources[name] = each
            else:
                resources.pop(name, None)
    return resources


def separated(renewed: Mapping[str, Resource], offered: Response | None) -> list[Mapping[str, Resource]]:
    """The resources of one heartbeat by message: those that the response in flight does not contain, then the others.

    docs/protocol.md#ttls: "Resources in a response without an answer have a heartbeat of their own". The client may
    have rejected that response, and withhold the NACK. It rejects a whole heartbeat for one resource that it lacks.
    """
    names = frozenset(offered.names) if offered is not None else NO_NAMES
    parts = (
        {name: each for name, each in renewed.items() if (name in names) is is_offered} for is_offered in (False, True)
    )
    return [part for part in parts if part]
