"""The NACK records, one per node, type and rejected content, in bounded number; and the stored form of open records.

The stored form is bounded as well, because clients choose names and messages.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, count, islice, takewhile
from types import MappingProxyType
from typing import NamedTuple

from xds.fleet.refused_content import MESSAGE_LIMIT, AckedNames, RefusedContent
from xds.fleet.refused_content import NAMES_LIMIT as NAMES_SHOWN
from xds.fleet.state import NackRecord, NackState
from xds.model.resource_type import alias_of, type_url_of
from xds.model.snapshot import ResourceSet
from xds.protocol.events import Nacked

RECORDS_LIMIT = 10_000
TEXT_LIMIT = 64 * 1024 * 1024
STORED_MESSAGE_CHARACTERS = 4096  # characters in the stored form
STORED_NAMES_CHARACTERS = 64 * 1024  # characters in the stored form
_NONE: Mapping[str, tuple[RefusedContent, ...]] = MappingProxyType({})

__all__ = ["MESSAGE_LIMIT", "NackChanges", "NackLog", "mentions"]


class NackChanges(NamedTuple):
    """Open records that are new or changed, and the ids of records that are resolved or dropped."""

    open: list[RefusedContent]
    closed: list[int]


class NackLog:
    """Records by id. When the log is full, the oldest resolved record is dropped first.

    ``first_id`` must be above the ids of earlier processes, so that an id never means two records. ``records_limit``
    bounds the number of records, ``text_limit`` the characters of all messages and names.
    """

    def __init__(self, records_limit: int = RECORDS_LIMIT, text_limit: int = TEXT_LIMIT, first_id: int = 1) -> None:
        self.number(first_id)
        self._open: dict[int, RefusedContent] = {}
        self._resolved: dict[int, NackRecord] = {}
        self._by_node: dict[str, dict[str, tuple[RefusedContent, ...]]] = {}  # node -> type URL -> open records
        self._sizes: dict[int, int] = {}
        self._text = 0
        self._records_limit = records_limit
        self._text_limit = text_limit
        self._changed: set[int] = set()  # ids changed since the last take_changes
        self._stored: set[int] = set()  # ids of records that `take_changes` returned to be stored

    def __len__(self) -> int:
        return len(self._open) + len(self._resolved)

    def __iter__(self) -> Iterator[NackRecord]:
        """All records, the newest first."""
        return self.select()

    def __bool__(self) -> bool:
        """Whether a record is open."""
        return bool(self._open)

    def open_groups(self) -> frozenset[str]:
        """The groups of open records."""
        return frozenset(refusal.record.group for refusal in self._open.values())

    def get(self, record_id: int) -> NackRecord | None:
        """A record by id; None if it is unknown or was dropped."""
        refusal = self._open.get(record_id)
        return refusal.record if refusal is not None else self._resolved.get(record_id)

    def is_open(self, refusal: RefusedContent) -> bool:
        """Whether this object is still an open record."""
        return refusal.record.id in self._open

    def refuse(self, node: str, group: str, event: Nacked, now: float) -> tuple[RefusedContent, bool]:
        """Record a NACK. A NACK of the same content, or of a part of it, is counted in the open record.

        The second value is True for a new record, and when more rejected names are known than before.
        """
        known = next((each for each in self.open_of(node, event.type_url) if each.is_about(event)), None)
        if known is not None:
            is_news = known.repeat(event, now)
            self._update_size(known)
            return known, is_news
        refusal = RefusedContent(next(self._ids), node, group, event, now)
        self._add(refusal)
        self._evict(keep=refusal.record.id)
        return refusal, True

    def open_of(self, node: str, type_url: str) -> tuple[RefusedContent, ...]:
        """The open records of a node and type."""
        return self._by_node.get(node, _NONE).get(type_url, ())

    def open_of_node(self, node: str) -> list[RefusedContent]:
        """The open records of a node."""
        return [refusal for refusals in self._by_node.get(node, _NONE).values() for refusal in refusals]

    def open_in(self, group: str) -> list[RefusedContent]:
        """The open records of a group, the first one first."""
        return [refusal for refusal in self._open.values() if refusal.record.group == group]

    def resolve(self, refusal: RefusedContent, now: float) -> NackRecord:
        """Resolve a record: the node no longer rejects the content, or no longer needs it."""
        record = refusal.record
        if self._open.pop(record.id, None) is not None:
            self._unlink(refusal)
            record = replace(record, state=NackState.RESOLVED, resolved=now)
            self._resolved[record.id] = record
        return record

    def accept(self, refusal: RefusedContent, acked: ResourceSet, acked_names: AckedNames) -> bool:
        """Note what the node of an open record ACKed. True if this shows which name it rejects."""
        is_news = refusal.clear_suspects(acked, acked_names)
        self._update_size(refusal)
        return is_news

    def _update_size(self, refusal: RefusedContent) -> None:
        """Update the size of an open record whose text may have changed."""
        identifier, size = refusal.record.id, refusal.size
        self._changed.add(identifier)
        self._text += size - self._sizes.get(identifier, 0)
        self._sizes[identifier] = size

    def select(
        self,
        group: str | None = None,
        node: str | None = None,
        type: str | None = None,
        since: float | None = None,
        state: NackState | str | None = None,
    ) -> Iterator[NackRecord]:
        """The records that match, newest first. ``since`` is a lower bound of the last occurrence.

        ``type`` is an alias, which matches all APIs, or a type URL.
        """
        type_url = type_url_of(type) if type is not None else None
        found = [
            record
            for record in chain((refusal.record for refusal in self._open.values()), self._resolved.values())
            if group in (None, record.group)
            and node in (None, record.node)
            and (type in (None, record.type) or type_url == record.type_url)
            and (since is None or record.last >= since)
            and state in (None, record.state)
        ]
        return iter(sorted(found, key=lambda record: (record.last, record.id), reverse=True))

    # Across restarts and servers

    def number(self, first_id: int, step: int = 1) -> None:
        """Number records from ``first_id`` on. The ids between the steps belong to other servers."""
        self._first_id, self._step = first_id, step
        self._ids = count(first_id, step)

    def restore(self, refusals: Sequence[RefusedContent]) -> None:
        """Restore the open records of an earlier process. Call it before a NACK is recorded."""
        self.adopt(refusals)
        highest_id = max((refusal.record.id for refusal in refusals), default=0)
        later = max(highest_id - self._first_id + self._step, 0) // self._step
        self._ids = count(self._first_id + later * self._step, self._step)

    def adopt(self, refusals: Sequence[RefusedContent]) -> None:
        """Keep stored records from now on."""
        for refusal in refusals:
            self._add(refusal)
            self._stored.add(refusal.record.id)
            self._changed.discard(refusal.record.id)
        self._evict(keep=0)

    def kept(self) -> frozenset[int]:
        """The ids of open records that are stored, or are being stored."""
        return frozenset(self._stored & self._open.keys() - self._changed)

    def note_deleted(self, ids: Iterable[int], here: Container[str], now: float) -> None:
        """Resolve records whose rows are no longer there: another server has resolved them.

        If the node is ``here``, that server has only forgotten it: the record is kept under a new id.
        """
        for id in self.kept().intersection(ids):
            refusal = self._open[id]
            self._stored.discard(id)
            if refusal.record.node not in here:
                self.resolve(refusal, now)
                continue
            del self._open[id]
            self._unlink(refusal)
            self._text -= self._sizes.pop(id)
            refusal.record = replace(refusal.record, id=next(self._ids))
            self._add(refusal)

    def take_changes(self, limit: int) -> NackChanges:
        """At most ``limit`` changes since the last call."""
        ids = set(islice(self._changed, limit))
        self._changed -= ids
        still_open = [self._open[id] for id in ids if id in self._open]
        closed = [id for id in ids if id not in self._open]
        self._stored.update(refusal.record.id for refusal in still_open)
        self._stored.difference_update(closed)
        return NackChanges(still_open, closed)

    def give_back(self, changes: NackChanges) -> None:
        """Return changes that could not be stored: the next ``take_changes`` returns them again."""
        self._stored.update(changes.closed)
        ids = (*changes.closed, *(refusal.record.id for refusal in changes.open))
        self._changed.update(id for id in ids if id in self._stored)

    def _evict(self, keep: int) -> None:
        while len(self) > self._records_limit or self._text > self._text_limit:
            oldest = next(iter(self._resolved or self._open))
            if oldest == keep:
                return
            if self._resolved:
                del self._resolved[oldest]
            else:
                self._unlink(self._open.pop(oldest))
            self._text -= self._sizes.pop(oldest)

    def _add(self, refusal: RefusedContent) -> None:
        record = refusal.record
        self._open[record.id] = refusal
        types = self._by_node.setdefault(record.node, {})
        types[record.type_url] = (*types.get(record.type_url, ()), refusal)
        self._update_size(refusal)

    def _unlink(self, refusal: RefusedContent) -> None:
        record = refusal.record
        if record.id in self._stored:
            self._changed.add(record.id)
        else:
            self._changed.discard(record.id)
        types = self._by_node.get(record.node, {})
        remaining = tuple(each for each in types.get(record.type_url, ()) if each is not refusal)
        if remaining:
            types[record.type_url] = remaining
        else:
            types.pop(record.type_url, None)
            if not types:
                self._by_node.pop(record.node, None)


def mentions(names: Iterable[str], record: NackRecord) -> bool:
    """Whether one of ``names`` is rejected; once the guilty names are known, only they count."""
    return not set(record.guilty or record.names).isdisjoint(names)


def encoded(refusal: RefusedContent) -> bytes:
    """The stored form of a record, without its id, node and type."""
    record, versions = refusal.record, _bounded(refusal.refused_versions)
    document = {
        "group": record.group,
        "version": record.version,
        "nonce": record.nonce,
        "code": record.code,
        "message": record.message[:STORED_MESSAGE_CHARACTERS],
        "first": record.first,
        "last": record.last,
        "count": record.count,
        "resources": record.resources,
        "versions": versions,
        "guilty": [name for name in refusal.guilty if name in versions],
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decoded(id: int, node: str, type_url: str, body: bytes) -> RefusedContent:
    """A record from its stored form. Raises ``ValueError`` for an invalid form."""
    try:
        document = json.loads(body)
        versions = {str(name): str(version) for name, version in document["versions"].items()}
        guilty = tuple(str(name) for name in document["guilty"])
        record = NackRecord(
            id=id,
            node=node,
            group=str(document["group"]),
            type=alias_of(type_url),
            type_url=type_url,
            version=str(document["version"]),
            nonce=str(document["nonce"]),
            code=int(document["code"]),
            message=str(document["message"]),
            first=float(document["first"]),
            last=float(document["last"]),
            names=tuple(versions)[:NAMES_SHOWN],
            resources=int(document["resources"]),
            count=int(document["count"]),
            guilty=guilty[:NAMES_SHOWN],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a stored NACK: {error!r}") from error
    return RefusedContent.restored(record, versions, guilty)


def _bounded(versions: Mapping[str, str]) -> dict[str, str]:
    pairs = list(versions.items())
    sizes = accumulate(len(name) + len(version) for name, version in pairs)
    fit = sum(1 for _ in takewhile(lambda size: size <= STORED_NAMES_CHARACTERS, sizes))
    return dict(pairs[:fit])
