"""File descriptors: each connection takes one, and a process without any accepts neither proxies nor operators.

The event loop's listener silently closes new connections then, so this module detects, logs and counts the shortage.
Some descriptors are reserved for the HTTP port, whose timeouts soon free others: an operator can connect and see what
happens.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from pathlib import Path

from xds.server.logs import get_logger
from xds.server.metrics.counters import Metrics

RESERVED = 8
CHECK_EVERY_S = 1.0
REPORT_EVERY_S = 60.0
NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})
_OPEN_FILES = Path("/dev/fd")

_log = get_logger("xds.server.open_files")


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
        """How many descriptors are open; counting needs one of the reserve. -1: unknown."""
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
