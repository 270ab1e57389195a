"""Following one collection of the Kubernetes API: a list, then a watch from where the list ended. Pure.

`ListWatch` receives the answers of the API server, and returns changes and the next query:

* a list comes in pages; no object counts as deleted before the last page is read;
* each event and each bookmark advances the resource version, and a watch that ended is resumed from it;
* ``410 Gone`` means that the server no longer keeps the events after the version: the collection is listed again;
* a resource version that goes back is of another history, such as a restored etcd: the collection is listed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from xds.model.errors import Violation
from xds.services.core.source import SourceError
from xds.services.sources.json_members import Json, MemberError, object_of, objects, text
from xds.services.sources.kubernetes_objects import Collection, ObjectKey, read_key

GONE = 410
TOO_LARGE_VERSION = "ResourceVersionTooLarge"
_MESSAGE_CHARACTERS = 500
_VERSION_DIGITS = 20  # of 64 bits

T = TypeVar("T")


class ApiError(SourceError):
    """An error of the API server. ``status`` is the HTTP status, 0 without one; ``retry_after_s`` is set by the server.

    ``is_stale``: the resource version can no longer be used.
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
    """An object exists, or has changed."""

    object: T


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object was deleted."""

    key: ObjectKey


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object has not the shape of its kind. Its previous state stays."""

    finding: Violation


@dataclass(frozen=True, slots=True)
class Listed:
    """The whole list was read; ``keys`` has every object in it, unreadable ones too."""

    keys: frozenset[ObjectKey]


Change = Present[T] | Deleted | Unreadable | Listed


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
        """Start a list. The pages of an unfinished one are dropped."""
        self._continue = ""
        self._pages.clear()
        self._keys.clear()

    def list_query(self, page_size: int) -> dict[str, str]:
        """The parameters of the next page. Without a resource version, the server reads the newest state from etcd."""
        query = {"limit": str(page_size)}
        return {**query, "continue": self._continue} if self._continue else query

    def receive_page(self, document: object) -> list[Change[T]]:
        """The changes of a complete list; empty until the last page. Raises ``ApiError``."""
        page = self._expect(document, self.collection.list_kind)
        try:
            items, self._continue = objects(page, "items"), text(object_of(page, "metadata"), "continue")
        except MemberError as error:
            raise ApiError(f"{self}: the answer is not a list of the API: {error}") from error
        for item in items:
            self._add(item)
        if self._continue:
            return []
        version = _version_of(page)
        if not version:
            raise ApiError(f"{self}: the list has no resourceVersion")
        self.version = version
        listed: list[Change[T]] = [*self._pages, Listed(frozenset(self._keys))]
        self.begin_list()
        return listed

    def _add(self, item: Json) -> None:
        self._pages.append(self._read(item))
        with suppress(MemberError):  # the finding reports the missing name
            self._keys.add(read_key(item))

    # Watches

    def watch_query(self, timeout_s: int) -> dict[str, str]:
        """The parameters of a watch that the server is asked to end after this time."""
        return {
            "watch": "1",
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }

    def receive_line(self, line: bytes) -> Change[T] | None:
        """The change of one line of a watch; None for a bookmark.

        Raises ``ApiError`` if the watch cannot continue. A resource version that can no longer be used is forgotten.
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
            return Deleted(read_key(document))
        except MemberError as error:
            return self._unreadable(document, error)

    def receive_newest(self, document: object) -> None:
        """Compare with the newest resource version, from a list of one object. If it went back, a list is needed."""
        page = self._expect(document, self.collection.list_kind)
        if _is_before(_version_of(page), self.version):
            self.forget()

    def forget(self) -> None:
        """Forget the resource version, so that a list is needed."""
        self.version = ""

    def _advance(self, document: Mapping[str, Any]) -> None:
        version = _version_of(document)
        if not version:
            raise ApiError(f"{self}: an event without resourceVersion")
        if _is_before(version, self.version):
            previous, self.version = self.version, ""
            raise ApiError(f"{self}: the resource version went back, {previous} to {version}", is_stale=True)
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
        except MemberError as error:
            return self._unreadable(document, error)

    def _unreadable(self, document: Json, error: MemberError) -> Unreadable:
        try:
            key = str(read_key(document))
        except MemberError:
            key = "?"
        return Unreadable(Violation("invalid_object", str(error), pointer=f"/{self.collection.plural}/{key}"))

    def _expect(self, document: object, kind: str) -> Json:
        if not isinstance(document, dict):
            raise ApiError(f"{self}: the answer is not a JSON object")
        kinds = (document.get("kind"), document.get("apiVersion"))
        if kinds != (kind, self.collection.api_version):
            raise ApiError(
                f"{self}: expected {kind} of {self.collection.api_version}, got {kinds[0]!r} of {kinds[1]!r}"
            )
        return document


def status_error(what: str, status: Json) -> ApiError:
    """The error of a Status object."""
    code = status.get("code")
    number = code if isinstance(code, int) else 0
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
        raise ApiError(f"{what}: an event is not valid JSON: {_short(line)}") from None
    if not isinstance(event, dict):
        raise ApiError(f"{what}: an event is not a JSON object: {_short(line)}")
    return event


def _version_of(document: Json) -> str:
    """The resource version of an object or a list; empty if it has none."""
    metadata = document.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def _is_before(one: str, other: str) -> bool:
    """Whether a resource version is older. Versions that are not numbers have no order."""
    return _is_number(one) and _is_number(other) and int(one) < int(other)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and len(version) <= _VERSION_DIGITS


def _short(line: bytes) -> str:
    return repr(line[:80].decode(errors="replace"))
