"""``xds convert``: makes a snapshot of a static Envoy configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import parse_address
from xds.cli.errors import CommandError, Exit, file_errors
from xds.cli.output import Format, say, to_yaml, write_document
from xds.envoy.bootstrap import BootstrapOptions

Json = dict[str, Any]


def convert_file(
    file: Path, options: BootstrapOptions, split: bool, snapshot: Path | None, bootstrap: Path | None, format: Format
) -> None:
    """Write the snapshot to a file or standard output, and the rest of the configuration as a bootstrap, if wanted.

    Raises ``CommandError``; with exit 3, after writing, if the result cannot be pushed or used as a bootstrap.
    """
    from xds.cli.files import read_located
    from xds.envoy import convert as conversion
    from xds.model.errors import ValidationError

    source = read_located(file, "one Envoy configuration")
    try:
        result = conversion.convert(source.document, options=options, split=split)
    except ValidationError as error:
        raise CommandError(Exit.INVALID, "\n".join(source.lines(error.violations))) from None
    for note in result.notes:
        say(f"note: {note}")
    if bootstrap is not None:
        _write(bootstrap, result.bootstrap, format)
    if snapshot is not None:
        _write(snapshot, result.snapshot, format)
    else:
        write_document(result.snapshot, format)
    if result.errors:
        raise CommandError(Exit.INVALID, "\n".join([*source.lines(result.errors), _INCOMPLETE]))


_INCOMPLETE = "the written files cannot be used as they are"


def _write(file: Path, document: Json, format: Format) -> None:
    text = to_yaml(document) if format is Format.YAML else json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    with file_errors(file):
        file.write_text(text, encoding="utf-8")
    say(f"wrote {file}")


@app.command(cls=Command)
def convert(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="An Envoy configuration (YAML or JSON), or - (standard input).")],
    split: Annotated[
        bool, typer.Option("--split", help="Make endpoints and routes separate resources (EDS, RDS).")
    ] = False,
    snapshot: Annotated[Path | None, typer.Option(help="File for the snapshot (default: standard output).")] = None,
    bootstrap: Annotated[Path | None, typer.Option(help="File for the bootstrap, which has everything else.")] = None,
    node_id: Annotated[str, typer.Option(help="Node id for the bootstrap if the file has none.")] = "envoy-1",
    cluster: Annotated[str, typer.Option(help="Node cluster for the bootstrap if the file has none.")] = "default",
    xds_addr: Annotated[str, typer.Option(help="HOST:PORT of the xDS server, for the bootstrap.")] = "",
) -> None:
    """Convert an Envoy configuration or config dump to a snapshot.

    Exits 3 when the configuration has errors, each with its place.

    \b
    Examples:
      xds convert envoy.yaml --snapshot edge.yaml --bootstrap bootstrap.yaml
      xds convert envoy.yaml | xds apply -g edge -f -
      curl -s 'localhost:9901/config_dump?include_eds' | xds convert - --snapshot edge.yaml --bootstrap bootstrap.yaml
    """
    from xds.settings.sections import GRPC_PORT, LOOPBACK

    host, port = parse_address(xds_addr) if xds_addr else (LOOPBACK, GRPC_PORT)
    format = shared(context).document_format()
    convert_file(file, BootstrapOptions(node_id, cluster, host, port), split, snapshot, bootstrap, format)
