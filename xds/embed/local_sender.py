"""The sender within the program: hands calls to the application that the HTTP port serves, without a connection.

A request runs in a task of its own, and its answer is read while it arrives. The program may do everything; the history
has it as ``program``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import structlog
from starlette.types import ASGIApp, Message, Scope

from xds.access.authorisation import PROGRAM
from xds.calls.call import Answer, ApiCall

HOST = b"program"
PIECES_LIMIT = 16  # of an answer that are not read yet

_log = structlog.get_logger(logger_name="xds.embed")


class LocalSender:
    """Sends calls to an application. Belongs to the event loop of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status."""
        async with self.begun(call, page) as answer:
            return await answer.whole()

    @asynccontextmanager
    async def begun(self, call: ApiCall[Any], page: str = "") -> AsyncIterator[LocalAnswer]:
        """The answer to a call while it arrives."""
        # A thread, because a large push takes long to encode.
        body = await asyncio.to_thread(_body, call) if call.body is not None else b""
        answer = LocalAnswer(body)
        task = asyncio.create_task(self._run(call, _scope(call, page, body), answer))
        try:
            await answer.started.wait()
            yield answer
        finally:
            if not answer.is_complete:  # the reader has left
                task.cancel()
            await asyncio.wait((task,))

    async def _run(self, call: ApiCall[Any], scope: Scope, answer: LocalAnswer) -> None:
        try:
            await self._app(scope, answer.receive, answer.send)
        except Exception:  # the answer says that there was an error
            _log.exception("local.failed", method=call.method, path=call.path)
        finally:
            answer.cut()


class LocalAnswer:
    """The answer to a request, and the request's end of the application."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(PIECES_LIMIT)
        self._status = int(HTTPStatus.INTERNAL_SERVER_ERROR)  # of an application that fails before it answers
        self.headers: dict[str, str] = {}
        self.started = asyncio.Event()
        self.is_complete = False

    @property
    def is_success(self) -> bool:
        """Whether the request is carried out."""
        return 200 <= self._status < 300

    async def whole(self) -> Answer:
        """All of it."""
        body = b"".join([piece async for piece in self._read()])
        return Answer(self._status, self.headers, body)

    async def lines(self) -> AsyncIterator[str]:
        """Its lines, without their ends."""
        rest = b""
        async for piece in self._read():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.decode()

    async def _read(self) -> AsyncIterator[bytes]:
        while piece := await self._pieces.get():
            yield piece

    async def receive(self) -> Message:
        """The body of the request, once; then nothing, since the program does not leave."""
        body, self._body = self._body, None
        if body is None:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
            self.started.set()
            return
        if message.get("body"):
            await self._pieces.put(message["body"])
        if not message.get("more_body", False):  # the application may have work to do after its answer
            self.is_complete = True
            await self._pieces.put(b"")

    def cut(self) -> None:
        """The application has ended: an answer that is not complete ends here."""
        if self.is_complete:
            return
        self.is_complete = True
        while self._pieces.full():
            self._pieces.get_nowait()
        self._pieces.put_nowait(b"")
        self.started.set()


def _body(call: ApiCall[Any]) -> bytes:
    content = call.content()
    return cast(bytes, content.read() if content is not None and hasattr(content, "read") else content or b"")


def _scope(call: ApiCall[Any], page: str, body: bytes) -> Scope:
    target, _, query = call.target(page).partition("?")
    headers = {"host": HOST.decode(), "content-length": str(len(body)), **call.sent_headers()}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": unquote(target),
        "raw_path": target.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": None,
        "server": None,
        "state": {"identity": PROGRAM},
    }
