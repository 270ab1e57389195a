"""Connections to PostgreSQL, and the statements of `xds.store.sql` on them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from xds.store.postgres.failures import check_texts
from xds.store.sql.connection import Rows

SCHEMA = "xds"
ANSWER_S = 3.0  # a database that does not answer within this time is silent
IsSilent = Callable[[float], bool]
# A URL may give other values. A server that does not answer is noticed within ten seconds. Of several hosts, the one
# that can be written is taken: after a failover that is another.
_DEFAULTS = {
    "application_name": "xds",
    "connect_timeout": "3",
    "keepalives_count": "2",
    "keepalives_idle": "4",
    "keepalives_interval": "2",
    "target_session_attrs": "read-write",
    "tcp_user_timeout": "8000",
}
# A server that is stopped amid a transaction, or cut off, holds locks: the database ends its session. Other limits that
# a role may have are not for a store: it has its own. Not each version knows all of them.
_NO_LIMITS = (
    "SELECT set_config(name, '0', FALSE) FROM pg_settings"
    " WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_session_timeout')"
)
_SETTINGS = "; ".join(
    f"SET {name} TO {value}"
    for name, value in {
        "search_path": SCHEMA,
        "client_encoding": "'UTF8'",
        "synchronous_commit": "on",
        "default_transaction_isolation": "'read committed'",
        "lock_timeout": "'15s'",
        "idle_in_transaction_session_timeout": "'10s'",
        "tcp_keepalives_idle": "4",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "2",
        "tcp_user_timeout": "8000",
    }.items()
)
_MARK = re.compile(r"\?|:(\w+)")


class _Connection(psycopg.Connection[Any]):
    """A connection that is closed when its server is known to be silent amid a statement.

    A server whose processes are stopped, or hang on their disk, still answers the network's own probes.
    """

    is_silent: IsSilent = staticmethod(lambda idle_s: False)

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._within(gen), *args, **kwargs)

    def _within(self, gen: Any) -> Any:
        """The same steps. Raises ``psycopg.OperationalError`` where the server is silent."""
        heard_s = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now_s = time.monotonic()
                if ready:
                    heard_s = now_s
                elif self.is_silent(now_s - heard_s):
                    self.pgconn.finish()
                    raise psycopg.OperationalError("it does not answer, or has lost its synchronous standby")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


class PostgresConnection:
    """A connection as the statements expect it."""

    def __init__(self, raw: psycopg.Connection) -> None:
        self.raw = raw

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> Rows:
        """Run a statement."""
        try:
            rows: Rows = self.raw.execute(_translated(statement), values or None, binary=True)
        except psycopg.Error as error:
            check_texts(error, values.values() if isinstance(values, Mapping) else values)
            raise
        return rows

    def executemany(self, statement: str, rows: Iterable[Any], /) -> Rows:
        """Run a statement for each row of values."""
        cursor, given = self.raw.cursor(binary=True), list(rows)
        try:
            cursor.executemany(_translated(statement), given)
        except psycopg.Error as error:
            check_texts(error, chain.from_iterable(given))
            raise
        written: Rows = cursor
        return written


def check_url(url: str) -> None:
    """Raises ``ValueError`` for a URL that libpq does not understand. Its text is in no message: it may be secret."""
    try:
        known = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise ValueError("not the URL of a PostgreSQL database: postgresql://USER@HOST[:PORT]/DATABASE") from error
    if "@" in str(known.get("host") or ""):  # the end of a password: messages have the host
        raise ValueError("a password in the URL of a database has %40 for @, %2F for / and %3A for :")


def place_of(url: str) -> str:
    """The database of a URL, for messages."""
    known = conninfo_to_dict(url)
    where = known.get("host") or known.get("hostaddr") or "this machine"
    return f"the database {known.get('dbname') or known.get('user') or 'of this user'} at {where}"


def connect(url: str, is_silent: IsSilent) -> PostgresConnection:
    """A connection, each statement of which is a transaction of its own. Raises ``psycopg.Error``.

    ``is_silent`` says, of the seconds in which a statement has heard nothing, whether the server is silent.
    """
    parameters = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    raw = _Connection.connect(make_conninfo(**{**_DEFAULTS, **parameters}), autocommit=True)
    raw.is_silent = is_silent
    # One type for all numbers: else a statement is planned anew for small and for large ones.
    raw.adapters.register_dumper(int, Int8Dumper)
    raw.adapters.register_dumper(int, Int8BinaryDumper)
    raw.execute(f"{_SETTINGS}; {_NO_LIMITS}".encode())
    return PostgresConnection(raw)


@lru_cache(maxsize=512)
def _translated(statement: str) -> bytes:
    return _MARK.sub(lambda mark: f"%({mark[1]})s" if mark[1] else "%s", statement).encode()
