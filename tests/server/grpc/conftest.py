"""Servers of our transport, on both of the loops that it may run on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop

from tests.server.grpc.service import Serve, Served
from xds.server.tls import PemFiles
from xds.wire.http2.stream import Http2Limits

MIB = 1 << 20


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Their transports differ in what they do when they are paused, aborted or full."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers; ends them, and sees that nothing is left of them."""
    started: list[Served] = []

    async def begin(files: PemFiles | None = None, **options: Any) -> Served:
        options.setdefault("limits", Http2Limits(message_bytes=32 * MIB))
        served = Served(**options)
        started.append(served)
        return await served.start(files)

    yield begin
    for served in started:
        await served.stop()
        await served.quiet()


@pytest.fixture
async def served(serve: Serve) -> Served:
    return await serve()
