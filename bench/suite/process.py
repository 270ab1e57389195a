"""CPU and memory of another process, as the kernel counts them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

# A server has read the last ACKs, and put away what it made for the push, when it takes less than this in a pause.
QUIET_S = 0.0005
PAUSE_S = 0.02
QUIET_TIMEOUT_S = 1.0


def cpu_s(pid: int) -> float:
    """User and system time of all threads, in seconds, as precise as Linux's clock of a process is."""
    return time.clock_gettime((~pid << 3) | 2)


def rss_kb(pid: int) -> float:
    """Resident memory, counted exactly: the quick counters lag behind by some pages for each thread."""
    return _kb(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Rss")


async def quiet(cpu: Callable[[], float]) -> float:
    """The CPU time of a process once it has nothing to do any more, or after a second."""
    deadline, before_s = time.monotonic() + QUIET_TIMEOUT_S, cpu()
    while True:
        await asyncio.sleep(PAUSE_S)
        now_s = cpu()
        if now_s - before_s < QUIET_S or time.monotonic() > deadline:
            return now_s
        before_s = now_s


def _kb(text: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found, f"no {name} in\n{text}"
    return float(found[1])
