"""The shell of a load report stream: reports in, demands for reports out. v3 and v2 differ in nothing but the name.

It lives as every stream does (`xds.server.shell`), and works in turns with all others. A report is taken piece by
piece, a turn each: one of thousands of clusters takes longer than others should wait; and one stream after the other,
so that discovery waits for no more than a piece. The reader takes one message at a time, so what a client sends too
fast waits in the transport, and costs nobody but itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from logging import DEBUG
from time import monotonic, thread_time, time
from typing import Any, cast

import grpc

from xds.control.access import Identity
from xds.control.load_view import ReportStream
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
from xds.model.errors import RemoteProtocolError
from xds.model.node import Node
from xds.server import limits
from xds.server.admission import Place
from xds.server.load_streams import LoadCounts, LoadStreams
from xds.server.logs import get_logger, shorten
from xds.server.pacing import SMALL_BYTES
from xds.server.rate import RateLimit
from xds.server.services import LOAD_LABEL, LoadService
from xds.server.shell import BROKEN, COPY_S_PER_BYTE, GONE, Context, Shell, never, status_of

READ_S_PER_BYTE = 2e-8
COUNT_S = 0.002  # what `LoadBook.adding` does between two pauses
CLUSTER_BYTES = 512 * 1024  # one cluster's report that is longer is not read: it would be of some 10,000 endpoints

# How much of the processor's time the reports of one stream may take, on average and at once. A report of 1,000
# clusters in 3 localities takes milliseconds.
WORK_SHARE = 0.1
WORK_BURST_S = 1.0

_log = get_logger("xds.server.lrs")


class LoadShell(Shell):
    """One stream."""

    __slots__ = (
        "_body",
        "_engine",
        "_group",
        "_held_back",
        "_is_known",
        "_notified",
        "_opened",
        "_queued",
        "_rate",
        "_reported",
        "_service",
        "_shared",
        "_totals",
        "_work",
        "_work_s",
        "id",
    )

    def __init__(
        self, shared: LoadStreams, service: LoadService, context: Context, place: Place, identity: Identity
    ) -> None:
        super().__init__(context, place, shared.turns, None, identity)
        options = shared.options
        self.id = next(shared.ids)
        self._shared = shared
        self._service = service
        self._opened = time()
        self._group = ""
        self._is_known = False  # its node is let in
        self._engine = LoadReportStream(shared.clusters_of, shared.settings, options.limits.node_bytes)
        self._rate = RateLimit(options.requests_per_s, options.requests_burst)
        self._work = RateLimit(WORK_SHARE, WORK_BURST_S)
        self._work_s = 0.0  # of the message before
        self._body: bytes | None = None  # not yet written; nothing is asked anew before
        self._notified = False
        self._queued = False
        self._held_back = False
        self._reported = 0.0
        self._totals = LoadCounts()

    @property
    def node(self) -> Node | None:
        return self._engine.node

    def recheck(self) -> None:
        if self.node is not None:
            try:
                self._authorize(self.node, self._group)
            except RemoteProtocolError as error:
                self.finish(status_of(error))

    def _authorize(self, node: Node, group: str) -> None:
        self._shared.door.check(self.identity, node, group, LOAD_LABEL, self._peer)

    @property
    def is_told_names(self) -> bool:
        """True for a client that must be told which clusters to report."""
        return self.node is not None and SEND_ALL_CLUSTERS not in self.node.client_features

    def state(self) -> ReportStream:
        """As it is shown with its node."""
        counts = (self._totals.reports, self._totals.refused, self._totals.left_out)
        known = (self.id, self._peer, self._service.api, self._opened, self._reported)
        return ReportStream(*known, *counts, self.identity.principal)

    def notify(self) -> None:
        """What is asked of the client may have changed."""
        self._notified = True
        self._ask_for_turn()

    # Life

    def _enter(self) -> None:
        self._shared.enter(self)

    def _close(self, lasted_s: float) -> None:
        """What was in progress is no longer known to be."""
        now = time()
        code, message = self._status
        self._shared.leave(self, code.name, lasted_s)
        if self.node is not None and self._is_known:
            self._shared.book.close_stream(self.id, now)
            self._shared.tell("closed", self.node.id, self._group, self._address(), now)
        status = {"duration_ms": round(lasted_s * 1000), "error_code": code.name, "error_message": message}
        _log.info("stream.closed", **self._address(), **status, **self._identity())

    def _log_failure(self) -> None:
        _log.exception("stream.failed", **self._identity())

    # Reading

    async def _read(self) -> None:
        """Take what comes, one message after the other, until the client ends its side (rule 17: a last report)."""
        read = self._context.read
        try:
            while (data := await read()) is not grpc.aio.EOF and not self._ending:
                if self._place is not None:
                    self._place.hear()
                await self._hold_back()
                await self._receive(data)
                del data  # as long as until the next report
                self._leave_admission()
            self.finish()
        except RemoteProtocolError as error:
            limits.count(error, self._shared.metrics)
            self.finish(status_of(error))
        except BROKEN:
            self.finish(GONE)
        except Exception:
            self._fail()

    async def _hold_back(self) -> None:
        """No faster than the limits allow: HTTP/2 flow control passes it on to the client."""
        now = monotonic()
        requests_s, work_s = self._rate.take(now), self._work.take(now, self._work_s)
        if requests_s <= 0 and work_s <= 0:
            return
        limit = "requests_per_second" if requests_s >= work_s else "load_work"
        self._shared.metrics.limit_hits[limit] += 1
        if not self._held_back:  # once per stream: it may go on for hours
            self._held_back = True
            _log.warning("lrs.held_back", limit=limit, **self._address(), **self._identity())
        await asyncio.sleep(max(requests_s, work_s))

    async def _receive(self, data: bytes) -> None:
        """Take up a message. Raises ``RemoteProtocolError``; of a long one, the pieces before are counted."""
        limits.check_size(data, self._shared.options.max_receive_bytes)
        self._work_s = 0.0
        if len(data) <= PIECE_BYTES:
            await self._take(data)
            return
        async with self._shared.large:
            for piece in split_request(data):
                await self._take(piece)

    async def _take(self, piece: bytes) -> None:
        """A turn, and one more for each pause of the book."""
        if len(piece) > CLUSTER_BYTES and piece[0] == CLUSTER_STATS_TAG:
            self._shared.metrics.limit_hits["load_cluster_bytes"] += 1
            self._counted(IngestResult(refused=1), len(piece), time())
            return
        async with self._shared.turn(len(piece) * READ_S_PER_BYTE):
            began_at = thread_time()
            events = self._engine.receive(LoadStatsRequest(piece))
            self._work_s += thread_time() - began_at
        for event in events:  # at once: what is asked meanwhile is newer
            self._act(event)
        for event in events:
            if isinstance(event, LoadReported):
                await self._count(event.report, len(piece))

    async def _count(self, report: LoadStatsRequest, size: int) -> None:
        now, taken = time(), None
        self._follow_group(now)
        adding = self._shared.book.add_in_steps(self.id, report, now)
        while taken is None:
            async with self._shared.turn(COUNT_S):
                taken = self._step(adding)
        self._counted(taken, size, now)

    def _follow_group(self, now: float) -> None:
        """Groups choose their nodes anew whenever a selector changes."""
        if self.node is None:
            return
        group = self._shared.group_of(self.node)
        if group != self._group:
            self._authorize(self.node, group)
            self._group = group
            self._shared.book.move_stream(self.id, group, now)

    def _step(self, adding: Generator[None, None, IngestResult]) -> IngestResult | None:
        """Up to the next pause; None when there is one."""
        began_at = thread_time()
        try:
            next(adding)
        except StopIteration as ended:
            return cast(IngestResult, ended.value)
        finally:
            self._work_s += thread_time() - began_at
        return None

    def _counted(self, taken: IngestResult, size: int, now: float) -> None:
        self._reported = now
        self._shared.counts.add(taken, size)
        were_well = not (self._totals.refused or self._totals.left_out)
        self._totals.add(taken, size)
        counts = {"clusters_n": taken.clusters, "refused_n": taken.refused, "left_out_n": taken.left_out}
        if were_well and (taken.refused or taken.left_out):  # once per stream: such clients repeat it
            _log.warning("lrs.refused", **counts, **self._address(), **self._identity())
        if _log.is_enabled_for(DEBUG):
            _log.debug("lrs.report", bytes=size, **counts, **self._identity())

    # Writing

    async def _write(self) -> None:
        """Write what is asked of the client, until the stream ends."""
        while not self._ending or self._body is not None:
            await self._wake.wait()
            self._wake.clear()
            if self._body is not None:
                await self._write_body(self._body)
                self._body = None
            if self._notified:
                self._ask_for_turn()

    async def _write_body(self, body: bytes) -> None:
        write = self._context.write
        if len(body) <= SMALL_BYTES:
            await write(body)
            return
        if self._write_now is never:
            await self._turns.come(len(body) * COPY_S_PER_BYTE)
        await self._shared.pacer.write(body, write, self.node.id if self.node is not None else "", self._peer)

    def _ask_for_turn(self) -> None:
        """The writer asks again when it has written what came before."""
        if not self._queued and self._body is None:
            self._queued = True
            self._turns.take(self._take_turn)

    def _take_turn(self) -> None:
        self._queued = False
        if self._ending or self._body is not None:
            return
        self._notified = False
        try:
            self._follow_group(time())  # what is asked for names the clusters of its group
            for event in self._engine.offer(self._shared.settings):
                self._act(event)
        except RemoteProtocolError as error:
            self.finish(status_of(error))
        except Exception:
            self._fail()

    # What the engine did

    def _act(self, event: LoadEvent) -> None:
        act = _ACTIONS.get(type(event))
        if act is not None:
            act(self, event)

    def _asked(self, event: SendLoadResponse) -> None:
        self._shared.counts.asked += 1
        self._body = event.body
        self._wake.set()

    def _restart(self, event: EndLoadStream) -> None:
        self._shared.counts.restarts += 1
        self.finish()

    def _identified(self, event: LoadNodeIdentified) -> None:
        now = time()
        group = self._shared.group_of(event.node)
        self._authorize(event.node, group)
        self._is_known, self._group = True, group
        self._shared.identify(self, event.node.id)
        self._shared.book.open_stream(self.id, event.node, now, self._group)
        self._shared.tell("opened", event.node.id, self._group, self._address(), now)
        _log.info("stream.opened", **self._address(), **self._identity())

    # Fields of log lines

    def _address(self) -> dict[str, str]:
        who = {"principal": shorten(self.identity.principal)} if self.identity.principal else {}
        return {"service": LOAD_LABEL, "peer": self._peer, **who}

    def _identity(self) -> dict[str, Any]:
        if self.node is None:
            return {"stream_id": self.id}
        named = {"node_id": shorten(self.node.id), "node_cluster": shorten(self.node.cluster), "group": self._group}
        return {"stream_id": self.id, **named}


_ACTIONS: Mapping[type, Callable[[LoadShell, Any], None]] = {
    SendLoadResponse: LoadShell._asked,
    EndLoadStream: LoadShell._restart,
    LoadNodeIdentified: LoadShell._identified,
}
