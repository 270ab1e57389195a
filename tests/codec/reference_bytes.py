"""Documents to bytes as google.protobuf's json_format makes them over the classes of xds-protos.

Runs where xds-protos is installed (`xds.proto.reference`): a JSON list of documents with ``@type`` on standard input,
a JSON list of base64 texts on standard output.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def load_types() -> None:
    """Import every module: an ``Any`` is read only if its type is in the default pool."""
    spec = importlib.util.find_spec("xds")
    assert spec is not None and spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations))).parent
    for top in ("envoy", "xds", "udpa"):
        for path in sorted((root / top).rglob("*_pb2.py")):
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


def order_maps(message: Any) -> None:
    """json_format leaves maps within an ``Any`` as they were written; sort them like all others."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Any":
        pool = importlib.import_module("google.protobuf.descriptor_pool").Default()
        message_factory = importlib.import_module("google.protobuf.message_factory")
        kind = pool.FindMessageTypeByName(message.type_url.rpartition("/")[2])
        inner = message_factory.GetMessageClass(kind).FromString(message.value)
        order_maps(inner)
        message.value = inner.SerializeToString(deterministic=True)
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            items = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            items = value if field.is_repeated else (value,)
        for item in items:
            order_maps(item)


def body_of(document: dict[str, Any]) -> bytes:
    """The bytes of one document."""
    json_format = importlib.import_module("google.protobuf.json_format")
    message_factory = importlib.import_module("google.protobuf.message_factory")
    pool = importlib.import_module("google.protobuf.descriptor_pool").Default()
    type_url = document.pop("@type")
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(type_url.rpartition("/")[2]))()
    try:
        json_format.ParseDict(document, message)
    except json_format.ParseError as error:
        raise SystemExit(f"{type_url} {document.get('name')}: {error}") from error
    order_maps(message)
    return bytes(message.SerializeToString(deterministic=True))


def main() -> None:
    """Read, convert, print."""
    load_types()
    json.dump([base64.b64encode(body_of(document)).decode() for document in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
