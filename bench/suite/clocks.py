"""How long each part of an admin push takes, measured within the server: ``xds serve`` with a clock at each part.

    python -m bench.suite.clocks GRPC_PORT HTTP_PORT FOLDER

The time of a part is wall time, without that of the parts within it. On SIGUSR2 the seconds counted since the last
signal are written to ``parts.json`` in the folder.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.fanout import Server
from bench.pushes import serve

REPORT = "parts.json"

# The functions of each part, where they are called from.
PARTS: Mapping[str, tuple[str, ...]] = {
    "read_ms": ("xds.codec.resources:ResourceDecoder.document",),
    "rules_ms": (
        "xds.codec.validate_fast:FastValidator.is_surely_valid",
        "xds.codec.resource_reader:check_constraints",
    ),
    "references_ms": ("xds.codec.resource_reader:references_of", "xds.control.review:review"),
    "blobs_ms": ("xds.control.push:_encoded",),
    "compare_ms": ("xds.control.review:plan_change", "xds.control.push:changes"),
    "store_ms": ("xds.store.sqlite.ledger:commit_all",),
    "disk_ms": ("xds.store.sqlite.database:Database.write",),
    "snapshot_ms": ("xds.control.serving:build_next_content",),
    "publish_ms": ("xds.control.publisher:Publisher._publish_commit",),
}


class Clocks:
    """Seconds by part. A call within another, in the same thread, is not counted twice."""

    def __init__(self) -> None:
        self.spent_s: Counter[str] = Counter()
        self._within = threading.local()

    def install(self) -> None:
        """Put a clock at each function. Raises ``AttributeError`` for one that is no longer there."""
        for part, places in PARTS.items():
            for place in places:
                module, _, path = place.partition(":")
                *outer, name = path.split(".")
                holder: Any = import_module(module)
                for step in outer:
                    holder = getattr(holder, step)
                setattr(holder, name, self.timed(part, getattr(holder, name)))

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted for a part."""
        within = self._within

        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            others_s, within.others_s = getattr(within, "others_s", 0.0), 0.0
            began = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                took_s = time.perf_counter() - began
                self.spent_s[part] += took_s - within.others_s
                within.others_s = others_s + took_s

        return timed

    def write(self, report: Path) -> None:
        """Whole or not at all; counts from here."""
        partial = report.with_suffix(".partial")
        partial.write_text(json.dumps(self.spent_s))
        partial.rename(report)
        self.spent_s.clear()


async def read_clocks(server: Server, folder: Path) -> dict[str, float]:
    """What each part took since the last time, in milliseconds."""
    report = folder / REPORT
    report.unlink(missing_ok=True)
    subprocess.run(["kill", "-USR2", str(server.pid)], check=True)
    while not report.exists():
        await asyncio.sleep(0.01)
    spent_s = json.loads(report.read_text())
    return {part: spent_s.get(part, 0.0) * 1e3 for part in PARTS}


def main() -> None:
    grpc_port, http_port, folder = sys.argv[1:]
    clocks = Clocks()
    clocks.install()
    signal.signal(signal.SIGUSR2, lambda *_: clocks.write(Path(folder) / REPORT))
    serve(int(grpc_port), int(http_port), Path(folder))


if __name__ == "__main__":
    main()
