"""Following one collection of the Kubernetes API: a list, then a watch from where the list ended. Pure.

`ListWatch` is told what the API server answers, and says what changed and how to go on:

* a list comes in pages; nothing is gone before the last one is read;
* each event and each bookmark moves the resource version, and a watch that ends is resumed from it;
* ``410 Gone`` means that the events behind the version are no longer kept: the collection is listed again;
* a resource version that goes back is that of another history, such as a restored etcd: it is listed again too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from xds.catalog.source import SourceError
from xds.model.errors import Violation
from xds.sources.kubernetes_objects import Collection, Json, ObjectError, ObjectKey, read_key

GONE = 410
TOO_LARGE_VERSION = "ResourceVersionTooLarge"
_MESSAGE_CHARACTERS = 500
_VERSION_DIGITS = 20  # of 64 bits

T = TypeVar("T")


class ApiError(SourceError):
    """The API server refused. ``status`` is that of HTTP, 0 without one; ``retry_after_s`` is what the server asks for.

    ``is_stale``: the resource version is of no use any more.
    """

    def __init__(self, message: str, status: int = 0, retry_after_s: float = 0.0, *, is_stale: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.is_stale = is_stale or status == GONE


class ConnectionLostError(ApiError):
    """The API server cannot be reached, or the connection ended within an answer."""


@dataclass(frozen=True, slots=True)
class Present(Generic[T]):
    """An object is there, or has changed."""

    object: T


@dataclass(frozen=True, slots=True)
class Gone:
    """An object was deleted."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object has not the shape of its kind: what was known of it stays."""

    finding: Violation


@dataclass(frozen=True, slots=True)
class Listed:
    """The whole list was read; ``keys`` has every object in it, unreadable ones too."""

    keys: frozenset[ObjectKey]


Change = Present[T] | Gone | Unreadable | Listed


class ListWatch(Generic[T]):
    """The state of following one collection, in one namespace or (empty) in all."""

    def __init__(self, collection: Collection[T], namespace: str = "") -> None:
        self.collection = collection
        self.namespace = namespace
        self.version = ""  # the resource version that a watch resumes from; empty: a list is needed
        self._continue = ""
        self._pages: list[Present[T] | Unreadable] = []
        self._keys: set[ObjectKey] = set()

    def __str__(self) -> str:
        inside = f" of the namespace {self.namespace}" if self.namespace else ""
        return f"{self.collection.plural}{inside}"

    @property
    def path(self) -> str:
        """The path in the API."""
        return self.collection.path(self.namespace)

    @property
    def needs_list(self) -> bool:
        """Whether a list must be read before a watch."""
        return not self.version

    # Lists

    def begin_list(self) -> None:
        """Start a list; what an earlier one had read is dropped."""
        self._continue = ""
        self._pages.clear()
        self._keys.clear()

    def list_query(self, page_size: int) -> dict[str, str]:
        """The parameters of the next page. Without a resource version the answer is the newest state, of etcd."""
        query = {"limit": str(page_size)}
        return {**query, "continue": self._continue} if self._continue else query

    def receive_page(self, document: object) -> list[Change[T]]:
        """What the list says once it is complete; empty while pages are to come. Raises ``ApiError``."""
        page = self._expect(document, self.collection.list_kind)
        metadata = page.get("metadata")
        items = page.get("items") or []
        if not isinstance(metadata, dict) or not isinstance(items, list):
            raise ApiError(f"{self}: the answer is no list of the API: it has no metadata or no items")
        for item in items:
            self._add(item)
        self._continue = str(metadata.get("continue") or "")
        if self._continue:
            return []
        version = metadata.get("resourceVersion")
        if not isinstance(version, str) or not version:
            raise ApiError(f"{self}: the list has no resourceVersion")
        self.version = version
        listed: list[Change[T]] = [*self._pages, Listed(frozenset(self._keys))]
        self.begin_list()
        return listed

    def _add(self, item: object) -> None:
        if not isinstance(item, dict):
            raise ApiError(f"{self}: an item of the list is no object")
        change = self._read(item)
        self._pages.append(change)
        with suppress(ObjectError):  # the finding says that it has no name
            self._keys.add(read_key(item))

    # Watches

    def watch_query(self, timeout_s: int) -> dict[str, str]:
        """The parameters of a watch that the server is to end after this time."""
        return {
            "watch": "1",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }

    def receive_line(self, line: bytes) -> Change[T] | None:
        """What one line of a watch says; None for a bookmark.

        Raises ``ApiError`` where the watch cannot go on. A resource version that is no longer of use is forgotten.
        """
        event = _parse(line, str(self))
        kind, document = event.get("type"), event.get("object")
        if not isinstance(document, dict):
            raise ApiError(f"{self}: an event without object: {_short(line)}")
        if kind == "ERROR":
            self._fail(document)
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise ApiError(f"{self}: an event of the unknown type {kind!r}")
        self._expect(document, self.collection.kind)
        self._advance(document)
        if kind == "BOOKMARK":
            return None
        if kind != "DELETED":
            return self._read(document)
        try:
            return Gone(read_key(document))
        except ObjectError as error:
            return self._unreadable(document, error)

    def receive_newest(self, document: object) -> None:
        """Compare with the newest resource version, from a list of one object: if that went back, a list is needed."""
        page = self._expect(document, self.collection.list_kind)
        metadata = page.get("metadata")
        newest = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if isinstance(newest, str) and _is_before(newest, self.version):
            self.forget()

    def forget(self) -> None:
        """The resource version is of no use: a list is needed."""
        self.version = ""

    def _advance(self, document: Mapping[str, Any]) -> None:
        metadata = document.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not isinstance(version, str) or not version:
            raise ApiError(f"{self}: an event without resourceVersion")
        if _is_before(version, self.version):
            before, self.version = self.version, ""
            raise ApiError(f"{self}: the resource version went back, {before} to {version}", is_stale=True)
        self.version = version

    def _fail(self, status: Json) -> None:
        error = status_error(f"{self}: watch", status)
        if error.is_stale:
            self.forget()
        raise error

    # Objects

    def _read(self, document: Json) -> Present[T] | Unreadable:
        try:
            return Present(self.collection.read(document))
        except ObjectError as error:
            return self._unreadable(document, error)

    def _unreadable(self, document: Json, error: ObjectError) -> Unreadable:
        try:
            place = str(read_key(document))
        except ObjectError:
            place = "?"
        return Unreadable(Violation("invalid_object", str(error), pointer=f"/{self.collection.plural}/{place}"))

    def _expect(self, document: object, kind: str) -> Json:
        if not isinstance(document, dict):
            raise ApiError(f"{self}: the answer is no JSON object")
        told = (document.get("kind"), document.get("apiVersion"))
        if told != (kind, self.collection.api_version):
            raise ApiError(f"{self}: expected {kind} of {self.collection.api_version}, got {told[0]!r} of {told[1]!r}")
        return document


def status_error(what: str, status: Json, http_status: int = 0) -> ApiError:
    """The error that a Status object tells."""
    code = status.get("code")
    number = code if isinstance(code, int) else http_status
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    seconds = details.get("retryAfterSeconds")
    retry_after_s = float(seconds) if isinstance(seconds, int) and seconds > 0 else 0.0
    causes = details.get("causes")
    reasons = {each.get("reason") for each in causes if isinstance(each, dict)} if isinstance(causes, list) else set()
    told = f"{number} {status.get('reason') or ''}: {status.get('message') or ''}"[:_MESSAGE_CHARACTERS]
    return ApiError(f"{what}: {told}", number, retry_after_s, is_stale=TOO_LARGE_VERSION in reasons)


def read_lines(buffer: bytearray, data: bytes, limit: int) -> Iterator[bytes]:
    """The lines that ``data`` completes; the rest stays in the buffer. Raises ``ApiError`` beyond the limit."""
    start = len(buffer)
    buffer += data
    begin = 0
    while (end := buffer.find(b"\n", max(begin, start))) >= 0:
        if end > begin:
            yield bytes(buffer[begin:end])
        begin = end + 1
    del buffer[:begin]
    if len(buffer) > limit:
        raise ApiError(f"an event of more than {limit} bytes")


def _parse(line: bytes, what: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise ApiError(f"{what}: an event that is no JSON: {_short(line)}") from None
    if not isinstance(event, dict):
        raise ApiError(f"{what}: an event that is no JSON object: {_short(line)}")
    return event


def _is_before(one: str, other: str) -> bool:
    """Whether a resource version is older. Servers may choose others than numbers, which have no order."""
    return _is_number(one) and _is_number(other) and int(one) < int(other)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and len(version) <= _VERSION_DIGITS


def _short(line: bytes) -> str:
    return repr(line[:80].decode(errors="replace"))
