"""Servers and browsers that run for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.browser.devtools import BrowserPage
from tests.browser.world import furnish
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def running() -> Iterator[ExitStack]:
    """What runs until the end of the module."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server that `VIEWS` show."""
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"]))
        furnish(running, server)
        yield server


@pytest.fixture(scope="module")
def window(furnished: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    """A browser on that server."""
    url = f"http://127.0.0.1:{furnished.http_port}/"
    with BrowserPage(url, tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def browser(window: BrowserPage) -> BrowserPage:
    """The browser, which has told nothing yet."""
    window.messages.clear()
    window.failures.clear()
    return window
