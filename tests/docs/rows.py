"""Ways to try a command of a page, beside those of every walk (`tests.support.clone`).

`make test`, `make soak`, `make check` and `make format` cannot run from within a test that they run (or would change
the code): make says what they would do.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.bench.test_bench import BENCHES
from tests.deploy.dockerfile import read_stages
from tests.deploy.native import compose
from tests.support.clone import ON_PATH, SERVE, Clone, Row
from tests.support.envoy import FLAGS as ENVOY_FLAGS
from tests.support.process import LOOPBACK, REPOSITORY, child_environment, free_port, wait_until

DEMO_TIMEOUT_S = 100
COMMAND_EVERY_S = 0.5


def make(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run make with the virtual environment that there is, up to date or not (``-o``)."""
    venv = os.path.relpath(sys.prefix, REPOSITORY)
    stamps = [f"-o{venv}/{name}.stamp" for name in ("installed", "demo")]
    argv = ["make", *stamps, f"VENV={venv}", *arguments]
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


def entered(clone: Clone, command: str) -> None:
    """``mkdir FOLDER && cd FOLDER``, for the commands that follow."""
    folder = command.split()[1]
    assert command == f"mkdir {folder} && cd {folder}"
    (clone.directory / folder).mkdir()
    clone.enter(folder)


def starts_envoy(clone: Clone, command: str) -> None:
    """``xds envoy``, whose server the commands that follow ask."""
    clone.start("envoy", " ".join([command, "--", *ENVOY_FLAGS]))


def wheel(clone: Clone, command: str) -> None:
    """It leaves the wheel in the folder that the page names."""
    words = shlex.split(command)
    words[words.index("-w") + 1] = str(clone.directory / words[words.index("-w") + 1])
    _pip(words, REPOSITORY)


def installable(clone: Clone, command: str) -> None:
    """pip finds the wheel and satisfies what it needs; that what it installs runs is seen in ``tests/embed``."""
    _pip([*shlex.split(command), "--dry-run", "--no-index"], clone.directory)


def _pip(words: list[str], directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words, *(["--no-build-isolation"] if "wheel" in words else []), "--quiet"],
        capture_output=True,
        text=True,
        timeout=DEMO_TIMEOUT_S,
        cwd=directory,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def written(clone: Clone, command: str) -> None:
    """``xds init`` writes a file of the name that the page goes on with; it gets the ports of the clone."""
    path = (clone.directory / command.rsplit(maxsplit=1)[-1]).with_suffix(".yaml")
    clone.run(command)
    path.write_text(clone.adapted(path.read_text()))


def released(clone: Clone, command: str) -> None:
    """It names the distribution, its extras and its command as a release publishes them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    words = shlex.split(command)
    named = next(word for word in words if word.partition("[")[0] == project["name"])
    extra = named.partition("[")[2].rstrip("]")
    assert not extra or extra in project["optional-dependencies"]
    assert words[0] != "uvx" or words[words.index(named) + 1] in project["scripts"]


def built(clone: Clone, command: str) -> None:
    """Docker may not be there: the image is that of the compose file, whose services ``tests/deploy`` starts."""
    image = compose()["services"]["xds"]
    assert shlex.split(command) == ["docker", "build", "-t", image["image"], image["build"]]


def contained(clone: Clone, command: str) -> None:
    """It publishes the image's ports on the loopback, keeps its volume, and starts it as the compose file does."""
    words = shlex.split(command)
    service, final = compose()["services"]["xds"], read_stages(REPOSITORY / "Dockerfile")[-1]
    published = [words[index + 1] for index, word in enumerate(words) if word == "-p"]
    assert published == [f"{LOOPBACK}:{port}:{port}" for port in final.last("EXPOSE").rest.split()]
    assert words[words.index("-v") + 1].endswith(f":{final.last('VOLUME').rest}")
    assert words[words.index(service["image"]) + 1 :] == service["command"]


def dry(clone: Clone, command: str) -> None:
    """A target of make that is not run here: make knows what it would do."""
    done = make("-n", command.removeprefix("make "))
    assert done.returncode == 0, done.stderr


def demo(clone: Clone, command: str) -> None:
    """It shows a request through Envoy, and runs until it is ended."""
    started = clone.start("demo", command)
    started.wait_until(lambda: "Ctrl-C ends it." in started.log(), "the request is shown")
    assert "Hello from the upstream!" in started.log()
    assert started.stop() == 0


def make_demo(clone: Clone, command: str) -> None:
    """``make demo`` shows the same."""
    done = make(command.removeprefix("make "), environment={"DEMO_ONCE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Hello from the upstream!" in done.stdout
    assert "Ctrl-C" not in done.stdout


def benched(clone: Clone, command: str) -> None:
    """A bench: it has a row in the test of benches, or a test of its own."""
    module = command.removeprefix("python -m ").split()[0]
    assert module in BENCHES or (REPOSITORY / f"tests/bench/test_{module.removeprefix('bench.')}.py").exists()


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


def answers(**expected: object) -> Row:
    """The JSON that it prints has these members; a function judges the member's value."""

    def tried(clone: Clone, command: str) -> None:
        document = json.loads(clone.run(command))
        for name, value in expected.items():
            found = document.get(name)
            assert value(found) if callable(value) else found == value, f"{command}: {name} is {found!r}"

    return tried


def named(key: str, *names: object) -> Callable[[Any], bool]:
    """Whether the items are those with these names."""
    return lambda items: [item[key] for item in items] == list(names)


def soon(*patterns: str) -> Row:
    """It succeeds, and some time its output matches all of the patterns: what it shows is reported by and by."""

    def tried(clone: Clone, command: str) -> None:
        def matches() -> bool:
            output = clone.run(command)
            return all(re.search(pattern, output, re.MULTILINE) for pattern in patterns)

        wait_until(matches, f"{command} shows {patterns}", detail=lambda: clone.run(command), every_s=COMMAND_EVERY_S)

    return tried


def events(clone: Clone, command: str) -> None:
    """``--max-time`` ends the stream (exit code 28); the push of this page is in it."""
    lines = clone.run(command, code=28).splitlines()
    assert any(json.loads(line)["kind"] == "push" for line in lines if line.startswith("{"))


def watch_directory(clone: Clone, command: str) -> None:
    """A second server, on ports of its own; what is put into the directory is served."""
    (clone.directory / "snapshots").mkdir()
    http = f"{LOOPBACK}:{free_port()}"
    server = clone.start("watching", f"{command} --grpc {LOOPBACK}:0 --http {http}")
    server.wait_until(lambda: clone.fetches(f"http://{http}/readyz"), "ready")
    clone.run("cp examples/hello/snapshot.yaml snapshots/edge.yaml")
    server.wait_until(lambda: "edge" in clone.run(f"xds get groups -o name --server http://{http}").split(), "applied")
