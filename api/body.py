"""Request bodies: read under a limit that counts bytes as they come, whatever Content-Length says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request

from api.problem import RETRY_AFTER_S, RequestError
from api.services import Here, Services


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
