"""The database of the tests in a module. A test that harms its database makes one of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    """PostgreSQL for all tests of the module."""
    with PostgresServer(["fsync = off"]) as running:
        yield running


@pytest.fixture
def url(database: PostgresServer) -> str:
    """The URL of an empty database."""
    return database.make_database()
