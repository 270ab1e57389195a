"""`AsyncClient`: the admin API for programs with an event loop."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xds.calls.access import QUIET_S, TIMEOUT_S, ServerAccess
from xds.calls.async_sender import AsyncSender
from xds.calls.call import Answer, ApiCall
from xds.client.methods import ArrivingAnswer, AsyncMethods
from xds.client.table import Calls


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
        access = ServerAccess(server, token, cacert=cacert, cert=cert, key=key)
        self._sender = AsyncSender(access, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._sender.close()

    async def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""
        return await self._sender.send(call, page)

    def begun(self, call: ApiCall[Any]) -> AbstractAsyncContextManager[ArrivingAnswer]:
        """The answer to a call while it arrives. Raises ``UnreachableServerError``, also after ``QUIET_S``."""
        return self._sender.begun(call, QUIET_S)
