"""File descriptors: each connection takes one, and a process without any can take no proxy and answer no operator.

The event loop's listener closes what comes then without a word, so the shortage is looked for, told and counted here.
Some descriptors are kept in reserve for the HTTP door, whose timeouts soon make new room: an operator gets in and sees
what is going on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from pathlib import Path

from xds.server.logs import get_logger
from xds.server.metrics import Metrics

RESERVED = 8
LOOK_EVERY_S = 1.0
TELL_EVERY_S = 60.0
NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})
_OPEN_FILES = Path("/dev/fd")

_log = get_logger("xds.server.open_files")


class OpenFiles:
    """The reserve of a process, and whoever looks whether descriptors are left."""

    def __init__(self, metrics: Metrics, reserved: int = RESERVED) -> None:
        self._metrics = metrics
        self._reserved = reserved
        self._reserve: list[int] = []
        self._told_at: float | None = None

    @property
    def reserve(self) -> int:
        """How many descriptors are kept back."""
        return len(self._reserve)

    def fill(self) -> bool:
        """Take back what was released; False while no descriptor is left."""
        while len(self._reserve) < self._reserved:
            try:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                if error.errno in NONE_LEFT:
                    return False
                raise
        return True

    def release(self) -> bool:
        """Free a descriptor for what must be opened now; False when the reserve is used up."""
        if not self._reserve:
            return False
        os.close(self._reserve.pop())
        return True

    def close(self) -> None:
        """Give the reserve back."""
        while self.release():
            pass

    async def watch(self, every_s: float = LOOK_EVERY_S) -> None:
        """Look for ever whether descriptors are left."""
        loop = asyncio.get_running_loop()
        while True:
            self.look(loop.time())
            await asyncio.sleep(every_s)

    def look(self, now: float) -> None:
        """Count a shortage, and tell of it once a minute."""
        if self._is_left():
            return
        self._metrics.files_exhausted += 1
        if self._told_at is None or now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            _log.error(
                "files.exhausted",
                open_n=self._count(),
                limit=file_limit(),
                error_message="no file descriptor is left: new connections are dropped",
            )

    def _is_left(self) -> bool:
        """A whole reserve is taken back one by one; and then one more is tried."""
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
        """How many are open; counting takes one of the reserve."""
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
