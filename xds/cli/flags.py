"""Flags as settings and values."""

from __future__ import annotations

from typing import Any

from xds.cli.failure import CommandError, Exit
from xds.cli.values import parse_duration

Json = dict[str, Any]


def serve_flags(
    grpc: str,
    http: str,
    data: str,
    store: str,
    insecure: bool,
    log_level: str,
    watch: str = "",
    prune: bool = False,
    lrs_interval: str = "",
) -> Json:
    """The flags that were given, nested like the settings. Raises ``CommandError``."""
    server: Json = {}
    for name, address in (("grpc", grpc), ("http", http)):
        if address:
            host, port = parse_address(address)
            server[name] = {"host": host, "port": port}
    if insecure:
        server["insecure"] = True
    flags: Json = {"server": server, "store": {}, "logs": {}, "watch": {}, "load": {}}
    given = (
        ("store", "data", data),
        ("store", "kind", store),
        ("logs", "level", log_level),
        ("watch", "directory", watch),
        ("watch", "prune", prune),
    )
    for section, name, value in given:
        if value:
            flags[section][name] = value
    if lrs_interval:
        flags["load"]["interval_s"] = parse_duration(lrs_interval)
    return flags


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, IPv6 hosts in brackets. Raises ``CommandError``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise CommandError(Exit.USAGE, f"not HOST:PORT: {text!r}")
    return host.strip("[]"), int(port)
