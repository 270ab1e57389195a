"""Attacks on a running ``xds serve`` over real sockets, with a good client beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.attack.bystander import GROUP, Bystander
from tests.support import resources as r
from tests.support.server import ServerProcess

Beside = Callable[..., AbstractContextManager[Bystander]]


def resident(server: ServerProcess) -> int:
    """The server's memory in bytes, without pages of files: a fork counts those only once it has read them."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))


@pytest.fixture
def serve(tmp_path: Path, running: ExitStack) -> Callable[..., ServerProcess]:
    """Starts a server with something to serve. Arguments are `ServerProcess`'s."""

    def start(*flags: str, **arguments: Any) -> ServerProcess:
        server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory", *flags], **arguments))
        server.push(GROUP, [r.static_cluster("served")])
        return server

    return start


@pytest.fixture(scope="session")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without tokens, for attacks that leave nothing behind."""
    with ServerProcess(tmp_path_factory.mktemp("victim"), ["--store", "memory"]) as server:
        server.push(GROUP, [r.static_cluster("served")])
        yield server


@pytest.fixture
def beside() -> Beside:
    """A good client while the body runs; at its end it must have been served, and in time.

    What it waits for before the body runs says how slow the machine is.
    """

    @contextmanager
    def watched(server: ServerProcess, slowest_s: float = 5.0, token: str = "") -> Iterator[Bystander]:
        with Bystander(server.grpc_port, token=token) as bystander:
            bystander.served()
            usual_s = bystander.slowest_s
            yield bystander
            bystander.served()
        assert not bystander.failures
        assert bystander.slowest_s < slowest_s + 10 * usual_s
        assert server.process.running

    return watched
