"""deploy/systemd: the unit runs the server as it says, reloads it, and stops it in time."""

from __future__ import annotations

import configparser
import shlex
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.deploy.native import BIN
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, accepts_connections, free_port
from xds.app.settings import load_settings

DIRECTORY = REPOSITORY / "deploy/systemd"
SETTINGS = "/etc/xds/xds.yaml"
PROGRAM = "/opt/xds/bin/xds"


class UnitFile(configparser.ConfigParser):
    """A unit file. Names of options have upper-case letters."""

    def optionxform(self, optionstr: str) -> str:
        """The name as it is written."""
        return optionstr


@pytest.fixture
def unit() -> UnitFile:
    parser = UnitFile(interpolation=None)
    parser.read(DIRECTORY / "xds.service")
    return parser


def environment(unit: UnitFile, state: Path) -> dict[str, str]:
    """What ``Environment=`` sets; ``%S`` is the directory of the state."""
    words = shlex.split(unit["Service"]["Environment"].replace("%S", str(state)))
    return dict(word.split("=", 1) for word in words)


def test_the_unit_serves_reloads_and_stops(unit: UnitFile, tmp_path: Path, running: ExitStack) -> None:
    settings = yaml.safe_load((DIRECTORY / "xds.yaml").read_text())
    ports = {section: free_port() for section in settings["server"]}
    for section, port in ports.items():
        assert settings["server"][section]["host"] == LOOPBACK
        settings["server"][section]["port"] = port
    path = tmp_path / "xds.yaml"
    path.write_text(yaml.safe_dump(settings))

    program, *arguments = shlex.split(unit["Service"]["ExecStart"].replace(SETTINGS, str(path)))
    assert program == PROGRAM
    state = tmp_path / "state"
    (state / unit["Service"]["StateDirectory"]).mkdir(parents=True)
    argv = [str(BIN / "xds"), *arguments]
    server = running.enter_context(ChildProcess("xds", argv, tmp_path, environment(unit, state)))
    server.wait_until(lambda: all(accepts_connections(port) for port in ports.values()), "it listens")
    assert list((state / "xds").iterdir())

    assert unit["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    path.write_text(yaml.safe_dump({**settings, "auth": {"token_sha256": ["0" * 64]}}))
    server_pid = server.pid
    assert subprocess.run(["/bin/kill", f"-{signal.SIGHUP.value}", str(server_pid)], check=False).returncode == 0
    server.wait_until(lambda: "auth.reloaded" in server.log(), "the credentials are read again")
    assert server.stop() == 0


def test_the_unit_gives_the_server_time_to_drain(unit: UnitFile) -> None:
    assert float(unit["Service"]["TimeoutStopSec"]) > load_settings().server.drain_s


def test_the_unit_gives_no_rights_that_the_server_does_not_need(unit: UnitFile) -> None:
    service = unit["Service"]
    assert service["DynamicUser"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["UMask"] == "0077"
