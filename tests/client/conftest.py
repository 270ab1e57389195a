"""A running server, and all clients of its admin API behind one surface: blocking, asynchronous, within the program."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from tests.support.server import ServerProcess
from xds.client import AsyncClient, Client
from xds.client.methods import AsyncMethods
from xds.client.table import Calls
from xds.embed import Server
from xds.embed.local_sender import LocalSender

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Driven:
    """An asynchronous client, called as the synchronous one: tests need to be written once."""

    def __init__(self, client: AsyncMethods, run: Run) -> None:
        self._client = client
        self._run = run

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*given: Any, **options: Any) -> Any:
            found = method(*given, **options)
            return self._run(found) if inspect.iscoroutine(found) else self._drain(found)

        return call

    def _drain(self, found: Any) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(found)

        try:
            while True:
                try:
                    yield self._run(following())
                except StopAsyncIteration:
                    return
        finally:
            self._run(found.aclose())


class LocalClient(AsyncMethods, Calls):
    """The calls sent to any application within the program."""

    def __init__(self, app: Any) -> None:
        self._sender = LocalSender(app)

    async def send(self, call: Any, page: str = "") -> Any:
        return await self._sender.send(call, page)

    def begun(self, call: Any) -> Any:
        return self._sender.begun(call)


@contextmanager
def looping() -> Iterator[Run]:
    """Runs coroutines on an event loop in another thread, which goes on between them: a server belongs to it."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"]) as started:
        yield started


@pytest.fixture(scope="module")
def url(server: ServerProcess) -> str:
    return f"http://127.0.0.1:{server.http_port}"


@contextmanager
def opened(kind: str, url: str, **arguments: Any) -> Iterator[Any]:
    """A client of this kind, called as a blocking one."""
    if kind == "blocking":
        with Client(url, **arguments) as found:
            yield found
        return
    with asyncio.Runner() as runner:
        asynchronous = AsyncClient(url, **arguments)
        yield Driven(asynchronous, runner.run)
        runner.run(asynchronous.close())


@pytest.fixture(scope="module")
def program() -> Iterator[tuple[Server, Any]]:
    """A server within the program, and its calls."""
    with looping() as run:
        server = Server(grpc="127.0.0.1:0", settings={"server": {"drain_s": 0}})
        run(server.__aenter__())
        try:
            yield server, Driven(server, run)
        finally:
            run(server.__aexit__(None, None, None))


@pytest.fixture(params=["blocking", "asynchronous"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each test runs with both clients that have connections."""
    return str(request.param)


@pytest.fixture(params=["blocking", "asynchronous", "within the program"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each test runs with all senders."""
    if request.param == "within the program":
        yield request.getfixturevalue("program")[1]
        return
    with opened(request.param, request.getfixturevalue("url")) as found:
        yield found


@pytest.fixture
def grpc_port(client: Any, request: pytest.FixtureRequest) -> int:
    """The port for xDS clients of the server that the client calls."""
    if isinstance(getattr(client, "_client", None), Server):
        server, _ = request.getfixturevalue("program")
        return int(server.grpc_address.port)
    return int(request.getfixturevalue("server").grpc_port)


_used = iter(range(1, 10_000))


@pytest.fixture
def group() -> str:
    """A group that no other test uses."""
    return f"client-{next(_used)}"
