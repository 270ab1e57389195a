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
# A server is at rest when it takes less CPU than this in so long a time, and its memory moves by less. Go's collector
# works for seconds after the last stream has come, and gives memory back after pauses of up to 0.75 s.
REST_CPU_S = 0.02
REST_KB = 100.0
REST_S = 1.0
REST_PAUSE_S = 0.25
REST_TIMEOUT_S = 8.0


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


async def rest(pid: int) -> float:
    """The resident memory of a process once that and its CPU have come to rest, or after eight seconds."""
    began = still_since = time.monotonic()
    before_s, before_kb = cpu_s(pid), rss_kb(pid)
    while True:
        await asyncio.sleep(REST_PAUSE_S)
        now, now_s, now_kb = time.monotonic(), cpu_s(pid), rss_kb(pid)
        if now_s - before_s > REST_CPU_S or abs(now_kb - before_kb) > REST_KB:
            still_since, before_s, before_kb = now, now_s, now_kb
        if now - still_since >= REST_S or now - began > REST_TIMEOUT_S:
            return now_kb


def _kb(text: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found, f"no {name} in\n{text}"
    return float(found[1])
