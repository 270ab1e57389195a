"""A source of one's own: the instances in a table of an SQLite database.

The table ``instances`` has the columns ``service``, ``address``, ``port``, ``weight`` and ``zone``.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from xds.embed import Instance, Locality, Sink

Services = dict[str, list[Instance]]


class Inventory:
    """A source: it has a name, a kind, and ``run``."""

    kind = "inventory"

    def __init__(self, name: str, database: Path, every_s: float) -> None:
        self.name = name
        self._database = database
        self._every_s = every_s

    async def run(self, sink: Sink) -> None:
        """Read the table every ``every_s`` seconds until cancelled."""
        shown: Services | None = None
        while True:
            try:
                services = await asyncio.to_thread(read, self._database)  # reading must not block the server
            except sqlite3.Error as error:
                sink.failed(f"{self._database}: {error}")  # the last good set stays in force
            else:
                if services == shown:
                    sink.alive()
                else:
                    sink.replace(services)
                    shown = services
            await asyncio.sleep(self._every_s)


def read(database: Path) -> Services:
    """The instances by service. Raises ``sqlite3.Error``."""
    found: Services = {}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT service, address, port, weight, zone FROM instances ORDER BY address, port")
        for service, address, port, weight, zone in rows:
            one = Instance(f"{address}:{port}", address, port, weight=weight, locality=Locality(zone=zone or ""))
            found.setdefault(service, []).append(one)
    return found


def make(name: str, options: dict[str, Any]) -> Inventory:
    """What ``object`` of the settings names."""
    return Inventory(name, Path(options["database"]), float(options.get("every_s", 5)))
