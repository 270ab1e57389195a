"""One connection to PostgreSQL with its transactions. It belongs to one thread.

One lock orders the transactions of all servers, so that the cursors of their events are committed in order. Where the
connection is lost, a call waits a moment for another one and runs again. A transaction carries a number of its writer;
where the answer to its commit was lost, the number tells whether it was committed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
import structlog

from xds.store.base import SilentError, StoreError, UnavailableError
from xds.store.postgres import schema
from xds.store.postgres.connection import ANSWER_S, PostgresConnection, connect, place_of
from xds.store.postgres.failures import failure, is_passing, is_refusal, reason
from xds.store.sql.connection import Job

T = TypeVar("T")

ATTEMPTS = 4
RECONNECT_S = 5.0  # a call that loses its connection waits this long for another one
RETRY_EVERY_S = 0.25
OPENING_S = 20.0  # for a statement of the start, before the listener knows whether the database answers
COMMIT_S = 15.0  # for the answer to a commit, which waits for ever for a synchronous standby that is gone
COMMIT_LOCK = 0x7864735F31  # of all commits

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({lock});"
    " INSERT INTO writer (id, n, seen) VALUES ('{writer}', {number}, now())"
    " ON CONFLICT (id) DO UPDATE SET n = excluded.n, seen = excluded.seen"
)
_log = structlog.get_logger(logger_name="xds.store")


class PostgresDatabase:
    """The database of ``url``."""

    def __init__(self, url: str) -> None:
        self.place = place_of(url)
        self._url = url
        self.writer = secrets.token_hex(8)
        self._number = 0  # of the last transaction
        self._is_committing = False
        self._connection: PostgresConnection | None = None
        self._down = ""  # why it cannot be used
        self.silence: Callable[[], tuple[float, str]] | None = None  # as `Listener.silence`

    def open(self) -> None:
        """Connect, and create the tables. Raises ``UnavailableError``."""
        connection = self._connected(0.0)
        try:
            connection.raw.execute(f"BEGIN; SELECT pg_advisory_xact_lock({COMMIT_LOCK})")
            schema.ensure(connection)
            connection.raw.execute("COMMIT")
        except UnavailableError as error:
            self._disconnect()
            self._down = str(error)
            raise UnavailableError(f"{self.place} cannot be used: {error}") from error
        except psycopg.Error as error:
            is_lost = is_passing(error, connection.raw)
            self._disconnect()
            self._down = reason(error)
            if is_lost:
                raise SilentError(f"{self.place} cannot be used now: {self._down}") from error
            if isinstance(error, psycopg.errors.UndefinedColumn):
                raise UnavailableError(f"the schema xds in {self.place} belongs to another program") from error
            raise failure(error, self.place) from error
        self.write(lambda _: None)  # tells a user who may only read

    def close(self) -> None:
        """Release the connection."""
        self._disconnect()

    def read(self, job: Job[T]) -> T:
        """Run ``job`` on the state of one moment. Raises ``StoreError``."""
        lost: psycopg.Error | None = None
        for _ in range(ATTEMPTS):
            connection = self._connected(RECONNECT_S if lost else 0.0)
            try:
                return read_once(connection, job)
            except psycopg.Error as error:
                lost = self._lost(error, connection)
        raise SilentError(f"{self.place} cannot be read now") from lost

    def write(self, job: Job[T]) -> T:
        """Run ``job`` as one durable transaction; rolled back when it raises. Raises ``StoreError``."""
        self._number += 1
        begin = _WRITE.format(lock=COMMIT_LOCK, writer=self.writer, number=self._number)
        lost: psycopg.Error | None = None
        for _ in range(ATTEMPTS):
            connection = self._connected(RECONNECT_S if lost else 0.0)
            try:
                connection.raw.execute(begin.encode())
                result = job(connection)
                self._is_committing = True
                connection.raw.execute("COMMIT")
                return result
            except psycopg.Error as error:
                lost = self._lost(error, connection)
                if self._is_committing and self._was_committed():
                    return result
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                self._is_committing = False
        raise SilentError(f"{self.place} cannot be written now; nothing was written") from lost

    def note_answer(self) -> None:
        """The listener has an answer again. From any thread."""
        self._down = ""

    def down_reason(self) -> str:
        """Why the database cannot be used; empty where it can. From any thread."""
        return self._down or (self.silence()[1] if self.silence is not None else "")

    def _is_silent(self, idle_s: float) -> bool:
        """Whether a statement waits for a database that is silent, or for a commit in vain; not for a slow disk."""
        if self.silence is None:
            return idle_s > OPENING_S
        return (self._is_committing and idle_s > COMMIT_S) or (idle_s > ANSWER_S and self._is_down())

    def _is_down(self) -> bool:
        """Whether the listener, which goes on to try, gets no answer."""
        return self.silence is not None and self.silence()[0] > 0

    def _connect(self) -> PostgresConnection:
        """A connection. Raises ``_AwayError``."""
        try:
            return connect(self._url, self._is_silent)
        except psycopg.Error as error:
            raise _AwayError(error) from error

    def _was_committed(self) -> bool:
        """Whether the last transaction was committed. Raises ``UnavailableError`` if that cannot be found out."""
        try:
            connection = self._connected(RECONNECT_S)
            # The lock waits for the transaction itself, which may still be on its way.
            connection.raw.execute(f"BEGIN; SELECT pg_advisory_xact_lock({COMMIT_LOCK})")
            # It writes, so that its own commit waits until a synchronous standby has the one that it found.
            found = connection.execute("UPDATE writer SET seen = now() WHERE id = ? RETURNING n", (self.writer,))
            row = found.fetchone()
            connection.raw.execute("COMMIT")
        except (psycopg.Error, StoreError) as error:
            self._disconnect()
            raise SilentError(f"{self.place} did not answer to a commit", maybe_committed=True) from error
        return row is not None and row[0] == self._number

    def _lost(self, error: psycopg.Error, connection: PostgresConnection) -> psycopg.Error:
        """Returns the error if another attempt may succeed, else raises what it means."""
        _roll_back(connection)
        if is_passing(error, connection.raw):
            _log.info("store.connection_lost", error_message=reason(error))
            self._disconnect()
            return error
        raise failure(error, self.place) from error

    def _connected(self, wait_s: float) -> PostgresConnection:
        """The connection, which is opened here if there is none. Raises ``UnavailableError`` after ``wait_s``."""
        is_open = self._connection is not None and not self._connection.raw.closed
        if self._is_down():
            raise UnavailableError(f"{self.place} cannot be used: {self.down_reason()}")
        if self._connection is not None and is_open:
            return self._connection
        end_s = time.monotonic() + wait_s
        while True:
            try:
                self._connection, self._down = self._connect(), ""
                return self._connection
            except _AwayError as error:
                self._down = str(error)
                if time.monotonic() >= end_s or self._is_down():
                    message = f"{self.place} cannot be used: {self._down}"
                    raise SilentError(message, is_refusal=is_refusal(self._down)) from error
            time.sleep(RETRY_EVERY_S)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.raw.close()


class _AwayError(Exception):
    """There is no connection now. The message says why."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(reason(error))


def read_once(connection: PostgresConnection, job: Job[T]) -> T:
    """Run ``job`` on the state of one moment. Raises ``psycopg.Error``."""
    try:
        connection.raw.execute(_READ)
        result = job(connection)
        connection.raw.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise
    return result


def _roll_back(connection: PostgresConnection) -> None:
    """End the transaction; else the connection: it is open and of no use if its session ended amid a batch."""
    try:
        connection.raw.execute("ROLLBACK")
    except psycopg.Error:
        connection.raw.close()
