"""What a command costs before it does anything: the modules it imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.process import LOOPBACK, REPOSITORY, child_environment

HEAVY = ("grpc", "fastapi", "starlette", "uvicorn", "uvloop", "betterproto2", "envoy_data_plane", "httpx", "rich")
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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment({"XDS_ADDR": NOBODY}),
        cwd=REPOSITORY,
        check=False,
    )
    imported = done.stderr.rpartition("IMPORTED ")[2].split()
    assert "typer" in imported, done.stderr
    assert not [module for module in imported if module.partition(".")[0] in (*HEAVY, "google")]
