"""``xds assignment``: traffic assignment policies, their decisions, and their targets as a table.

The table of targets shows how full each one is, and the decided share beside the real one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from xds.cli.client import Client, RefusedError, group_option
from xds.cli.errors import CommandError, Exit
from xds.cli.files import LocatedObject, read_located
from xds.cli.output import DOCUMENTS, Color, Format, can_show, say, write, write_document
from xds.cli.table import Column, Style, TableLayout, locality_text, rendered
from xds.steering import calls

Json = dict[str, Any]

FULL = 0.9  # utilisation; a waterfall fills a zone to the middle of the hysteresis band, 95 % by default
OVER = 1.005
APART = 0.1  # shares that differ by more are highlighted
BAR_LEAST, BAR_MOST, BAR_ELSEWHERE = 10, 40, 20
_EIGHTHS = "▏▎▍▌▋▊▉█"
_GAP = 2

POLICY_LIMIT_BYTES = 256 * 1024
_STYLES = {"settled": "good", "moving": "warn", "failing": "bad", "held": "bad", "pushed": "dim"}

SOURCES = TableLayout(
    name="cluster",
    columns=(
        Column("CLUSTER", "cluster"),
        Column("SOURCE", "source"),
        Column("STANDING", "standing", lambda row: _STYLES.get(row["standing"], "")),
        Column("RPS", "rps"),
        Column("SHARES", "shares"),
        Column("WHY", "why", is_prose=True),
        Column("CHANGED", "changed_at", is_time=True),
        Column("WANTED", "wanted", is_wide=True),
        Column("NODES", "nodes", is_wide=True),
    ),
)


def targets_text(items: Iterable[Json], style: Style) -> str:
    """The targets of all items, with a bar that fits the terminal; empty if there are none."""
    rows = [row for item in items for row in _target_rows(item)]
    if not rows or style.format not in {Format.TABLE, Format.WIDE} or style.columns:
        return ""
    plain = Style(style.format, style.has_headers, timestamps=style.timestamps, color=style.color)
    return rendered(rows, _view(_bar_width(rows, plain)), plain)


def bar(part: float | None, width: int) -> str:
    """A bar of ``width`` cells for a part of 1; made of ``#`` if the terminal has no block characters."""
    filled = min(max(part or 0.0, 0.0), 1.0) * width
    whole = int(filled)
    if not _has_blocks():
        return f"[{'#' * round(filled):-<{width}}]"
    rest = int((filled - whole) * 8)
    return f"{'█' * whole + (_EIGHTHS[rest - 1] if rest else ''):░<{width}}"


def _target_rows(item: Json) -> Iterator[Json]:
    for target in item["targets"]:
        yield {**target, "cluster": item["cluster"], "place": locality_text(target["locality"])}


def _view(width: int) -> TableLayout:
    columns = (
        Column("CLUSTER", "cluster"),
        Column("TARGET", "place"),
        Column("HEALTHY", lambda row: f"{row['healthy']}/{row['endpoints']}", _health_style),
        Column("LOAD", lambda row: f"{row['load_rps']:.1f}"),
        Column("CAPACITY", lambda row: f"{row['capacity_rps']:.4g}"),
        Column("FULL", lambda row: _percent(row["utilisation"]), _full_style),
        *((Column("", lambda row: bar(row["utilisation"], width), _full_style),) if width else ()),
        Column("DECIDED", lambda row: _percent(row["decided_share"])),
        Column("REAL", lambda row: _percent(row["real_share"]), _real_style),
        Column("PRIORITY", "pushed_priority", is_wide=True),
        Column("DECIDED-RPS", lambda row: f"{row['decided_rps']:.1f}", is_wide=True),
        Column(
            "METRICS",
            lambda row: ",".join(f"{k}={v:.3g}" for k, v in row["metrics"].items()),
            is_wide=True,
            is_prose=True,
        ),
    )
    return TableLayout(lambda row: f"{row['cluster']} {row['place']}", columns)


def _bar_width(rows: list[Json], style: Style) -> int:
    """The width that the other columns leave on the terminal; 0 if it is too small for a bar."""
    if not sys.stdout.isatty():
        return BAR_ELSEWHERE
    uncolored = Style(style.format, style.has_headers, color=Color.NEVER)
    widest = max(map(len, rendered(rows, _view(0), uncolored).splitlines()), default=0)
    free = shutil.get_terminal_size().columns - widest - _GAP - (0 if _has_blocks() else 2)
    return min(free, BAR_MOST) if free >= BAR_LEAST else 0


def _has_blocks() -> bool:
    return can_show(f"{_EIGHTHS}░", sys.stdout)


def _percent(part: float | None) -> str:
    return "" if part is None else f"{part:.0%}"


def _health_style(row: Json) -> str:
    return "good" if row["healthy"] == row["endpoints"] else "warn" if row["healthy"] else "bad"


def _full_style(row: Json) -> str:
    part = row["utilisation"]
    if part is None:
        return "dim"
    return "bad" if part > OVER else "warn" if part >= FULL else "good"


def _real_style(row: Json) -> str:
    decided, real = row["decided_share"], row["real_share"]
    return "warn" if decided is not None and real is not None and abs(decided - real) > APART else ""


HISTORY = TableLayout(
    name="number",
    columns=(
        Column("NUMBER", "number"),
        Column("AGE", "time", is_time=True),
        Column("SOURCE", lambda item: locality_text(item["source"])),
        Column("WHAT", lambda item: ",".join(item["actions"]), is_prose=True),
        Column("RPS", lambda item: f"{item['demand_rps']:.1f}"),
        Column("BEFORE", lambda item: _split(item["before"])),
        Column("AFTER", lambda item: _split(item["after"])),
        Column(
            "WHY", lambda item: ",".join(dict.fromkeys(reason["code"] for reason in item["reasons"])), is_prose=True
        ),
        Column("STANDING", "standing", is_wide=True),
        Column(
            "DETAIL",
            lambda item: "; ".join(reason["detail"] for reason in item["reasons"]),
            is_wide=True,
            is_prose=True,
        ),
    ),
)


def list_text(client: Client, group: str, style: Style) -> str:
    """All policies of a group: a row for each source and one for each target, or the whole items.

    Raises ``CommandError``.
    """
    items = client.items(calls.policies(group))
    if style.format in DOCUMENTS:
        return rendered(items, SOURCES, style)
    return _tables(
        list(items), style, f"group {group} has no policies: `xds assignment set{group_option(group)} -f FILE` sets one"
    )


def show(item: Json, style: Style, format: Format | None) -> None:
    """One policy: rows for sources and for targets, the reasons and warnings as messages; or the whole item."""
    if format in DOCUMENTS:
        write_document(item, format)
        return
    write(_tables([item], style))
    for line in _messages(item):
        say(line)


def _tables(items: Sequence[Json], style: Style, empty: str = "") -> str:
    """The sources and, below them, the targets."""
    targets = targets_text(items, style)
    sources = rendered((row for item in items for row in _rows(item)), SOURCES, style, empty)
    return "\n".join(filter(None, (sources, targets)))


def history_text(client: Client, group: str, cluster: str, style: Style) -> str:
    """The decisions about a cluster, newest first. Raises ``CommandError``."""
    decisions = client.items(calls.policy_history(group, cluster))
    why = f"`xds assignment show {cluster}{group_option(group)}` says why"
    return rendered(decisions, HISTORY, style, f"nothing was decided yet: {why}")


def put(client: Client, group: str, cluster: str, file: Path, options: Json) -> Json:
    """Set the policy in a file, or try it; ``options`` are those of the call. Raises ``CommandError``."""
    source = _located_policy(file)
    name = cluster or source.document.get("cluster", "")
    if not isinstance(name, str) or not name:
        raise CommandError(Exit.USAGE, "no cluster given: name it as an argument or in the policy")
    try:
        return client.run(calls.set_policy(group, name, source.document, **options))
    except RefusedError as error:
        raise source.located(error) from None


def read_policy(file: Path) -> Json:
    """Read a policy from a file, without checking it. Raises ``CommandError``."""
    return _located_policy(file).document


def _located_policy(file: Path) -> LocatedObject:
    return read_located(file, "one policy", POLICY_LIMIT_BYTES)


def _rows(item: Json) -> Iterator[Json]:
    if not item["sources"]:
        # There is no row if no node reports or is connected, or if nothing is to be decided.
        empty = dict.fromkeys(("source", "standing", "rps", "shares", "changed_at", "wanted", "nodes"), "")
        yield {"cluster": item["cluster"], **empty, "why": item["waits_for"]}
    for source in item["sources"]:
        yield {
            "cluster": item["cluster"],
            "source": locality_text(source["source"]),
            "standing": source["standing"],
            "rps": f"{source['demand_rps']:.1f}",
            "shares": _split(source["allotments"]),
            "why": ",".join(dict.fromkeys(reason["code"] for reason in source["reasons"])),
            "changed_at": source["changed_at"],
            "wanted": _split(source["wanted"]),
            "nodes": str(source["nodes"]),
        }


def _messages(item: Json) -> Iterator[str]:
    if item.get("dry_run"):
        yield "dry run: nothing was changed"
    if item["waits_for"]:
        yield f"no decision yet: {item['waits_for']}"
    for source in item["sources"]:
        for reason in source["reasons"]:
            yield f"{locality_text(source['source']) or 'the unnamed locality'}: {reason['detail']}"
    for reason in item["reasons"]:
        yield str(reason["detail"])
    for warning in item["warnings"]:
        hint = f" ({warning['hint']})" if warning["hint"] else ""
        yield f"warning: {warning['resource']}: {warning['detail']}{hint}"


def _split(shares: Iterable[Json]) -> str:
    return ", ".join(f"{one['share']:.0%} {locality_text(one['locality'])}" for one in shares if one["share"])
