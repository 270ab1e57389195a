"""Files for their owner alone, there as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from xds.cli.failure import CommandError, Exit


@contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """A file of mode 0600 that takes the name ``path`` when all is written; what has that name stays until then.

    Raises ``CommandError`` where it cannot be written.
    """
    made = ""
    try:
        descriptor, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)  # of mode 0600
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(made).replace(path)
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{path}: {error.strerror or error}") from None
    finally:
        if made:
            Path(made).unlink(missing_ok=True)
