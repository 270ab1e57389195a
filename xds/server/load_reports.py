"""The load report stream in the asyncio shell: reports in, requests for reports out. v3 and v2 differ only in name.

A report is handled in pieces, each a work item, because a report of thousands of clusters takes longer than other
streams should wait. All report streams share one place in the work queue, so that discovery waits for at most one
piece. The reader takes one message at a time. Messages of a client that sends too fast wait in the transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from logging import DEBUG
from time import monotonic, thread_time, time
from typing import Any, cast

from xds.access.authorisation import Identity
from xds.lrs.figures import IngestResult
from xds.lrs.load_stats import CLUSTER_STATS_TAG, PIECE_BYTES, LoadStatsRequest, split_request
from xds.lrs.report_stream import (
    SEND_ALL_CLUSTERS,
    EndLoadStream,
    LoadEvent,
    LoadNodeIdentified,
    LoadReported,
    LoadReportStream,
    SendLoadResponse,
)
from xds.lrs.stream_states import ReportStream
from xds.model.node import Node
from xds.protocol.requests import check_node_id
from xds.server.flow.admission import AdmissionSlot
from xds.server.flow.limits import RateLimit
from xds.server.load_streams import LoadReportCounts, LoadStreams
from xds.server.logs import address_fields, get_logger, identity_fields
from xds.server.services import LOAD_LABEL, LoadService
from xds.server.stream import CallContext, StreamHandler, check_size

CLUSTER_BYTES = 512 * 1024  # a longer report of one cluster (some 10,000 endpoints) is skipped

_log = get_logger("xds.server.lrs")


class LoadReportHandler(StreamHandler):
    """One load report stream."""

    __slots__ = (
        "_cpu", "_cpu_s", "_engine", "_group", "_held_back", "_is_accepted", "_notified", "_opened", "_reported",
        "_service", "_streams", "_totals",
    )  # fmt: skip

    def __init__(
        self,
        streams: LoadStreams,
        service: LoadService,
        context: CallContext,
        slot: AdmissionSlot,
        identity: Identity,
    ) -> None:
        super().__init__(streams.deps, context, slot, LOAD_LABEL, identity)
        options = streams.deps.options
        self._streams = streams
        self._service = service
        self._opened = time()
        self._group = ""
        self._is_accepted = False  # the node is authorised
        self._engine = LoadReportStream(streams.clusters_of, streams.settings, options.limits.node_bytes)
        self._cpu = RateLimit(options.flow.report_work_share, options.flow.report_work_burst_s)
        self._cpu_s = 0.0  # CPU time of the last message
        self._notified = False
        self._held_back = False
        self._reported = 0.0
        self._totals = LoadReportCounts()

    @property
    def node(self) -> Node | None:
        return self._engine.node

    @property
    def group(self) -> str:
        return self._group

    @property
    def needs_names(self) -> bool:
        """True for a client that must be sent the names of the clusters to report."""
        return self.node is not None and SEND_ALL_CLUSTERS not in self.node.client_features

    def state(self) -> ReportStream:
        """The stream as the admin API shows it."""
        counts = (self._totals.reports, self._totals.refused, self._totals.left_out)
        identity = (self.id, self._peer, self._service.api, self._opened, self._reported)
        return ReportStream(*identity, *counts, self.identity.principal)

    def notify(self) -> None:
        """Send the request for reports again if it has changed."""
        self._notified = True
        self._submit_work()

    # Lifecycle

    def _on_open(self) -> None:
        self._streams.add(self)

    def _on_close(self, lasted_s: float) -> None:
        """Close the stream everywhere. The client's requests in progress are no longer counted."""
        now = time()
        code, message = self._status
        self._streams.remove(self, code.name, lasted_s)
        if self.node is not None and self._is_accepted:
            self._streams.aggregates.close_stream(self.id, now)
            self._streams.record("closed", self.node.id, self._group, self._address(), now)
        status = {"duration_ms": round(lasted_s * 1000), "error_code": code.name, "error_message": message}
        log = _log.info if self._is_accepted else _log.debug  # as of discovery streams
        log("stream.closed", **self._address(), **status, **self._identity())

    def _log_failure(self) -> None:
        _log.exception("stream.failed", **self._identity())

    # Reading

    async def _receive(self, data: bytes) -> None:
        """Handle a message. The client may send a last report before it ends its side (rule 17)."""
        if self._slot is not None:
            self._slot.extend()
        await self._hold_back()
        await self._count_message(data)
        self._release_slot()

    async def _hold_back(self) -> None:
        """Wait until both rate limits allow the message. HTTP/2 flow control slows the client down meanwhile."""
        now = monotonic()
        requests_s, cpu_s = self._rate.reserve(now), self._cpu.reserve(now, self._cpu_s)
        if requests_s <= 0 and cpu_s <= 0:
            return
        limit = "requests_per_second" if requests_s >= cpu_s else "load_work"
        self._deps.metrics.limit_hits[limit] += 1
        if not self._held_back:  # logged once per stream: the client may exceed the limit for hours
            self._held_back = True
            _log.warning("lrs.held_back", limit=limit, **self._address(), **self._identity())
        await asyncio.sleep(max(requests_s, cpu_s))

    async def _count_message(self, data: bytes) -> None:
        """Count a report. Raises ``RemoteProtocolError``; pieces before the malformed one are counted."""
        check_size(data, self._deps.options.max_receive_bytes)
        self._cpu_s = 0.0
        if len(data) <= PIECE_BYTES:
            await self._receive_piece(data)
        else:
            async with self._streams.large:
                for number, piece in enumerate(split_request(data)):
                    await self._receive_piece(piece, continues=number > 0)
        self._streams.note_reading(self._cpu_s, monotonic())

    async def _receive_piece(self, piece: bytes, continues: bool = False) -> None:
        """Decode a piece in one work item, and count it in one or more."""
        if len(piece) > CLUSTER_BYTES and piece[0] == CLUSTER_STATS_TAG:
            self._deps.metrics.limit_hits["load_cluster_bytes"] += 1
            self._note_counted(IngestResult(refused=1), len(piece), time(), not continues)
            return
        async with self._streams.turn(len(piece) * self._deps.options.flow.report_read_s_per_byte):
            began_at = thread_time()
            events = self._engine.receive(LoadStatsRequest(piece, continues))
            self._cpu_s += thread_time() - began_at
        for event in events:  # all before counting: a newer request for reports may be sent meanwhile
            self._act(event)
        for event in events:
            if isinstance(event, LoadReported):
                await self._count(event.report, len(piece))

    async def _count(self, report: LoadStatsRequest, size: int) -> None:
        now, result = time(), None
        self._follow_group(now)
        adding = self._streams.aggregates.add_in_steps(self.id, report, now)
        while result is None:
            async with self._streams.turn(self._deps.options.flow.report_count_s):
                result = self._advance(adding)
        self._note_counted(result, size, now, not report.continues)

    def _follow_group(self, now: float) -> None:
        """Follow the node into another group after a change of selectors. Raises ``RemoteProtocolError``."""
        if self.node is None:
            return
        group = self._streams.group_of(self.node)
        if group != self._group:
            self._authorize(self.node, group)
            self._group = group
            self._streams.aggregates.move_stream(self.id, group, now)
            self._streams.move(self.node.id, group)

    def _advance(self, adding: Generator[None, None, IngestResult]) -> IngestResult | None:
        """Count up to the next pause; the result, or None while counting goes on."""
        began_at = thread_time()
        try:
            next(adding)
        except StopIteration as stop:
            return cast(IngestResult, stop.value)
        finally:
            self._cpu_s += thread_time() - began_at
        return None

    def _note_counted(self, result: IngestResult, size: int, now: float, is_report: bool) -> None:
        self._reported = now
        self._streams.counts.add(result, size, is_report)
        is_first = not (self._totals.refused or self._totals.left_out)
        self._totals.add(result, size, is_report)
        counts = {"clusters_n": result.clusters, "refused_n": result.refused, "left_out_n": result.left_out}
        if is_first and (result.refused or result.left_out):  # logged once per stream: such clients repeat it
            _log.warning("lrs.refused", **counts, **self._address(), **self._identity())
        if _log.is_enabled_for(DEBUG):
            _log.debug("lrs.report", bytes=size, **counts, **self._identity())

    # Offering

    def _has_work(self) -> bool:
        return self._notified

    def _offer(self) -> None:
        self._notified = False
        self._follow_group(time())  # the request names the clusters of the client's group
        for event in self._engine.offer(self._streams.settings):
            self._act(event)

    # Events of the engine

    def _act(self, event: LoadEvent) -> None:
        act = _ACTIONS.get(type(event))
        if act is not None:
            act(self, event)

    def _send(self, event: SendLoadResponse) -> None:
        self._streams.counts.responses += 1
        self._write_body(event.body)

    def _restart(self, event: EndLoadStream) -> None:
        self._streams.counts.restarts += 1
        self.finish()

    def _identified(self, event: LoadNodeIdentified) -> None:
        check_node_id(event.node.id)
        now = time()
        group = self._streams.group_of(event.node)
        self._authorize(event.node, group)
        self._is_accepted, self._group = True, group
        self._streams.identify(self, event.node, group, now)
        self._streams.aggregates.open_stream(self.id, event.node, now, self._group)
        self._streams.record("opened", event.node.id, self._group, self._address(), now)
        _log.info("stream.opened", **self._address(), **self._identity())

    # Fields of log lines

    def _address(self) -> dict[str, str]:
        return address_fields(LOAD_LABEL, self._peer, self.identity.principal)

    def _identity(self) -> dict[str, Any]:
        return identity_fields(self.id, self.node, self._group)


_ACTIONS: Mapping[type, Callable[[LoadReportHandler, Any], None]] = {
    SendLoadResponse: LoadReportHandler._send,
    EndLoadStream: LoadReportHandler._restart,
    LoadNodeIdentified: LoadReportHandler._identified,
}
