"""Ports of test runs that take place side by side."""

from __future__ import annotations

import subprocess
import sys

from tests.support.process import REPOSITORY, free_port

RESERVE = "import sys; from tests.support.process import reserve_port; print(reserve_port(int(sys.argv[1])))"


def reserved_elsewhere(port: int) -> str:
    """What another process is told when it asks for the port."""
    command = [sys.executable, "-c", RESERVE, str(port)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout.strip()


def test_no_other_process_receives_a_port_that_is_not_bound_yet() -> None:
    """Two runs side by side drew the same port: the tests of one then spoke to the server of the other."""
    port = free_port()
    assert reserved_elsewhere(port) == "False"


def test_a_port_is_free_again_when_its_process_ends() -> None:
    below = 9_999  # no port of a test
    assert [reserved_elsewhere(below) for _ in range(2)] == ["True", "True"]
