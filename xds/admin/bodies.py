"""Request bodies: read within a limit on received bytes, whatever Content-Length says, and decoded.

Bodies are parsed and checked as work for their callers (`run_for_caller`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request

from xds.admin.dependencies import Dependencies, dependencies_of
from xds.admin.problem import RETRY_AFTER_S, RequestError
from xds.codec.document import parse_values
from xds.codec.resources import DecodedPush, InputFormat, ResourceDecoder
from xds.model.errors import ValidationError, Violation
from xds.tasks.threads import run_for_caller


async def read_body(request: Request) -> AsyncIterator[bytes]:
    """The whole body. Raises ``RequestError``: 413 above the limit, 503 if all bodies together need too much memory."""
    deps = dependencies_of(request)
    chunks: list[bytes] = []
    size = 0
    try:
        announced = request.headers.get("content-length", "0")
        _check_size(int(announced) if announced.isdecimal() else 0, deps)
        async for chunk in request.stream():
            size += len(chunk)
            deps.bodies_in_flight += len(chunk)
            _check_size(size, deps)
            chunks.append(chunk)
        body = b"".join(chunks)
        chunks.clear()
        yield body
    finally:
        deps.bodies_in_flight -= size


def _check_size(size: int, deps: Dependencies) -> None:
    limit = deps.options.body_bytes
    if size > limit:
        deps.limit_hits["body_bytes"] += 1
        # The rest of the body is not read, so the connection cannot be used again.
        detail = f"the body is larger than {limit} bytes"
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"Connection": "close"})
    if deps.bodies_in_flight > deps.options.bodies_in_flight_bytes:
        deps.limit_hits["bodies_in_flight_bytes"] += 1
        retry = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
        raise RequestError(
            HTTPStatus.SERVICE_UNAVAILABLE, "the bodies of all requests together are too large; try again later", retry
        )


Body = Annotated[bytes, Depends(read_body)]


async def parse_one(body: bytes, content_type: str, noun: str, limit_bytes: int) -> Any:
    """Parse a small body with one JSON or YAML document of any type; ``noun`` names the expected value in errors.

    Raises ``RequestError``, ``ValidationError``.
    """
    if len(body) > limit_bytes:
        raise RequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body with {noun} may have at most {limit_bytes} bytes"
        )
    media = media_of(content_type)
    if media == "protobuf":
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {noun} as JSON or YAML")
    values = await run_for_caller(parse_values, body, media, bytes=_bounding(body, media))
    if len(values) != 1:
        raise ValidationError([Violation("wrong_type", f"expected {noun} as one object, not {len(values)} documents")])
    return values[0]


_MEDIA: Mapping[str, InputFormat] = {
    "application/json": "json",
    "text/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
}

T = TypeVar("T")

# The media types of a body are in its description; OpenAPI ignores a parameter of this name.
ContentType = Annotated[str, Header(include_in_schema=False)]


def media_of(content_type: str) -> InputFormat:
    """The format that a Content-Type names. Raises ``RequestError`` (415).

    It is required: a page of another origin can send a body without one, and then the browser makes no preflight
    request.
    """
    name = content_type.partition(";")[0].strip().lower()
    media = _MEDIA.get(name)
    if media is None:
        accepted = "application/json, application/yaml, application/x-protobuf"
        what = f"cannot read {name[:100]!r}" if name else "a Content-Type is required"
        detail = f"{what}; send one of {accepted}"
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, {"Accept": accepted})
    return media


async def decode_pushed(
    body: bytes, content_type: str, decoder: ResourceDecoder, members: Collection[str] = ()
) -> DecodedPush:
    """Decode the body of a snapshot, which may have ``members`` beside its resources.

    Raises ``ValidationError``, ``RequestError``.
    """
    media = media_of(content_type)
    return await run_for_caller(partial(decoder.document, body, media, members=members), bytes=_bounding(body, media))


async def decode_one(body: bytes, content_type: str, type_url: str, name: str, decoder: ResourceDecoder) -> DecodedPush:
    """Decode the body of one resource: JSON, YAML, or its serialized message. Raises as ``decode_pushed``."""
    media = media_of(content_type)
    return await run_for_caller(decoder.single, body, media, type_url, name, bytes=_bounding(body, media))


def _bounding(body: bytes, media: InputFormat) -> int | None:
    """The size of a body, if it bounds the work of reading it: aliases of YAML expand."""
    return None if media == "yaml" else len(body)


def accepts_yaml(request: Request) -> bool:
    """True if the client asks for YAML."""
    return "yaml" in request.headers.get("accept", "")
