"""A shared database in whose place its copy is read until it answers for the first time."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import structlog

from xds.store.base import CorruptError, SilentError, StoreError, UnavailableError
from xds.store.copy import copy_rows
from xds.store.sql.connection import Database, Job
from xds.store.sqlite.database import SqliteDatabase

T = TypeVar("T")

_log = structlog.get_logger(logger_name="xds.store")


class FallbackDatabase:
    """``shared``, or while it has never answered the copy at ``path``, which is only read.

    Once it has answered, the copy is not read any more: what is served is newer.
    """

    def __init__(self, shared: Database, path: Path) -> None:
        self._shared = shared
        self.path = path
        self._copy: SqliteDatabase | None = None
        self._is_damaged = False
        self.problem = ""  # why there is no copy to read; empty if there is, or if none is needed

    @property
    def is_copy(self) -> bool:
        """Whether the copy is read."""
        return self._copy is not None

    def open(self) -> None:
        """Open the database, or the copy. Raises ``StoreError``."""
        try:
            self._shared.open()
            self.problem = ""
        except SilentError as error:
            self._copy = self._sound_copy()
            if self._copy is None:
                raise
            _log.error("store.cut_off", error_message=str(error), copy=str(self.path))

    def join(self) -> None:
        """Use the database from now on. Raises ``StoreError`` if it does not answer."""
        self._shared.open()
        self._close_copy()

    def close(self) -> None:
        """Release both."""
        self._close_copy()
        self._shared.close()

    def read(self, job: Job[T]) -> T:
        """As ``Database.read``."""
        return (self._copy or self._shared).read(job)

    def write(self, job: Job[T]) -> T:
        """As ``Database.write``. Raises ``UnavailableError`` while the copy is read."""
        if self._copy is not None:
            raise UnavailableError("the database does not answer: nothing can be written")
        return self._shared.write(job)

    def _close_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()

    def _sound_copy(self) -> SqliteDatabase | None:
        """The copy, if there is one and all of it can be read."""
        if self._is_damaged:
            return None
        if not self.path.exists():
            self.problem = f"there is no copy at {self.path}"
            return None
        copy = SqliteDatabase(self.path, None, lambda: None)
        try:
            copy.open()
            damage = copy.read(copy_rows.find_damage)
        except CorruptError as error:
            damage = str(error)
        except StoreError as error:  # the server that this one replaces may still have it open
            copy.close()
            self.problem = f"the copy {self.path} is not used: {error}"
            return None
        if not damage:
            self.problem = ""
            return copy
        copy.close()
        self._is_damaged = True  # reading all of it at each attempt would take long
        self.problem = f"the copy {self.path} is not used: {damage}"
        _log.error("store.copy_damaged", error_message=self.problem)
        return None
