"""Contexts: named servers with their credentials, in ``config.toml`` of the user's configuration directory.

A context has the path of a token file, never a token. It applies as a whole: its token and its certificate are never
used for a server that the command line or ``XDS_ADDR`` names.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from xds.cli.errors import CommandError, Exit, file_errors

CONTEXT_VARIABLE = "XDS_CONTEXT"
DIRECTORY_VARIABLE = "XDG_CONFIG_HOME"
NAME_CHARACTERS = 63


@dataclass(frozen=True, slots=True)
class ServerContext:
    """A server, and the files of credentials for it. Empty: the default."""

    server: str = ""
    token_file: str = ""
    cacert: str = ""
    cert: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user by name, and the one that is used unless another is named."""

    named: Mapping[str, ServerContext]
    current: str = ""

    def chosen(self, name: str) -> ServerContext:
        """The context of that name, or the current one; an empty one if there is none. Raises ``CommandError``."""
        wanted = name or os.environ.get(CONTEXT_VARIABLE, "") or self.current
        if not wanted:
            return ServerContext()
        if wanted not in self.named:
            known = ", ".join(sorted(self.named)) or "there are none"
            raise CommandError(Exit.USAGE, f"no such context: {wanted!r} ({known}); xds context set adds one")
        return self.named[wanted]


def contexts_path() -> Path:
    """The path of the contexts file, which may not exist."""
    directory = os.environ.get(DIRECTORY_VARIABLE) or str(Path.home() / ".config")
    return Path(directory) / "xds" / "config.toml"


def read_contexts() -> Contexts:
    """The contexts of the user; none if there is no file. Raises ``CommandError`` for a file that cannot be read."""
    path = contexts_path()
    try:
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return Contexts({})
    except (OSError, ValueError) as error:
        raise CommandError(Exit.USAGE, f"{path}: {error}") from None
    named = document.get("contexts", {})
    if not isinstance(named, dict) or not isinstance(document.get("current", ""), str):
        raise CommandError(Exit.USAGE, f"{path}: expected current, and a table contexts.NAME for each context")
    return Contexts({name: _context(path, name, values) for name, values in named.items()}, document.get("current", ""))


def _context(path: Path, name: str, values: Any) -> ServerContext:
    known = [each.name for each in fields(ServerContext)]
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise CommandError(Exit.USAGE, f"{path}: contexts.{name}: expected {', '.join(known)}, each a string")
    unknown = [key for key in values if key not in known]
    if unknown:
        raise CommandError(Exit.USAGE, f"{path}: contexts.{name}.{unknown[0]}: unknown; expected {', '.join(known)}")
    return ServerContext(**values)


def write_contexts(contexts: Contexts) -> None:
    """Replace the file as a whole; only the user may read it. Raises ``CommandError``."""
    from xds.cli.private_file import private_file

    path = contexts_path()
    with file_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with private_file(path) as file:
        file.write(_toml(contexts).encode())


def _toml(contexts: Contexts) -> str:
    """The file as TOML. Strings are written as JSON, which is also a TOML basic string."""
    lines = [f"current = {json.dumps(contexts.current)}"] if contexts.current else []
    for name, context in sorted(contexts.named.items()):
        lines += ["", f"[contexts.{json.dumps(name)}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in asdict(context).items() if value]
    return "\n".join(lines) + "\n"
