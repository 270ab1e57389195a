"""Nodes as a table: the state of each type in a column of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from xds.cli.lingering import note
from xds.cli.output import age, can_show, one_line
from xds.cli.table import Column, TableLayout, locality_text

Json = dict[str, Any]

# The columns of types: those that almost every proxy uses. ``-o wide`` also shows the others.
GRID = {"CDS": "clusters", "EDS": "endpoints", "LDS": "listeners", "RDS": "routes", "SDS": "secrets"}
WIDE_GRID = {"SRDS": "scoped_routes", "VHDS": "virtual_hosts", "RTDS": "runtimes", "ECDS": "extension_configs"}
SYNC_STYLES = {"synced": "good", "pending": "warn", "nacked": "bad", "orphaned": "warn"}
_HASH = re.compile(r"\+[0-9a-f]{8}$")  # the hash of the served set; the label of the push precedes it


def _state(alias: str, node: Json) -> str:
    state = node["types"].get(alias)
    if state is None or state["state"] == "not_subscribed":
        return "-"
    has = str(state["revision"]) if state["revision"] is not None else _HASH.sub("", state["version_acked"])
    sent = _HASH.sub("", state["version_sent"])
    match state["state"]:
        case "synced":
            shown = f"{_sign('✓', 'ok')} {has}"
        case "nacked":
            versions = sent if has == sent else f"{has or '-'}→{sent}"  # equal: it may have accepted the rest
            shown = f"{_sign('✗ ', '')}{versions} NACK {age(state['since'])}"
        case "pending":
            is_held = any(each["type"] == alias for held in node["held"] for each in held["resources"])
            word = "HELD" if is_held else "PENDING"
            shown = f"{_sign('… ', '')}{sent or has} {word}"
        case word:
            shown = f"! {has} {word.upper()}"
    unsent = len(state.get("unexpressed", ()))  # resources that v2 cannot express; -o yaml has the reasons
    return f"{shown.rstrip()}, {unsent} unsent" if unsent else shown.rstrip()


def _sign(sign: str, word: str) -> str:
    """The sign, or the word where the encoding of the terminal lacks it."""
    return sign if can_show(sign, sys.stdout) else word


def _style(alias: str, node: Json) -> str:
    return SYNC_STYLES.get(node["types"].get(alias, {}).get("state", ""), "dim")


def up_text(node: Json) -> str:
    """How long a node has been connected, when it last polled, or since when it is gone."""
    streams = node["streams"]
    opened = [each["opened"] for each in streams if "load" not in each] or [each["opened"] for each in streams]
    if opened:
        return age(min(opened))
    is_polling = node["connected"] and "polls" in node
    return f"polled {age(node['polls']['last'])}" if is_polling else f"gone {age(node['last_seen'])}"


def _types(columns: Mapping[str, str], is_wide: bool) -> tuple[Column, ...]:
    return tuple(
        Column(header, partial(_state, alias), partial(_style, alias), is_wide=is_wide)
        for header, alias in columns.items()
    )


def _streams(key: str, node: Json) -> str:
    return ",".join(sorted({str(stream[key]) for stream in node["streams"] if stream[key]}))


SERVER = Column("SERVER", lambda node: node.get("server", ""), leaves=6)
LINE = Column("LINE", lambda node: node.get("line", ""))
NODES = TableLayout(
    name="id",
    columns=(
        Column("NODE", "id"),
        Column("CLUSTER", "cluster", leaves=3),
        Column("LOCALITY", lambda node: locality_text(node["locality"]), leaves=1),
        Column("GROUP", "group", leaves=5),
        Column("AGENT", "user_agent", leaves=2),
        Column("UP", up_text, leaves=4),
        *_types(GRID, is_wide=False),
        *_types(WIDE_GRID, is_wide=True),
        Column("STREAMS", lambda node: str(len(node["streams"])), is_wide=True),
        Column("VARIANT", partial(_streams, "variant"), is_wide=True),
        Column("API", partial(_streams, "api"), is_wide=True),
        Column("PEER", partial(_streams, "peer"), is_wide=True),
        Column("PRINCIPAL", partial(_streams, "principal"), is_wide=True),
        Column("SEEN", "last_seen", is_time=True, is_wide=True),
        Column("NOTE", note, is_prose=True),
    ),
    in_order="id",
)
_KNOWN_TYPES = frozenset((*GRID.values(), *WIDE_GRID.values()))


def nodes_layout(nodes: Iterable[Json], order: str = "") -> TableLayout:
    """The table of these nodes: with a column for each custom type that they use, before the last column.

    Where several servers work on one store, a column behind the name has the server of each; while a group has a
    careful rollout, one has the line of each.
    """
    listed = list(nodes)
    used = sorted({alias for node in listed for alias in node["types"]} - _KNOWN_TYPES)
    name, *columns, last = NODES.columns
    added = [each for each, field in ((SERVER, "server"), (LINE, "line")) if any(field in node for node in listed)]
    columns = [name, *added, *columns, *_types(_headers(used), is_wide=False), last]
    return replace(NODES, columns=tuple(columns), in_order=None if order == "trouble" else NODES.in_order)


def _headers(aliases: Sequence[str]) -> dict[str, str]:
    """The last word of each type in capitals; the whole name if two types have the same last word.

    Clients choose the names of custom types, so they are made printable.
    """
    last = [alias.rpartition(".")[2].upper() for alias in aliases]
    return {
        one_line(word if last.count(word) == 1 else alias): alias for word, alias in zip(last, aliases, strict=True)
    }
