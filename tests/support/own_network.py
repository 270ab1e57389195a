"""A network of its own for this process: its own loopback, where connections to virtual addresses reach a proxy.

Each thread has its own network in the kernel. Threads and children that the calling thread starts later are in the new
one; threads that run already, such as those of grpc, are not.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_OWN = Path("/proc/thread-self/ns/net")
OWN_ADDRESS = "10.1.0.1"  # of this machine in the network: a proxy does not connect to the loopback
WANTED = "it needs Linux, root, and the commands ip and nft (Debian: iproute2, nftables)"


@contextmanager
def own_network() -> Iterator[None]:
    """A network with nothing but a loopback, and one address besides.

    Raises ``RuntimeError`` if the system allows none.
    """
    if any(which(command) is None for command in ("ip", "nft")):
        raise RuntimeError(f"there is no network of its own for the test: {WANTED}")
    before = os.open(_OWN, os.O_RDONLY)
    try:
        _call("unshare", _NEW_NETWORK)
        try:
            run("ip", "link", "set", "lo", "up")
            run("ip", "address", "add", f"{OWN_ADDRESS}/32", "dev", "lo")
            yield
        finally:
            _call("setns", before, _NEW_NETWORK)
    finally:
        os.close(before)


def redirect(network: str, port: int) -> None:
    """Let connections to a network of virtual addresses reach a port of the loopback, as Linkerd's own init does."""
    run("ip", "route", "add", "local", network, "dev", "lo")
    rules = [
        "add table ip virtual",
        "add chain ip virtual output { type nat hook output priority -100; }",
        f"add rule ip virtual output ip daddr {network} meta l4proto tcp redirect to :{port}",
    ]
    run("nft", "; ".join(rules))


def run(*argv: str) -> None:
    """Run a command. Raises ``RuntimeError`` with its output if it fails."""
    found = subprocess.run(argv, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {found.stderr.strip()}; {WANTED}")


def _call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments):
        error = ctypes.get_errno()
        raise RuntimeError(f"{name}: {os.strerror(error)}; {WANTED}")
