"""``xds nodes``, ``nacks``, ``config`` and ``release``: the state of proxies, and their NACKs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from xds.cli.client import Client, group_path
from xds.cli.errors import CommandError, Exit
from xds.cli.lingering import note, some, until
from xds.cli.output import age
from xds.cli.push_options import author
from xds.cli.table import Column, TableLayout

Json = dict[str, Any]

# The columns of types: those that nearly every proxy has; wide shows the others, too.
GRID = {"CDS": "clusters", "EDS": "endpoints", "LDS": "listeners", "RDS": "routes", "SDS": "secrets"}
WIDE_GRID = {"SRDS": "scoped_routes", "VHDS": "virtual_hosts", "RTDS": "runtimes", "ECDS": "extension_configs"}
STATES = ("synced", "pending", "nacked", "not_subscribed", "orphaned")
_STYLES = {"synced": "good", "pending": "warn", "nacked": "bad", "orphaned": "warn"}
_HASH = re.compile(r"\+[0-9a-f]{8}$")  # the hash of the served set; the label of the push precedes it


def list_nodes(client: Client, query: Mapping[str, str], states: Sequence[str] = ()) -> Iterator[Json]:
    """Nodes with a type in one of ``states``; all nodes if that is empty. Raises ``CommandError``."""
    unknown = [state for state in states if state not in STATES]
    if unknown:
        raise CommandError(Exit.USAGE, f"no such state: {unknown[0]!r} (expected some of {', '.join(STATES)})")
    if len(states) == 1:
        query = {**query, "state": states[0]}
    for node in client.items("/nodes", query):
        if not states or any(type["state"] in states for type in node["types"].values()):
            yield node


def counts(nodes: Iterable[Json], group: str = "") -> str:
    """The number of nodes, and how many of them are not in sync."""
    total = nacked = pending = gone = 0
    for node in nodes:
        states = {type["state"] for type in node["types"].values()}
        total += 1
        gone += not node["connected"]
        nacked += "nacked" in states
        pending += "pending" in states and "nacked" not in states
    parts = [f"{total} {'node' if total == 1 else 'nodes'}"]
    parts += [f"{count} {word}" for count, word in ((nacked, "NACKed"), (pending, "pending"), (gone, "gone")) if count]
    why = f"     why: xds nacks{f' -g {group}' if group else ''}" if nacked else ""
    return " · ".join(parts) + why


def held(client: Client, node: str, query: Mapping[str, str]) -> Iterator[Json]:
    """The resources that a node holds; with ``contents`` in the query also their documents."""
    return client.items(f"/nodes/{quote(node, safe='')}/resources", query)


def _state(alias: str, node: Json) -> str:
    state = node["types"].get(alias)
    if state is None or state["state"] == "not_subscribed":
        return "-"
    has = str(state["revision"]) if state["revision"] is not None else _HASH.sub("", state["version_acked"])
    sent = _HASH.sub("", state["version_sent"])
    match state["state"]:
        case "synced":
            shown = f"✓ {has}"
        case "nacked":
            way = sent if has == sent else f"{has or '-'}→{sent}"  # it may have accepted the rest of the response
            shown = f"✗ {way} NACK {age(state['since'])}"
        case "pending":
            shown = f"… {sent or has} PENDING"
        case word:
            shown = f"! {has} {word.upper()}"
    unsent = len(state.get("unexpressed", ()))  # resources that v2 cannot express; -o yaml has the reasons
    return f"{shown.rstrip()}, {unsent} unsent" if unsent else shown.rstrip()


def _style(alias: str, node: Json) -> str:
    return _STYLES.get(node["types"].get(alias, {}).get("state", ""), "dim")


def _up(node: Json) -> str:
    """How long the node is connected, or that it left."""
    opened = [stream["opened"] for stream in node["streams"] if "load" not in stream]
    return age(min(opened)) if opened else f"gone {age(node['last_seen'])}"


def _types(columns: Mapping[str, str], is_wide: bool) -> tuple[Column, ...]:
    return tuple(
        Column(header, partial(_state, alias), partial(_style, alias), is_wide=is_wide)
        for header, alias in columns.items()
    )


def _streams(key: str, node: Json) -> str:
    return ",".join(sorted({str(stream[key]) for stream in node["streams"] if stream[key]}))


def _lingers(item: Json) -> str:
    """Whether the resource lingers, and until when."""
    if not item.get("lingers"):
        return ""
    return until(item["until"]) if item["until"] else "yes"


NODES = TableLayout(
    name=lambda node: str(node["id"]),
    columns=(
        Column("NODE", lambda node: node["id"]),
        Column("CLUSTER", lambda node: node["cluster"]),
        Column("LOCALITY", lambda node: "/".join(filter(None, node["locality"].values()))),
        Column("GROUP", lambda node: node["group"]),
        Column("AGENT", lambda node: node["user_agent"]),
        Column("UP", _up),
        *_types(GRID, is_wide=False),
        *_types(WIDE_GRID, is_wide=True),
        Column("STREAMS", lambda node: str(len(node["streams"])), is_wide=True),
        Column("VARIANT", partial(_streams, "variant"), is_wide=True),
        Column("API", partial(_streams, "api"), is_wide=True),
        Column("PEER", partial(_streams, "peer"), is_wide=True),
        Column("PRINCIPAL", partial(_streams, "principal"), is_wide=True),
        Column("SEEN", lambda node: node["last_seen"], is_time=True, is_wide=True),
        Column("NOTE", note),
    ),
)

NACKS = TableLayout(
    name=lambda record: str(record["node"]),
    columns=(
        Column("LAST", lambda record: record["last"], is_time=True),
        Column("NODE", lambda record: record["node"]),
        Column("GROUP", lambda record: record["group"]),
        Column("TYPE", lambda record: record["type"]),
        Column("VERSION", lambda record: record["version"]),
        Column("COUNT", lambda record: str(record["count"])),
        Column("STATE", lambda record: record["state"], lambda item: "bad" if item["state"] == "open" else "dim"),
        Column("REFUSED", lambda record: some(record["guilty"], len(record["guilty"]))),
        Column("FIRST", lambda record: record["first"], is_time=True, is_wide=True),
        Column("NONCE", lambda record: record["nonce"], is_wide=True),
        Column("NAMES", lambda record: ",".join(record["names"]), is_wide=True),
        Column("MESSAGE", lambda record: record["message"]),
    ),
)

HELD = TableLayout(
    name=lambda item: str(item["name"]),
    columns=(
        Column("TYPE", lambda item: item["type"]),
        Column("NAME", lambda item: item["name"]),
        Column("STATE", lambda item: item["state"], lambda item: _STYLES.get(item["state"], "dim")),
        Column("VERSION_INFO", lambda item: item["version_info"]),
        Column("VERSION", lambda item: item["version"]),
        Column("LINGERS", _lingers),
        Column("OVERLAY", lambda item: ",".join(item.get("overlay", ()))),
        Column("PUSHED", lambda item: item.get("pushed_version") or "", is_wide=True),
    ),
)


def release(client: Client, node: str, group: str) -> Json:
    """End lingering for a node or a group; the numbers of nodes and resources. Raises ``CommandError``."""
    if bool(node) == bool(group):
        raise CommandError(Exit.USAGE, "give either --node or --group")
    path = f"/nodes/{quote(node, safe='')}/release" if node else group_path(group, "/release")
    return client.call("POST", path, {"author": author()})


def release_text(found: Json) -> str:
    """``2 nodes released 3 clusters, 3 endpoints``."""
    if not found["nodes"]:
        return "nothing lingered"
    what = ", ".join(f"{count} {type}" for type, count in found["released"].items())
    return f"{found['nodes']} {'node' if found['nodes'] == 1 else 'nodes'} released {what}"
