"""The reports of clusters that a client names in the same order again and again, read all at once.

`xds.lrs.packed_counters` says how a cluster's report is cut, and why such cuts are right. Where the names are known
beforehand so is where to cut, and each step is one for all clusters: a fifth of the time of one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, getitem
from typing import TYPE_CHECKING, NamedTuple, cast

from xds.lrs.packed_counters import (
    ClusterTally,
    Layout,
    NotTalliedError,
    Tally,
    head_of,
    interval_bytes,
    tally_of,
)

if TYPE_CHECKING:
    from xds.lrs.series import Known, Service

_cut = cast(Callable[[bytes, slice], bytes], getitem)


class _Places(NamedTuple):
    """Where counters and intervals stand in each cluster's report."""

    counters: list[slice]
    intervals: list[slice]


class Cuts:
    """Those of the reports of some clusters, in this order."""

    __slots__ = ("_by_interval", "_heads", "_named_bytes", "_tails")

    def __init__(self, clusters: Sequence[ClusterTally]) -> None:
        """``clusters`` as `read_tallies` has read them."""
        # The name comes first, the service name last, if there is one.
        self._heads = [head_of(stats) for stats, *_ in clusters]
        self._tails = [names.removeprefix(head) for (_, names, *_), head in zip(clusters, self._heads, strict=True)]
        self._named_bytes = sum(len(names) for _, names, *_ in clusters)
        self._by_interval: dict[int, _Places] = {}

    def read(self, reports: Sequence[bytes]) -> tuple[set[bytes], list[Tally]] | None:
        """The intervals that are named, to be read by `interval_of`, and the tallies in order.

        None where these are other clusters, or not all written alike: then each is to be read by itself.
        """
        if len(reports) != len(self._heads):
            return None
        size = interval_bytes(reports[0])
        places = self._by_interval.get(size) or self._placed(size)
        if not all(map(bytes.startswith, reports, self._heads)):
            return None
        if not all(map(bytes.endswith, reports, self._tails)):
            return None
        counters = list(map(_cut, reports, places.counters))
        # Parts that overlap, in a report that is too short for them, are longer together than it is.
        if self._named_bytes + size * len(reports) + sum(map(len, counters)) != sum(map(len, reports)):
            return None
        try:
            tallies = list(map(tally_of, counters))
        except NotTalliedError:
            return None
        return set(map(_cut, reports, places.intervals)), tallies

    def _placed(self, size: int) -> _Places:
        """For intervals of so many bytes, of which there are few."""
        ends = [(len(head), len(tail)) for head, tail in zip(self._heads, self._tails, strict=True)]
        places = self._by_interval[size] = _Places(
            [slice(head, -size - tail) for head, tail in ends],
            [slice(-size - tail, -tail or None) for _, tail in ends],
        )
        return places


class Strip:
    """Services that clients name one after the other, each in one layout: counted all at once, side by side.

    ``counters`` are those of ``span``, as far as they have not been handed over to the services' own; ``in_progress``
    are the gauges of streams that tell of all of them. A strip is made when such a report has been counted one by one.
    """

    __slots__ = ("counters", "cuts", "in_progress", "knowns", "layouts", "localities", "reported", "services", "span")

    def __init__(
        self, cuts: Cuts, services: Sequence[Service], knowns: Sequence[Known], layouts: Sequence[Layout], now: float
    ) -> None:
        self.cuts = cuts
        self.services = tuple(services)
        self.knowns = tuple(knowns)
        self.layouts = tuple(layouts)
        self.localities = sum(map(len, layouts))
        self.counters = [0] * len(services)
        self.in_progress = [0] * len(services)
        self.reported = now
        self.span = 0
        for place, service in enumerate(services):
            service.strips.append((self, place))

    def count(self, span: int, counters: Sequence[int], now: float) -> None:
        """Add the counters of one report, a number for each service."""
        if self.span != span:
            for service in self.services:
                if service.span != span:
                    service.turn(span)
            self.span = span
        self.counters = list(map(add, self.counters, counters))
        self.reported = now

    def change_gauges(self, lanes: Sequence[int]) -> None:
        """By how much more, or less, is in progress."""
        self.in_progress = list(map(add, self.in_progress, lanes))

    def hand_over(self, place: int) -> None:
        """What was counted of a service is its own; it goes on to another span."""
        counters, self.counters[place] = self.counters[place], 0
        self.knowns[place].counters += counters
        self.span = 0


STRIPS_LIMIT = 4  # of one service: orders in which clients name it among others


STRIP_LEAST = 4  # services; fewer are counted one by one
