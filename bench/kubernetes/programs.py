"""The programs of a Kubernetes API: its server from the public Go modules (Apache-2.0), never shipped, and etcd."""

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
ETCD_PACKAGE = "etcd-server"  # of Debian and Ubuntu
DOWNLOAD_TIMEOUT_S = 300.0


def etcd() -> Path:
    """The etcd on the path, else that of Debian's package, unpacked under ``.tools/`` without installing it.

    Raises ``PeerError`` where neither is to be had.
    """
    installed = shutil.which("etcd")
    if installed is not None:
        return Path(installed)
    folder = REPOSITORY / ".tools"
    folder.mkdir(exist_ok=True)
    unpacked = folder / "etcd"
    with (folder / "etcd.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists():
            _unpack(unpacked)
    return unpacked


def _unpack(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            _run(["apt-get", "download", ETCD_PACKAGE], folder)
        except PeerError:  # a machine without lists of packages
            _run(["apt-get", "update"], folder)
            _run(["apt-get", "download", ETCD_PACKAGE], folder)
        package = next(Path(folder).glob("*.deb"))
        _run(["dpkg", "-x", str(package), folder], folder)
        partial = target.with_suffix(".partial")
        shutil.copy2(Path(folder) / "usr/bin/etcd", partial)
        partial.rename(target)


def _run(argv: list[str], folder: str) -> None:
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise PeerError(f"etcd is needed: install it, or run on a system that has {argv[0]}") from None
    if done.returncode:
        raise PeerError(f"etcd is needed: {' '.join(argv)}: {done.stderr.strip()}")
