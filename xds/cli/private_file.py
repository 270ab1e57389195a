"""Files that only their owner may read, and that appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from xds.cli.errors import file_errors


@contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """A file of mode 0600 that replaces ``path`` when it is complete.

    Raises ``CommandError`` if it cannot be written.
    """
    temporary = ""
    try:
        with file_errors(path):
            # ``mkstemp`` creates the file with mode 0600.
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
