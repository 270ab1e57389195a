"""``xds services``, ``xds service NAME``, ``xds endpoints bindings``: the catalog, and what follows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from xds.cli.assignments import place
from xds.cli.client import Client, group_path
from xds.cli.output import Format, say, write_document
from xds.cli.table import Column, Style, TableLayout, write_items

Json = dict[str, Any]

_HEALTH = {"passing": "good", "warning": "warn", "critical": "bad", "draining": "dim"}
_DOCUMENTS = frozenset({Format.JSON, Format.YAML, Format.JSONL})


def selection_text(item: Json) -> str:
    """What a binding selects, besides the service."""
    parts = [f"{name} {item[name]}" for name in ("datacenter", "port", "filter") if item[name]]
    return ", ".join([*parts, "passing only"] if item["only_passing"] else parts)


def _address(item: Json) -> str:
    address = f"[{item['address']}]" if ":" in item["address"] else item["address"]
    return f"{address}:{item['port']}"


def _health(item: Json) -> str:
    return f"{item['health']} (held)" if item["is_held"] else str(item["health"])


def _pairs(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _checks(item: Json) -> str:
    return ",".join(f"{each['id']}:{each['status']}" for each in item["checks"])


SERVICES = TableLayout(
    name=lambda item: str(item["service"]),
    columns=(
        Column("SERVICE", lambda item: item["service"]),
        Column("INSTANCES", lambda item: str(item["instances"])),
        Column("PASSING", lambda item: str(item["passing"])),
        Column("WARNING", lambda item: str(item["warning"]), lambda item: "warn" if item["warning"] else ""),
        Column("CRITICAL", lambda item: str(item["critical"]), lambda item: "bad" if item["critical"] else ""),
        Column("DRAINING", lambda item: str(item["draining"])),
        Column("HELD", lambda item: str(item["held"]), lambda item: "bad" if item["held"] else ""),
        Column("SOURCES", lambda item: ",".join(item["sources"])),
        Column("BINDINGS", lambda item: str(item["bindings"])),
        Column("CHANGED", lambda item: item["changed_at"] or "", is_time=True),
    ),
)

INSTANCES = TableLayout(
    name=lambda item: str(item["id"]),
    columns=(
        Column("ID", lambda item: item["id"]),
        Column("ADDRESS", _address),
        Column("HEALTH", _health, lambda item: _HEALTH.get(item["health"], "")),
        Column("WEIGHT", lambda item: str(item["weights"]["passing"])),
        Column("LOCALITY", lambda item: place(item["locality"])),
        Column("SOURCE", lambda item: item["source"]),
        Column("AGE", lambda item: item["since"], is_time=True),
        Column("CHANGED", lambda item: item["changed_at"], is_time=True),
        Column("READ", lambda item: item["source_read_at"] or "", is_time=True),
        Column("DATACENTER", lambda item: item["datacenter"], is_wide=True),
        Column("NODE", lambda item: item["node"], is_wide=True),
        Column("PORTS", lambda item: _pairs(item["ports"]), is_wide=True),
        Column("TAGS", lambda item: ",".join(item["tags"]), is_wide=True),
        Column("META", lambda item: _pairs(item["meta"]), is_wide=True),
        Column("CHECKS", _checks, is_wide=True),
    ),
)

BINDINGS = TableLayout(
    name=lambda item: str(item["assignment"]),
    columns=(
        Column("ASSIGNMENT", lambda item: item["assignment"]),
        Column("SERVICE", lambda item: item["service"]),
        Column("STATE", lambda item: item["state"], lambda item: "good" if item["state"] == "laid" else "warn"),
        Column("ENDPOINTS", lambda item: str(item["endpoints"])),
        Column("SELECTS", selection_text),
        Column("BY", lambda item: item["actor"]),
        Column("SINCE", lambda item: item["time"] or "", is_time=True),
        Column("WARNINGS", lambda item: "; ".join(each["detail"] for each in item["warnings"]), lambda item: "warn"),
    ),
)


def list_services(client: Client, query: Mapping[str, str], style: Style) -> None:
    """All services. Raises ``CommandError``."""
    write_items(client.items("/services", dict(query)), SERVICES, style)


def show_service(client: Client, name: str, style: Style, format: Format | None) -> None:
    """The instances of a service, and what follows it as a message; or the whole item. Raises ``CommandError``."""
    item = client.call("GET", f"/services/{quote(name, safe='')}")
    if format in _DOCUMENTS:
        write_document(item, format)
        return
    write_items(item["instances"], INSTANCES, style)
    if not item["is_known"]:
        say(f"no source has shown the service {name} yet")
    for bound in item["bindings"]:
        say(f"assignment {bound['assignment']} of group {bound['group']} follows it")
    held = sum(each["is_held"] for each in item["instances"])
    if held:
        sources = sorted({each["source"] for each in item["instances"] if each["is_held"]})
        say(f"{held} instances are kept though lost: xds source accept {sources[0]} --service {name}")


def binding_path(group: str, assignment: str = "") -> str:
    """The path of a binding, or of all bindings of a group."""
    return group_path(group, f"/bindings/{quote(assignment, safe='')}" if assignment else "/bindings")


def list_bindings(client: Client, group: str, style: Style) -> None:
    """All bindings of a group. Raises ``CommandError``."""
    write_items(client.items(binding_path(group)), BINDINGS, style)


def tell_binding(item: Json, style: Style, format: Format | None) -> None:
    """A binding that was put: its row, and the warnings as messages; or the whole item."""
    if format in _DOCUMENTS:
        write_document(item, format)
        return
    write_items([item], BINDINGS, style)
    if item.get("dry_run"):
        say("dry run: nothing was changed")
    for warning in item["warnings"]:
        hint = f" ({warning['hint']})" if warning["hint"] else ""
        say(f"warning: {warning['resource']}: {warning['detail']}{hint}")


def tell_accepted(item: Json) -> None:
    """What was accepted, as messages."""
    would = "would go" if item.get("dry_run") else "go"
    for service, count in item["accepted"].items():
        say(f"{service}: {count} instances {would}")
