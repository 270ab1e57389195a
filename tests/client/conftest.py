"""A running server, and both clients of its admin API behind one surface."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.server import ServerProcess
from xds.client import AsyncClient, Client


class Driven:
    """The asynchronous client, called as the synchronous one: tests need to be written once."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*given: Any, **options: Any) -> Any:
            found = method(*given, **options)
            return self._runner.run(found) if inspect.iscoroutine(found) else self._drain(found)

        return call

    def _drain(self, found: Any) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(found)

        while True:
            try:
                yield self._runner.run(following())
            except StopAsyncIteration:
                return


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
        yield Driven(asynchronous, runner)
        runner.run(asynchronous.close())


@pytest.fixture(params=["blocking", "asynchronous"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each test runs with both clients."""
    return str(request.param)


@pytest.fixture
def client(kind: str, url: str) -> Iterator[Any]:
    with opened(kind, url) as found:
        yield found


_used = iter(range(1, 10_000))


@pytest.fixture
def group() -> str:
    """A group that no other test uses."""
    return f"client-{next(_used)}"
