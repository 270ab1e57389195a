"""The templates of ``xds init``: a snapshot each, except for the mesh, which is a folder."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from xds.cli.errors import CommandError, Exit
from xds.cli.output import say, write

_FILES = Path(__file__).with_name("template_files")
STDOUT = "-"


class Template(StrEnum):
    """What a snapshot or folder shows."""

    HELLO = "hello"
    TLS = "tls"
    WEIGHTED = "weighted"
    CANARY = "canary"
    MESH = "mesh"


def template_text(template: Template) -> str:
    """The text of a snapshot."""
    return (_FILES / f"{template}.yaml").read_text()


def write_template(template: Template, target: str) -> None:
    """Write a template to a new file or folder, or print it. Raises ``CommandError`` if there is something already."""
    is_folder = template is Template.MESH
    if target == STDOUT and is_folder:
        raise CommandError(Exit.USAGE, f"-o -: the template {template} is a folder of files")
    if target == STDOUT:
        write(template_text(template))
        return
    path = Path(target or (template if is_folder else f"{template}.yaml"))
    try:
        if is_folder:
            _copy(_FILES / template, path)
        else:
            _write_new(path, template_text(template))
    except FileExistsError as error:
        raise CommandError(
            Exit.USAGE, f"{error.filename} is there already and is kept; -o names another place"
        ) from None
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{path}: {error.strerror or error}") from None
    say(f"{path / 'README.md' if is_folder else path} says at its beginning how to use it")


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for path in sorted(source.iterdir()):
        if path.is_dir():
            _copy(path, target / path.name)
        else:
            _write_new(target / path.name, path.read_text())


def _write_new(path: Path, text: str) -> None:
    with path.open("x") as file:
        file.write(text)
