"""Who reports: streams and their nodes, what each said last, and what it counted in all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import add

from xds.load.figures import Totals
from xds.load.gauges import Gauges
from xds.load.service import Service, SourceServices
from xds.model.load_report import ClusterLoad
from xds.model.node import Node
from xds.protocol.lanes import unpack
from xds.protocol.load_wire import load_at


class Page:
    """The clusters of one report, in its order, and what was counted of each, ever: as lanes, as there are a million.

    A client names its clusters in the same order again and again. ``None`` stands for one that is not counted.
    ``data`` is the latest report as it came, empty where it is not kept.
    """

    __slots__ = ("_totals", "data", "order", "reported")

    def __init__(self) -> None:
        self.order: list[Service | None] = []
        self.data = b""
        self.reported = 0.0
        self._totals: list[int] = []

    def take(self, order: list[Service | None], sums: list[int]) -> dict[Service, int]:
        """Add what a report counts. Returns the totals of what it names no longer."""
        gone = self._arrange(order) if order != self.order else {}
        self._totals = list(map(add, self._totals, sums))
        return gone

    def totals(self) -> Iterator[tuple[Service, int]]:
        for service, total in zip(self.order, self._totals, strict=True):
            if service is not None:
                yield service, total

    def total(self, service: Service) -> int:
        at = self._place(service)
        return 0 if at is None else self._totals[at]

    def load(self, service: Service) -> ClusterLoad | None:
        """What the latest report says of a service; None where it does not name it, or is not kept."""
        at = self._place(service)
        return None if at is None or not self.data else load_at(self.data, at)

    def _place(self, service: Service) -> int | None:
        try:
            return self.order.index(service)
        except ValueError:
            return None

    def _arrange(self, order: list[Service | None]) -> dict[Service, int]:
        before: dict[Service, int] = {}
        for service, total in self.totals():
            before[service] = before.get(service, 0) + total  # it may be named twice in one report
        totals = [0 if service is None else before.pop(service, 0) for service in order]
        self._name(order)
        self._totals = totals
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
        self.aside: dict[Service, int] = {}

    def put_aside(self, totals: Iterable[tuple[Service, int]]) -> None:
        for service, total in totals:
            self.aside[service] = self.aside.get(service, 0) + total

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

    def total(self, service: Service) -> int:
        """Without what the pages of open streams count."""
        return self.aside.get(service, 0) + sum(page.total(service) for page in list(self.resting))


class Reporter:
    """One stream."""

    __slots__ = (
        "account", "gauges", "group", "id", "interval_s", "left_out", "made", "made_since", "node", "opened", "pages",
        "reached", "refused", "reported", "reports", "services", "source",
    )  # fmt: skip

    def __init__(self, stream: int, account: Account, now: float, group: str) -> None:
        self.id = stream
        self.group = group
        self.account = account
        self.node = account.node
        self.source = account.node.locality
        self.services = SourceServices()  # those of its group and locality, shared with other streams
        self.opened = self.reached = now
        self.reported = self.interval_s = 0.0
        self.reports = self.refused = self.left_out = 0
        self.made, self.made_since = 0, now
        self.pages: dict[Service | None, Page] = {}  # by the first cluster
        self.gauges = Gauges()

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

    def total(self, service: Service) -> int:
        return sum(page.total(service) for page in list(self.pages.values()))

    def load(self, service: Service) -> ClusterLoad | None:
        """What the stream said of a service last."""
        for page in reversed(list(self.pages.values())):
            if service in page.order:
                return page.load(service)
        return None


def totals_of(sums: int) -> Totals:
    """Of sums as tallies have them."""
    return Totals(*unpack(sums, 4))
