"""Follows the registrations that other servers of the store write.

An event names records; what they are is read then. So whatever comes late or twice ends in what is stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence

import structlog

from xds.services.core.registered_instance import Key
from xds.services.registration import Registrations
from xds.services.registration_store import RECORDS, key_of_record
from xds.store.base import OBSERVED, DocumentChanged, Reset, Store, StoreError, WatchItem
from xds.tasks.lifecycle import BackgroundTask

RETRY_S = 1.0
LATER_S = 0.2  # records that this server is changing are read again after this time

_log = structlog.get_logger(logger_name="xds.services.registration")


class RegistrationFollower:
    """The task that follows. ``failures`` counts watches that ended by an error other than the store's."""

    def __init__(self, store: Store, registrations: Registrations) -> None:
        self.failures = 0
        self._store = store
        self._registrations = registrations
        self._cursor = 0
        self._task = BackgroundTask()

    async def begin(self) -> None:
        """Follow from here: everything before is about to be loaded. Raises ``StoreError``."""
        self._cursor = await self._store.newest_cursor()

    def start(self) -> None:
        """Follow."""
        self._task.start(self._follow())

    async def close(self) -> None:
        """Stop."""
        await self._task.stop()

    async def _follow(self) -> None:
        while True:
            try:
                async for items in self._store.watch(self._cursor):
                    await self._take_over(items)
                    self._cursor = items[-1].cursor
            except StoreError as error:
                _log.info("registration.watch_ended", error_message=str(error))
            except Exception:  # a bug must not end it: instances that left would be served
                self.failures += 1
                _log.exception("registration.watch_failed")
            await asyncio.sleep(RETRY_S)

    async def _take_over(self, items: Sequence[WatchItem]) -> None:
        if any(isinstance(item, Reset) for item in items):
            later: Collection[Key] = await self._registrations.follow_all()
        else:
            later = _keys_of(items)
        while later:
            if later := await self._registrations.follow(later):
                await asyncio.sleep(LATER_S)


def _keys_of(items: Sequence[WatchItem]) -> list[Key]:
    told = [item for item in items if isinstance(item, DocumentChanged) and (item.kind, item.id) == (OBSERVED, RECORDS)]
    return [key_of_record(id) for id in dict.fromkeys(id for item in told for id in json.loads(item.body or b"[]"))]
