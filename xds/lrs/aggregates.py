"""The load of a fleet: reports in, figures out. Pure; ``now`` is epoch seconds of one clock."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from xds.lrs.figures import (
    BookSize,
    By,
    ClusterFigures,
    Demand,
    DropTotals,
    PairTotals,
    Series,
    StreamLife,
    Taken,
)
from xds.lrs.ingest import Counting
from xds.lrs.load_stats import LoadRequest
from xds.lrs.queries import WINDOW_LIMIT_S, Answers, Span
from xds.lrs.reporting import Account, Page, Reporter
from xds.lrs.series_index import Bounds, Shelf
from xds.lrs.windows import edge_of
from xds.model.node import Node

INTERVAL_S = 10.0
# A stream is not waited for, and what it does not repeat is over, when a report is late by an interval.
_OVERDUE_INTERVALS = 2.0
_LEAST_OVERDUE_S, _MOST_OVERDUE_S = 3.0, 600.0
DEFAULT_BOUNDS = Bounds()


class LoadBook:
    """All load reports of this process.

    One thread reports; others may read meanwhile, and may see a report half counted. ``interval_s`` is what clients are
    asked for: windows end where the reports of all streams reach that are not late by more than that.
    """

    def __init__(self, interval_s: float = INTERVAL_S, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.interval_s = interval_s
        self._bounds = bounds
        self._shelf = Shelf(bounds)
        self._streams: dict[int, Reporter] = {}
        self._accounts: dict[str, Account] = {}
        self._gone: dict[str, None] = {}  # ids of nodes without a stream, that of longest ago first
        self._latest = 0.0
        self._began: int | None = None  # the edge before which nothing was measured
        self._latest_bytes = 0
        self._reports = self._refused = 0
        self._answers = Answers(self._shelf, self._streams, self._accounts)

    # Reports

    def opened(self, stream: int, node: Node, now: float, group: str = "") -> None:
        """A client named itself; its node is in a group, or in none."""
        now = self._clock(now)
        account = self._accounts.get(node.id)
        if account is None:
            account = self._accounts[node.id] = Account(node, now)
        self._gone.pop(node.id, None)
        account.node = node
        account.streams.add(stream)
        self._streams[stream] = Reporter(stream, account, now, group)

    def moved(self, stream: int, group: str, now: float) -> None:
        """The client's node is in another group: what it tells from here on counts there, as if it had come anew."""
        reporter = self._streams.get(stream)
        if reporter is not None:
            self.closed(stream, now)
            self.opened(stream, reporter.node, now, group)

    def closed(self, stream: int, now: float) -> None:
        """What the stream said to be in progress is no longer; what it counted stays. An unknown one is ignored."""
        reporter = self._streams.pop(stream, None)
        if reporter is None:
            return
        reporter.gauges.drop()
        account = reporter.account
        for page in reporter.pages.values():
            self._latest_bytes -= len(page.data)
            account.rest(page, self._bounds.pages)
        account.streams.discard(stream)
        if not account.streams:
            account.since = self._clock(now)
            self._gone[account.node.id] = None
            if len(self._gone) > self._bounds.nodes_gone:
                oldest = next(iter(self._gone))
                del self._gone[oldest], self._accounts[oldest]

    def add(self, stream: int, report: LoadRequest, now: float) -> Taken:
        """Count a whole report that came at ``now``."""
        adding = self.adding(stream, report, now)
        while True:
            try:
                next(adding)
            except StopIteration as ended:
                taken: Taken = ended.value
                return taken

    def adding(self, stream: int, report: LoadRequest, now: float) -> Generator[None, None, Taken]:
        """As ``add``, with a pause every few hundred clusters (a millisecond or so), for long reports.

        A report may also come in several requests, one after the other, each of some clusters.
        """
        now = self._clock(now)
        reporter = self._streams.get(stream)
        if reporter is None:
            return Taken(ignored=1)
        self._shelf.sweep(now)
        counting = Counting(self._shelf, reporter, now)
        for _ in counting.steps(report):
            yield
            if stream not in self._streams:  # it ended meanwhile
                break
        else:
            self._keep(reporter, counting, report, now)
        return counting.taken()

    def _keep(self, reporter: Reporter, counting: Counting, report: LoadRequest, now: float) -> None:
        """Note what the stream said last, and drop what it does not repeat."""
        overdue = now - self._overdue_s
        if counting.order:
            page = reporter.turn_page(counting.order)
            reporter.account.put_aside(page.take(counting.order, counting.sums).items())
            page.reported = now
            self._keep_bytes(page, report)
        for first, page in list(reporter.pages.items()):
            if page.reported >= overdue and len(reporter.pages) <= self._bounds.pages:
                break
            reporter.drop_page(first)
            self._latest_bytes -= len(page.data)
        reporter.gauges.drop(overdue)
        reporter.reported = reporter.reached = now
        reporter.interval_s = counting.longest_s
        reporter.reports += 1
        reporter.refused += counting.refused
        reporter.left_out += counting.left_out
        self._reports += 1
        self._refused += counting.refused
        if counting.order:
            began = edge_of(now) - max(1, round(counting.longest_s))
            self._began = began if self._began is None else min(self._began, began)

    def _keep_bytes(self, page: Page, report: LoadRequest) -> None:
        self._latest_bytes -= len(page.data)
        page.data = report.bare()
        if self._latest_bytes + len(page.data) > self._bounds.latest_bytes:
            page.data = b""
            self._shelf.left_out["latest_bytes"] += 1
        self._latest_bytes += len(page.data)

    # Questions

    def clusters(self, now: float, window_s: float) -> list[ClusterFigures]:
        """One for each (cluster, service name), by name, without rows."""
        return self._answers.clusters(self._span(now, window_s))

    def cluster(
        self, cluster: str, now: float, window_s: float, by: By = "locality", service_name: str | None = None
    ) -> ClusterFigures | None:
        """With rows; over all service names where none is given. None for a cluster that nobody reported."""
        return self._answers.cluster(cluster, self._span(now, window_s), by, service_name)

    def series(self, cluster: str, now: float, window_s: float, step_s: float, by: By | None = None) -> list[Series]:
        """The window in steps, 720 at most; a minute each at least where seconds are no longer known.

        One line for the cluster, or one for each pair of localities, or endpoint. Of nodes there is no past: none.
        """
        return self._answers.series(cluster, self._span(now, window_s), step_s, by)

    def demand(self, group: str, cluster: str, now: float, window_s: float) -> Demand:
        """Of a group's nodes, for the assignment of their traffic. Without sources for what none of them reported."""
        return self._answers.demand(group, cluster, self._span(now, window_s))

    def streams(self) -> Iterator[StreamLife]:
        return map(_life, list(self._streams.values()))

    def pair_totals(self) -> Iterator[PairTotals]:
        """For metrics, over (cluster, target locality); bounded."""
        return self._answers.pair_totals()

    def drop_totals(self) -> Iterator[DropTotals]:
        """For metrics, over (cluster, category); bounded."""
        return self._answers.drop_totals()

    def size(self) -> BookSize:
        return BookSize(
            streams=len(self._streams),
            nodes=len(self._accounts),
            services=self._shelf.services,
            windows=self._shelf.windows,
            reports=self._reports,
            refused=self._refused,
            left_out=dict(self._shelf.left_out),
        )

    # Time

    def _clock(self, now: float) -> float:
        """Clocks may be set back; windows only go on."""
        self._latest = max(self._latest, now)
        return self._latest

    @property
    def _overdue_s(self) -> float:
        return min(_MOST_OVERDUE_S, max(_LEAST_OVERDUE_S, _OVERDUE_INTERVALS * self.interval_s))

    def _span(self, now: float, window_s: float) -> Span:
        """The window before the edge that all streams have reached; no longer than this book has known anything."""
        now = max(now, self._latest)
        reached = (stream.reached for stream in list(self._streams.values()))
        end = edge_of(min((at for at in reached if now - at <= self._overdue_s), default=now))
        begin = end - max(1, round(min(window_s, WINDOW_LIMIT_S)))
        if self._began is not None:
            begin = min(max(begin, self._began), end - 1)
        return Span(begin, end)


def _life(reporter: Reporter) -> StreamLife:
    return StreamLife(
        stream=reporter.id,
        node=reporter.node.id,
        locality=reporter.node.locality,
        opened=reporter.opened,
        reported=reporter.reported,
        interval_s=reporter.interval_s,
        reports=reporter.reports,
        refused=reporter.refused,
        left_out=reporter.left_out,
    )
