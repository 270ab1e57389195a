"""Programs that are never shipped: the API server of Kubernetes from its public Go modules, and some of Debian's."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.peers.child import REPOSITORY, PeerError
from bench.peers.go_program import GoProgram

# From nothing it takes some four minutes to build on two cores.
KUBE_APISERVER = GoProgram("kube-apiserver-1.34.1", Path(__file__).resolve().parent / "apiserver")
DOWNLOAD_TIMEOUT_S = 300.0


def etcd() -> Path:
    """The etcd on the path, else Debian's. Raises ``PeerError`` where neither is to be had."""
    return _of_debian("etcd", "etcd-server")


def prometheus() -> Path:
    """The Prometheus on the path, else Debian's. Raises ``PeerError`` where neither is to be had."""
    return _of_debian("prometheus", "prometheus")


def promtool() -> Path:
    """Prometheus' own checker of rules on the path, else Debian's. Raises ``PeerError`` where neither is to be had."""
    return _of_debian("promtool", "prometheus")


def _of_debian(program: str, package: str) -> Path:
    """A program on the path, else that of a package of Debian or Ubuntu, unpacked into ``.tools/``, not installed."""
    installed = shutil.which(program)
    if installed is not None:
        return Path(installed)
    folder = REPOSITORY / ".tools"
    folder.mkdir(exist_ok=True)
    unpacked = folder / program
    with (folder / f"{program}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists():
            _unpack(package, unpacked)
    return unpacked


def _unpack(package: str, target: Path) -> None:
    """Unpack the program that is named like the target."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            _run(package, ["apt-get", "download", package], folder)
        except PeerError:  # a machine without lists of packages
            _run(package, ["apt-get", "update"], folder)
            _run(package, ["apt-get", "download", package], folder)
        archive = next(Path(folder).glob("*.deb"))
        _run(package, ["dpkg", "-x", str(archive), folder], folder)
        partial = target.with_suffix(".partial")
        shutil.copy2(Path(folder) / "usr/bin" / target.name, partial)
        partial.rename(target)


def _run(package: str, argv: list[str], folder: str) -> None:
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise PeerError(f"{package} is needed: install it, or run on a system that has {argv[0]}") from None
    if done.returncode:
        raise PeerError(f"{package} is needed: {' '.join(argv)}: {done.stderr.strip()}")
