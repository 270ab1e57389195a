"""What all paths of Consul's API share: the form of answers and errors, query parameters, and blocking queries.

Consul answers 500 for a config entry that breaks a rule; its clients print the text behind the code.

A blocking query (``?index=&wait=``) is answered when the requested data has changed since the index, or after the
wait. An index is the revision of the data plus one. Index 1 of config entries means that there are none yet. Index 0
does not wait.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic, time
from typing import NoReturn, Protocol, TypeVar

from fastapi import Request
from fastapi.responses import Response

from xds.access.tokens import READ
from xds.admin.answers import JSON_TYPE
from xds.admin.problem import ERRORS_SHOWN, RETRY_AFTER_S, RequestError
from xds.admin.routing import demand, identity_of
from xds.admin.services import Services
from xds.consul.quantities import SECOND_NS, parse_duration
from xds.consul.shared import DEFAULT
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.tasks.threads import run_for_caller, run_sized
from xds.tasks.waiting import TooManyWaitersError

_RESOURCES_PER_PART = 5  # encoding an entry or a node takes as long as encoding this many resources
# Findings that Consul reports while it parses an entry, before it checks the rules of the kind.
_UNREADABLE = frozenset(
    {
        "bad_duration",
        "duplicate_field",
        "missing_kind",
        "unknown_field",
        "unknown_kind",
        "unsupported_kind",
        "wrong_type",
    }
)

T = TypeVar("T")

DEFAULT_WAIT_S = 300.0
LONGEST_WAIT_S = 600.0
JITTER = 16  # up to one part in this many is added to a wait
INDEX_LIMIT = 2**64
_NAMESPACES = {
    "ns": ("x-consul-namespace", "Namespaces are"),
    "partition": ("x-consul-partition", "Partitions are"),
}


def answer_write(request: Request, value: object) -> Response:
    """The answer to a write, or to a read that has no index."""
    return Response(_encoded(value, _is_pretty(request)), media_type=JSON_TYPE)


async def answer_read(request: Request, make: Callable[[], object], index: int, parts: int = 1) -> Response:
    """The answer to a read, with its index. With many ``parts`` (entries, nodes, instances) it is made in a thread.

    A filter is tried in one, too. ``make`` must not touch state that belongs to the event loop.
    """
    pretty = _is_pretty(request)

    content = await make_filtered(request, lambda: _encoded(make(), pretty), parts * _RESOURCES_PER_PART)
    return Response(content, headers=index_headers(index), media_type=JSON_TYPE)


async def make_filtered(request: Request, make: Callable[[], T], resources: int) -> T:
    """The result of ``make``, which tries the filter of the request: its cost is the caller's."""
    if request.query_params.get("filter"):
        return await run_for_caller(make)
    return await run_sized(make, resources=resources)


def _is_pretty(request: Request) -> bool:
    return "pretty" in request.query_params


def _encoded(value: object, pretty: bool) -> str:
    """JSON as Consul writes it: on one line, or indented. Lists are encoded item by item, so that other threads run."""
    if pretty:
        return json.dumps(value, ensure_ascii=False, indent=4) + "\n"
    if isinstance(value, list):
        return f"[{','.join(_encoded(item, pretty) for item in value)}]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def index_headers(index: int | None) -> dict[str, str]:
    """The headers of an answer to a read. None is the index of an answer to a write, which has no such headers."""
    if index is None:
        return {}
    return {"X-Consul-Index": str(index), "X-Consul-KnownLeader": "true", "X-Consul-LastContact": "0"}


def refuse(status: HTTPStatus, detail: str, index: int | None = None) -> NoReturn:
    """Raises ``RequestError``, which answers the request with a line of text."""
    raise RequestError(status, detail, index_headers(index))


def refuse_findings(request: Request, error: ValidationError) -> NoReturn:
    """Refuse a write with all findings: 400 if it cannot be parsed or its kind is not supported, else 500.

    The refusal is reported to the audit list, whatever its status.
    """
    request.state.is_refused_write = True
    if isinstance(error, MalformedError) or any(one.code in _UNREADABLE for one in error.violations):
        refuse(HTTPStatus.BAD_REQUEST, f"Request decoding failed: {findings_text(error.violations)}")
    refuse(HTTPStatus.INTERNAL_SERVER_ERROR, findings_text(error.violations))


def findings_text(violations: Sequence[Violation]) -> str:
    """One finding as a line, several as a list in the format of Consul (`go-multierror`)."""
    if len(violations) == 1:
        return str(violations[0])
    listed = "".join(f"\t* {one}\n" for one in violations[:ERRORS_SHOWN])
    return f"{len(violations)} errors occurred:\n{listed}\n"


def refuse_waiting(deps: Services, error: TooManyWaitersError, limit: str) -> NoReturn:
    """Refuse a blocking query, because the limit with the name ``limit`` is reached."""
    deps.limit_hits[limit] += 1
    raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, str(error), {"Retry-After": str(RETRY_AFTER_S)})


def check_datacenter(request: Request, datacenter: str, others: Collection[str] = ()) -> str:
    """The datacenter of the request (``?dc=``): ``datacenter`` by default, or one of the ``others``.

    Raises ``RequestError`` for any other datacenter, for a namespace or partition other than the default, and for
    ``stale`` together with ``consistent``. A single server ignores each of these two by itself.
    """
    if {"stale", "consistent"} <= request.query_params.keys():
        refuse(HTTPStatus.BAD_REQUEST, "Cannot specify ?stale with ?consistent, conflicting semantics.")
    wanted = request.query_params.get("dc", "")
    if wanted not in ("", datacenter, *others):
        refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"No path to datacenter: {wanted[:80]!r} is not {datacenter!r}")
    for parameter, (header, what) in _NAMESPACES.items():
        value = request.query_params.get(parameter) or request.headers.get(header, "")
        if value not in ("", DEFAULT):
            detail = f'Invalid query parameter: "{parameter}" - {what} a Consul Enterprise feature'
            refuse(HTTPStatus.BAD_REQUEST, f"{detail}; {value[:80]!r} is not {DEFAULT!r}")
    return wanted or datacenter


def check_cas(request: Request) -> int | None:
    """The revision in ``?cas=``; None without it. Raises ``RequestError``."""
    text = request.query_params.get("cas", "")
    if not text:
        return None
    if not _is_number(text):
        refuse(HTTPStatus.BAD_REQUEST, f"Invalid cas: {text[:80]!r} is not a ModifyIndex")
    return int(text)


@dataclass(frozen=True, slots=True)
class Blocking:
    """The parameters of a blocking query. ``index`` is the one that the client has seen; 0: the query does not wait."""

    index: int
    wait_s: float

    @classmethod
    def of(cls, request: Request) -> Blocking:
        """The parameters of a request. Raises ``RequestError``."""
        index = request.query_params.get("index", "")
        if index and not _is_number(index):
            refuse(HTTPStatus.BAD_REQUEST, "Invalid index")
        return cls(int(index or 0), _wait_s(request.query_params.get("wait", "")))

    def is_known(self, revision: int) -> bool:
        """Whether the client may wait for a ``revision`` after its index.

        A larger index belongs to another store, whose data is lost. The client has to start again.
        """
        return 0 < self.index <= revision + 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text[:21]) < INDEX_LIMIT


def _wait_s(text: str) -> float:
    if not text:
        return DEFAULT_WAIT_S
    try:
        wait_s = parse_duration(text) / SECOND_NS
    except ValueError:
        refuse(HTTPStatus.BAD_REQUEST, "Invalid wait time")
    return min(wait_s, LONGEST_WAIT_S) if wait_s > 0 else DEFAULT_WAIT_S


class Watched(Protocol):
    """The data that a query waits for a change of, as a whole. No client has seen a higher ``revision``."""

    @property
    def limit_name(self) -> str:
        """The name of the limit on the callers that wait."""

    @property
    def revision(self) -> int:
        """The highest revision."""

    async def wait(self, after: int, current: Callable[[], int], wait_s: float) -> None:
        """Return when ``current()`` is above ``after``, or after ``wait_s``. Raises ``TooManyWaitersError``."""


async def wait_for_change(
    request: Request,
    deps: Services,
    watched: Watched,
    revision: Callable[[], int],
    content: Callable[[], object] | None = None,
) -> int:
    """Wait for a change if the request is a blocking query. Returns the index of the data after the wait.

    ``revision`` is the revision of the requested data, ``watched`` the whole that it is a part of. With ``content``,
    the wait continues after a revision that did not change the content. The index decreases for a client only if the
    revision of the store did. Raises ``RequestError``, and what ``revision`` and ``content`` raise.
    """
    blocking = Blocking.of(request)
    if blocking.is_known(watched.revision) and revision() < blocking.index:
        await _wait(request, deps, watched, blocking, revision, content or revision)
        _check_still_admitted(request, deps)
    known = blocking.index if blocking.is_known(watched.revision) else 0
    return max(revision() + 1, known)


async def _wait(
    request: Request,
    deps: Services,
    whole: Watched,
    blocking: Blocking,
    revision: Callable[[], int],
    content: Callable[[], object],
) -> None:
    wait_s = blocking.wait_s + random.uniform(0, blocking.wait_s / JITTER)  # noqa: S311 - spreads timeouts
    ends = monotonic() + wait_s
    seen, old_content = blocking.index - 1, content()
    try:
        while (left_s := ends - monotonic()) > 0:
            is_connected = await _wait_while_connected(request, whole, seen, revision, left_s)
            if not is_connected or revision() <= seen or content() != old_content:
                return
            seen = revision()
    except TooManyWaitersError as error:
        refuse_waiting(deps, error, whole.limit_name)


async def _wait_while_connected(
    request: Request, whole: Watched, seen: int, revision: Callable[[], int], wait_s: float
) -> bool:
    """Wait for a revision above ``seen``. False if the client disconnects, which frees its place among the waiters."""
    waiting = asyncio.ensure_future(whole.wait(seen, revision, wait_s))
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({waiting, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
        return waiting.done()
    finally:
        waiting.cancel()
        disconnected.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_still_admitted(request: Request, deps: Services) -> None:
    """Raises ``RequestError`` if the credential of the caller has expired or was revoked during the wait."""
    renewed = deps.options.accepted().renew(identity_of(request))
    if renewed is None or renewed.is_over(time()):
        refuse(HTTPStatus.FORBIDDEN, "Permission denied: the credential is no longer valid")
    request.state.grant = renewed.grant
    demand(request, READ)
