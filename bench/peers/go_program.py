"""The go-control-plane server, built once per state of its sources and kept under ``.tools/``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from bench.peers.child import REPOSITORY, PeerError

SOURCES = Path(__file__).resolve().parent / "go-control-plane"
BUILD_TIMEOUT_S = 1_800.0  # from nothing: some hundred packages of generated code
KEY_LENGTH = 16


def go_command() -> str | None:
    """The Go toolchain's command; None where there is none."""
    return shutil.which("go")


def build() -> Path:
    """The program. Raises ``PeerError`` without a Go toolchain, and with the compiler's words when it does not build.

    Safe to call from several processes at once. Modules come from the Go module proxy, checked against go.sum.
    """
    go = go_command()
    if go is None:
        wanted = _wanted_version()
        raise PeerError(f"the go-control-plane server needs Go {wanted} or newer on the path: https://go.dev/dl")
    folder = REPOSITORY / ".tools"
    folder.mkdir(exist_ok=True)
    program = folder / f"go-control-plane-{_key(go)}"
    with (folder / "go-control-plane.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _compile(go, program)
    return program


def _compile(go: str, program: Path) -> None:
    partial = program.with_suffix(".partial")
    argv = [go, "build", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", str(partial), "."]
    built = subprocess.run(
        argv, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, env=_environment(), check=False
    )
    if built.returncode:
        raise PeerError(f"go build failed in {SOURCES}:\n{built.stderr}")
    partial.rename(program)


def _key(go: str) -> str:
    """Of the sources and the compiler."""
    version = subprocess.run(
        [go, "version"], cwd=SOURCES, capture_output=True, text=True, env=_environment(), check=True
    )
    digest = hashlib.sha256(version.stdout.encode())
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:KEY_LENGTH]


def _environment() -> dict[str, str]:
    # Without cgo the program is the same on every machine, and no C compiler is needed.
    return {**os.environ, "CGO_ENABLED": "0"}


def _wanted_version() -> str:
    lines = (SOURCES / "go.mod").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("go "))
