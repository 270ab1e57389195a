"""``xds assignment``: traffic assignment policies, and their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from xds.cli.client import Client, group_path
from xds.cli.errors import CommandError, Exit
from xds.cli.files import read_object
from xds.cli.output import Format, say, write, write_document
from xds.cli.table import Column, Style, TableLayout, rendered

Json = dict[str, Any]

POLICY_LIMIT_BYTES = 256 * 1024
_STYLES = {"settled": "good", "moving": "warn", "held": "bad", "pushed": "dim"}

SOURCES = TableLayout(
    name=lambda row: f"{row['cluster']} {row['source']}".strip(),
    columns=(
        Column("CLUSTER", lambda row: row["cluster"]),
        Column("SOURCE", lambda row: row["source"]),
        Column("STANDING", lambda row: row["standing"], lambda row: _STYLES.get(row["standing"], "")),
        Column("RPS", lambda row: row["rps"]),
        Column("SHARES", lambda row: row["shares"]),
        Column("WHY", lambda row: row["why"]),
        Column("CHANGED", lambda row: row["changed_at"], is_time=True),
        Column("WANTED", lambda row: row["wanted"], is_wide=True),
        Column("NODES", lambda row: row["nodes"], is_wide=True),
    ),
)


def assignment_path(group: str, cluster: str = "") -> str:
    """The path of a policy, or of all policies of a group."""
    return group_path(group, f"/assignments/{quote(cluster, safe='')}" if cluster else "/assignments")


def list_text(client: Client, group: str, style: Style) -> str:
    """All policies of a group: a row for each source, or the whole items. Raises ``CommandError``."""
    items = client.items(assignment_path(group))
    if style.format in {Format.JSON, Format.YAML, Format.JSONL}:
        return rendered(items, SOURCES, style)
    return rendered((row for item in items for row in _rows(item)), SOURCES, style)


def show(item: Json, style: Style, format: Format | None) -> None:
    """Write one policy: one row per source, with reasons and warnings as messages; or the whole item."""
    if format in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(item, format)
        return
    write(rendered(_rows(item), SOURCES, style))
    for line in _told(item):
        say(line)


def put(
    client: Client, group: str, cluster: str, policy: Json, query: Mapping[str, str], headers: Mapping[str, str]
) -> Json:
    """Set a policy, or try it with a dry run. Raises ``CommandError``."""
    named = cluster or policy.get("cluster", "")
    if not isinstance(named, str) or not named:
        raise CommandError(Exit.USAGE, "no cluster given: name it as an argument or in the policy")
    return client.call("PUT", assignment_path(group, named), query, headers, policy)


def read_policy(file: Path) -> Json:
    """Read a policy from a file, without checking it. Raises ``CommandError``."""
    return read_object(file, "one policy", POLICY_LIMIT_BYTES)


def _rows(item: Json) -> Iterator[Json]:
    if not item["sources"]:
        # There is no row if no node reports or is connected, or if nothing is to be decided.
        empty = dict.fromkeys(("source", "standing", "rps", "shares", "changed_at", "wanted", "nodes"), "")
        yield {"cluster": item["cluster"], **empty, "why": item["waits_for"]}
    for source in item["sources"]:
        yield {
            "cluster": item["cluster"],
            "source": place(source["source"]),
            "standing": source["standing"],
            "rps": f"{source['demand_rps']:.1f}",
            "shares": _split(source["allotments"]),
            "why": ",".join(dict.fromkeys(reason["code"] for reason in source["reasons"])),
            "changed_at": source["changed_at"],
            "wanted": _split(source["wanted"]),
            "nodes": str(source["nodes"]),
        }


def _told(item: Json) -> Iterator[str]:
    if item.get("dry_run"):
        yield "dry run: nothing was changed"
    if item["waits_for"]:
        yield f"no decision yet: {item['waits_for']}"
    for source in item["sources"]:
        for reason in source["reasons"]:
            yield f"{place(source['source']) or 'the unnamed locality'}: {reason['detail']}"
    for reason in item["reasons"]:
        yield str(reason["detail"])
    for warning in item["warnings"]:
        hint = f" ({warning['hint']})" if warning["hint"] else ""
        yield f"warning: {warning['resource']}: {warning['detail']}{hint}"


def place(locality: Mapping[str, str]) -> str:
    """``region/zone/sub_zone``, without the parts that are empty."""
    return "/".join(filter(None, locality.values()))


def _split(shares: Iterable[Json]) -> str:
    return ", ".join(f"{one['share']:.0%} {place(one['locality'])}" for one in shares if one["share"])
