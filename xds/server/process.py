"""Resources and tuning of the process: open files, memory, garbage collection, threads.

Each connection takes a file descriptor. Without a free descriptor the event loop silently closes new connections, of
proxies and of operators. So `OpenFiles` detects, logs and counts the shortage, and reserves some descriptors for the
HTTP port, where an operator can see what happens; the timeouts of that port soon free others.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from xds.server.counters import Metrics
from xds.server.logs import get_logger

RESERVED = 8
CHECK_EVERY_S = 1.0
REPORT_EVERY_S = 60.0
NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})
_OPEN_FILES = Path("/dev/fd")

# A collection of the youngest generation holds the loop by some 0.5 us for each object: 50,000 of them took 25 ms, in
# pushes of thousands of resources. The older generations are collected as rarely as with thresholds of 50,000 and 50.
_GC_THRESHOLDS = (5_000, 500, 100)
_YOUNG_S = 0.1

# The loop releases the interpreter lock at each write and gets it back when a busy thread has had its interval. At
# Python's default of 5 ms, a thread that prepares a push may delay each write of the loop for as long.
_SWITCH_INTERVAL_S = 0.0005

_log = get_logger("xds.server.process")


class OpenFiles:
    """The reserve of descriptors of a process, and the check that some are left."""

    def __init__(self, metrics: Metrics, reserved: int = RESERVED) -> None:
        self._metrics = metrics
        self._reserved = reserved
        self._reserve: list[int] = []
        self._reported_at: float | None = None

    @property
    def reserve(self) -> int:
        """How many descriptors are reserved."""
        return len(self._reserve)

    def fill(self) -> bool:
        """Refill the reserve; False while no descriptor is left."""
        while len(self._reserve) < self._reserved:
            try:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                if error.errno in NONE_LEFT:
                    return False
                raise
        return True

    def release(self) -> bool:
        """Free one reserved descriptor; False when the reserve is empty."""
        if not self._reserve:
            return False
        os.close(self._reserve.pop())
        return True

    def close(self) -> None:
        """Free the reserve."""
        while self.release():
            pass

    async def watch(self, every_s: float = CHECK_EVERY_S) -> None:
        """Check regularly whether descriptors are left. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.check(loop.time())
            await asyncio.sleep(every_s)

    def check(self, now: float) -> None:
        """Count a shortage, and log it once a minute."""
        if self._is_left():
            return
        self._metrics.files_exhausted += 1
        if self._reported_at is None or now - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = now
            _log.error(
                "files.exhausted",
                open_n=self._count(),
                limit=file_limit(),
                error_message="no file descriptor is left: new connections are dropped",
            )

    def _is_left(self) -> bool:
        """True when the reserve can be refilled and one more descriptor opened."""
        if not self.fill():
            return False
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in NONE_LEFT:
                return False
            raise
        return True

    def _count(self) -> int:
        """How many descriptors are open; -1 if unknown. Counting takes one descriptor of the reserve."""
        self.release()
        try:
            return len(list(_OPEN_FILES.iterdir()))
        except OSError:
            return -1
        finally:
            self.fill()


def file_limit() -> int:
    """How many files the process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one, since each connection is an open file; returns the limit.

    Shells start programs with 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some systems name a limit that they do not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def tune_threads() -> None:
    """Shorten the wait of the event loop for the interpreter lock while threads are busy."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause the cyclic collector while state is loaded: the state stays alive, and full collections traverse it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def tune_gc() -> None:
    """Set the thresholds of the cyclic collector. Call it once, after the start-up state is loaded.

    The threshold was the largest single factor at 5,000 streams: 135 -> 74 us per push and ACK
    (docs/internals/design.md#push-path). Objects alive after start-up stay alive and need not be traversed again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def collect_young(every_s: float = _YOUNG_S) -> None:
    """Collect the youngest generation often, so that it is small each time. Runs until cancelled.

    The collector's own count hardly grows while as many objects are freed as are made. Pushes to large groups do that,
    and each makes mappings of thousands of entries: collecting seconds of them at once held the loop for 10 to 30 ms.
    """
    while True:
        await asyncio.sleep(every_s)
        gc.collect(0)


class ChurnDetector:
    """Decides when to release memory: after streams were opened or closed, and once more after such changes end.

    The memory of a reconnecting fleet is free only when its last stream is in sync.
    """

    __slots__ = ("_changing", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._changing = False

    def update(self, total: int) -> bool:
        """``total``: how many streams were opened and closed so far. True when memory should be released now."""
        was_changing, self._changing = self._changing, total != self._total
        self._total = total
        return was_changing or self._changing


def release_memory() -> None:
    """Return freed memory to the system where the C library can (glibc).

    Otherwise the memory of a burst of large requests or of closed streams stays in the allocator's arenas. Takes
    milliseconds: call it in a thread, not on the loop.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
