"""A directory like a clone after ``make setup``, in which a test runs the commands of a page as a reader would.

A line with ``$`` in a console block is a command. The walk of a page is the list of its commands, each with a row that
tries it: `says`, `fails` and `starts` make rows, and so does any function of a `Clone` and the command.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from tests.support import forked_command
from tests.support.commands import COMMANDS
from tests.support.envoy import FLAGS as ENVOY_FLAGS
from tests.support.forked_command import SOCKET_VARIABLE
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, child_environment, free_port, wait_until
from tests.support.server_forks import ForkedServer, can_fork

T = TypeVar("T")

COMMAND_TIMEOUT_S = 60
ON_PATH = 'export PATH="$PWD/.venv/bin:$PATH"'
# The ports of the documentation. Each clone replaces them by its own.
GRPC, HTTP, ADMIN, PROBES, LISTENER, CONSUL = "18000", "18080", "19000", "19001", "10000", "8500"
PORTS = (
    GRPC,
    HTTP,
    ADMIN,
    PROBES,
    LISTENER,
    CONSUL,
    "10443",
    "18001",
    "18002",
    "18003",
    "18004",
    "50051",
    "18100",
    "18180",
)
FOLDERS = ("examples", "deploy")
ADAPTED = {".yaml", ".yml", ".json"}


class Clone:
    """The directory, its ports, and the processes that were started in it."""

    def __init__(self, directory: Path, running: ExitStack, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.ports = {port: free_port() for port in PORTS}
        self.started: dict[str, ChildProcess] = {}
        self._running = running
        for folder in FOLDERS:
            shutil.copytree(REPOSITORY / folder, directory / folder)
        for path in (path for folder in FOLDERS for path in (directory / folder).rglob("*") if path.suffix in ADAPTED):
            path.write_text(self.adapted(path.read_text()))
        _link_environment(directory / ".venv")
        self._environment = {
            "XDS_SERVER__GRPC__PORT": str(self.ports[GRPC]),
            "XDS_SERVER__HTTP__PORT": str(self.ports[HTTP]),
            "XDS_ADDR": self.url(HTTP),
            "CONSUL_HTTP_ADDR": self.url(CONSUL),
            **(environment or {}),
        }

    def set(self, name: str, value: str) -> None:
        """Set an environment variable for the commands that follow."""
        self._environment[name] = value

    def enter(self, folder: str) -> None:
        """Run the commands that follow in a folder of the clone."""
        (self.directory / folder / ".venv").symlink_to(self.directory / ".venv")
        self.directory /= folder

    def url(self, port: str, path: str = "") -> str:
        """The address of a port of the documentation."""
        return f"http://{LOOPBACK}:{self.ports[port]}{path}"

    def adapted(self, text: str) -> str:
        """The text with this clone's ports instead of those of the documentation."""
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: str(self.ports[found[0]]), text)

    def run(self, command: str, code: int = 0) -> str:
        """Run a command to its end and check that it exits with ``code``; its output, standard error last."""
        done = self.done(command)
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def done(self, command: str) -> subprocess.CompletedProcess[str]:
        """A command that has run to its end."""
        return subprocess.run(
            ["bash", "-c", self._line(command)],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            env=child_environment({**self._environment, SOCKET_VARIABLE: str(COMMANDS.path())}),
            check=False,
        )

    def start(self, name: str, command: str) -> ChildProcess:
        """Start a command that runs until the test ends; a server as a fork of a process that has imported it."""
        self.started[name] = self._forked(name, command) or self._executed(name, command)
        return self._running.enter_context(self.started[name])

    def keep(self, context: AbstractContextManager[T]) -> T:
        """Enter a context, until the test ends."""
        return self._running.enter_context(context)

    def _forked(self, name: str, command: str) -> ChildProcess | None:
        """``VARIABLE=value xds ARGUMENTS``; None for a command that needs a shell."""
        if any(character in command for character in "$|&;<>*~"):
            return None
        words = shlex.split(self.adapted(command))
        variables = dict(word.split("=", 1) for word in takewhile(lambda word: "=" in word, words))
        program, *arguments = words[len(variables) :]
        path = f"{self.directory / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**self._environment, "PATH": path, **variables}
        if program != "xds" or not can_fork(environment):
            return None
        return ForkedServer(name, arguments, self.directory, environment, working=self.directory)

    def _executed(self, name: str, command: str) -> ChildProcess:
        argv = ["bash", "-c", self._line(f"exec env {command}")]
        return ChildProcess(name, argv, self.directory, self._environment)

    def fetches(self, url: str) -> bool:
        """True when the page answers with a success."""
        done = subprocess.run(["curl", "-sf", "--noproxy", "*", "-o", "/dev/null", url], check=False)
        return done.returncode == 0

    def knows(self, node: str) -> bool:
        """True once the server knows a node."""
        return self.fetches(self.url(HTTP, f"/api/v1/nodes/{node}"))

    def _line(self, command: str) -> str:
        return f"cd {self.directory} && {ON_PATH} && {self.adapted(command)}"


def _link_environment(target: Path) -> None:
    """A virtual environment of links to ours. Its ``xds`` runs in a fork where `Clone.run` tells it to."""
    programs = target / "bin"
    programs.mkdir(parents=True)
    for entry in Path(sys.prefix).iterdir():
        if entry.name != "bin":
            (target / entry.name).symlink_to(entry)
    for entry in (Path(sys.prefix) / "bin").iterdir():
        if entry.name != "xds":
            (programs / entry.name).symlink_to(entry)
    (programs / "xds").write_text(
        f"#!/bin/sh\n"
        f'[ -z "${SOCKET_VARIABLE}" ] || exec {sys.executable} -IS {forked_command.__file__} "$@"\n'
        f'exec {sys.prefix}/bin/xds "$@"\n'
    )
    (programs / "xds").chmod(0o755)


Row = Callable[[Clone, str], object]
Walk = Sequence[tuple[str, Row]]


def commands(page: Path) -> Iterator[str]:
    """The commands of all console blocks of a page, in their order."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            assert line.startswith("$ "), f"{page.name}: a console block holds commands, each behind '$ ': {line}"
            yield line.removeprefix("$ ")


def try_page(page: Path, walk: Walk, clone: Clone) -> None:
    """Every command of the page, in the order of the page. A command without a row fails."""
    try_commands(str(page), commands(page), walk, clone)


def try_commands(text: str, found: Iterable[str], walk: Walk, clone: Clone) -> None:
    """The commands that are found in a text, in their order. A command without a row fails."""
    assert list(found) == [command for command, _ in walk], f"{text}: commands and rows differ"
    for command, row in walk:
        row(clone, command)


# Rows


def says(*patterns: str) -> Row:
    """It succeeds, and its output matches each pattern."""
    return fails(0, *patterns)


def fails(code: int, *patterns: str) -> Row:
    """It exits with ``code``, and its output matches each pattern."""

    def tried(clone: Clone, command: str) -> None:
        output = clone.run(command, code)
        missing = [pattern for pattern in patterns if not re.search(clone.adapted(pattern), output, re.MULTILINE)]
        assert not missing, f"{command}: no {missing} in\n{output}"

    return tried


def sees(*patterns: str) -> Row:
    """It succeeds and its output matches each pattern, if not at once then soon.

    Files are read when they rest, and Envoy has what a command changed a moment after its end.
    """

    def tried(clone: Clone, command: str) -> None:
        def is_seen() -> bool:
            done = clone.done(command)
            outputs[:] = [done.stdout + done.stderr]
            return done.returncode == 0 and all(re.search(clone.adapted(each), outputs[0], re.M) for each in patterns)

        outputs: list[str] = []
        wait_until(is_seen, command, detail=lambda: outputs)

    return tried


def starts(name: str, port: str, path: str = "/") -> Row:
    """It runs until the test ends, and its port soon answers GET ``path`` with a success."""

    def tried(clone: Clone, command: str) -> None:
        started = clone.start(name, command)
        started.wait_until(lambda: clone.fetches(clone.url(port, path)), f"{command} answers")

    return tried


SERVE = starts("server", HTTP, "/readyz")


def bootstrap(clone: Clone, command: str) -> None:
    """``xds bootstrap``, for the server of this clone."""
    if "--xds-addr" not in command:
        port = clone.ports[HTTP if "--mode rest" in command else GRPC]
        command = command.replace("xds bootstrap", f"xds bootstrap --xds-addr {LOOPBACK}:{port}")
    clone.run(command)


def envoy(node: str) -> Row:
    """``envoy``, until the server knows it by its node id."""

    def tried(clone: Clone, command: str) -> None:
        started = clone.start(node, " ".join([command, *ENVOY_FLAGS]))  # beside other Envoys on this machine
        started.wait_until(lambda: clone.knows(node), f"{node} is connected")

    return tried


def envoy_command(node: str) -> Row:
    """``xds envoy`` for the server of this clone, until the server knows the node."""

    def tried(clone: Clone, command: str) -> None:
        own, _, flags = command.partition(" -- ")
        address = f"{LOOPBACK}:{clone.ports[GRPC]}"
        started = clone.start(node, " ".join([own, "--xds-addr", address, "--", flags, *ENVOY_FLAGS]))
        started.wait_until(lambda: clone.knows(node), f"{node} is connected")

    return tried
