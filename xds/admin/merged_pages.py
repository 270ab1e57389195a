"""Pages and tables of several servers as one. Pure: documents of the API in, documents out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xds.admin.models.nacks import NODES_SHOWN
from xds.admin.models.nodes import LOAD_SERVICE
from xds.fleet.merged_nacks import EqualNacks, merge_by_message
from xds.model.natural_order import natural_key

Json = dict[str, Any]

STATES = ("ok", "warning", "failed")  # of a row of a check, the worst last


def nodes_of(pages: Iterable[Json]) -> list[Json]:
    """The nodes of pages that begin behind one id, in natural order of their ids.

    Of a node that several servers know, the one that has its streams has it; else the one that saw it last. If several
    have streams of it, it is shown with all of them.
    """
    found: dict[str, list[Json]] = {}
    for page in pages:
        for node in page["items"]:
            found.setdefault(node["id"], []).append(node)
    return [_one_node(found[id]) for id in sorted(found, key=natural_key)]


def _one_node(known: Sequence[Json]) -> Json:
    best, *others = sorted(known, key=_standing, reverse=True)
    connected = [each for each in others if each["connected"]]
    if not best["connected"] or not connected:
        return best
    streams = [stream for each in (best, *connected) for stream in each["streams"]]
    types = {alias: state for each in (*reversed(connected), best) for alias, state in each["types"].items()}
    return {**best, "streams": streams, "types": dict(sorted(types.items()))}


def _standing(node: Mapping[str, Any]) -> tuple[bool, bool, str]:
    """As `xds.fleet.state.NodeStanding`."""
    serves = any(stream["service"] != LOAD_SERVICE for stream in node["streams"])
    return serves, bool(node["connected"]), str(node["last_seen"])


def nacks_of(pages: Iterable[Json]) -> list[Json]:
    """The records of pages, newest first. One that a server took over from another one is resolved if it is at one."""
    found: dict[int, Json] = {}
    for page in pages:
        for nack in page["items"]:
            known = found.get(nack["id"])
            if known is None or (nack["state"] != "open", nack["last"]) > (known["state"] != "open", known["last"]):
                found[nack["id"]] = nack
    return sorted(found.values(), key=place_of_nack, reverse=True)


def place_of_nack(nack: Mapping[str, Any]) -> tuple[str, int]:
    """The place of a record among others."""
    return nack["last"], nack["id"]


def nacks_by_message(pages: Iterable[Json]) -> list[Json]:
    """The equal NACKs of pages as one. Each is of a node, or stands for several nodes of a server."""
    merged = merge_by_message(_equal_nacks(nack) for page in pages for nack in page["items"])
    return [
        {
            **one.latest,
            "count": one.times,
            "first": one.first,
            "nodes": list(one.nodes[:NODES_SHOWN]),
            "nodes_total": one.nodes_total,
        }
        for one in merged
    ]


def _equal_nacks(nack: Json) -> EqualNacks[Json]:
    return EqualNacks(
        nack,
        (nack["type"], nack["group"], nack["state"], nack["message"], tuple(nack["guilty"])),
        nack["state"] == "open",
        bool(nack["guilty"]),
        place_of_nack(nack),
        nack["first"],
        nack["count"],
        nack.get("nodes") or (nack["node"],),
        nack.get("nodes_total", 1),
    )


def refused_of(answers: Sequence[Json], limit: int) -> Json:
    """Refused streams by address and reason; those that were refused last first. ``answers`` are of servers."""
    rows: dict[tuple[str, str], Json] = {}
    for answer in answers:
        for row in answer["items"]:
            key = (row["address"], row["reason"])
            rows[key] = _with(rows[key], row) if key in rows else row
    items = sorted(rows.values(), key=lambda row: str(row["last"]), reverse=True)
    recent = sum(answer["recent"] for answer in answers)
    newest = max((answer for answer in answers if answer["summary"]), key=_last_refused, default=answers[0])
    summary = newest["summary"].partition(" ")[2] if recent else ""
    if recent > newest["recent"]:  # more than the one stream that its summary may be about
        summary = summary.replace("stream refused", "streams refused", 1)
    return {**newest, "items": items[:limit], "recent": recent, "summary": f"{recent} {summary}" if summary else ""}


def _with(row: Json, other: Json) -> Json:
    latest = max(row, other, key=lambda each: str(each["last"]))
    return {**latest, "count": row["count"] + other["count"], "first": min(row["first"], other["first"])}


def _last_refused(answer: Json) -> str:
    return max((str(row["last"]) for row in answer["items"]), default="")


def checks_of(answers: Mapping[str, Json]) -> list[Json]:
    """The rows of the checks of servers: each in its worst state, with what the servers in that state found.

    The first server is the one that was asked: what it found counts where all is well.
    """
    rows: dict[str, dict[str, Json]] = {}
    for server, answer in answers.items():
        for row in answer["items"]:
            rows.setdefault(row["check"], {})[server] = row
    return [_worst(found) for found in rows.values()]


def _worst(found: Mapping[str, Json]) -> Json:
    state = max((row["state"] for row in found.values()), key=STATES.index)
    worst = {server: row for server, row in found.items() if row["state"] == state}
    first = next(iter(worst.values()))
    servers: dict[str, list[str]] = {}
    for server, row in worst.items():
        servers.setdefault(row["detail"], []).append(server)
    if state == STATES[0] or (len(servers) == 1 and len(worst) == len(found)):
        return first
    return {**first, "detail": "; ".join(f"{', '.join(names)}: {detail}" for detail, names in servers.items())}


def is_cut(pages: Sequence[Json], items: Sequence[Json], limit: int) -> bool:
    """Whether a merged list goes on behind its first ``limit`` items."""
    return len(items) > limit or any(page.get("next_page_token") for page in pages)


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Numbers by name, added up."""
    total: dict[str, int] = {}
    for each in counts:
        for name, number in each.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items()))
