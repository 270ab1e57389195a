"""Who reports: streams and their nodes, what each said last, and what it counted in all."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import add

from xds.load.figures import Totals
from xds.load.service import Service
from xds.load.window import Window
from xds.model.load_report import ClusterLoad
from xds.model.node import Node
from xds.protocol.load_wire import load_at

Counts = tuple[int, int, int, int]  # successes, errors, issued, dropped
Gauge = list[tuple[Window, int]]
_COLUMNS = 4


class Page:
    """The clusters of one report, in its order, and what was counted of each, ever: flat, as there are a million.

    A client names its clusters in the same order again and again. ``None`` stands for one that is not counted.
    ``data`` is the latest report as it came, empty where it is not kept.
    """

    __slots__ = ("_totals", "data", "order", "reported")

    def __init__(self) -> None:
        self.order: list[Service | None] = []
        self.data = b""
        self.reported = 0.0
        self._totals = [array("d") for _ in range(_COLUMNS)]

    def take(self, order: list[Service | None], counts: list[Counts]) -> dict[Service, list[float]]:
        """Add what a report counts. Returns the totals of what it names no longer."""
        gone = self._arrange(order) if order != self.order else {}
        self._totals = [
            array("d", map(add, totals, column))
            for totals, column in zip(self._totals, zip(*counts, strict=True), strict=True)
        ]
        return gone

    def totals(self) -> Iterator[tuple[Service, list[float]]]:
        for service, *counts in zip(self.order, *self._totals, strict=True):
            if service is not None:
                yield service, counts

    def total(self, service: Service) -> list[float]:
        at = self._place(service)
        return [0.0] * _COLUMNS if at is None else [totals[at] for totals in self._totals]

    def load(self, service: Service) -> ClusterLoad | None:
        """What the latest report says of a service; None where it does not name it, or is not kept."""
        at = self._place(service)
        return None if at is None or not self.data else load_at(self.data, at)

    def _place(self, service: Service) -> int | None:
        try:
            return self.order.index(service)
        except ValueError:
            return None

    def _arrange(self, order: list[Service | None]) -> dict[Service, list[float]]:
        before: dict[Service, list[float]] = {}
        for service, counts in self.totals():
            known = before.setdefault(service, counts)
            if known is not counts:  # named twice in one report
                before[service] = list(map(add, known, counts))
        zero = [0.0] * _COLUMNS
        rows = [zero if service is None else before.pop(service, zero) for service in order]
        self._name(order)
        self._totals = [array("d", column) for column in zip(*rows, strict=True)]
        return before

    def _name(self, order: list[Service | None]) -> None:
        """Take another order; services know how many pages name them."""
        before, named = set(self.order), set(order)
        for service in before - named:
            if service is not None:
                service.pages -= 1
        for service in named - before:
            if service is not None:
                service.pages += 1
        self.order = order

    def rest(self) -> None:
        """The stream ended: totals stay."""
        order = self.order
        self._name([])
        self.order, self.data = order, b""

    def resume(self) -> None:
        """The client came back."""
        order, self.order = self.order, []
        self._name(order)


class Account:
    """What was counted of a node whose streams come and go.

    ``resting`` are pages of streams that ended, for the next one to go on with; ``aside`` is of clusters that no page
    names. ``since`` is when the node came, or left.
    """

    __slots__ = ("aside", "node", "resting", "since", "streams")

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.since = now
        self.streams: set[int] = set()
        self.resting: list[Page] = []
        self.aside: dict[Service, list[float]] = {}

    def put_aside(self, totals: Iterable[tuple[Service, list[float]]]) -> None:
        for service, counts in totals:
            known = self.aside.get(service)
            self.aside[service] = counts if known is None else list(map(add, known, counts))

    def rest(self, page: Page, limit: int) -> None:
        page.rest()
        self.resting.append(page)
        if len(self.resting) > limit:
            self.put_aside(self.resting.pop(0).totals())

    def resume(self, first: Service | None) -> Page:
        """The page that began with a cluster, or a blank one."""
        for at, page in enumerate(self.resting):
            if page.order[0] is first:
                del self.resting[at]
                page.resume()
                return page
        return Page()

    def total(self, service: Service) -> list[float]:
        """Without what the pages of open streams count."""
        found = list(self.aside.get(service, [0.0] * _COLUMNS))
        for page in list(self.resting):
            found = list(map(add, found, page.total(service)))
        return found


class Reporter:
    """One stream."""

    __slots__ = (
        "account", "gauges", "id", "interval_s", "left_out", "made", "made_since", "node", "opened", "pages", "reached",
        "refused", "reported", "reports", "services", "source",
    )  # fmt: skip

    def __init__(self, stream: int, account: Account, now: float) -> None:
        self.id = stream
        self.account = account
        self.node = account.node
        self.source = account.node.locality
        self.services: dict[tuple[str, str], Service] = {}  # of the locality, by cluster and service name
        self.opened = self.reached = now
        self.reported = self.interval_s = 0.0
        self.reports = self.refused = self.left_out = 0
        self.made, self.made_since = 0, now
        self.pages: dict[Service | None, Page] = {}  # by the first cluster
        self.gauges: dict[Service, tuple[float, Gauge]] = {}

    def set_gauge(self, service: Service, gauge: Gauge, now: float) -> None:
        """What is in progress towards a cluster now, in place of what was."""
        self.drop_gauge(service)
        if gauge:
            self.gauges[service] = now, gauge
            for window, count in gauge:
                window.in_progress += count

    def drop_gauge(self, service: Service) -> None:
        _, gauge = self.gauges.pop(service, (0.0, ()))
        for window, count in gauge:
            window.in_progress -= count

    def drop_gauges(self, before: float) -> None:
        """Those that no report repeated: clients do not name what has nothing in progress."""
        for service in [service for service, (reported, _) in self.gauges.items() if reported < before]:
            self.drop_gauge(service)

    def turn_page(self, order: list[Service | None]) -> Page:
        """The page of a report: that of the one that began as it does (long reports come in pieces), or a blank one."""
        first = order[0]
        page = self.pages.pop(first, None) or self.account.resume(first)
        self.pages[first] = page  # the last in order: that of longest ago is the first
        return page

    def drop_page(self, first: Service | None) -> Page:
        """It is not repeated: its totals are put aside."""
        page = self.pages.pop(first)
        page.rest()
        self.account.put_aside(page.totals())
        return page

    def total(self, service: Service) -> list[float]:
        found = [0.0] * _COLUMNS
        for page in list(self.pages.values()):
            found = list(map(add, found, page.total(service)))
        return found

    def load(self, service: Service) -> ClusterLoad | None:
        """What the stream said of a service last."""
        for page in reversed(list(self.pages.values())):
            if service in page.order:
                return page.load(service)
        return None


def as_totals(counts: Sequence[float]) -> Totals:
    return Totals(*map(int, counts))
