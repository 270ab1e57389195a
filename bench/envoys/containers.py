"""The measurement with containers: the server and the image of the Envoys of docker-compose.yml.

The server is the service ``xds`` in a separate project (so that its volume is new), with the ports that it publishes on
this machine; the Envoys are run from the image of ``envoy-east`` in the network of the host, where the
tap, the load and the upstreams are. go-control-plane stays the native process that it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.envoys.sides import Ours
from bench.fanout import Server, wait_ready
from bench.peers.child import LOOPBACK, REPOSITORY
from tests.support.process import ChildProcess

COMPOSE_FILE = REPOSITORY / "docker-compose.yml"
PROJECT = "xds-bench-envoys"
SERVICE, ENVOY_SERVICE = "xds", "envoy-east"
GRPC_PORT, HTTP_PORT = 18000, 18080
COMPOSE = ("docker", "compose", "-p", PROJECT, "-f", str(COMPOSE_FILE))


def missing() -> str:
    """Why there can be no containers; empty where there can."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    for what, argv in (("Docker", ["docker", "info"]), ("docker compose", ["docker", "compose", "version"])):
        asked = subprocess.run(argv, capture_output=True, text=True, check=False)
        if asked.returncode:
            lines = (asked.stderr or asked.stdout).strip().splitlines() or [f"exit code {asked.returncode}"]
            return f"{what} is not at hand ({lines[0]})"
    return ""


class ContainerEnvoy:
    """An Envoy in a container; its files are where they are on the host."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        user = f"{os.getuid()}:{os.getgid()}"
        # Without the uid its entry point would take a user that cannot write into the folder.
        host = ["--network", "host", "--user", user, "-e", "ENVOY_UID=0", "-v", f"{folder}:{folder}"]
        argv = ["docker", "run", "--rm", "--name", f"{PROJECT}-{name}", *host, envoy_image(), *arguments]
        self._process = ChildProcess(name, argv, folder)

    def check(self) -> None:
        assert self._process.running, self._process.log_tail()

    def stop(self) -> None:
        self._process.stop()


def envoy_image() -> str:
    """The image of the Envoys in docker-compose.yml."""
    document = yaml.safe_load(COMPOSE_FILE.read_text())
    return str(document["services"][ENVOY_SERVICE]["image"])


@contextmanager
def ours() -> Iterator[Ours]:
    """Our server as docker-compose.yml starts it, its store on disk; all of the project is removed afterwards."""
    _compose("up", "--detach", "--build", "--no-deps", SERVICE)
    try:
        container = _compose("ps", "--quiet", SERVICE)
        pid = int(_said("docker", "inspect", "--format", "{{.State.Pid}}", container))
        assert Path(f"/proc/{pid}").exists(), "Docker runs on another machine or in one of its own: no CPU can be read"
        server = Server(pid, f"{LOOPBACK}:{GRPC_PORT}", f"http://{LOOPBACK}:{HTTP_PORT}")
        wait_ready(server)
        side = Ours(server)
        try:
            yield side
        finally:
            side.close()
    finally:
        _compose("down", "--volumes")


def _compose(*arguments: str) -> str:
    return _said(*COMPOSE, *arguments)


def _said(*argv: str) -> str:
    """What a command printed. Raises ``AssertionError`` with its complaint when it failed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
    return done.stdout.strip()
