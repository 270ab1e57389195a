"""Registrations in the audit list: who registered or deregistered what. Pure.

Each request that changes something is an entry; heartbeats and the status of checks are not. Registrations are as
frequent as instances are, so they have the bound of changes of endpoints, and equal requests of one caller within an
hour are one entry with a count: an instance that restarts again and again does not displace others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from xds.catalog.registered_instance import AGENT_NODE, Key, Registered, Registration
from xds.catalog.registration_table import Edit, RegistrationTable
from xds.control.audit_log import NAMES_SHOWN, Caller
from xds.store.audit_entries import AuditLane, AuditNote

PUT, DELETED = "registration.put", "registration.deleted"


def registration_note(by: Caller, table: RegistrationTable, edit: Edit, message: str = "") -> AuditNote:
    """The note of an edit that is not applied to ``table`` yet."""
    keys = [*edit.gone, *(one.key for one in edit.put)]
    before = [found for key in keys if (found := table.at(key)) is not None]
    action, subject = PUT if edit.put else DELETED, _subject(keys)
    note = by.note(action, subject=subject, message=message, old=_told(before), new=_told(edit.put))
    key = json.dumps([action, by.actor, by.author, by.peer.rpartition(":")[0], subject])
    return replace(note, lane=AuditLane.ENDPOINTS, key=key)


def _subject(keys: list[Key]) -> str:
    """The id of the instance; that of several, or of none, is their node."""
    ids = [key for key in keys if key.id]
    if len(ids) == 1:
        (one,) = ids
        return one.id if one.node == AGENT_NODE else f"{one.node}/{one.id}"
    return f"{keys[0].node}/"


def _told(registered: Iterable[Registered]) -> list[dict[str, Any]] | None:
    """What is registered, in short: the first ones. None for nothing."""
    found = [_told_one(one) for one in registered]
    if len(found) > NAMES_SHOWN:
        return [*found[:NAMES_SHOWN], {"omitted": len(found) - NAMES_SHOWN}]
    return found or None


def _told_one(one: Registered) -> dict[str, Any]:
    told: dict[str, Any] = {"node": one.key.node}
    if isinstance(one, Registration):
        told = {"service": one.service, "id": one.instance_id, "address": one.host, "port": one.port}
        told |= {"tags": list(one.tags)} if one.tags else {}
        told |= {"meta": dict(one.meta)} if one.meta else {}
        told |= {"weights": [one.weight, one.warning_weight]} if (one.weight, one.warning_weight) != (1, 1) else {}
    checks = [check.id for check in one.checks]
    return told | ({"checks": checks} if checks else {})
