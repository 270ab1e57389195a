"""The NACK records: bounded, one per node, type and refused content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from xds.fleet.refusal import MESSAGE_LIMIT, Refusal
from xds.fleet.state import NackRecord, NackState
from xds.protocol.events import Nacked

RECORDS_LIMIT = 10_000
TEXT_LIMIT = 64 * 1024 * 1024

__all__ = ["MESSAGE_LIMIT", "NackLog", "mentions"]


class NackLog:
    """Records by id. When full, the oldest resolved one goes first.

    ``records_limit`` bounds their number, ``text_limit`` the characters of messages and names they hold together.
    """

    def __init__(self, records_limit: int = RECORDS_LIMIT, text_limit: int = TEXT_LIMIT) -> None:
        self._ids = count(1)
        self._open: dict[int, Refusal] = {}
        self._resolved: dict[int, NackRecord] = {}
        self._by_type: dict[tuple[str, str], tuple[Refusal, ...]] = {}  # (node, type URL) -> the open ones
        self._sizes: dict[int, int] = {}
        self._text = 0
        self._records_limit = records_limit
        self._text_limit = text_limit
        self.forgotten = 0  # open records that had to go

    def __len__(self) -> int:
        return len(self._open) + len(self._resolved)

    def __iter__(self) -> Iterator[NackRecord]:
        """All records, the newest first."""
        everything = [*(refusal.record for refusal in self._open.values()), *self._resolved.values()]
        return iter(sorted(everything, key=lambda record: (record.last, record.id), reverse=True))

    def __bool__(self) -> bool:
        """True while a record is open."""
        return bool(self._open)

    def open_groups(self) -> frozenset[str]:
        """The groups of open records."""
        return frozenset(refusal.record.group for refusal in self._open.values())

    def get(self, record_id: int) -> NackRecord | None:
        refusal = self._open.get(record_id)
        return refusal.record if refusal is not None else self._resolved.get(record_id)

    def is_open(self, refusal: Refusal) -> bool:
        return refusal.record.id in self._open

    def refuse(self, node: str, group: str, event: Nacked, now: float) -> tuple[Refusal, bool]:
        """Record a NACK; one of the same content, or of a part of it, counts on the open record.

        True as well when there is news to tell: a new record, or names that are known now to be refused.
        """
        known = next((each for each in self.open_of(node, event.type_url) if each.is_about(event)), None)
        if known is not None:
            is_news = known.repeat(event, now)
            self.weigh(known)
            return known, is_news
        refusal = Refusal(next(self._ids), node, group, event, now)
        self._open[refusal.record.id] = refusal
        key = (node, event.type_url)
        self._by_type[key] = (*self._by_type.get(key, ()), refusal)
        self.weigh(refusal)
        self._evict(keep=refusal.record.id)
        return refusal, True

    def open_of(self, node: str, type_url: str) -> tuple[Refusal, ...]:
        """The open records of a node and type."""
        return self._by_type.get((node, type_url), ())

    def resolve(self, refusal: Refusal, now: float) -> NackRecord:
        """The refused content is no longer what the node lacks."""
        record = refusal.record
        if self._open.pop(record.id, None) is not None:
            self._unlink(refusal)
            record = replace(record, state=NackState.RESOLVED, resolved=now)
            self._resolved[record.id] = record
        return record

    def weigh(self, refusal: Refusal) -> None:
        """The text of an open record may be another than before."""
        identifier, size = refusal.record.id, refusal.size
        self._text += size - self._sizes.get(identifier, 0)
        self._sizes[identifier] = size

    def _evict(self, keep: int) -> None:
        while len(self) > self._records_limit or self._text > self._text_limit:
            oldest = next(iter(self._resolved or self._open))
            if oldest == keep:
                return
            if self._resolved:
                del self._resolved[oldest]
            else:
                self.forgotten += 1
                self._unlink(self._open.pop(oldest))
            self._text -= self._sizes.pop(oldest)

    def _unlink(self, refusal: Refusal) -> None:
        key = (refusal.record.node, refusal.record.type_url)
        left = tuple(each for each in self._by_type.get(key, ()) if each is not refusal)
        if left:
            self._by_type[key] = left
        else:
            self._by_type.pop(key, None)


def mentions(names: Iterable[str], record: NackRecord) -> bool:
    """True when one of the refused names is among ``names``: of the guilty ones, once these are known."""
    return not set(record.guilty or record.names).isdisjoint(names)
