"""Interpreter and allocator settings for a process with many long-lived objects."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import sys
from contextlib import suppress

# A pass over the young holds up the loop by some 0.5 us for each: 50,000 of them took 25 ms, in pushes of thousands of
# resources. The older are looked at as rarely as with thresholds of 50,000 and 50.
_GC_THRESHOLDS = (5_000, 500, 100)
_YOUNG_S = 0.1

# The loop lets go of the interpreter at each write and gets it back when a thread at work has had its interval: at
# Python's 5 ms, the work of a push beside the loop may hold up each write of another for as long.
_SWITCH_INTERVAL_S = 0.0005


def tune_threads() -> None:
    """Let the event loop have its turn soon while threads are at work."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def raise_file_limit() -> int:
    """Let the process have as many connections as it may, each is an open file: how many open files that makes.

    Shells start programs with 1,024 of them, for programs of another age.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some systems name a limit that they do not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def tune_gc() -> None:
    """Call once, after start-up state is loaded.

    push_path 5: the cyclic collector's threshold is the "biggest knob at large N" (135 -> 74 us per push and ACK at
    5,000 streams); what is alive after start-up stays and need not be traversed again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def collect_young(every_s: float = _YOUNG_S) -> None:
    """Look at the young objects often, for ever, so that there are few each time.

    The collector's own count hardly grows while as much is freed as made. With pushes to large groups that is so, and
    each makes mappings of thousands of entries: seconds of them, looked at together, held up the loop for 10 to 30 ms.
    """
    while True:
        await asyncio.sleep(every_s)
        gc.collect(0)


class Tide:
    """Says when memory is worth releasing: after streams came or went, and once more when that has ended.

    What a storm took is free only when its last stream is in step.
    """

    __slots__ = ("_is_moving", "_seen")

    def __init__(self) -> None:
        self._seen = 0
        self._is_moving = False

    def turns(self, moved: int) -> bool:
        """``moved``: how many streams came and went so far."""
        was_moving, self._is_moving = self._is_moving, moved != self._seen
        self._seen = moved
        return was_moving or self._is_moving


def release_memory() -> None:
    """Give freed memory back to the system where the C library can (glibc).

    A burst of large requests or of closing streams otherwise stays in the allocator's arenas. Takes milliseconds: call
    it from a thread, not from the loop.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
