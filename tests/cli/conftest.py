"""``xds serve`` in a process, and the other commands against it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import FinishedCommand, address, xds
from tests.support.process import ChildProcess
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from tests.support.server_forks import ForkedServer


@dataclass(frozen=True)
class Remote:
    """The command line pointed at a running server."""

    server: ServerProcess

    def xds(self, *arguments: str | Path, stdin: str = "") -> FinishedCommand:
        return xds(*arguments, stdin=stdin, environment=address(self.server.http_port))

    def start(self, directory: Path, *arguments: str) -> ChildProcess:
        """A command that keeps running; its output is in the child's log."""
        return ForkedServer("command", arguments, directory, address(self.server.http_port))


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with ExitStack() as stack:
        yield Remote(stack.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"])))


@pytest.fixture
def group(remote: Remote, request: pytest.FixtureRequest) -> Iterator[str]:
    """A group for one test, with a cluster."""
    name = request.node.originalname.removeprefix("test_")[:40].rstrip("_")
    remote.server.push(name, [static_cluster("a", 80)])
    yield name
    remote.server.request("DELETE", f"/api/v1/groups/{name}", params={"allow_empty": "true"})
