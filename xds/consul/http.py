"""What all paths of Consul's API share: the form of answers and errors, and query parameters.

Consul answers 500 for a config entry that breaks a rule; its clients print the text behind the code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from typing import NoReturn, TypeVar

from fastapi import Request
from fastapi.responses import Response

from xds.admin.answers import JSON_TYPE
from xds.admin.problem import ERRORS_SHOWN, RequestError
from xds.consul.shared import DEFAULT
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.tasks.threads import run_for_caller, run_sized

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
    if not is_number(text):
        refuse(HTTPStatus.BAD_REQUEST, f"Invalid cas: {text[:80]!r} is not a ModifyIndex")
    return int(text)


def is_number(text: str) -> bool:
    """Whether a text is an index or a revision."""
    return text.isascii() and text.isdecimal() and int(text[:21]) < INDEX_LIMIT
