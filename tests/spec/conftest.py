"""A server in memory and strict clients of both variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pytest

from tests.support.sansio import Client, Server
from tests.support.twin_streams import TwinStream
from xds.protocol.cohort import CohortStream
from xds.protocol.dialect import Variant


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/spec --twins``: each stream is compared with one that shares no state with others."""
    parser.addoption("--twins", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    """All tests of the engine take their streams from `Server`."""
    if config.getoption("--twins", default=False):
        Server.stream_type = TwinStream


@pytest.fixture
def without_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that count what there is."""
    monkeypatch.setattr(Server, "stream_type", CohortStream)


class Connect(Protocol):
    """Opens a stream of the test's variant to the test's server."""

    def __call__(
        self,
        node_id: str = "node",
        *,
        cluster: str = "",
        peer: str = "peer",
        type_url: str = "",
        metadata: Mapping[str, Any] | None = None,
        zone: str = "",
    ) -> Client: ...


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(params=list(Variant), ids=lambda variant: variant.value)
def variant(request: pytest.FixtureRequest) -> Variant:
    """Tests that take it, or a fixture that does, run once per variant of the protocol."""
    found: Variant = request.param
    return found


@pytest.fixture
def connect(server: Server, variant: Variant) -> Connect:
    def connect(node_id: str = "node", **fields: Any) -> Client:
        return Client(server, variant, node_id, **fields)

    return connect


@pytest.fixture
def client(connect: Connect) -> Client:
    """A stream of the test's variant."""
    return connect()


@pytest.fixture
def sotw(server: Server) -> Client:
    """A SotW stream."""
    return Client(server, Variant.SOTW)


@pytest.fixture
def delta(server: Server) -> Client:
    """A Delta stream."""
    return Client(server, Variant.DELTA)
