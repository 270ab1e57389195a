"""Clusters that fail most of their requests, and the push that came before: a point of ``xds check``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice, takewhile
from math import inf
from typing import Any
from urllib.parse import quote

from xds.cli.client import Client, RefusedError, group_path
from xds.cli.output import age
from xds.cli.table import who

Json = dict[str, Any]

WINDOW_S = 60
REQUESTS_LEAST = 20  # in the window; fewer tell nothing
FAILING_FROM = 0.5  # of the requests
NAMED_LIMIT = 3
# How far back the begin of the failure is looked for: by single seconds first, then by the minute.
_LOOKS = (("120", "5"), ("3600", "60"))
_REPORTED_S = 10.0  # the counts of a report are spread over its interval, so a failure may show that much earlier
_REVISIONS_READ = 100


def failing_clusters(client: Client) -> list[Json]:
    """The clusters that fail most of their requests, the worst first. Raises ``CommandError``."""
    items = client.items("/load", {"window": str(WINDOW_S)})
    found = [item for item in items if item["attempts"] >= REQUESTS_LEAST and item["failed_ratio"] >= FAILING_FROM]
    return sorted(found, key=lambda item: (-item["failed_ratio"], item["cluster"]))


def failure_line(client: Client, item: Json) -> str:
    """One cluster: what fails, since when, and the last push to its groups before that. Raises ``CommandError``."""
    parts = [f"{item['failed_ratio']:.0%} of {item['attempts']:.0f} requests to {item['cluster']} fail"]
    if item["dropped"]:
        parts.append(f"{item['drop_ratio']:.0%} are dropped by the proxies")
    began = _began(client, item["cluster"])
    if began is not None:
        parts.append(f"for {age(began[0])}")
    pushes = [push for group in item["groups"][:NAMED_LIMIT] for push in _push_before(client, group, began)]
    if pushes:
        group, push = max(pushes, key=lambda one: str(one[1]["time"]))
        by = f" by {who(push)}" if who(push) else ""
        parts.append(f"the push before it: revision {push['revision']} of {group}{by}, {age(push['time'])} ago")
    return ", ".join(parts)


def _began(client: Client, cluster: str) -> tuple[str, float] | None:
    """The first step of the present failure: its time and length. None where nothing is known of it."""
    begin = None
    for window, step in _LOOKS:
        try:
            answer = client.call("GET", f"/load/{quote(cluster, safe='')}/series", {"window": window, "step": step})
        except RefusedError:
            return begin
        points = [point for line in answer["items"] for point in line["points"]]
        failing = _failing_steps(points)
        if not failing:
            return begin
        begin = failing[0]["time"], float(answer["step_s"])
        if failing[0] is not points[0]:
            return begin
    return begin


def _failing_steps(points: list[Json]) -> list[Json]:
    """The steps of the failure that lasts until now, in order. Steps without requests tell nothing."""
    told = [point for point in points if point["issued"] or point["dropped"] or point["errors"]]
    failing = list(takewhile(lambda point: point["failed_ratio"] >= FAILING_FROM, reversed(told)))
    return failing[::-1]


def _push_before(client: Client, group: str, began: tuple[str, float] | None) -> Iterator[tuple[str, Json]]:
    """The latest revision of a group that may have caused a failure; nothing where there is none."""
    before_s = _seconds(began[0]) + began[1] + _REPORTED_S if began is not None else inf
    try:
        revisions = islice(client.items(group_path(group, "/revisions"), {"limit": "20"}), _REVISIONS_READ)
        found = next((one for one in revisions if _seconds(one["time"]) <= before_s), None)
    except RefusedError:  # the group is gone
        return
    if found is not None:
        yield group, found


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
