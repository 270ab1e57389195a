"""README.md is true: every command in it runs, every link leads somewhere.

A ``$`` line in a console block is a command. `WALK` tries those of the first five minutes in their order, as one does,
in a directory that looks like a clone; the others are tried by themselves. `make test`, `make soak`, `make check` and
`make format` cannot run from within a test that they run (or would change the code): make says what they would do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench.test_bench import BENCHES
from tests.support.envoy import FLAGS as ENVOY_FLAGS
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, child_environment, free_port

README = REPOSITORY / "README.md"
COMMAND_TIMEOUT_S = 60
DEMO_TIMEOUT_S = 100
BENCHED = [f"python -m {module}" for module in BENCHES]
DRY = ["make test", "make setup", "make check", "make soak", "make format"]
ON_PATH = 'export PATH="$PWD/.venv/bin:$PATH"'


class Clone:
    """A directory that looks like a clone in which ``make setup`` ran; its ports are free ones."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self.directory = directory
        self.upstream_port, self.listener_port, self.grpc_port, self.http_port = (free_port() for _ in range(4))
        self._running = running
        shutil.copytree(REPOSITORY / "examples", directory / "examples")
        (directory / ".venv").symlink_to(sys.prefix)
        snapshot = directory / "examples/hello/snapshot.yaml"
        snapshot.write_text(self.adapted(snapshot.read_text()))
        self._environment = {
            "XDS_SERVER__GRPC__PORT": str(self.grpc_port),
            "XDS_SERVER__HTTP__PORT": str(self.http_port),
            "XDS_ADDR": f"http://{LOOPBACK}:{self.http_port}",
        }

    def adapted(self, text: str) -> str:
        """The same with free ports in place of those of the documentation."""
        ports = {"18001": self.upstream_port, "10000": self.listener_port}
        return re.sub("|".join(ports), lambda found: str(ports[found[0]]), text)

    def run(self, command: str) -> str:
        """Run a command to its end; its output. It must succeed."""
        done = subprocess.run(
            ["bash", "-c", self._line(command)],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            env=child_environment(self._environment),
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, name: str, command: str) -> ChildProcess:
        """Start a command that runs until the test ends."""
        argv = ["bash", "-c", self._line(f"exec {command}")]
        return self._running.enter_context(ChildProcess(name, argv, self.directory, self._environment))

    def _line(self, command: str) -> str:
        return f"cd {self.directory} && {ON_PATH} && {self.adapted(command)}"


def _on_path(clone: Clone, command: str) -> None:
    """Every other command of the walk runs behind this one."""
    assert command == ON_PATH
    for name in ("xds", "envoy", "python"):
        assert clone.run(f"command -v {name}").strip() == f"{clone.directory}/.venv/bin/{name}"


def _serve(clone: Clone, command: str) -> None:
    server = clone.start("server", command)
    url = f"http://{LOOPBACK}:{clone.http_port}"
    server.wait_until(lambda: _fetches(clone, f"{url}/readyz"), "ready")
    assert (clone.directory / "xds-data").is_dir()
    for path in ("/api/v1/openapi.json", "/metrics"):
        assert _fetches(clone, f"{url}{path}"), path


def _bootstrap(clone: Clone, command: str) -> None:
    clone.run(command.replace("xds bootstrap", f"xds bootstrap --xds-addr {LOOPBACK}:{clone.grpc_port}"))


def _envoy(clone: Clone, command: str) -> None:
    envoy = clone.start("envoy", " ".join([command, *ENVOY_FLAGS]))  # beside other Envoys on this machine
    envoy.wait_until(lambda: "edge-1" in clone.run("xds nodes"), "Envoy is connected")


def _apply(clone: Clone, command: str) -> None:
    assert "group default: revision 1: +1 clusters" in clone.run(command)


def _upstream(clone: Clone, command: str) -> None:
    upstream = clone.start("upstream", command)
    upstream.wait_until(lambda: _fetches(clone, f"http://{LOOPBACK}:{clone.upstream_port}/"), "the upstream answers")


def _curl(clone: Clone, command: str) -> None:
    assert "You asked for /hello" in clone.run(command)


def _nodes(clone: Clone, command: str) -> None:
    assert re.search(r"^edge-1 .* default .* ok 1 .* ok 1 .* ok 1 .* ok 1 ", clone.run(command), re.MULTILINE)


def _clusters(clone: Clone, command: str) -> None:
    assert re.search(r"^clusters +hello ", clone.run(command), re.MULTILINE)


def _nacks(clone: Clone, command: str) -> None:
    header, *records = clone.run(command).splitlines()
    assert "MESSAGE" in header
    assert not records


def _fetches(clone: Clone, url: str) -> bool:
    try:
        return bool(clone.run(f"curl -sf {url}"))
    except AssertionError:
        return False


WALK: Mapping[str, Callable[[Clone, str], None]] = {
    ON_PATH: _on_path,
    "xds serve": _serve,
    "xds bootstrap --node-id edge-1 > envoy.yaml": _bootstrap,
    "envoy -c envoy.yaml": _envoy,
    "xds apply -g default -f examples/hello/snapshot.yaml --wait": _apply,
    "python examples/hello/upstream.py 18001": _upstream,
    "curl http://127.0.0.1:10000/hello": _curl,
    "xds nodes": _nodes,
    "xds get clusters": _clusters,
    "xds nacks": _nacks,
}


def commands() -> list[str]:
    """The commands of all console blocks, in their order."""
    blocks: list[str] = re.findall(r"^```console\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines), "a console block holds commands, each behind '$ '"
    return [line.removeprefix("$ ") for line in lines]


def make(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run make with the virtual environment that there is, up to date or not (``-o``)."""
    venv = os.path.relpath(sys.prefix, REPOSITORY)
    argv = ["make", "-o", f"{venv}/installed.stamp", f"VENV={venv}", *arguments]
    # What make tells a make below it (`make test` runs us) is not for this one.
    inherited = {"MAKEFLAGS": "", "MAKELEVEL": "", "MFLAGS": ""}
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=DEMO_TIMEOUT_S,
        cwd=REPOSITORY,
        env=child_environment({**inherited, **(environment or {})}),
        check=False,
    )


def test_every_command_is_known_here() -> None:
    found = commands()
    assert sorted(found) == sorted(["make demo", *DRY, *WALK, *BENCHED])
    assert [command for command in found if command in WALK] == list(WALK), "the walk is in another order"


def test_first_five_minutes(tmp_path: Path, running: ExitStack) -> None:
    clone = Clone(tmp_path, running)
    for command, tried in WALK.items():
        tried(clone, command)


def test_make_demo_shows_a_request_through_envoy() -> None:
    done = make("demo", environment={"DEMO_ONCE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Hello from the upstream!" in done.stdout


@pytest.mark.parametrize("command", DRY)
def test_make_has_the_target(command: str) -> None:
    done = make("-n", command.removeprefix("make "))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [README, *sorted((REPOSITORY / "docs").glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert not missing


def test_files_that_are_named_exist() -> None:
    named = set(re.findall(r"`((?:examples|tests|docs|bench)/[\w./-]+)`", README.read_text()))
    assert named
    assert not [name for name in named if not (REPOSITORY / name).exists()]
