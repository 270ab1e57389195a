"""Go programs of the comparison, built once per version of their sources and kept under ``.tools/``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.child import REPOSITORY, PeerError

BUILD_TIMEOUT_S = 1_800.0  # from nothing: some hundred packages of generated code
KEY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A folder of Go sources. ``modules`` is its file of modules, ``tags`` are build tags.

    ``package`` is what is built: the folder itself, or a program of one of its modules.
    """

    name: str
    sources: Path
    modules: str = "go.mod"
    tags: str = ""
    package: str = "."


GO_CONTROL_PLANE = GoProgram("go-control-plane", Path(__file__).resolve().parent / "go-control-plane")


def go_command() -> str | None:
    """The Go toolchain's command; None where there is none."""
    return shutil.which("go")


def build(program: GoProgram = GO_CONTROL_PLANE) -> Path:
    """The program. Raises ``PeerError`` without a Go toolchain, and with the compiler's words when it does not build.

    Safe to call from several processes at once. Modules come from the Go module proxy, checked against go.sum.
    """
    go = go_command()
    if go is None:
        wanted = _wanted_version(program)
        raise PeerError(f"{program.name} needs Go {wanted} or newer on the path: https://go.dev/dl")
    folder = REPOSITORY / ".tools"
    folder.mkdir(exist_ok=True)
    built = folder / f"{program.name}-{_key(go, program)}"
    with (folder / f"{program.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _compile(go, program, built)
    return built


def _compile(go: str, program: GoProgram, path: Path) -> None:
    partial = path.with_suffix(".partial")
    argv = [go, "build", "-trimpath", "-mod=readonly", f"-modfile={program.modules}", f"-tags={program.tags}"]
    argv += ["-buildvcs=false", "-ldflags=-s -w", "-o", str(partial), program.package]
    _run(argv, program)
    partial.rename(path)


def _run(argv: Sequence[str], program: GoProgram) -> str:
    """What it prints. The Go command may fetch modules, or a toolchain."""
    what = f"{' '.join(argv[:2])} in {program.sources}"
    try:
        ended = subprocess.run(
            argv,
            cwd=program.sources,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            env=_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"{what} did not end in {BUILD_TIMEOUT_S:g} s") from None
    if ended.returncode:
        raise PeerError(f"{what} failed:\n{ended.stderr}")
    return ended.stdout


def _key(go: str, program: GoProgram) -> str:
    """Of the sources and the compiler."""
    version = _run([go, "version"], program)
    digest = hashlib.sha256(f"{version}{program.modules}{program.tags}".encode())
    for path in sorted(program.sources.iterdir()):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:KEY_LENGTH]


def _environment() -> dict[str, str]:
    # Without cgo the program is the same on every machine, and no C compiler is needed.
    return {**os.environ, "CGO_ENABLED": "0"}


def _wanted_version(program: GoProgram) -> str:
    lines = (program.sources / program.modules).read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("go "))
