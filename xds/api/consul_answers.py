"""Answers in Consul's form: JSON with its headers, and errors as lines of text with its status codes.

Consul answers 500 for a config entry that breaks a rule; its clients print the text behind the code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NoReturn

from fastapi import Request
from fastapi.responses import Response

from xds.api.answers import JSON_TYPE
from xds.api.problem import ERRORS_SHOWN, RequestError
from xds.api.services import Services
from xds.control.threads import run_sized
from xds.control.waiting import TooManyWaitersError
from xds.model.errors import MalformedError, ValidationError, Violation

RETRY_AFTER_S = 1
_SIZE_OF_PART = 5  # writing an entry or a node takes as long as so many resources
# What Consul finds while it reads an entry, before it looks at the rules of its kind.
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


def answer_write(request: Request, value: object) -> Response:
    """The answer to a write."""
    return Response(_encoded(value, _is_pretty(request)), media_type=JSON_TYPE)


async def answer_read(request: Request, make: Callable[[], object], index: int, parts: int = 1) -> Response:
    """The answer to reading, and the index that it rests on. What has many ``parts`` is made in a thread.

    ``make`` must not touch state that belongs to the event loop.
    """
    pretty = _is_pretty(request)
    content = await run_sized(lambda: _encoded(make(), pretty), resources=parts * _SIZE_OF_PART)
    return Response(content, headers=index_headers(index), media_type=JSON_TYPE)


def _is_pretty(request: Request) -> bool:
    return "pretty" in request.query_params


def _encoded(value: object, pretty: bool) -> str:
    """As Consul writes it: on one line, or indented. Lists item by item: other threads get their turn in between."""
    if pretty:
        return json.dumps(value, ensure_ascii=False, indent=4) + "\n"
    if isinstance(value, list):
        return f"[{','.join(_encoded(item, pretty) for item in value)}]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def index_headers(index: int | None) -> dict[str, str]:
    """The headers of an answer to reading; none for None, which is an answer to a write."""
    if index is None:
        return {}
    return {"X-Consul-Index": str(index), "X-Consul-KnownLeader": "true", "X-Consul-LastContact": "0"}


def refuse(status: HTTPStatus, detail: str, index: int | None = None) -> NoReturn:
    """End the request with a line of text."""
    raise RequestError(status, detail, index_headers(index))


def refuse_findings(request: Request, error: ValidationError) -> NoReturn:
    """End a write with all findings: 400 for what cannot be read or is of a kind that is not ours, else 500.

    The refusal is reported to the audit list whatever its status.
    """
    request.state.is_refused_write = True
    if isinstance(error, MalformedError) or any(one.code in _UNREADABLE for one in error.violations):
        refuse(HTTPStatus.BAD_REQUEST, f"Request decoding failed: {findings_text(error.violations)}")
    refuse(HTTPStatus.INTERNAL_SERVER_ERROR, findings_text(error.violations))


def findings_text(found: Sequence[Violation]) -> str:
    """One finding on a line, several as a list, as Consul's library for several errors writes them."""
    if len(found) == 1:
        return str(found[0])
    listed = "".join(f"\t* {one}\n" for one in found[:ERRORS_SHOWN])
    return f"{len(found)} errors occurred:\n{listed}\n"


def refuse_waiting(here: Services, error: TooManyWaitersError, limit: str) -> NoReturn:
    """End a blocking query that cannot wait: the limit with this name is reached."""
    here.limit_hits[limit] += 1
    raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, str(error), {"Retry-After": str(RETRY_AFTER_S)})
