"""The audit list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedWrite:
    """One write or refused write; or several equal ones. An entry whose ``count`` has grown appears again with the
    same ``id``.

    * ``id``: its id; opaque;
    * ``time``: when it happened; the last time of several;
    * ``first_time``: the first time of several;
    * ``count``: how often it happened;
    * ``peer``: the address of the client, as ``HOST:PORT``; empty for the server itself;
    * ``action``: what was done, such as ``push`` or ``group.configured``; ``refused`` for a refused write;
    * ``refused``: true for a refused write;
    * ``group``: present if it is about a group: its name;
    * ``subject``: present if the write is about one object: its name; of a refused write, its method and path;
    * ``revision``: present if it made one;
    * ``message``: present with a message;
    * ``reason``: present for a refused write: the status, and why;
    * ``request_id``: present if it is known: the id of the request;
    * ``old``: present for some actions: the value before, as the action has it;
    * ``new``: present for some actions: the value after.
    """

    schema_name: ClassVar[str] = "AuditItem"

    id: str
    time: datetime
    first_time: datetime
    count: int
    actor: str
    author: str
    peer: str
    action: str
    refused: bool
    group: str = ""
    subject: str = ""
    revision: int | None = None
    message: str = ""
    reason: str = ""
    request_id: str = ""
    old: Any = None
    new: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedWrites:
    """Entries of the audit list, oldest first.

    * ``items``: the entries;
    * ``cursor``: the position after these entries, for the parameter ``cursor``;
    * ``lagged``: true if retention deleted entries between the given cursor and these;
    * ``next_page_token``: present if there are more entries: the same as ``cursor``.
    """

    schema_name: ClassVar[str] = "AuditAnswer"

    items: tuple[AuditedWrite, ...]
    cursor: str
    lagged: bool
    next_page_token: str = ""
