"""What a command costs before it runs: the modules that it imports. Also how its process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.commands import FinishedCommand, xds
from tests.support.process import LOOPBACK, REPOSITORY, child_environment

HEAVY = ("grpc", "fastapi", "starlette", "uvicorn", "uvloop", "betterproto2", "envoy_data_plane", "httpx", "rich")
FORM = {f"xds.admin.models.{name}" for name in ("reading", "values", "writing")}
NOBODY = f"http://{LOOPBACK}:1"
PROGRAM = """
import sys
from xds.cli.main import main
sys.argv = ["xds", *sys.argv[1:]]
try:
    main()
finally:
    sys.stderr.write("\\nIMPORTED " + " ".join(sys.modules) + "\\n")
"""

# Ctrl-C comes when a module is asked for that every command imports.
INTERRUPTED = """
import os, signal, sys
from xds.cli.main import main

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
main()
"""


def run(arguments: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A new interpreter, as users start it."""
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment({"XDS_ADDR": NOBODY}),
        cwd=REPOSITORY,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ["--version"],
        ["nodes"],
        ["nacks", "-g", "edge"],
        ["get", "groups"],
        ["get", "clusters", "-g", "edge"],
        ["rollout", "status", "edge"],
        ["delete", "edge", "--yes"],
        ["watch"],
        ["check"],
        ["bootstrap"],
        ["apply", "--help"],
    ],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(command: list[str]) -> None:
    done = run(["-c", PROGRAM, *command])
    imported = done.stderr.rpartition("IMPORTED ")[2].split()
    assert "typer" in imported, done.stderr
    assert not [module for module in imported if module.partition(".")[0] in (*HEAVY, "google")]
    models = {module for module in imported if ".models." in module and module.startswith("xds.")}
    assert models <= FORM, "the classes of answers: commands read documents"


def test_ctrl_c_while_it_imports_ends_it_without_a_traceback() -> None:
    done = run(["-c", INTERRUPTED, "nodes"])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("command", "stdin", "code", "out", "err"),
    [
        (["--version"], "", 0, "xds-server ", ""),
        (["get", "nonsense"], "", 2, "", "xds: "),
        (["convert", "-"], "- 1", 3, "", "xds: "),
        (["nodes"], "", 7, "", "xds: cannot reach "),
        (["--nonsense"], "", 2, "", "Usage: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_process_ends_as_its_command(command: list[str], stdin: str, code: int, out: str, err: str) -> None:
    """Both in a new interpreter, and where the other tests of commands run it."""
    done = run(["-m", "xds.cli.main", *command], stdin)
    assert (done.returncode, done.stdout[: len(out)], done.stderr[: len(err)]) == (code, out, err)
    assert xds(*command, stdin=stdin, environment={"XDS_ADDR": NOBODY}) == FinishedCommand(
        code, done.stdout, done.stderr
    )
