"""Clusters that fail most of their requests, by the load reports of the proxies, and the last push before the failure.

The last ten seconds are looked at beside the last minute, so that an outage is seen in seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import inf
from time import time
from typing import NamedTuple

from xds.admin.dependencies import Dependencies
from xds.lrs.figures import ChartPoint, ClusterFigures
from xds.model.errors import NotFoundError
from xds.model.units import span_text
from xds.store.base import RevisionInfo

WINDOWS_S = (10.0, 60.0)
REQUESTS_LEAST = 20  # in a window; a ratio of fewer is not reliable
FAILING_FROM = 0.5  # of the requests
OUTAGE_FROM = 0.995  # shown as 100 %
# The windows and steps in which the start of a failure is searched for, in seconds: short steps first.
_SEARCHES = ((120.0, 5.0), (3600.0, 60.0))
_REPORTED_S = 10.0  # counts are spread over the interval of their report: a failure may seem to start this much earlier
_REVISIONS_READ = 100
_GROUPS_READ = 3


def is_outage(figures: ClusterFigures) -> bool:
    """Whether all requests fail."""
    return figures.failed_ratio >= OUTAGE_FROM


class FailureStart(NamedTuple):
    """The first step of a failure: its time (epoch seconds) and its length."""

    at: float
    step_s: float


async def find_failing_clusters(deps: Dependencies) -> list[ClusterFigures]:
    """The clusters that fail most of their requests in a window, the worst first, each as of its worst window."""
    windows = [await asyncio.to_thread(deps.load.clusters, window_s) for window_s in WINDOWS_S]
    return failing_of(windows)


def failing_of(windows: Iterable[Iterable[ClusterFigures]]) -> list[ClusterFigures]:
    """As `find_failing_clusters`, of the figures of each window."""
    worst: dict[tuple[str, str], ClusterFigures] = {}
    for window in windows:
        for figures in window:
            if figures.attempts < REQUESTS_LEAST or figures.failed_ratio < FAILING_FROM:
                continue
            key = (figures.cluster, figures.service_name)
            if key not in worst or figures.failed_ratio > worst[key].failed_ratio:
                worst[key] = figures
    return sorted(worst.values(), key=lambda each: (-each.failed_ratio, each.cluster, each.service_name))


async def failure_text(deps: Dependencies, figures: ClusterFigures) -> str:
    """One cluster: its failure ratio, since when, and the last push to its groups before. Raises ``StoreError``."""
    lost = f"{figures.failed_ratio:.0%} of {figures.attempts:.0f} requests to {figures.cluster} fail"
    parts = [f"{lost} (in {figures.window_s:.0f} s)"]
    if figures.dropped:
        parts.append(f"{figures.drop_ratio:.0%} are dropped by the proxies")
    start = await _failure_start(deps, figures.cluster)
    if start is not None:
        parts.append(f"for {span_text(max(0.0, time() - start.at))}")
    pushes = [await push_before(deps, group, start) for group in figures.groups[:_GROUPS_READ]]
    push = max((each for each in pushes if each is not None), key=lambda each: each.meta.time_s, default=None)
    if push is not None:
        parts.append(_push_text(push))
    return ", ".join(parts)


def _push_text(push: RevisionInfo) -> str:
    meta = push.meta
    claimed = f"({meta.author})" if meta.author and meta.author != meta.actor else ""
    who = " ".join(filter(None, (meta.actor, claimed)))
    by, age = f" by {who}" if who else "", span_text(max(0.0, time() - meta.time_s))
    return f"the push before it: revision {push.revision} of {push.group}{by}, {age} ago"


async def _failure_start(deps: Dependencies, cluster: str) -> FailureStart | None:
    """The first step of the failure that lasts until now. None if it is unknown."""
    begin = None
    for window_s, step_s in _SEARCHES:
        lines = await asyncio.to_thread(deps.load.series, cluster, window_s, step_s, None)
        points = [point for line in lines for point in line.points]
        failing = failing_steps(points)
        if not failing:
            return begin
        begin = FailureStart(failing[0].at, step_s)
        if failing[0] is not points[0]:
            return begin
    return begin


def failing_steps(points: Sequence[ChartPoint]) -> list[ChartPoint]:
    """The steps of the failure that lasts until now, in order. Steps without requests are ignored."""
    used = [point for point in points if point.attempts]
    failing = list(takewhile(lambda point: point.failed_ratio >= FAILING_FROM, reversed(used)))
    return failing[::-1]


async def push_before(deps: Dependencies, group: str, start: FailureStart | None) -> RevisionInfo | None:
    """The latest revision of a group that may have caused a failure; None if there is none. Raises ``StoreError``."""
    before_s = start.at + start.step_s + _REPORTED_S if start is not None else inf
    try:
        revisions = await deps.publisher.history.lines(group, None, _REVISIONS_READ)
    except NotFoundError:  # the group is gone
        return None
    return next((each for each in revisions if each.meta.time_s <= before_s), None)
