"""The options that all commands share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from xds.calls.access import ADDRESS_VARIABLE
from xds.cli.client import Client
from xds.cli.contexts import read_contexts
from xds.cli.errors import CommandError, Exit
from xds.cli.output import Color, Format
from xds.cli.table import Style


@dataclass(frozen=True, slots=True)
class Shared:
    """The values of the shared options."""

    server: str = ""
    token_file: Path | None = None
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    output: Format | None = None
    no_headers: bool = False
    columns: str = ""
    sort_by: str = ""
    limit: int = 0
    timestamps: bool = False
    color: Color = Color.AUTO
    show_secrets: bool = False
    quiet: bool = False
    context: str = ""

    def style(self, default: Format = Format.TABLE) -> Style:
        """The style of a list."""
        columns = tuple(part.strip() for part in self.columns.split(",") if part.strip())
        format = self.output or default
        return Style(format, not self.no_headers, columns, self.sort_by, self.limit, self.timestamps, self.color)

    def document_format(self) -> Format:
        """The format of a single document: YAML unless JSON is given."""
        return self.output if self.output in {Format.JSON, Format.JSONL} else Format.YAML

    def connect(self) -> Client:
        """A client of the server named by the options, the environment or a context. Raises ``CommandError``."""
        server, files = self.access()
        return Client(server, *files)

    @property
    def files(self) -> tuple[Path | None, ...]:
        """The files of credentials that the options name: a token, authorities, a certificate and its key."""
        return self.token_file, self.cacert, self.cert, self.key

    def access(self) -> tuple[str, tuple[Path | None, ...]]:
        """The server, and the files of credentials for it. Raises ``CommandError``."""
        if not self.context and (self.server or os.environ.get(ADDRESS_VARIABLE)):
            return self.server, self.files
        chosen = read_contexts().chosen(self.context)
        if self.server and chosen.server != self.server:
            raise CommandError(Exit.USAGE, f"--server is not the server of context {self.context}: give one of them")
        defaults = (chosen.token_file, chosen.cacert, chosen.cert, chosen.key)
        paths = (
            file or (Path(default) if default else None) for file, default in zip(self.files, defaults, strict=True)
        )
        return chosen.server, tuple(paths)
