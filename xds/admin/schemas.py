"""The JSON schemas of answers, from their classes, for the OpenAPI description.

The meaning of a field is in the docstring of its class, as a list: ``* ``name``: text``. A name that means the same in
every class is described once, in `COMMON`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import datetime
from inspect import getdoc
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pydantic
from typing_extensions import get_original_bases

from xds.admin.models.writing import is_absent_for_none, is_text_for_none, may_be_absent, member_of

Json = dict[str, Any]

_ITEM = re.compile(r"^\* ((?:``\w+``(?:, )?)+): (.*(?:\n  .+)*)", re.MULTILINE)

COMMON: Mapping[str, str] = {
    "actor": "The authenticated principal that made the change; empty without authentication",
    "author": "The author as the client claims; not verified",
    "cluster": "The name of the cluster",
    "code": "The kind of finding, for programs",
    "detail": "An explanation for people",
    "dry_run": "Present, and true, if nothing was changed",
    "group": "The name of the group",
    "items": "The items of this page",
    "kind": "The kind of the config entry",
    "locality": "The locality of the endpoints",
    "message": "The message that came with the change; empty without one",
    "name": "The name of the resource",
    "next_page_token": "The `page_token` of the next page; absent on the last page",
    "node": "The id of the node",
    "service": "The name of the service",
    "type": "The type alias, such as `clusters`",
    "type_url": "The type URL",
    "warnings": "Findings that do not prevent the change",
}

_SCALARS: Mapping[object, str] = {
    str: "string",
    datetime: "string",
    NoneType: "null",
    int: "integer",
    float: "number",
    bool: "boolean",
}


def is_answer(kind: object) -> bool:
    """Whether the schema of a type is made here: that of a model."""
    return dataclasses.is_dataclass(kind)


def add_schema(kind: Any, schemas: dict[str, Json]) -> Json:
    """The reference to the schema of an answer; the schema, and those that it refers to, are added to ``schemas``."""
    name = str(getattr(kind, "schema_name", kind.__name__))
    if name not in schemas:
        schema = schemas[name] = {}
        fields, types = dataclasses.fields(kind), get_type_hints(kind)
        hints = {member_of(each): _shown(each, types[each.name]) for each in fields}
        required = [member_of(each) for each in fields if not may_be_absent(each)]
        schema["properties"] = {field: _member(field, hints[field], schemas) for field in hints}
        schema["type"] = "object"
        if required:
            schema["required"] = required
        schema["title"] = name
        describe(kind, schema)
    return {"$ref": f"#/components/schemas/{name}"}


def describe(kind: type, schema: Json) -> None:
    """Add the texts of a class to its schema."""
    schema["description"] = _without_items(kind)
    texts = {**COMMON, **_texts_of(kind)}
    for field, member in schema.get("properties", {}).items():
        if field in texts:
            member.setdefault("description", texts[field])


def plain(text: str) -> str:
    """A docstring as CommonMark: code has single marks."""
    return text.replace("``", "`")


def _shown(field: dataclasses.Field[Any], hint: Any) -> Any:
    """The type of a field in JSON."""
    if is_text_for_none(field):
        return str
    return _present(hint) if is_absent_for_none(field) else hint


def _member(name: str, hint: Any, schemas: dict[str, Json]) -> Json:
    schema = _schema(hint, schemas)
    is_reference = "$ref" in schema or any("$ref" in each for each in schema.get("anyOf", ()))
    return schema if is_reference else {**schema, "title": name.replace("_", " ").title()}


def _present(hint: Any) -> Any:
    """The type of a field that may be absent, where it is present. None in a model stands for an absent field."""
    arguments = [each for each in get_args(hint) if each is not NoneType]
    if get_origin(hint) is UnionType and len(arguments) == 1:
        return arguments[0]
    return hint


def _schema(hint: Any, schemas: dict[str, Json]) -> Json:
    if is_answer(hint):
        return add_schema(hint, schemas)
    origin = get_origin(hint)
    parts = [_schema(each, schemas) for each in get_args(hint) if each is not Ellipsis]
    if origin in (UnionType, Union):
        return {"anyOf": parts}
    if origin in (list, tuple):
        return {"items": parts[0], "type": "array"}
    if origin in (dict, Mapping):
        return {"additionalProperties": parts[1] or True, "type": "object"}
    return {} if hint is Any else {"type": _SCALARS[hint]}


def _texts_of(shape: type) -> dict[str, str]:
    """The texts of the fields of a class, those that it inherits included."""
    texts: dict[str, str] = {}
    for base in get_original_bases(shape):
        if isinstance(base, type) and _has_fields(base):
            texts.update(_texts_of(base))
    for names, text in _ITEM.findall(getdoc(shape) or ""):
        sentence = plain(" ".join(text.split())).rstrip(".;")
        texts.update(dict.fromkeys(re.findall(r"\w+", names), f"{sentence[0].upper()}{sentence[1:]}"))
    return texts


def _has_fields(kind: type) -> bool:
    return is_answer(kind) or (issubclass(kind, pydantic.BaseModel) and kind is not pydantic.BaseModel)


def _without_items(shape: type) -> str:
    text = _ITEM.sub("", getdoc(shape) or "")
    return plain(re.sub(r"\n{2,}", "\n\n", text).strip().rstrip(":"))
