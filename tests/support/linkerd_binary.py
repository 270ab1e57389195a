"""The program linkerd2-proxy: from ``XDS_TEST_LINKERD_PROXY``, else built from its sources, once, under ``.tools/``."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.process import REPOSITORY

PROGRAM = "XDS_TEST_LINKERD_PROXY"
SOURCES = "XDS_TEST_LINKERD_SOURCES"
VERSION = "release/v2.366.0"
REPOSITORY_URL = "https://github.com/linkerd/linkerd2-proxy"
BUILD_TIMEOUT_S = 3_600.0
# tokio_unstable is a need of the proxy; a program without debugging information is a tenth of the size.
FLAGS = "--cfg tokio_unstable -C debuginfo=0 --cap-lints warn"


def linkerd_proxy() -> Path:
    """The program. Raises ``RuntimeError`` with the output of the compiler, or if there is no compiler.

    Safe to call from several processes at once. ``XDS_TEST_LINKERD_SOURCES`` is a checkout to build from.
    """
    named = os.environ.get(PROGRAM)
    if named:
        return Path(named)
    folder = REPOSITORY / ".tools"
    folder.mkdir(exist_ok=True)
    built = folder / f"linkerd2-proxy-{VERSION.rpartition('/')[2]}"
    with (folder / "linkerd2-proxy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _build(built)
    return built


def _build(path: Path) -> None:
    needed = [command for command in ("cargo", "cmake", "cc", "git") if shutil.which(command) is None]
    if needed:
        raise RuntimeError(
            f"linkerd2-proxy is built by {', '.join(needed)}, which is not here; or name it in {PROGRAM}"
        )
    sources = Path(os.environ.get(SOURCES) or _checkout(path.parent))
    environment = {**os.environ, "RUSTFLAGS": FLAGS, "CARGO_NET_GIT_FETCH_WITH_CLI": "true"}
    _run(["cargo", "build", "--locked", "-p", "linkerd2-proxy"], sources, environment)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or sources / "target")
    partial = path.with_suffix(".partial")
    shutil.copy(target / "debug" / "linkerd2-proxy", partial)
    partial.rename(path)


def _checkout(folder: Path) -> Path:
    sources = folder / "linkerd2-proxy"
    if not sources.exists():
        partial = sources.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        _run(["git", "clone", "--depth", "1", "--branch", VERSION, REPOSITORY_URL, str(partial)], folder)
        partial.rename(sources)
    return sources


def _run(argv: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    found = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if found.returncode:
        raise RuntimeError(f"{' '.join(argv)} in {folder}:\n{found.stderr[-4_000:]}")


if __name__ == "__main__":
    print(linkerd_proxy())
