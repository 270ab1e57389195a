"""The virtual environment of the Makefile: made where there is none, and made anew where it lacks pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import REPOSITORY, child_environment

TIMEOUT_S = 100
REFUSING = "-c \"import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])\""


def make_demo_environment(directory: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """Run make for what the demo needs, without installing packages."""
    stamp = directory / "demo.stamp"
    argv = ["make", str(stamp), f"VENV={directory}", f"PYTHON={sys.executable}", "PIP=true", *variables]
    environment = child_environment({"MAKEFLAGS": "", "MAKELEVEL": "", "MFLAGS": ""})
    return subprocess.run(
        argv, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.soak
@pytest.mark.parametrize("broken", [False, True], ids=["nothing there", "no pip in it"])
def test_a_virtual_environment_without_pip_is_replaced(tmp_path: Path, *, broken: bool) -> None:
    venv = tmp_path / "venv"
    if broken:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    done = make_demo_environment(venv)
    assert done.returncode == 0, done.stderr
    assert "Making the virtual environment" in done.stdout
    subprocess.run([venv / "bin/python", "-c", "import pip"], check=True)
    assert "Making" not in make_demo_environment(venv).stdout


def test_a_python_without_ensurepip_is_not_taken(tmp_path: Path) -> None:
    """As Debian's without python3-venv."""
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        fake = tmp_path / name
        fake.write_text(f'#!/bin/sh\nexec {sys.executable} {REFUSING} "$2"\n')
        fake.chmod(0o755)
    environment = child_environment({"PATH": f"{tmp_path}:/usr/bin:/bin", "MAKEFLAGS": "", "MAKELEVEL": ""})
    argv = ["make", f"{tmp_path}/venv/demo.stamp", f"VENV={tmp_path}/venv", "PIP=true"]
    done = subprocess.run(
        argv, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode != 0
    assert "apt install python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()
