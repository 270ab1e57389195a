"""A thread with a connection that hears of commits. A notification is only a hint: it looks every second anyway.

Pushes do not delay it, nor large commits. So it also does the short jobs that must not wait for them, and knows whether
the database answers. One that commits nothing, since its synchronous standby is gone, does not answer: a job that was
lost must be followed by one that is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

import psycopg
import structlog

from xds.store.base import UnavailableError
from xds.store.postgres.connection import ANSWER_S, PostgresConnection, connect
from xds.store.postgres.database import read_once
from xds.store.postgres.event_marks import CHANNEL
from xds.store.postgres.failures import reason
from xds.store.sql.connection import SqlConnection

TICK_S = 1.0
T = TypeVar("T")

_log = structlog.get_logger(logger_name="xds.store")


class Listener:
    """Calls ``look`` with a connection after each notification and each ``TICK_S``, in its thread.

    It calls ``on_answer`` when the database answers again.
    """

    def __init__(
        self, url: str, look: Callable[[SqlConnection], None], on_answer: Callable[[], None] = lambda: None
    ) -> None:
        self._url = url
        self._look = look
        self._on_answer = on_answer
        self._answered_s = time.monotonic()
        self._problem = ""
        self._is_told = False
        self._lost_job = False  # the last job lost its connection
        self._ended = threading.Event()
        self._jobs: SimpleQueue[Callable[[PostgresConnection | None], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="xds-store-listener", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[PostgresConnection], T]) -> Future[T]:
        """The future result of ``job``, each statement of which is a transaction of its own. It begins in ``TICK_S``.

        Without a connection it raises ``UnavailableError``.
        """
        future: Future[T] = Future()
        self._jobs.put(lambda connection: _settle(future, job, connection))
        return future

    def silence(self) -> tuple[float, str]:
        """For how many seconds the database has not answered, and why; 0 while it answers. From any thread."""
        silent_s = time.monotonic() - self._answered_s
        return (silent_s, self._problem) if self._problem and silent_s > ANSWER_S else (0.0, "")

    def end(self) -> None:
        """End it. It may still look once."""
        self._ended.set()

    def join(self) -> None:
        """Wait for its end, which is after the next notification, or ``TICK_S``."""
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen(connect(self._url, lambda idle_s: idle_s > ANSWER_S))
            except psycopg.Error as error:
                if not self._problem:
                    _log.info("store.listener_lost", error_message=reason(error))
                self._problem = reason(error)
                self._tell_silence()
            except Exception as error:  # a bug, or a damaged row, must not end it: nobody would hear of commits again
                _log.error("store.listener_failed", error_message=str(error), exc_info=error)
            self._refuse_jobs()
            self._ended.wait(TICK_S)
        self._refuse_jobs()

    def _listen(self, connection: PostgresConnection) -> None:
        with connection.raw as raw:
            raw.execute(f"LISTEN {CHANNEL}")
            while not self._ended.is_set():
                self._run_jobs(connection)
                read_once(connection, self._look)
                if not self._lost_job:  # else it may be read, and commits nothing
                    self._note_answer()
                for _ in raw.notifies(timeout=TICK_S, stop_after=1):
                    pass

    def _run_jobs(self, connection: PostgresConnection) -> None:
        for job in self._waiting():
            try:
                job(connection)
            finally:
                self._lost_job = connection.raw.closed

    def _refuse_jobs(self) -> None:
        for job in self._waiting():
            job(None)

    def _waiting(self) -> Iterator[Callable[[PostgresConnection | None], None]]:
        with suppress(Empty):
            while True:
                yield self._jobs.get_nowait()

    def _note_answer(self) -> None:
        was_away, self._answered_s, self._problem = bool(self._problem), time.monotonic(), ""
        if was_away:
            self._on_answer()
        if self._is_told:
            self._is_told = False
            _log.info("store.answers")

    def _tell_silence(self) -> None:
        silent_s, why = self.silence()
        if silent_s and not self._is_told:
            self._is_told = True
            _log.error("store.cut_off", silent_s=round(silent_s, 1), error_message=why)


def _settle(future: Future[T], job: Callable[[PostgresConnection], T], connection: PostgresConnection | None) -> None:
    """Run ``job`` for its future. Raises an error of the connection, which has to be made anew."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        if connection is None:
            raise UnavailableError("there is no connection to the database")
        future.set_result(job(connection))
    except psycopg.Error as error:
        future.set_exception(UnavailableError(reason(error)))
        raise
    except BaseException as error:
        future.set_exception(error)
