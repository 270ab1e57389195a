"""Registrations as records of the store, and their notes for the audit list.

All waiting requests are written together, so a fleet registers quickly. Each request that changes something is an entry
of the audit list; heartbeats and the status of checks are not. Registrations are as frequent as instances are, so they
share the bound of endpoint changes. Equal requests of one caller within an hour are one entry with a count, so that an
instance that restarts again and again does not displace other entries.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from xds.access.caller import Caller
from xds.push.audit_log import NAMES_SHOWN
from xds.services.core.registered_instance import (
    AGENT_NODE,
    Key,
    Registered,
    RegisteredNode,
    Registration,
    decode,
    encode,
)
from xds.services.core.registration_table import Edit, RegistrationTable
from xds.store.audit_entries import AuditLane, AuditNote
from xds.store.base import ObservedRecord, Store
from xds.tasks.threads import run_rarely_collected

RECORDS = "registration/records"  # the ``source`` of the records in the store; no source has such a name
BATCH = 500  # edits that are written together
PUT, DELETED = "registration.put", "registration.deleted"

_log = structlog.get_logger(logger_name="xds.services.registration")


class _Write(NamedTuple):
    edit: Edit
    bodies: tuple[bytes, ...]  # the encoded records of ``edit.put``
    note: AuditNote | None
    done: asyncio.Future[None]


class RegistrationStore:
    """Reads and writes registrations. Edits of one key must be written one after the other.

    ``is_shared``: other servers follow what is written.
    """

    def __init__(self, store: Store, *, is_shared: bool = False) -> None:
        self._store = store
        self._is_shared = is_shared
        self._waiting: list[_Write] = []
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> list[Registered]:
        """All registrations and nodes, nodes first. Raises ``StoreError``.

        What this release cannot read is logged, not used, and kept in the store.
        """
        return await run_rarely_collected(_read, await self._store.observed(RECORDS))

    async def find(self, keys: Collection[Key]) -> list[Registered]:
        """The registrations and nodes with these keys, nodes first, as `load`. Raises ``StoreError``."""
        return _read(await self._store.observed(RECORDS, [record_id(key) for key in keys]))

    async def write(self, edit: Edit, note: AuditNote | None = None) -> None:
        """Write an edit, and its note for the audit list, durably. Raises ``StoreError``."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A record that cannot be encoded fails here, alone, and not together with its whole batch.
        self._waiting.append(_Write(edit, tuple(map(encode, edit.put)), note, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await done

    async def close(self) -> None:
        """Wait until everything is written."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._write_batch(batch)
        finally:
            self._task = None

    async def _write_batch(self, batch: list[_Write]) -> None:
        put: dict[Key, ObservedRecord] = {}
        deleted: dict[Key, None] = {}
        for edit, bodies, _, _ in batch:
            for key in edit.delete:
                put.pop(key, None)
                deleted[key] = None
            for one, body in zip(edit.put, bodies, strict=True):
                deleted.pop(one.key, None)
                put[one.key] = ObservedRecord(RECORDS, record_id(one.key), body)
        notes = [each.note for each in batch if each.note is not None]
        try:
            gone = [(RECORDS, record_id(key)) for key in deleted]
            await self._store.put_observed(list(put.values()), gone, notes, is_told=self._is_shared)
        except Exception as error:  # every waiting caller gets the error, of whatever kind
            for each in batch:
                if not each.done.done():
                    each.done.set_exception(error)
            return
        for each in batch:
            if not each.done.done():
                each.done.set_result(None)


def _read(records: Iterable[ObservedRecord]) -> list[Registered]:
    registered: list[Registered] = []
    for record in records:
        try:
            registered.append(decode(record.body))
        except (ValueError, TypeError) as error:
            _log.error("registration.unreadable", key=record.service[:200], error_message=str(error))
    return sorted(registered, key=lambda one: isinstance(one, RegisteredNode), reverse=True)


def record_id(key: Key) -> str:
    """The id of a record. Names of nodes have no slash."""
    return f"{key.node}/{key.id}" if key.node != AGENT_NODE else f"/{key.id}"


def key_of_record(id: str) -> Key:
    """The key of a record with this id."""
    node, _, name = id.partition("/")
    return Key(node or AGENT_NODE, name)


def registration_note(by: Caller, table: RegistrationTable, edit: Edit, message: str = "") -> AuditNote:
    """The note of an edit that is not applied to ``table`` yet."""
    keys = [*edit.delete, *(one.key for one in edit.put)]
    before = [registered for key in keys if (registered := table.at(key)) is not None]
    action, subject = PUT if edit.put else DELETED, _subject(keys)
    old, new = _audit_summaries(before), _audit_summaries(edit.put)
    note = by.note(action, subject=subject, message=message, old=old, new=new)
    key = json.dumps([action, by.actor, by.author, by.peer.rpartition(":")[0], subject])
    return replace(note, lane=AuditLane.ENDPOINTS, key=key)


def _subject(keys: list[Key]) -> str:
    """The subject of the note: the id of the instance, or the node for several instances or none."""
    ids = [key for key in keys if key.id]
    if len(ids) == 1:
        (one,) = ids
        return one.id if one.node == AGENT_NODE else f"{one.node}/{one.id}"
    return f"{keys[0].node}/"


def _audit_summaries(registered: Iterable[Registered]) -> list[dict[str, Any]] | None:
    """Registrations and nodes for the audit list, at most ``NAMES_SHOWN``; None for none."""
    summaries = [_audit_summary(one) for one in registered]
    if len(summaries) > NAMES_SHOWN:
        return [*summaries[:NAMES_SHOWN], {"omitted": len(summaries) - NAMES_SHOWN}]
    return summaries or None


def _audit_summary(one: Registered) -> dict[str, Any]:
    summary: dict[str, Any] = {"node": one.key.node}
    if isinstance(one, Registration):
        summary = {"service": one.service, "id": one.instance_id, "address": one.host, "port": one.port}
        summary |= {"tags": list(one.tags)} if one.tags else {}
        summary |= {"meta": dict(one.meta)} if one.meta else {}
        summary |= {"weights": [one.weight, one.warning_weight]} if (one.weight, one.warning_weight) != (1, 1) else {}
    checks = [check.id for check in one.checks]
    return summary | ({"checks": checks} if checks else {})
