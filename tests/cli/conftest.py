"""``xds serve`` in a process, and the other commands against it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, child_environment
from tests.support.server import ServerProcess

COMMAND_TIMEOUT_S = 60


@dataclass(frozen=True)
class Ran:
    """One finished command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def xds(*arguments: str | Path, stdin: str = "", environment: dict[str, str] | None = None) -> Ran:
    """Run the command line in a process of its own."""
    command: Sequence[str | Path] = [sys.executable, "-m", "xds.cli.main", *arguments]
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        env=child_environment(environment),
        cwd=REPOSITORY,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Remote:
    """The command line pointed at a running server."""

    server: ServerProcess

    def xds(self, *arguments: str | Path, stdin: str = "") -> Ran:
        address = f"http://{LOOPBACK}:{self.server.http_port}"
        return xds(*arguments, stdin=stdin, environment={"XDS_ADDR": address})

    def start(self, directory: Path, *arguments: str) -> ChildProcess:
        """A command that runs on; what it writes is in the child's log."""
        command = [sys.executable, "-m", "xds.cli.main", *arguments]
        return ChildProcess("command", command, directory, {"XDS_ADDR": f"http://{LOOPBACK}:{self.server.http_port}"})


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with ExitStack() as stack:
        yield Remote(stack.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"])))
