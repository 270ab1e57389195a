"""Observes discovery streams: passes the engine's events to the fleet, the counters and the log.

A push to a group in one state gives thousands of streams the same events. `SharedObservations` passes them on together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from logging import DEBUG
from time import monotonic, time
from typing import Any

from xds.fleet.fleet import Fleet
from xds.model.resource_type import alias_of
from xds.protocol.cohort import Outcome, RequestKey
from xds.protocol.dialect import Variant
from xds.protocol.events import (
    Acked,
    AckRepeated,
    AckWaitTimedOut,
    Event,
    Identified,
    LingerCut,
    Nacked,
    NodeMismatch,
    OfferTimedOut,
    Send,
    Stale,
    ViewChanged,
)
from xds.protocol.requests import Request
from xds.protocol.stream import DiscoveryStream
from xds.server.counters import Metrics
from xds.server.logs import address_fields, get_logger, identity_fields, shorten

GUILTY_LOGGED = 10  # names of rejected resources in a log line

_log = get_logger("xds.server.discovery")


class SharedObservations:
    """The outcomes that the streams of cohorts took in this iteration of the loop, each with its streams.

    They are told once per outcome. A stream is in it once: all is told before it is observed in any other way.
    """

    __slots__ = ("_fleet", "_metrics", "_taken")

    def __init__(self, fleet: Fleet, metrics: Metrics) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._taken: dict[Outcome, list[ObservedAt]] = {}

    def add(self, outcome: Outcome, observer: StreamObserver, now: float) -> None:
        """Note that a stream took an outcome."""
        if observer.is_shared:
            self.tell()
        if not self._taken:
            asyncio.get_running_loop().call_soon(self.tell)
        observer.is_shared = True
        streams = self._taken.get(outcome)
        if streams is None:
            streams = self._taken[outcome] = []
        streams.append((observer, now))

    def tell(self) -> None:
        """Count and log all that was noted, and pass it to the fleet."""
        taken, self._taken = self._taken, {}
        for outcome, streams in taken.items():
            for observer, _ in streams:
                observer.is_shared = False
            if isinstance(outcome.given, RequestKey):
                request = outcome.given
                self._metrics.type(request.type_url).kinds[_kind(request.nonce, outcome.events)] += len(streams)
                for observer, _ in streams:
                    if observer.is_debug:
                        observer.log_request(request.type_url, request.nonce)
            else:
                self._metrics.offered(0.0, 0.0, len(streams))
            _count(self._metrics, outcome.events, streams)
            ids = [observer.id for observer, _ in streams]
            self._fleet.apply_shared(ids, outcome.events, time(), monotonic())


class StreamObserver:
    """Observes one stream. ``peer`` is its address, ``label`` the short name of the service (``ADS``).

    ``is_shared``: an outcome that the stream took is noted in ``shared``. ``sent_at``: when the last response of a type
    was sent that is not ACKed; None at rest, because an empty table is a part of the memory of a stream.
    """

    __slots__ = (
        "_engine",
        "_fleet",
        "_has_mismatched",
        "_is_identified",
        "_label",
        "_metrics",
        "_peer",
        "_principal",
        "_variant",
        "id",
        "is_debug",
        "is_shared",
        "sent_at",
        "shared",
    )

    def __init__(
        self,
        stream_id: int,
        peer: str,
        label: str,
        variant: Variant,
        *,
        engine: DiscoveryStream,
        fleet: Fleet,
        metrics: Metrics,
        shared: SharedObservations,
        principal: str = "",
    ) -> None:
        self.id = stream_id
        self.is_shared = False
        self.sent_at: dict[str, float] | None = None
        self.shared = shared
        self._peer = peer
        self._principal = principal
        self._label = label
        self._variant = variant.value
        self._engine = engine
        self._fleet = fleet
        self._metrics = metrics
        self.is_debug = _log.is_enabled_for(DEBUG)  # computed once: the call takes 4 us
        self._has_mismatched = False
        self._is_identified = False

    # Life

    def opened(self) -> None:
        """Count the open stream, and add it to the fleet."""
        self._fleet.stream_opened(
            self.id, self._peer, self._label, self._variant, time(), self._engine.api_version, self._principal
        )
        self._metrics.streams[self._variant, self._label] += 1

    def closed(self, lasted_s: float, code: str, message: str) -> bool:
        """Count and log the closed stream; ``code`` is the name of its final gRPC status.

        True if another stream of the client must report its state again.
        """
        self._tell_shared()
        must_report_again = self._fleet.stream_closed(self.id, time())
        self._metrics.streams[self._variant, self._label] -= 1
        self._metrics.closed[code] += 1
        self._metrics.stream_seconds.observe(lasted_s)
        status = {"duration_ms": round(lasted_s * 1000), "error_code": code, "error_message": message}
        # A stream without a node was not logged as opened: it was refused, or its client left, thousands in a second.
        log = _log.info if self._is_identified else _log.debug
        log("stream.closed", **self._address(), **status, **self._identity())
        return must_report_again

    def failed(self) -> None:
        """Log a bug of the server. Called while its exception is handled."""
        _log.exception("stream.failed", **self._identity())

    # Events

    def requested(self, request: Request, type_url: str, events: list[Event]) -> None:
        """Count and log a request, by the events with which the engine handled it."""
        kind = "nack" if request.error is not None else _kind(request.nonce, events)
        self._metrics.type(type_url).kinds[kind] += 1
        if self.is_debug:
            self.log_request(type_url, request.nonce)

    def observe(self, events: list[Event], now: float) -> None:
        """Count and log the events of the engine, and pass them to the fleet."""
        self._tell_shared()
        _count(self._metrics, events, ((self, now),))
        self._fleet.apply_events(self.id, events, time(), now)

    def log_request(self, type_url: str, nonce: str) -> None:
        """Log a request."""
        _log.debug("request.received", type=alias_of(type_url), nonce=nonce, **self._identity())

    def _tell_shared(self) -> None:
        if self.is_shared:
            self.shared.tell()

    def log_sent(self, event: Send) -> None:
        """Log a response."""
        size = {"resources_n": len(event.response.names), "bytes": len(event.body)}
        _log.debug("response.sent", version_sent=event.response.version_info, **size, **self._exchange(event))

    def log_acked(self, event: Acked) -> None:
        """Log an ACK."""
        _log.debug("ack", version_acked=event.response.version_info, **self._exchange(event))

    def _nacked(self, event: Nacked, now: float) -> None:
        self._metrics.nacked(event.type_url, self._engine.group)
        error = {"error_code": event.error.code, "error_message": shorten(event.error.message)}
        guilty = {"guilty": [shorten(name) for name in event.guilty[:GUILTY_LOGGED]]} if event.guilty else {}
        _log.info("nack", version_sent=event.response.version_info, **error, **guilty, **self._exchange(event))

    def _identified(self, event: Identified, now: float) -> None:
        self._is_identified = True
        _log.info("stream.opened", **self._address(), **self._identity())

    def _view_changed(self, event: ViewChanged, now: float) -> None:
        _log.info("stream.regrouped", **self._identity())

    def _node_mismatch(self, event: NodeMismatch, now: float) -> None:
        self._metrics.node_mismatches += 1
        if not self._has_mismatched:  # logged once per stream: such clients repeat it with every request
            self._has_mismatched = True
            _log.warning("node.mismatch", other_node_id=shorten(event.node.id), **self._identity())

    def _offer_timed_out(self, event: OfferTimedOut, now: float) -> None:
        self._metrics.type(event.type_url).timeouts += 1
        _log.info("offer.timed_out", **self._exchange(event))

    def _wait_ended(self, event: AckWaitTimedOut, now: float) -> None:
        self._metrics.type(event.type_url).waits_ended += 1
        _log.warning("order.wait_ended", type=alias_of(event.type_url), **self._identity())

    def _linger_cut(self, event: LingerCut, now: float) -> None:
        self._metrics.limit_hits["linger_max"] += 1

    # Fields of log lines

    def _address(self) -> dict[str, str]:
        return address_fields(self._label, self._peer, self._principal, variant=self._variant)

    def _exchange(self, event: Send | Acked | Nacked | OfferTimedOut) -> dict[str, Any]:
        return {"type": alias_of(event.type_url), "nonce": event.nonce, **self._identity()}

    def _identity(self) -> dict[str, Any]:
        return identity_fields(self.id, self._engine.node, self._engine.group)


ObservedAt = tuple[StreamObserver, float]

_OBSERVERS: Mapping[type, Callable[[StreamObserver, Any, float], None]] = {
    Nacked: StreamObserver._nacked,
    Identified: StreamObserver._identified,
    ViewChanged: StreamObserver._view_changed,
    NodeMismatch: StreamObserver._node_mismatch,
    OfferTimedOut: StreamObserver._offer_timed_out,
    AckWaitTimedOut: StreamObserver._wait_ended,
    LingerCut: StreamObserver._linger_cut,
}


def _count(metrics: Metrics, events: Sequence[Event], streams: Sequence[ObservedAt]) -> None:
    """Count and log events, which all of the streams had at their times.

    A push is sent to thousands of streams, and each of them ACKs it: without a call for each.
    """
    for event in events:
        if isinstance(event, Send):
            type_url = event.type_url
            metrics.sent(type_url, len(event.response.names), len(event.body), len(streams))
            for observer, now in streams:
                if observer.sent_at is None:
                    observer.sent_at = {}
                observer.sent_at[type_url] = now
                if observer.is_debug:
                    observer.log_sent(event)
        elif isinstance(event, Acked):
            type_url, took_s = event.type_url, []
            for observer, now in streams:
                sent_at = observer.sent_at
                took_s.append(now - sent_at.pop(type_url, now) if sent_at else 0.0)
                if not sent_at:
                    observer.sent_at = None
                if observer.is_debug:
                    observer.log_acked(event)
            metrics.type(type_url).ack_seconds.observe_all(took_s)
        elif (observe := _OBSERVERS.get(type(event))) is not None:
            for observer, now in streams:
                observe(observer, event, now)


def _kind(nonce: str, events: Sequence[Event]) -> str:
    """The kind of a request without an error, as a metric label."""
    if not nonce:
        return "initial"
    for event in events:
        if isinstance(event, Acked):
            return "ack"
        if isinstance(event, Stale):
            return "stale"
        if isinstance(event, AckRepeated):
            return "repeat"
    return "subscribe"
