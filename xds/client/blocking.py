"""`Client`: the admin API for programs without an event loop."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xds.calls.access import QUIET_S, TIMEOUT_S, ServerAccess
from xds.calls.call import Answer, ApiCall
from xds.calls.sender import BlockingSender, LongAnswer
from xds.client.methods import BlockingMethods
from xds.client.table import Calls


class Client(BlockingMethods, Calls):
    """The admin API of one server. Methods raise ``AdminApiError``; see its subclasses.

    ``server`` is its URL. Arguments that are left out come from the environment, as for the ``xds`` command:
    ``XDS_ADDR``, ``XDS_TOKEN`` or ``XDS_TOKEN_FILE``, ``XDS_CACERT``, ``XDS_CERT``, ``XDS_KEY``. Options of writes are
    those of ``PushArguments``. Lists are iterators that fetch page after page. Safe to use from several threads.
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
        self._sender = BlockingSender(access, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status. Raises ``UnreachableServerError``."""
        return self._sender.send(call, page)

    def begun(self, call: ApiCall[Any]) -> AbstractContextManager[LongAnswer]:
        """The answer to a call while it arrives. Raises ``UnreachableServerError``, also after ``QUIET_S``."""
        return self._sender.begun(call, QUIET_S)
