"""The NACK records: bounded, one per node, type and refused content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from xds.fleet.state import NackRecord, NackState
from xds.model.resource_type import alias_of, resource_type
from xds.protocol.events import Nacked
from xds.protocol.response import Response

RECORDS_LIMIT = 10_000
MESSAGE_LIMIT = 64 * 1024
TEXT_LIMIT = 64 * 1024 * 1024
NAMES_LIMIT = 100


class NackLog:
    """Records by id. When full, the oldest resolved one goes first.

    ``records_limit`` bounds their number, ``text_limit`` the characters of messages and names they hold together.
    """

    def __init__(self, records_limit: int = RECORDS_LIMIT, text_limit: int = TEXT_LIMIT) -> None:
        self._ids = count(1)
        self._open: dict[int, NackRecord] = {}
        self._resolved: dict[int, NackRecord] = {}
        self._by_content: dict[tuple[str, str], dict[bytes, int]] = {}  # (node, type URL) -> digest -> open record
        self._text = 0
        self._records_limit = records_limit
        self._text_limit = text_limit
        self.forgotten = 0  # open records that had to go

    def __len__(self) -> int:
        return len(self._open) + len(self._resolved)

    def __iter__(self) -> Iterator[NackRecord]:
        """All records, the newest first."""
        everything = [*self._open.values(), *self._resolved.values()]
        return iter(sorted(everything, key=lambda record: (record.last, record.id), reverse=True))

    def __bool__(self) -> bool:
        """True while a record is open."""
        return bool(self._open)

    def get(self, record_id: int) -> NackRecord | None:
        return self._open.get(record_id) or self._resolved.get(record_id)

    def is_open(self, record_id: int) -> bool:
        return record_id in self._open

    def refuse(self, node: str, group: str, event: Nacked, now: float) -> NackRecord:
        """Record a NACK; a repetition of an open one counts on it."""
        contents = self._by_content.setdefault((node, event.type_url), {})
        known = self._open.get(contents.get(event.response.digest, 0))
        if known is not None:
            record = replace(known, count=known.count + 1, last=now, nonce=event.nonce)
            self._open[record.id] = record
            return record
        record = _record(next(self._ids), node, group, event, now)
        contents[event.response.digest] = record.id
        self._open[record.id] = record
        self._text += _text(record)
        self._evict(keep=record.id)
        return record

    def open_of(self, node: str, type_url: str) -> list[NackRecord]:
        """The open records of a node and type."""
        contents = self._by_content.get((node, type_url))
        return [self._open[record_id] for record_id in contents.values()] if contents else []

    def resolve(self, record: NackRecord, now: float) -> None:
        """The refused content is no longer what the node lacks."""
        if self._open.pop(record.id, None) is not None:
            self._unlink(record)
            self._resolved[record.id] = replace(record, state=NackState.RESOLVED, resolved=now)

    def _evict(self, keep: int) -> None:
        while len(self) > self._records_limit or self._text > self._text_limit:
            held = self._resolved or self._open
            oldest = next(iter(held))
            if oldest == keep:
                return
            record = held.pop(oldest)
            self._text -= _text(record)
            if record.state is NackState.OPEN:
                self.forgotten += 1
                self._unlink(record)

    def _unlink(self, record: NackRecord) -> None:
        key = (record.node, record.type_url)
        contents = self._by_content.get(key, {})
        left = {digest: record_id for digest, record_id in contents.items() if record_id != record.id}
        if left:
            self._by_content[key] = left
        else:
            self._by_content.pop(key, None)


def answers(response: Response, record: NackRecord) -> bool:
    """True when an ACK of ``response`` settles a refusal: it speaks of what was refused.

    A partial answer about other names (an interest change, another split stream) says nothing about it.
    """
    if not record.names or resource_type(record.type_url).full_state:
        return True
    return mentions(response.names, record) or mentions(response.removed, record)


def mentions(names: Iterable[str], record: NackRecord) -> bool:
    """True when one of the refused names is among ``names``."""
    return not set(record.names).isdisjoint(names)


def _record(record_id: int, node: str, group: str, event: Nacked, now: float) -> NackRecord:
    response = event.response
    refused = (*response.names[:NAMES_LIMIT], *response.removed[:NAMES_LIMIT])[:NAMES_LIMIT]
    return NackRecord(
        id=record_id,
        node=node,
        group=group,
        type=alias_of(event.type_url),
        type_url=event.type_url,
        version=response.version_info,
        nonce=event.nonce,
        code=event.error.code,
        message=event.error.message[:MESSAGE_LIMIT],
        first=now,
        last=now,
        names=refused,
        resources=len(response.names) + len(response.removed),
    )


def _text(record: NackRecord) -> int:
    return len(record.message) + sum(map(len, record.names))
