"""``xds convert``: a static Envoy configuration as a snapshot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xds.cli.errors import CommandError, Exit
from xds.cli.files import read_object
from xds.cli.output import Format, say, to_yaml, write_document

if TYPE_CHECKING:
    from xds.control.bootstrap import BootstrapOptions

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files for the documents. Default: the snapshot to standard output, no bootstrap."""

    snapshot: Path | None
    bootstrap: Path | None
    format: Format


def convert_file(file: Path, options: BootstrapOptions, split: bool, outputs: Outputs) -> None:
    """Write the snapshot, and the rest of the configuration as a bootstrap. Raises ``CommandError``."""
    from xds.control.convert import convert
    from xds.model.errors import ValidationError

    document = read_object(file, "one Envoy configuration")
    try:
        found = convert(document, options=options, split=split)
    except ValidationError as error:
        raise CommandError(Exit.INVALID, "\n".join(f"{file}: {violation}" for violation in error.violations)) from None
    for note in found.notes:
        say(f"note: {note}")
    if outputs.bootstrap is not None:
        _write(outputs.bootstrap, found.bootstrap, outputs.format)
    if outputs.snapshot is not None:
        _write(outputs.snapshot, found.snapshot, outputs.format)
    else:
        write_document(found.snapshot, outputs.format)


def _write(file: Path, document: Json, format: Format) -> None:
    text = to_yaml(document) if format is Format.YAML else json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error.strerror}") from None
    say(f"wrote {file}")
