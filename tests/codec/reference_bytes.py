"""Documents to bytes as google.protobuf's json_format makes them over the classes of xds-protos.

Runs where xds-protos is installed (`tools.proto.reference`): a JSON list of documents with ``@type`` on standard input,
a JSON list on standard output: base64 texts, null where json_format refuses the document. `body_of` does the same over
the types of any pool.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

_TYPE = re.compile(r'"@type": *"[^"]*/([^"/]+)"')


def load_types(asked: str) -> None:
    """Import the modules of every package named in the documents: an ``Any`` is read only if its type is imported.

    Modules import what they refer to; all of xds-protos takes several seconds.
    """
    spec = importlib.util.find_spec("xds")
    assert spec is not None and spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations))).parent
    packages = {name.rpartition(".")[0] for name in _TYPE.findall(asked) if not name.startswith("google.")}
    for package in sorted(packages):
        for path in sorted((root / package.replace(".", "/")).glob("*_pb2.py")):
            importlib.import_module(f"{package}.{path.stem}")


def order_maps(message: Any, pool: Any) -> None:
    """json_format leaves maps within an ``Any`` as they were written; sort them like all others."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Any":
        message_factory = importlib.import_module("google.protobuf.message_factory")
        kind = pool.FindMessageTypeByName(message.type_url.rpartition("/")[2])
        inner = message_factory.GetMessageClass(kind).FromString(message.value)
        order_maps(inner, pool)
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
            order_maps(item, pool)


def body_of(document: dict[str, Any], pool: Any) -> bytes | None:
    """The bytes of one document; None when json_format cannot read it with the types of ``pool``."""
    json_format = importlib.import_module("google.protobuf.json_format")
    message_factory = importlib.import_module("google.protobuf.message_factory")
    content = {key: value for key, value in document.items() if key != "@type"}
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(document["@type"].rpartition("/")[2]))()
    try:
        json_format.ParseDict(content, message, descriptor_pool=pool)
    except json_format.ParseError:
        return None
    order_maps(message, pool)
    return bytes(message.SerializeToString(deterministic=True))


def main() -> None:
    """Read, convert, print."""
    asked = sys.stdin.read()
    load_types(asked)
    pool = importlib.import_module("google.protobuf.descriptor_pool").Default()
    bodies = [body_of(document, pool) for document in json.loads(asked)]
    json.dump([body and base64.b64encode(body).decode() for body in bodies], sys.stdout)


if __name__ == "__main__":
    main()
