"""A separate Python environment with xds-protos, the reference implementation of Envoy's types.

xds-protos has top-level packages ``xds``, ``envoy`` and ``test``, so it must not be installed beside this project.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

REFERENCE = "xds-protos==1.85.0"
FOLDER_VARIABLE = "XDS_TEST_REFERENCE"

_ROOT = Path(__file__).parent.parent.parent
_INSTALL_TIMEOUT_S = 300.0


def reference_python() -> Path:
    """An interpreter with `REFERENCE`, in an environment that is made on first use and kept.

    Kept under ``.tools/``, or where the variable `FOLDER_VARIABLE` says. Safe to call from several processes at once.
    Raises ``RuntimeError`` when it cannot be made.
    """
    default = _ROOT / ".tools" / REFERENCE.replace("==", "-")
    folder = Path(os.environ.get(FOLDER_VARIABLE, default))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder)
    return folder / "bin" / "python"


def run_reference(script: Path, stdin: bytes, timeout_s: float = 60.0) -> bytes:
    """What a script prints there. It runs isolated: neither our packages nor the script's neighbours can be imported.

    Raises ``RuntimeError`` with its messages when it fails.
    """
    return _run([str(reference_python()), "-I", str(script)], stdin, timeout_s)


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], b"", _INSTALL_TIMEOUT_S)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, REFERENCE], b"", _INSTALL_TIMEOUT_S)
    (folder / "complete").touch()


def _run(argv: list[str], stdin: bytes, timeout_s: float) -> bytes:
    run = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{argv}: {run.stderr.decode(errors='replace')[-2000:]}")
    return run.stdout
