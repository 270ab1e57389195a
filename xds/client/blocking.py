"""`Client`: the admin API for programs without an event loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xds.admin.models.events import ServerEvent
from xds.calls.access import QUIET_S, TIMEOUT_S, ServerAccess
from xds.calls.call import Answer, ApiCall, document_of
from xds.calls.failures import ServerBusyError, UnreachableServerError
from xds.calls.fleet import EventCursor
from xds.calls.sender import BlockingSender
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

    def events(
        self, *, kinds: Sequence[str] = (), group: str = "", node: str = "", after: str = "", reconnects: bool = True
    ) -> Iterator[ServerEvent]:
        """Events as they happen, without end. ``after``: start behind the event with this id; ``"0"``: at the oldest.

        A lost connection is opened again, and the events of the gap follow. If the server no longer has some of them,
        an event of the kind ``lagged`` says so. Raises ``UnreachableServerError`` or ``ServerBusyError`` if the server
        does not answer for a minute, and with ``reconnects=False`` when the connection is lost.
        """
        cursor = EventCursor(kinds, group, node, after, reconnects)
        while True:
            try:
                yield from self._events(cursor)
            except (UnreachableServerError, ServerBusyError) as error:
                cursor.fail(error)
            if not reconnects:
                return
            time.sleep(cursor.delay_s())

    def _events(self, cursor: EventCursor) -> Iterator[ServerEvent]:
        with self._sender.begun(cursor.call(), QUIET_S) as answer:
            if not answer.is_success:
                document_of(answer.whole())
            cursor.begin(answer.headers)
            yield from filter(None, map(cursor.read, answer.lines()))
