"""A thread with a connection that hears of commits. A notification is only a hint: it looks every second anyway."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import structlog

from xds.store.postgres.connection import PostgresConnection, connect
from xds.store.postgres.database import read_once
from xds.store.postgres.failures import reason
from xds.store.sql.connection import SqlConnection

CHANNEL = "xds"
TICK_S = 1.0

_log = structlog.get_logger(logger_name="xds.store")


class Listener:
    """Calls ``look`` with a connection after each notification and each ``TICK_S``, in its thread."""

    def __init__(self, url: str, look: Callable[[SqlConnection], None]) -> None:
        self._url = url
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xds-store-listener", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it. It may still look once."""
        self._ended.set()

    def join(self) -> None:
        """Wait for its end, which is after the next notification, or ``TICK_S``."""
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen(connect(self._url))
            except psycopg.Error as error:
                _log.info("store.listener_lost", error_message=reason(error))
            except Exception as error:  # a bug, or a damaged row, must not end it: nobody would hear of commits again
                _log.error("store.listener_failed", error_message=str(error), exc_info=error)
            self._ended.wait(TICK_S)

    def _listen(self, connection: PostgresConnection) -> None:
        with connection.raw as raw:
            raw.execute(f"LISTEN {CHANNEL}")
            while not self._ended.is_set():
                read_once(connection, self._look)
                for _ in raw.notifies(timeout=TICK_S, stop_after=1):
                    pass
