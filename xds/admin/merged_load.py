"""The load that clients report to several servers, added up. Pure: documents of the API in, documents out.

Each server shows the window that its own clients have reported. Rates are added as they are, counts too; a ratio is
that of all tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from xds.admin.merged_pages import summed
from xds.admin.models.load import PLACES, RATIO_PLACES, ROWS
from xds.model.natural_order import natural_key

Json = dict[str, Any]

ROWS_RPS = "rows_rps"  # of what servers tell each other: the requests per second that the shares are parts of
_REQUESTS = ("successes", "errors", "issued", "in_progress", "rps")
_TRIES = ("attempts", "dropped", "dropped_rps", "nodes")
_SEPARATOR = "\0"  # as `xds.admin.routes.load` orders rows


def clusters_of(pages: Iterable[Json]) -> list[Json]:
    """The clusters of pages that begin behind one cluster, by cluster name and service name."""
    return _grouped((item for page in pages for item in page["items"]), cluster_key, cluster_of)


def cluster_key(cluster: Mapping[str, Any]) -> str:
    """The place of a cluster in a list."""
    return f"{cluster['cluster']}{_SEPARATOR}{cluster['service_name']}"


def cluster_of(found: Sequence[Json]) -> Json:
    """One cluster, without rows."""
    added = {**found[-1], **_requests(found), **{name: _sum(found, name) for name in _TRIES}}
    attempts = added["attempts"]
    reported = [each["reported"] for each in found if each["reported"] is not None]
    return {
        **added,
        "groups": sorted({group for each in found for group in each["groups"]}),
        "window_s": max(each["window_s"] for each in found),
        "until": min(each["until"] for each in found),
        "drop_ratio": _ratio(added["dropped"], attempts),
        "failed_ratio": _ratio(sum(each["failed_ratio"] * each["attempts"] for each in found), attempts),
        "drops": {name: round(number, PLACES) for name, number in summed(each["drops"] for each in found).items()},
        "reported": max(reported, default=None),
    }


def detail_of(found: Sequence[Json], by: str, limit: int) -> tuple[Json, bool]:
    """One cluster with its rows, and whether there are more than these."""
    whole, rows = cluster_of(found), ROWS[by]
    bases = [each[ROWS_RPS] for each in found]
    parts = (
        {**row, "share": row["share"] * base} for each, base in zip(found, bases, strict=True) for row in each[rows]
    )
    merged = [{**row, "share": _ratio(row["share"], sum(bases))} for row in _grouped(parts, row_key, _row_of)]
    for name in ("next_page_token", ROWS_RPS):
        whole.pop(name, None)
    is_cut = len(merged) > limit or any(each.get("next_page_token") for each in found)
    return {**whole, "by": by, rows: merged[:limit]}, is_cut


def row_key(row: Mapping[str, Any]) -> str:
    """The place of a row in a list."""
    localities = (_locality_key(row["source"]), _locality_key(row.get("locality")))
    return _SEPARATOR.join((*localities, f"{row.get('priority', 0):03}", row.get("endpoint", ""), row.get("node", "")))


def _row_of(found: Sequence[Json]) -> Json:
    added = {**found[-1], **_requests(found), "share": sum(each["share"] for each in found)}
    if "node" in added:
        added["window_s"] = max(each["window_s"] for each in found)
        added["reported"] = max(each["reported"] for each in found)
        added["totals"] = summed(each["totals"] for each in found if each.get("totals"))
    return added


def lines_of(pages: Iterable[Json]) -> list[Json]:
    """The lines of charts, on the steps of the first page."""
    found = list(pages)
    step_s = found[0]["step_s"]
    return _grouped((line for page in found for line in page["items"]), line_key, lambda lines: _line_of(lines, step_s))


def line_key(line: Mapping[str, Any]) -> str:
    """The place of a line in a list."""
    return _SEPARATOR.join(
        (_locality_key(line.get("source")), _locality_key(line.get("locality")), line.get("endpoint", ""), "")
    )


def _line_of(lines: Sequence[Json], step_s: float) -> Json:
    first, *others = lines
    points = [dict(point) for point in first["points"]]
    if not points:
        return first
    begin = _seconds(points[0]["time"])
    for line in others:
        for point in line["points"]:
            at = round((_seconds(point["time"]) - begin) / step_s)
            if 0 <= at < len(points):  # servers begin their windows at other times
                points[at] = _point_of(points[at], point, step_s)
    return {**first, "points": points}


def _point_of(one: Json, other: Json, step_s: float) -> Json:
    added = {name: round(one[name] + other[name], PLACES) for name in ("successes", "errors", "issued", "rps")}
    point = {**one, **added}
    if "dropped" in one and "dropped" in other:
        tries = [each["rps"] * step_s + each["dropped"] for each in (one, other)]
        failed = sum(each["failed_ratio"] * count for each, count in zip((one, other), tries, strict=True))
        point["dropped"] = round(one["dropped"] + other["dropped"], PLACES)
        point["failed_ratio"] = _ratio(failed, sum(tries))
    return point


def reporting_of(found: Sequence[Json]) -> Json:
    """How often clients are asked to report: by the server that asks least often."""
    return max(found, key=lambda each: float(each["interval_s"]))


def _requests(found: Sequence[Json]) -> Json:
    added: Json = {name: _sum(found, name) for name in _REQUESTS}
    added["error_ratio"] = _ratio(added["errors"], added["successes"] + added["errors"])
    names = sorted({name for each in found for name in each["metrics"]})
    added["metrics"] = {
        name: _metric([each["metrics"][name] for each in found if name in each["metrics"]]) for name in names
    }
    return added


def _metric(found: Sequence[Mapping[str, float]]) -> Json:
    requests = sum(each["requests"] for each in found)
    total = sum(each["requests"] * each["average"] for each in found)
    return {"requests": round(requests, PLACES), "average": _ratio(total, requests)}


def _sum(found: Sequence[Json], name: str) -> float:
    total = sum(each[name] for each in found)
    return round(total, PLACES) if isinstance(total, float) else total


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, RATIO_PLACES) if whole else 0.0


def _grouped(items: Iterable[Json], key: Callable[[Json], str], merge: Callable[[Sequence[Json]], Json]) -> list[Json]:
    """Items with one key as one, in natural order of their keys."""
    groups: dict[str, list[Json]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [
        merge(groups[each]) if len(groups[each]) > 1 else groups[each][0] for each in sorted(groups, key=natural_key)
    ]


def _locality_key(locality: Mapping[str, str] | None) -> str:
    return _SEPARATOR.join((locality["region"], locality["zone"], locality["sub_zone"])) if locality else ""


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
