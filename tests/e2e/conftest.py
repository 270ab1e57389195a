"""Fixtures of the tests with the server as a process and real clients."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.swap_site import SwapSites
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess
from tests.support.process import LOOPBACK, free_port
from tests.support.server import ServerProcess

Connect = Callable[..., EnvoyProcess]


@pytest.fixture
def server(tmp_path: Path, running: ExitStack, request: pytest.FixtureRequest) -> ServerProcess:
    """A running server with an empty data directory. A parameter is its environment."""
    return running.enter_context(ServerProcess(tmp_path, environment=getattr(request, "param", None)))


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server for tests that change only its groups."""
    with ServerProcess(tmp_path_factory.mktemp("shared")) as server:
        yield server


@pytest.fixture
def connect(tmp_path: Path, server: ServerProcess, running: ExitStack) -> Connect:
    """Starts the server's Envoy in a variant:

    ``envoy-1`` of cluster ``test``, or the test's own node on a shared server.

    Further arguments are those of `EnvoyBootstrap`.
    """

    def start(variant: Variant, **fields: Any) -> EnvoyProcess:
        port = server.http_port if variant is Variant.REST else server.grpc_port
        node = {"node_id": server.node, "node_cluster": server.group}
        return running.enter_context(EnvoyProcess(tmp_path, EnvoyBootstrap(port, variant, **{**node, **fields})))

    return start


@pytest.fixture
def sites(tmp_path: Path, background: Background, running: ExitStack) -> SwapSites:
    """Opens sites that end with the test."""
    return SwapSites(tmp_path, background, running)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which no Envoy can listen."""
    with socket.socket() as holder:
        holder.bind((LOOPBACK, free_port()))
        holder.listen()
        yield holder.getsockname()[1]
