"""Records refused streams and connections, for both ports and both transports: counter, table, log line, event.

Every refusal is counted. A log line and an event are written for the first refusal of an address and reason, then at
most once a minute with the number of refusals since the last one, and all together no faster than `REPORTED_PER_S`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time

from xds.access.authorisation import Identity
from xds.fleet.event_log import EventKind, EventLog
from xds.fleet.refused_streams import TEXT_LIMIT, RefusalReason, RefusedStreams, StreamRefusal
from xds.model.errors import LimitError, RemoteProtocolError, StatusCode
from xds.model.node import Node
from xds.server.counters import Metrics
from xds.server.flow.limits import RateLimit
from xds.server.logs import get_logger

REPORTED_PER_S, REPORTED_BURST = 5.0, 100.0

_NO_RULE_BROKEN = frozenset({StatusCode.PERMISSION_DENIED, StatusCode.NOT_FOUND})
_log = get_logger("xds.server.refusals")


class RefusalRecorder:
    """Records the refusals of one server. ``table`` has them for the admin API."""

    def __init__(self, events: EventLog, metrics: Metrics, clock: Callable[[], float] = time) -> None:
        self.table = RefusedStreams()
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._reports = RateLimit(REPORTED_PER_S, REPORTED_BURST)

    def record(
        self,
        reason: RefusalReason,
        message: str,
        peer: str,
        *,
        service: str = "",
        principal: str = "",
        node: str = "",
        group: str = "",
    ) -> None:
        """Record a refused stream, or a connection without a stream. The fields are those of `StreamRefusal`.

        Texts of clients are cut. It takes some microseconds, and nothing here grows with the number of refusals.
        """
        self._metrics.refused[reason.value] += 1
        texts = (message, peer, service, principal, node, group)
        refusal = StreamRefusal(reason, *(text[:TEXT_LIMIT] for text in texts))
        now = self._clock()
        row, count = self.table.add(refusal, now)
        if count and self._reports.reserve(now, 0.0) <= 0:
            self._reports.reserve(now)
            row.note_reported()
            self._report(refusal, count, now)

    def record_request(
        self, error: RemoteProtocolError, peer: str, service: str, identity: Identity, node: Node | None = None
    ) -> None:
        """Record a stream or a poll that ends because a request breaks a rule.

        A refused node is recorded already, and a poll without a snapshot (NOT_FOUND) breaks no rule.
        """
        if error.code not in _NO_RULE_BROKEN:
            reason = RefusalReason.LIMIT if isinstance(error, LimitError) else RefusalReason.REQUEST
            node_id = node.id if node is not None else ""
            self.record(reason, error.message, peer, service=service, principal=identity.principal, node=node_id)

    def _report(self, refusal: StreamRefusal, count: int, now: float) -> None:
        known = {"service": refusal.service, "principal": refusal.principal}
        client = {"reason": refusal.reason.value, "peer": refusal.peer, **{k: v for k, v in known.items() if v}}
        node = {key: value for key, value in (("node_id", refusal.node), ("group", refusal.group)) if value}
        _log.warning("stream.refused", **client, **node, refusals_n=count, error_message=refusal.message)
        self._events.record(
            EventKind.AUTH,
            "refused",
            now,
            group=refusal.group,
            node=refusal.node,
            message=refusal.message,
            details={**client, "count": count},
        )
