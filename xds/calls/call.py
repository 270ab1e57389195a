"""A call of the admin API as a value: the request, and how to read its answer. No I/O.

The functions that make calls are in the modules of this package, and in ``calls`` of each feature. All senders send
the same calls, so that they behave alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import IO, Any, Generic, TypedDict, TypeVar
from urllib.parse import urlencode
from warnings import warn

from xds.admin.models.reading import ShapeError, read_value
from xds.admin.operations import Operation
from xds.calls.failures import PartialAnswerWarning, UnexpectedAnswerError, failure_of

Json = dict[str, Any]
T = TypeVar("T")

IDEMPOTENCY_KEY = "Idempotency-Key"
JSON_TYPE = "application/json"
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, whatever its status. ``headers`` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    reason: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    def document(self) -> Json | None:
        """The body; None if it is not a JSON object."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """One request. ``read`` makes the result from the JSON of the answer, or the call that comes next.

    ``body`` is a JSON value, or an open file, whose type is in ``headers``. The server may wait ``wait_s`` on request.
    """

    method: str
    path: str
    read: Callable[[Any], T | ApiCall[T]]
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    wait_s: float = 0.0

    @property
    def is_repeatable(self) -> bool:
        """Whether the request may be sent again after its answer was lost."""
        return self.method == "GET" or IDEMPOTENCY_KEY in self.headers

    def limited(self, items_n: int) -> ApiCall[T]:
        """The same call, with at most this many items on a page."""
        return replace(self, query={**self.query, "limit": str(items_n)})

    def target(self, page: str = "") -> str:
        """Path and query; ``page`` is the token of a page."""
        query = {**self.query, **({"page_token": page} if page else {})}
        return f"{self.path}?{urlencode(query, doseq=True)}" if query else self.path

    def content(self) -> bytes | IO[bytes] | None:
        """The body as it is sent."""
        if self.body is None or hasattr(self.body, "read"):
            return self.body  # type: ignore[return-value]  # an open file
        return json.dumps(self.body, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def sent_headers(self) -> dict[str, str]:
        """The headers, without those of the connection and of credentials."""
        has_json = self.body is not None and not hasattr(self.body, "read")
        return {"Accept": JSON_TYPE, **({"Content-Type": JSON_TYPE} if has_json else {}), **self.headers}


def document_of(answer: Answer) -> Json:
    """The JSON object of an answer. Raises ``AdminApiError`` if the request failed."""
    document = answer.document()
    if not answer.is_success or document is None:
        raise failure_of(answer.status, document)
    if missing := missing_servers(document):
        warn(f"servers that did not answer: {', '.join(missing)}", PartialAnswerWarning, stacklevel=4)
    return document


def missing_servers(document: Json) -> tuple[str, ...]:
    """The servers whose part of an answer is missing, because they did not answer the server that was asked."""
    progress = document.get("progress")
    names = (progress if isinstance(progress, dict) else document).get("partial")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def result_of(call: ApiCall[T], document: Json) -> T | ApiCall[T]:
    """The result in a document, or the next call. Raises ``UnexpectedAnswerError``."""
    try:
        return call.read(document)
    except (ShapeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswerError(f"{call.method} {call.path}: the answer cannot be read: {error}") from None


def next_page(document: Json) -> str:
    """The token of the next page; empty at the end."""
    return str(document.get("next_page_token", ""))


class WriteArguments(TypedDict, total=False):
    """Options of writes, all optional.

    ``author`` goes into the history; the server also records the authenticated caller. ``if_match`` is an etag, or a
    revision as a number, that must still be the current one; 0 means that there must be nothing yet. ``dry_run`` checks
    and compares, and changes nothing.
    """

    author: str
    if_match: str | int | None
    dry_run: bool


class CheckedArguments(WriteArguments, total=False):
    """Options of writes of a document: also ``strict``, with which warnings are errors."""

    strict: bool


class EntryArguments(CheckedArguments, total=False):
    """Options of writes that have a history: also ``message``, for the history, and ``idempotency_key``.

    A repeated call with the same key gets the first answer again.
    """

    message: str
    idempotency_key: str


class PushArguments(EntryArguments, total=False):
    """Options of pushes: those of config entries, and some of the fleet.

    ``wait_s``: wait until all connected nodes have ACKed or rejected the push, but at most this many seconds (up to
    300); the result then has ``progress``. ``allow_empty`` allows a push that takes all resources from connected nodes.

    ``rollout`` is the plan of a careful rollout (docs/rollouts.md): a dictionary, the text of its waves as
    ``"1,10%,50%"``, or ``"all_at_once"``; ``{}`` is the plan of the group, or the default. ``retry`` pushes again what
    a rollout has taken back.
    """

    allow_empty: bool
    wait_s: float
    rollout: Mapping[str, Any] | str
    retry: bool


def ask(
    operation: Operation,
    *values: str | int,
    query: Mapping[str, str | Sequence[str]] = NOTHING,
    headers: Mapping[str, str] = NOTHING,
    body: object = None,
    wait_s: float = 0.0,
    read: Callable[[Any], Any] | None = None,
) -> ApiCall[Any]:
    """The call of an operation with the values of the parameters in its path.

    ``read`` makes the result, if it is not an object of the operation's class. That class is imported when an answer is
    read: a command, which reads documents, starts without it.
    """
    return ApiCall(
        operation.method,
        operation.place(*values),
        read or (lambda value: read_value(operation.answer() or Json, value)),
        query,
        headers,
        body,
        wait_s,
    )


def ask_items(
    operation: Operation,
    *values: str | int,
    query: Mapping[str, str | Sequence[str]] = NOTHING,
    member: str = "items",
) -> ApiCall[tuple[Any, ...]]:
    """As `ask`, for the items of a page: the ``member`` of the operation's class."""
    return ask(
        operation, *values, query=query, read=lambda value: getattr(read_value(operation.answer(), value), member)
    )


def flags(**given: object) -> dict[str, str]:
    """Query parameters, without those that are None, False or empty."""
    return {
        name: "true" if value is True else str(value)
        for name, value in given.items()
        if value is not None and value is not False and value != ""
    }


def precondition(if_match: str | int | None, prefix: str = "r") -> dict[str, str]:
    """The headers of a precondition: an etag, a revision number, or 0: the object must not exist."""
    if if_match is None or if_match == "":
        return {}
    if if_match == 0:
        return {"If-None-Match": "*"}
    return {"If-Match": if_match if isinstance(if_match, str) else f"{prefix}{if_match}"}


def write(
    operation: Operation,
    *values: str | int,
    options: Mapping[str, Any],
    known: Any,
    body: object = None,
    prefix: str = "r",
    **more: object,
) -> ApiCall[Any]:
    """As `ask`, for a write with ``options`` and ``more`` query parameters; ``prefix`` is that of etags.

    Raises ``TypeError`` for an option that the class of options ``known`` does not have.
    """
    check_options(options, known)
    query = {name: value for name, value in options.items() if name not in _IN_HEADERS}
    headers, wait_s = precondition(options.get("if_match"), prefix), options.get("wait_s", 0.0)
    if options.get("idempotency_key"):
        headers[IDEMPOTENCY_KEY] = options["idempotency_key"]
    if wait_s:
        headers["Prefer"] = f"wait={max(1, round(wait_s))}"
    return ask(operation, *values, query=flags(**query, **more), headers=headers, body=body, wait_s=wait_s)


_IN_HEADERS = frozenset({"if_match", "idempotency_key", "wait_s"})


def check_options(options: Mapping[str, Any], known: Any) -> None:
    """Raises ``TypeError`` for an option that the class of options ``known`` does not have."""
    expected = known.__optional_keys__
    unknown = sorted(options.keys() - expected)
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}; expected some of {', '.join(sorted(expected))}")
