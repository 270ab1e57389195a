"""Request bodies: read under a limit that counts bytes as they come, whatever Content-Length says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request

from api.content_types import media_of
from api.problem import RETRY_AFTER_S, RequestError
from api.services import Here, Services
from xds.codec.document import parse_values
from xds.control.threads import run_sized
from xds.model.errors import ValidationError, Violation


async def read_body(request: Request, here: Here) -> AsyncIterator[bytes]:
    """The whole body. Raises 413 above the limit, 503 when all bodies together would need too much memory."""
    chunks: list[bytes] = []
    size = 0
    try:
        announced = request.headers.get("content-length", "0")
        _check_size(int(announced) if announced.isdecimal() else 0, here)
        async for chunk in request.stream():
            size += len(chunk)
            here.bodies_in_flight += len(chunk)
            _check_size(size, here)
            chunks.append(chunk)
        body = b"".join(chunks)
        chunks.clear()
        yield body
    finally:
        here.bodies_in_flight -= size


def _check_size(size: int, here: Services) -> None:
    limit = here.options.body_bytes
    if size > limit:
        here.limit_hits["body_bytes"] += 1
        # The rest of the body is not read: the connection cannot be used again.
        detail = f"the body is larger than {limit} bytes"
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"Connection": "close"})
    if here.bodies_in_flight > here.options.bodies_in_flight_bytes:
        here.limit_hits["bodies_in_flight_bytes"] += 1
        retry = {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"}
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests at once", retry)


Body = Annotated[bytes, Depends(read_body)]


async def parse_one(body: bytes, content_type: str, noun: str, limit_bytes: int) -> Any:
    """The one JSON or YAML document of a small body, whatever value it is; ``noun`` says in errors what it should hold.

    Raises ``RequestError``, ``ValidationError``.
    """
    if len(body) > limit_bytes:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body with {noun} has at most {limit_bytes} bytes")
    media = media_of(content_type)
    if media == "protobuf":
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {noun} as JSON or YAML")
    values = await run_sized(lambda: parse_values(body, media), bytes=len(body))
    if len(values) != 1:
        raise ValidationError([Violation("wrong_type", f"expected {noun} as one object, not {len(values)} documents")])
    return values[0]
