"""`AsyncClient`: the admin API for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from xds.calls.access import CONNECT_TIMEOUT_S, QUIET_S, TIMEOUT_S, ServerAccess
from xds.calls.call import Answer, ApiCall
from xds.calls.failures import UnreachableServerError
from xds.client.methods import ArrivingAnswer, AsyncMethods
from xds.client.table import Calls

_LOST = httpx.RemoteProtocolError | httpx.ReadError


class AsyncClient(AsyncMethods, Calls):
    """The admin API of one server. Methods raise ``AdminApiError``; see its subclasses.

    ``server`` is its URL. Arguments that are left out come from the environment, as for the ``xds`` command:
    ``XDS_ADDR``, ``XDS_TOKEN`` or ``XDS_TOKEN_FILE``, ``XDS_CACERT``, ``XDS_CERT``, ``XDS_KEY``. Options of writes are
    those of ``PushArguments``. Lists are iterators that fetch page after page. A client belongs to one event loop, on
    which many calls may run at once.
    """

    def __init__(
        self,
        server: str = "",
        *,
        token: str = "",
        cacert: str | Path = "",
        cert: str | Path = "",
        key: str | Path = "",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._access = ServerAccess(server, token, cacert=cacert, cert=cert, key=key)
        self._timeout_s = timeout_s
        headers = {"Authorization": self._access.authorization} if self._access.authorization else {}
        self._http = httpx.AsyncClient(base_url=self._access.url, headers=headers, verify=self._access.tls or False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

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
            raise self._access.failure(TimeoutError()) from error
        except httpx.HTTPError as error:
            raise self._access.failure(error, is_lost=isinstance(error, _LOST)) from error

    @asynccontextmanager
    async def begun(self, call: ApiCall[Any]) -> AsyncIterator[ArrivingAnswer]:
        """The answer to a call while it arrives. Raises ``UnreachableServerError``, also after ``QUIET_S``."""
        with self._reaching():
            response = await self._http.send(self._request(call, QUIET_S), stream=True)
            try:
                yield HttpxAnswer(response)
            finally:
                await response.aclose()


class HttpxAnswer:
    """An answer that is read while it arrives."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers
        self.is_success = response.is_success

    async def whole(self) -> Answer:
        """All of it."""
        return Answer(self._response.status_code, self.headers, await self._response.aread())

    def lines(self) -> AsyncIterator[str]:
        """Its lines, without their ends."""
        return self._response.aiter_lines()
