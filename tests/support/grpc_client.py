"""Real gRPC clients and servers (C core) that take their configuration over xDS, each in a process of its own.

Backends, which take none, serve from the process of the tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.grpc_peer import Server
from tests.support.process import REPOSITORY, CommandChild, wait_until

Json = dict[str, Any]

PEER = Path(__file__).with_name("grpc_peer.py")
CALL_DEADLINE_S = 5.0
# The last release with both an xDS client for the v2 transport and wheels for a current Python.
OLD_GRPC = "grpcio==1.49.1"
OLD_GRPC_PYTHONS = ("python3.11", "python3.10", "python3.9", "python3.8")
OLD_GRPC_LAST_PYTHON = (3, 11)
OLD_GRPC_FOLDER_VARIABLE = "XDS_TEST_OLD_GRPC"
INSTALL_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: the gRPC status name, the server's name, the status details."""

    status: str
    body: str
    details: str


class GrpcClient(CommandChild):
    """Calls targets such as ``xds:///svc``; ``python`` may be another interpreter (see `old_grpc_python`)."""

    def __init__(
        self,
        directory: Path,
        bootstrap: Json | None = None,
        name: str = "grpc-client",
        python: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        argv = [str(python or sys.executable), str(PEER), "client"]
        super().__init__(name, argv, directory, {**_environment(directory, name, bootstrap), **(environment or {})})

    def call(self, target: str, deadline_s: float = CALL_DEADLINE_S, fresh: bool = False) -> Outcome:
        """One call over the target's channel, or over a ``fresh`` channel, which is not in back-off."""
        return Outcome(**self.ask(op="call", target=target, deadline_s=deadline_s, fresh=fresh))

    def wait_body(self, target: str, body: str, fresh: bool = False) -> None:
        """Call until the server named ``body`` answers."""
        self._wait_outcome(target, lambda outcome: outcome.body == body, f"{target} answered by {body!r}", fresh)

    def wait_status(self, target: str, status: str, fresh: bool = False) -> Outcome:
        """Call until the status is ``status``."""
        return self._wait_outcome(target, lambda outcome: outcome.status == status, f"{target} ends {status}", fresh)

    def _wait_outcome(self, target: str, wanted: Callable[[Outcome], bool], what: str, fresh: bool) -> Outcome:
        last: list[Outcome] = []

        def called() -> bool:
            last[:] = [self.call(target, fresh=fresh)]
            return wanted(last[0])

        wait_until(called, what, detail=lambda: f"{last}\n{self.log_tail()}")
        return last[0]


class GrpcBackend(Server):
    """A plain gRPC server on a free port that answers with its name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


class XdsGrpcServer(CommandChild):
    """An xDS-enabled gRPC server: ``port`` refuses connections until its listener resource has arrived."""

    def __init__(self, directory: Path, bootstrap: Json, name: str, port: int) -> None:
        argv = [sys.executable, str(PEER), "xds-server", name, str(port)]
        super().__init__(f"grpc-{name}", argv, directory, _environment(directory, name, bootstrap))
        self.port: int = self.read()["port"]

    def calls(self) -> int:
        """The number of calls received."""
        return int(self.ask(op="calls")["calls"])


def _environment(directory: Path, name: str, bootstrap: Json | None) -> dict[str, str]:
    if bootstrap is None:
        return {}
    path = directory / f"{name}-bootstrap.json"
    path.write_text(json.dumps(bootstrap))
    return {"GRPC_XDS_BOOTSTRAP": str(path)}


def old_grpc_python() -> Path:
    """An interpreter with `OLD_GRPC`, in an environment of its own that is made on first use and kept.

    Kept under ``.tools/``, or where the variable `OLD_GRPC_FOLDER_VARIABLE` says. Safe to call from parallel tests.
    """
    default = REPOSITORY / ".tools" / OLD_GRPC.replace("==", "-")
    folder = Path(os.environ.get(OLD_GRPC_FOLDER_VARIABLE, default))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder)
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run(_old_interpreter(), "-m", "venv", str(folder))
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary=:all:", OLD_GRPC)
    (folder / "complete").touch()


def _old_interpreter() -> str:
    if sys.version_info[:2] <= OLD_GRPC_LAST_PYTHON:
        return sys.executable
    found = [path for name in OLD_GRPC_PYTHONS if (path := shutil.which(name))]
    assert found, f"{OLD_GRPC} has wheels up to Python 3.11 only; none of {OLD_GRPC_PYTHONS} is installed"
    return found[0]


def _run(*argv: str) -> None:
    run = subprocess.run(
        argv, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, env=os.environ.copy(), check=False
    )
    assert run.returncode == 0, f"{argv}: {run.stdout}{run.stderr}"
