"""A bootstrap from the options of ``xds bootstrap`` and ``xds envoy``, and where it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from xds.cli.arguments import parse_address
from xds.cli.client import read_token_file
from xds.cli.errors import CommandError, Exit
from xds.cli.output import Format, to_json, to_yaml, write_document
from xds.cli.private_file import private_file
from xds.cli.proxy_arguments import ProxyArguments
from xds.envoy.bootstrap import BootstrapMode, BootstrapOptions, ClientTls
from xds.model.node import DEFAULT_GROUP, Locality
from xds.settings.sections import GRPC_PORT, HTTP_PORT, LOOPBACK
from xds.settings.settings import is_loopback

Json = dict[str, Any]

DEFAULT_NODE_ID = "envoy-1"
METADATA_DEPTH = 32
_DOT = re.compile(r"(?<!\\)\.")


def bootstrap_options(
    given: ProxyArguments, token_file: Path | None, *, is_insecure: bool, load_reports: bool
) -> BootstrapOptions:
    """The parameters of a bootstrap. Raises ``CommandError``."""
    token = _token(given.token, token_file, given.mode)
    name, service = _identity(given)
    port = HTTP_PORT if given.mode is BootstrapMode.REST else GRPC_PORT
    host, port = parse_address(given.xds_addr or f"{LOOPBACK}:{port}")
    try:
        tls = ClientTls.of(given.ca, given.cert, given.key)
    except ValueError as error:
        raise CommandError(Exit.USAGE, f"--ca, --cert, --key: {error}") from None
    if token and not is_insecure:
        _check_token_is_private(host, tls)
    locality = Locality(given.region, given.zone, given.sub_zone)
    return BootstrapOptions(
        *(name, service, host, port, given.mode, given.admin_port, locality, tls),
        token=token,
        load_reports=load_reports,
        metadata=parse_metadata(given.metadata or ()),
    )


def with_token_file_and_probes(
    options: BootstrapOptions, token_path: str, ready: str, *, is_insecure: bool
) -> BootstrapOptions:
    """The options with a token that Envoy reads from a file of its own, and with an address for probes.

    Raises ``CommandError``.
    """
    if (token_path or ready) and options.mode in {BootstrapMode.GRPC, BootstrapMode.REST}:
        raise CommandError(Exit.USAGE, f"--proxy-token-file, --ready-addr: not with --mode {options.mode}")
    if token_path and options.token:
        raise CommandError(Exit.USAGE, "give the token, or --proxy-token-file")
    if token_path and not is_insecure:
        _check_token_is_private(options.host, options.tls)
    if ready and not options.admin_port:
        raise CommandError(Exit.USAGE, "--ready-addr: give --admin-port too, from which it answers")
    return replace(options, token_path=token_path, ready=parse_address(ready) if ready else None)


def _check_token_is_private(host: str, tls: ClientTls | None) -> None:
    if tls is None and not is_loopback(host):
        raise CommandError(Exit.USAGE, f"the token would reach {host} without TLS: give --ca, or --insecure")


def _identity(given: ProxyArguments) -> tuple[str, str]:
    """Node id and cluster, with defaults for what is not given; both empty if Envoy's own flags have them."""
    if not given.service_node:
        if given.node_id == "":
            raise CommandError(Exit.USAGE, "--node-id: a proxy without an id is refused")
        return given.node_id or DEFAULT_NODE_ID, DEFAULT_GROUP if given.cluster is None else given.cluster
    if given.mode is BootstrapMode.GRPC:
        raise CommandError(Exit.USAGE, "--service-node: gRPC libraries have no such flags; give --node-id")
    if given.node_id is not None or given.cluster is not None:
        raise CommandError(Exit.USAGE, "--service-node leaves --node-id and --cluster to Envoy's own flags")
    return "", ""


def _token(token: str, file: Path | None, mode: BootstrapMode) -> str:
    """The bearer token that the proxy sends, from an option or a file; empty if it has none."""
    if token and file is not None:
        raise CommandError(Exit.USAGE, "give either --token or --token-file")
    secret = token or (read_token_file(file) if file is not None else "")
    if secret and mode is BootstrapMode.GRPC:
        raise CommandError(
            Exit.USAGE, "gRPC libraries cannot send a token that a bootstrap names: give --cert and --key instead"
        )
    if secret and mode is BootstrapMode.REST:
        raise CommandError(Exit.USAGE, "Envoy sends no token when it polls: give --cert and --key, or another --mode")
    return secret


def parse_metadata(fields: Iterable[str]) -> Json:
    """The metadata of ``KEY=VALUE`` fields: dots in a key nest, ``\\.`` does not; a value that is JSON is read as such.

    Raises ``CommandError``.
    """
    metadata: Json = {}
    for field in fields:
        key, equals, text = field.partition("=")
        names = [name.replace("\\.", ".") for name in _DOT.split(key)]
        if not equals or not all(names) or len(names) > METADATA_DEPTH:
            raise CommandError(Exit.USAGE, f"--metadata: not KEY=VALUE: {field!r}")
        _put(metadata, names, _value(text), field)
    return metadata


def _put(metadata: Json, names: list[str], value: Any, field: str) -> None:
    """Set the value at its place; what another field has set there is not replaced."""
    *parents, last = names
    for name in parents:
        metadata = metadata.setdefault(name, {})
        if not isinstance(metadata, dict):
            raise CommandError(Exit.USAGE, f"--metadata: {field!r}: {name!r} has a value already")
    if last in metadata:
        raise CommandError(Exit.USAGE, f"--metadata: {field!r}: {last!r} has a value already")
    metadata[last] = value


def _value(text: str) -> Any:
    """The value of JSON, else the text itself; ``NaN`` and ``Infinity`` are no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


def write_bootstrap(document: Json, target: str, format: Format) -> None:
    """Write a bootstrap to standard output if ``target`` is a format, ``-`` or empty, else to a file of that name.

    The file has JSON if its name ends so, and may be read by its owner only (0600), since it may have a token. Raises
    ``CommandError``.
    """
    if target in {"", "-", *Format}:
        write_document(document, Format(target) if target in set(Format) else format)
        return
    path = Path(target)
    text = to_json(document) if path.suffix == ".json" or format is Format.JSON else to_yaml(document)
    with private_file(path) as file:
        file.write(text.encode())
