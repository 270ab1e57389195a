"""``xds convert``: a static Envoy configuration as a snapshot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from xds.cli.failure import CommandError, Exit
from xds.cli.output import Format, say, to_yaml, write_document

Json = dict[str, Any]


def convert_file(file: Path, split: bool, snapshot: Path | None, bootstrap: Path | None, format: Format) -> None:
    """Write the snapshot, and what is left of the configuration. Raises ``CommandError``."""
    from xds.control.conversion import convert
    from xds.model.errors import ValidationError

    document = _read(file)
    try:
        found = convert(document, split=split)
    except ValidationError as error:
        raise CommandError(Exit.INVALID, "\n".join(f"{file}: {violation}" for violation in error.violations)) from None
    for note in found.notes:
        say(f"note: {note}")
    if bootstrap is not None:
        _write(bootstrap, found.bootstrap, format)
    if snapshot is not None:
        _write(snapshot, found.snapshot, format)
    else:
        write_document(found.snapshot, format)


def _read(file: Path) -> Json:
    from xds.codec.document import parse_values
    from xds.model.errors import ValidationError

    name = "standard input" if str(file) == "-" else str(file)
    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        values = parse_values(text, source=name)
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error.strerror}") from None
    except ValidationError as error:
        raise CommandError(Exit.INVALID, "\n".join(map(str, error.violations))) from None
    found = values[0] if len(values) == 1 else None
    if not isinstance(found, dict):
        raise CommandError(Exit.INVALID, f"{name}: one Envoy configuration is expected")
    return found


def _write(file: Path, document: Json, format: Format) -> None:
    import json

    text = to_yaml(document) if format is Format.YAML else json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error.strerror}") from None
    say(f"wrote {file}")
