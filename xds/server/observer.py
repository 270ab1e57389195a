"""Observes one discovery stream: passes the engine's events to the fleet, the counters and the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import DEBUG
from time import time
from typing import Any

from xds.fleet.fleet import Fleet
from xds.model.resource_type import alias_of
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
from xds.server.logs import address_fields, get_logger, identity_fields, shorten
from xds.server.metrics.counters import Metrics

GUILTY_LOGGED = 10  # names of rejected resources in a log line

_log = get_logger("xds.server.discovery")


class StreamObserver:
    """Observes one stream. ``peer`` is its address, ``label`` the short name of the service (``ADS``)."""

    __slots__ = (
        "_engine",
        "_fleet",
        "_has_mismatched",
        "_is_debug",
        "_is_identified",
        "_label",
        "_metrics",
        "_peer",
        "_principal",
        "_sent_at",
        "_variant",
        "id",
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
        principal: str = "",
    ) -> None:
        self.id = stream_id
        self._peer = peer
        self._principal = principal
        self._label = label
        self._variant = variant.value
        self._engine = engine
        self._fleet = fleet
        self._metrics = metrics
        self._is_debug = _log.is_enabled_for(DEBUG)  # computed once: the call takes 4 us
        self._has_mismatched = False
        self._is_identified = False
        self._sent_at: dict[str, float] = {}

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
        self._metrics.type(type_url).kinds[_kind(request, events)] += 1
        if self._is_debug:
            _log.debug("request.received", type=alias_of(type_url), nonce=request.nonce, **self._identity())

    def observe(self, events: list[Event], now: float) -> None:
        """Count and log the events of the engine, and pass them to the fleet."""
        for event in events:
            observe = _OBSERVERS.get(type(event))
            if observe is not None:
                observe(self, event, now)
        self._fleet.apply_events(self.id, events, time(), now)

    def _sent(self, event: Send, now: float) -> None:
        self._sent_at[event.type_url] = now
        self._metrics.response_bytes.observe(len(event.body))
        counters = self._metrics.type(event.type_url)
        counters.responses += 1
        counters.resources += len(event.response.names)
        if self._is_debug:
            size = {"resources_n": len(event.response.names), "bytes": len(event.body)}
            _log.debug("response.sent", version_sent=event.response.version_info, **size, **self._exchange(event))

    def _acked(self, event: Acked, now: float) -> None:
        sent_at = self._sent_at.pop(event.type_url, now)
        self._metrics.type(event.type_url).ack_seconds.observe(now - sent_at)
        if self._is_debug:
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


_OBSERVERS: Mapping[type, Callable[[StreamObserver, Any, float], None]] = {
    Send: StreamObserver._sent,
    Acked: StreamObserver._acked,
    Nacked: StreamObserver._nacked,
    Identified: StreamObserver._identified,
    ViewChanged: StreamObserver._view_changed,
    NodeMismatch: StreamObserver._node_mismatch,
    OfferTimedOut: StreamObserver._offer_timed_out,
    AckWaitTimedOut: StreamObserver._wait_ended,
    LingerCut: StreamObserver._linger_cut,
}


def _kind(request: Request, events: list[Event]) -> str:
    """The kind of a request, as a metric label."""
    if request.error is not None:
        return "nack"
    if not request.nonce:
        return "initial"
    for event in events:
        if isinstance(event, Acked):
            return "ack"
        if isinstance(event, Stale):
            return "stale"
        if isinstance(event, AckRepeated):
            return "repeat"
    return "subscribe"
