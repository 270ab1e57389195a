"""Metadata of calls: header fields as handlers see them, and theirs as header fields."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator

from xds.http2.headers import Fields

Metadata = Iterable[tuple[str, str | bytes]]

_BINARY = "-bin"
_TEXT = re.compile(r"[ -~]*")
_KEY = re.compile(r"[a-z0-9_.-]+")


def read_metadata(fields: Fields) -> Iterator[tuple[str, str | bytes]]:
    """What a client sent, the values of ``-bin`` keys as bytes."""
    for key, value in fields:
        if key.endswith(_BINARY):
            # What a client sends under one key twice may arrive as one value with a comma.
            yield from ((key, _decoded(each.strip(" "))) for each in value.split(","))
        else:
            yield (key, value)


def metadata_fields(metadata: Metadata) -> Fields:
    """What a handler sends as header fields. Raises ``ValueError`` for what gRPC does not allow."""
    return tuple(_field(key, value) for key, value in metadata)


def _field(key: str, value: str | bytes) -> tuple[str, str]:
    if not _KEY.fullmatch(key):
        raise ValueError(f"metadata cannot have the key {key!r}")
    if key.endswith(_BINARY):
        data = value if isinstance(value, bytes) else value.encode()
        return key, base64.b64encode(data).decode().rstrip("=")
    text = value if isinstance(value, str) else value.decode("latin-1")
    if not _TEXT.fullmatch(text):
        raise ValueError(f"metadata of {key} has characters beyond printable ASCII; use a key that ends in {_BINARY}")
    return key, text


def _decoded(value: str) -> bytes:
    """Binary metadata, whose base64 may lack its padding."""
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return b""
