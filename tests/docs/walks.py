"""How each command of each page is tried.

`make test`, `make soak`, `make check` and `make format` cannot run from within a test that they run (or would change
the code): make says what they would do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from tests.bench.test_bench import BENCHES
from tests.support.clone import ON_PATH, SERVE, Clone, Walk, bootstrap, envoy, says, starts
from tests.support.process import REPOSITORY, child_environment

DEMO_TIMEOUT_S = 100


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


def dry(clone: Clone, command: str) -> None:
    """A target of make that is not run here: make knows what it would do."""
    done = make("-n", command.removeprefix("make "))
    assert done.returncode == 0, done.stderr


def demo(clone: Clone, command: str) -> None:
    """``make demo`` shows a request through Envoy."""
    done = make(command.removeprefix("make "), environment={"DEMO_ONCE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Hello from the upstream!" in done.stdout


def benched(clone: Clone, command: str) -> None:
    """A bench: it has tests of its own."""
    assert command.removeprefix("python -m ") in BENCHES


def on_path(clone: Clone, command: str) -> None:
    """Every command of every page runs behind this one."""
    assert command == ON_PATH
    for name in ("xds", "envoy", "python"):
        assert clone.run(f"command -v {name}").strip() == f"{clone.directory}/.venv/bin/{name}"


def serve(clone: Clone, command: str) -> None:
    """The server of the first five minutes: it leaves its state, and serves what the page says."""
    SERVE(clone, command)
    assert (clone.directory / "xds-data").is_dir()
    assert all(clone.fetches(clone.url("18080", path)) for path in ("/api/v1/openapi.json", "/metrics"))


def no_nacks(clone: Clone, command: str) -> None:
    """The header alone."""
    header, *records = clone.run(command).splitlines()
    assert "MESSAGE" in header
    assert not [record for record in records if "edge-1" in record]


UPSTREAM = starts("upstream", "18001")

README: Walk = [
    ("make demo", demo),
    ("make test", dry),
    ("make setup", dry),
    (ON_PATH, on_path),
    ("xds serve", serve),
    ("xds bootstrap --node-id edge-1 > envoy.yaml", bootstrap),
    ("envoy -c envoy.yaml", envoy("edge-1")),
    (
        "xds apply -g default -f examples/hello/snapshot.yaml --wait",
        says(r"group default: revision 1: \+1 clusters", "1 of 1 nodes"),
    ),
    ("python examples/hello/upstream.py 18001", UPSTREAM),
    ("curl http://127.0.0.1:10000/hello", says("You asked for /hello")),
    ("xds nodes", says("^edge-1 .* default ")),
    ("xds get clusters", says("^clusters +hello ")),
    ("xds nacks", no_nacks),
    ("make check", dry),
    ("make soak", dry),
    ("make format", dry),
    ("python -m bench.engine", benched),
    ("python -m bench.fanout", benched),
]


def nothing(clone: Clone) -> None:
    """The page starts what it needs."""


def running_hello(clone: Clone) -> None:
    """A server and an Envoy that serves ``examples/hello``: where the first five minutes end."""
    for command, row in README[4:10]:
        row(clone, command)


WALKS: Mapping[str, tuple[Callable[[Clone], None], Walk]] = {
    "README.md": (nothing, README),
}
