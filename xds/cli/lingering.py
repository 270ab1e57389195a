"""Short texts about lingering and held resources of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from xds.cli.additions import ADDITIONS
from xds.cli.table import Column, TableLayout

Json = dict[str, Any]

NAMED = 3


def note(node: Json) -> str:
    """The note on a node: rejected, held and lingering resources, and what features add."""
    rejected = (_rejected_text(type, state) for type, state in node["types"].items())
    waiting = map(held_text, node["held"])
    others = (note(node) for note in ADDITIONS.node_notes)
    return "; ".join(filter(None, (*rejected, *waiting, lingering_text(node["lingering"]), *others)))


def _rejected_text(type: str, state: Json) -> str:
    guilty = state.get("guilty")
    return f"{type} {first_names(guilty, len(guilty))} rejected" if guilty else ""


def lingering_text(lingering: Iterable[Json]) -> str:
    """``3 clusters, 1 secrets linger until 12:10:05 CET``; empty if nothing lingers."""
    counts: Counter[str] = Counter()
    ends: list[str | None] = []
    for each in lingering:
        counts[each["type"]] += each["count"]
        ends.append(each["until"])
    if not counts:
        return ""
    what = ", ".join(f"{count} {type}" for type, count in counts.items())
    known = [end for end in ends if end is not None]
    return (
        f"{what} linger {until(max(known))}"
        if len(known) == len(ends)
        else f"{what} linger; their drain time has not started"
    )


def until(end: str) -> str:
    """The end of a lingering in local time."""
    return f"until {datetime.fromisoformat(end).astimezone():%H:%M:%S %Z}"


def held_text(held: Json) -> str:
    """``listeners/web waits for cluster c``, ``routes/r waits for listeners/web``."""
    names = _paths(held["resources"])
    waits = "waits" if held["count"] == 1 else "wait"
    why = ", with unreadable references," if held["any_cluster"] else ""
    clusters, others = held["waits_for"], _paths(held.get("waits_for_others", ()))  # an older server does not send it
    kind = "cluster" if len(clusters) == 1 else "clusters"
    reasons = [f"{kind} {first_names(clusters, len(clusters))}"] if clusters else []
    reasons += [first_names(others, len(others))] if others else []
    return f"{first_names(names, held['count'])}{why} {waits} for {' and '.join(reasons) or 'their replacement'}"


def _paths(resources: Iterable[Json]) -> list[str]:
    return [f"{each['type']}/{each['name']}" for each in resources]


def first_names(names: list[str], count: int) -> str:
    """The first ``NAMED`` names, and how many more there are."""
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {count - NAMED} more" if count > NAMED else shown


LINGERING = TableLayout(
    name="type",
    columns=(
        Column("TYPE", "type"),
        Column("REVISION", "revision"),
        Column("UNTIL", "until"),
        Column("NAMES", lambda item: first_names(item["names"], item["count"]), is_prose=True),
    ),
)
