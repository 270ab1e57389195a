"""The sender for event loops, over httpx: many calls at once on connections that stay open in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx

from xds.calls.access import CONNECT_TIMEOUT_S, TIMEOUT_S, ServerAccess
from xds.calls.call import Answer, ApiCall
from xds.calls.failures import UnreachableServerError

LINE_BYTES = 4 << 20
_LOST = httpx.RemoteProtocolError | httpx.ReadError


class AsyncSender:
    """Sends calls to a server. Belongs to one event loop. Redirects are not followed.

    Proxies are those of the environment, unless ``trusts_environment`` is false.
    """

    def __init__(self, access: ServerAccess, timeout_s: float = TIMEOUT_S, *, trusts_environment: bool = True) -> None:
        self.access = access
        self._timeout_s = timeout_s
        headers = {"Authorization": access.authorization} if access.authorization else {}
        self._http = httpx.AsyncClient(
            base_url=access.url, headers=headers, verify=access.tls or False, trust_env=trusts_environment
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""
        try:
            return await self._exchange(call, page)
        except UnreachableServerError as error:
            if not error.is_lost or not call.is_repeatable:
                raise
        return await self._exchange(call, page)

    @asynccontextmanager
    async def begun(self, call: ApiCall[Any], quiet_s: float) -> AsyncIterator[HttpxAnswer]:
        """The answer to a call while it arrives. Raises ``UnreachableServerError``, also after ``quiet_s``."""
        with self._reaching():
            response = await self._http.send(self._request(call, quiet_s), stream=True)
            try:
                yield HttpxAnswer(response)
            finally:
                await response.aclose()

    async def _exchange(self, call: ApiCall[Any], page: str) -> Answer:
        with self._reaching():
            response = await self._http.send(self._request(call, self._timeout_s + call.wait_s, page))
        return Answer(response.status_code, response.headers, response.content, response.reason_phrase)

    def _request(self, call: ApiCall[Any], timeout_s: float, page: str = "") -> httpx.Request:
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s))
        content, headers = call.content(), call.sent_headers()
        return self._http.build_request(
            call.method, call.target(page), content=content, headers=headers, timeout=timeout
        )

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Failures of the transport become ``UnreachableServerError``."""
        try:
            yield
        except httpx.TimeoutException as error:
            raise self.access.failure(TimeoutError()) from error
        except httpx.HTTPError as error:
            raise self.access.failure(error, is_lost=isinstance(error, _LOST)) from error


class HttpxAnswer:
    """An answer that is read while it arrives."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers
        self.is_success = response.is_success

    async def whole(self) -> Answer:
        """All of it."""
        return Answer(self._response.status_code, self.headers, await self._response.aread())

    async def at_most(self, limit_bytes: int) -> Answer | None:
        """All of an answer that is not compressed; None if it is longer. What is left of it is not read."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self._response.aiter_raw():
            size += len(piece)
            if size > limit_bytes:
                return None
            pieces.append(piece)
        return Answer(self._response.status_code, self.headers, b"".join(pieces), self._response.reason_phrase)

    async def lines(self) -> AsyncIterator[str]:
        """Its lines, without their ends. Texts in JSON contain other separators of lines, which end none here."""
        rest = b""
        async for piece in self._response.aiter_bytes():
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LINE_BYTES:
                raise httpx.DecodingError(f"a line is longer than {LINE_BYTES} bytes")
            for line in lines:
                yield line.decode("utf-8", "replace")
