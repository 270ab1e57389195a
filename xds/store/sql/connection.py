"""The connection that the statements run on: that of the module ``sqlite3``, or one like it for another database.

A statement has ``?`` for values in order, or ``:name`` for values by name. It contains neither sign otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement wrote."""

    def fetchone(self) -> Any:
        """The next row; None at the end."""

    def fetchall(self) -> list[Any]:
        """The rows that were not read yet."""

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection of one thread."""

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> Rows:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Any], /) -> Rows:
        """Run a statement for each row of values. ``rowcount`` is that of all."""


Job = Callable[[SqlConnection], T]


class Database(Protocol):
    """A database with its transactions and errors. It belongs to one thread."""

    def open(self) -> None:
        """Connect, and create the tables or bring them up to date. Raises as ``Store.open``."""

    def close(self) -> None:
        """Release it. Harmless when repeated."""

    def read(self, job: Job[T], /) -> T:
        """Run ``job`` on the state of one moment. Raises ``StoreError``."""

    def write(self, job: Job[T], /) -> T:
        """Run ``job`` as one durable transaction; rolled back when it raises.

        Raises ``StoreError``, and ``ContradictionError`` for rows that contradict others.
        """


class ContradictionError(Exception):
    """A row contradicts another one: a bug, or records that make no store."""
