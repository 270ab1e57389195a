"""Errors as problem documents (RFC 9457), those of the framework included.

``{"type", "title", "status", "detail", "instance", "request_id", "errors": [{code, severity, resource, pointer, source,
detail, hint, index}]}``. The answer to an internal error shows no details of the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from xds.admin.dependencies import dependencies_of
from xds.admin.foreign_apis import foreign_api
from xds.admin.models.findings import Finding, shorten
from xds.admin.models.writing import document_of
from xds.codec.effort import AbandonedError
from xds.live.owners import OwnedError
from xds.model.errors import (
    ConflictError,
    GuardedError,
    InvalidRequestError,
    MalformedError,
    NotFoundError,
    ValidationError,
    Violation,
    XdsError,
)
from xds.push.request import ChangeError
from xds.store.base import GoneError, OutOfSpaceError, ReusedPushIdError, UnavailableError
from xds.tasks.waiting import TooManyWaitersError

Json = dict[str, Any]

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
ERRORS_SHOWN = 1000
# A preference (RFC 7240) of whoever reads what may be gone: 204 instead of 404 or 410, which browsers report as errors.
EMPTY_IF_ABSENT = "empty-if-absent"
_PUSHED_AT = ("/snapshot", "/transactions")
TOO_LARGE = "too_large"  # the codec's code for a name, resource or text beyond its limit
_LIMITS = {TOO_LARGE: "resource_bytes", "entry_too_large": "config_entry_bytes"}


class RequestError(XdsError):
    """The API refuses a request, with the status to answer."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})
        self.members = dict(members or {})


def problem(
    request: Request,
    status: HTTPStatus,
    detail: str,
    errors: Sequence[Mapping[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
    members: Mapping[str, object] | None = None,
) -> Response:
    """A problem as a response; ``members`` are further fields. The body is the detail as text in a foreign API."""
    body: Json = {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
        "instance": request.url.path,
        "request_id": request_id(request),
        "errors": list(errors or ())[:ERRORS_SHOWN],
        **(members or {}),
    }
    # For the audit list. It must not contain pushed content, which may be secret.
    request.state.refusal = ", ".join(str(error["code"]) for error in list(errors or ())[:3]) or detail
    sent_headers = {**_own_headers(request), **(headers or {})}
    if foreign_api(request.scope) is not None:
        return PlainTextResponse(detail.encode("utf-8", "backslashreplace"), status, sent_headers)
    # What was refused may be a text without an encoding.
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return Response(content, status, sent_headers, MEDIA_TYPE)


def _own_headers(request: Request) -> Mapping[str, str]:
    return {"X-Request-ID": request_id(request), "Cache-Control": "no-store"}


def request_id(request: Request) -> str:
    """The id under which this request is logged."""
    return cast(str, getattr(request.state, "request_id", ""))


def install(app: FastAPI) -> None:
    """Register the handlers that answer every error with a problem."""
    app.add_exception_handler(AbandonedError, _answer_nobody)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(XdsError, _answer_xds_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_parameters)
    app.add_exception_handler(Exception, _answer_unexpected_error)


_STATUS: tuple[tuple[type[XdsError], HTTPStatus], ...] = (
    (GoneError, HTTPStatus.GONE),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (OwnedError, HTTPStatus.CONFLICT),
    (ConflictError, HTTPStatus.PRECONDITION_FAILED),
    (GuardedError, HTTPStatus.CONFLICT),
    (InvalidRequestError, HTTPStatus.BAD_REQUEST),
    (TooManyWaitersError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (OutOfSpaceError, HTTPStatus.INSUFFICIENT_STORAGE),
    (ReusedPushIdError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """The caller has left: no answer, no traceback in the log, and nothing was changed."""
    request.state.refusal = "the caller has left"
    return Response(status_code=HTTPStatus.REQUEST_TIMEOUT)


async def _answer_xds_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ValidationError):
        return _violations(request, error)
    if isinstance(error, ChangeError) and isinstance(error.cause, ValidationError):
        violations = [place_in_transaction(violation, error.index) for violation in error.cause.violations]
        return _violations(request, ValidationError(violations))
    if isinstance(error, RequestError):
        return problem(request, error.status, str(error), headers=error.headers, members=error.members)
    cause = error.cause if isinstance(error, ChangeError) else error
    known = (status for kind, status in _STATUS if isinstance(cause, kind))
    status = next(known, HTTPStatus.INTERNAL_SERVER_ERROR)
    may_be_empty = request.method == "GET" and EMPTY_IF_ABSENT in request.headers.get("prefer", "")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE) and may_be_empty:
        applied = {"Preference-Applied": EMPTY_IF_ABSENT}
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={**_own_headers(request), **applied})
    retry = {"Retry-After": str(RETRY_AFTER_S)} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    errors = [_change_item(error)] if isinstance(error, ChangeError) else []
    detail = f"{error}; pass {cause.override}=true to do it anyway" if isinstance(cause, GuardedError) else str(error)
    return problem(request, status, detail, errors, headers=retry, members=_members(error, cause))


def _members(error: Exception, cause: Exception) -> dict[str, object]:
    if isinstance(cause, GuardedError):
        return overridable(cause.override, str(error))
    if not isinstance(cause, ConflictError):
        return {}
    return {"revision": cause.revision, **({"group": cause.group} if cause.group else {})}


def overridable(parameter: str, reason: str) -> dict[str, object]:
    """The fields of a problem that a parameter resolves. Clients show their own name of the parameter instead."""
    return {"override": parameter, "reason": reason}


def _change_item(error: ChangeError) -> Json:
    """The change of a transaction that caused the error."""
    return asdict(Violation("refused", str(error.cause), error.group, f"/changes/{error.index}"))


def place_in_transaction(violation: Violation, change: int, part: str = "/snapshot/resources") -> Violation:
    """A finding with its pointer from the root of a transaction; ``part`` is where the change has its resources."""
    within = f"{part}/{violation.index}" if violation.index >= 0 else part.removesuffix("/resources")
    return replace(violation, pointer=f"/changes/{change}{within}{violation.pointer}")


def _violations(request: Request, error: ValidationError) -> Response:
    path = request.url.path
    if request.method != "GET" and (path.endswith(_PUSHED_AT) or "/resources/" in path):
        dependencies_of(request).publisher.journal.invalid(unquote(request.path_params.get("group", "")), error)
    status = HTTPStatus.BAD_REQUEST if isinstance(error, MalformedError) else HTTPStatus.UNPROCESSABLE_ENTITY
    findings = [document_of(Finding.from_domain(violation)) for violation in error.violations[:ERRORS_SHOWN]]
    for limit in {
        _LIMITS[each.code] for each in error.violations if each.code in _LIMITS and not _is_about_chain(each)
    }:
        dependencies_of(request).limit_hits[limit] += 1
    count = len(error.violations)
    first = "invalid input"
    if error.violations:
        # An API of another product answers with one text, which needs the hint.
        is_foreign = foreign_api(request.scope) is not None
        first = shorten(str(error.violations[0]) if is_foreign else error.violations[0].detail)
    return problem(request, status, first if count < 2 else f"{first} (and {count - 1} more)", findings)


def _is_about_chain(violation: Violation) -> bool:
    """Whether the finding is about a chain: its codes mean other limits than those of the codec."""
    return violation.resource.startswith("chain/")


async def _answer_http_error(request: Request, error: Exception) -> Response:
    raised = cast(HTTPException, error)
    status = HTTPStatus(raised.status_code)
    detail = {
        HTTPStatus.NOT_FOUND: f"no such path: {request.url.path}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"method {request.method} is not allowed for this path",
    }.get(status, str(raised.detail))
    return problem(request, status, detail, headers=raised.headers)


async def _answer_invalid_parameters(request: Request, error: Exception) -> Response:
    invalid = cast(RequestValidationError, error).errors()
    errors = [
        {
            "code": f"parameter_{item['type']}",
            "severity": "error",
            "resource": "",
            "pointer": "/" + "/".join(str(part) for part in item["loc"][1:]),
            "source": str(item["loc"][0]),
            "detail": item["msg"],
            "hint": "",
            "index": -1,
        }
        for item in invalid[:ERRORS_SHOWN]
    ]
    detail = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in invalid[:3])
    return problem(request, HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors)


async def _answer_unexpected_error(request: Request, error: Exception) -> Response:
    # The server logs the traceback with the request id.
    detail = "internal error; the server's log has the details under this request_id"
    return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, detail)
