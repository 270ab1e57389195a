"""What one stream said to be in progress: towards a service, or all at once towards those of a strip.

Who reports: streams and their nodes, what each said last, and what it counted in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from operator import add, neg, sub

from xds.lrs.batch import Strip
from xds.lrs.figures import Totals
from xds.lrs.load_stats import load_at
from xds.lrs.packed_counters import unpack
from xds.lrs.series import Known, Lanes, Service, SourceServices
from xds.model.load_report import ClusterLoad
from xds.model.node import Node

_NO_GAUGE = 0.0, Known(()), 0


class Gauges:
    """The latest that was told of each service, and when. No service counts twice."""

    __slots__ = ("_single", "_strips")

    def __init__(self) -> None:
        self._single: dict[Service, tuple[float, Known, int]] = {}
        self._strips: dict[Strip, tuple[float, Lanes]] = {}

    def __contains__(self, service: Service) -> bool:
        return service in self._single or any(strip in self._strips for strip, _ in service.strips)

    def set(self, service: Service, known: Known, lanes: int, now: float) -> None:
        """What is in progress towards a service now, in place of what was."""
        for strip, place in service.strips:
            if strip in self._strips and self._strips[strip][1][place]:
                self._loosen(strip)
        _, known_before, before = self._single.get(service, _NO_GAUGE)
        if known_before is known:
            if lanes != before:
                service.change_gauge(known, lanes - before)
        else:
            if before:
                service.change_gauge(known_before, -before)
            service.change_gauge(known, lanes)
        if lanes:
            self._single[service] = now, known, lanes
        else:
            self._single.pop(service, None)

    def set_all(self, strip: Strip, lanes: Lanes, now: float) -> None:
        """What is in progress towards each service of a strip."""
        told = self._strips.get(strip)
        if told is None:
            self._make_room(strip)
        if self._single:
            for service in self._single.keys() & strip.services:
                self._drop(service)
        if told is None:
            strip.change_gauges(lanes)
        elif told[1] != lanes:
            strip.change_gauges(list(map(sub, lanes, told[1])))
        self._strips[strip] = now, lanes

    def drop(self, before: float = inf) -> None:
        """Those that no report repeated: clients do not name what has nothing in progress."""
        for strip in [strip for strip, (told, _) in self._strips.items() if told < before]:
            self._take_back(strip)
        for service in [service for service, (told, *_) in self._single.items() if told < before]:
            self._drop(service)

    def _drop(self, service: Service) -> None:
        _, known, lanes = self._single.pop(service)
        service.change_gauge(known, -lanes)

    def _make_room(self, strip: Strip) -> None:
        """The client names its clusters in another order from now on: other strips have some of these services."""
        for service in strip.services:
            for other, _ in service.strips:
                if other in self._strips:
                    self._loosen(other)

    def _loosen(self, strip: Strip) -> None:
        """Services of a strip are told of one by one."""
        told, lanes = self._take_back(strip)
        for service, known, count in zip(strip.services, strip.knowns, lanes, strict=True):
            if count:
                self.set(service, known, count, told)

    def _take_back(self, strip: Strip) -> tuple[float, Lanes]:
        told, lanes = self._strips.pop(strip)
        strip.change_gauges(list(map(neg, lanes)))
        return told, lanes


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
