"""``xds instance``: instances that are registered over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit
from xds.cli.files import read_object
from xds.cli.output import say
from xds.cli.table import Column, Style, TableLayout, rendered

Json = dict[str, Any]

SERVICE_LIMIT_BYTES = 256 * 1024
PATH = "/registrations"
_STYLES = {"passing": "good", "warning": "warn", "critical": "bad"}


def _checks(item: Json) -> str:
    """The checks that do not pass, or their number."""
    wrong = [f"{check['id']} {check['status']}" for check in item["checks"] if check["status"] != "passing"]
    return ", ".join(wrong) if wrong else f"{len(item['checks'])} passing" if item["checks"] else ""


INSTANCES = TableLayout(
    name=lambda item: f"{item['node']}/{item['id']}",
    columns=(
        Column("ID", lambda item: item["id"]),
        Column("SERVICE", lambda item: item["service"]),
        Column("ADDRESS", lambda item: _place(item["address"], item["port"])),
        Column("HEALTH", lambda item: item["health"], lambda item: _STYLES.get(item["health"], "")),
        Column("CHECKS", _checks),
        Column("AGE", lambda item: item["registered_at"], is_time=True),
        Column("NODE", lambda item: item["node"], is_wide=True),
        Column("TAGS", lambda item: ",".join(item["tags"]), is_wide=True),
        Column("WEIGHT", lambda item: str(item["weight"]), is_wide=True),
        Column("ZONE", lambda item: "/".join(filter(None, item["locality"].values())), is_wide=True),
        Column("BY", lambda item: item["actor"], is_wide=True),
    ),
)


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def path_of(id: str) -> str:
    """The path of an instance."""
    return f"{PATH}/{quote(id, safe='')}"


def list_text(client: Client, service: str, style: Style) -> str:
    """All registered instances, or those of a service. Raises ``CommandError``."""
    return rendered(client.items(PATH, {"service": service} if service else {}), INSTANCES, style)


def register(client: Client, file: Path) -> Json:
    """Register the instance that a file describes. Raises ``CommandError``."""
    service = read_object(file, "one service", SERVICE_LIMIT_BYTES)
    inner = next((service[key] for key in service if key.lower() == "service" and len(service) == 1), None)
    if isinstance(inner, dict):  # the form of files that Consul's agent reads
        service = inner
    given = {str(key).lower(): value for key, value in service.items()}
    id = given.get("id") or given.get("name")
    if not isinstance(id, str) or not id:
        raise CommandError(Exit.INVALID, f"{file}: a service needs a Name")
    return client.call("PUT", path_of(id), None, None, service)


def tell(item: Json, verb: str) -> None:
    """Say what was done to an instance."""
    place = _place(item["address"], item["port"])
    say(f"instance {item['id']} of service {item['service']} at {place}: {verb}, {item['health']}")
