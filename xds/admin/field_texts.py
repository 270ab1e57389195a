"""The meaning of each field of an answer, for the OpenAPI description.

It is in the docstring of the field's class, as a list: ``* ``name``: text``. A name that means the same in every class
is described once, in `COMMON`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from inspect import getdoc
from typing import Any, get_args

import pydantic
from typing_extensions import get_original_bases, get_type_hints, is_typeddict

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


def describe_fields(schemas: Mapping[str, Json], roots: Iterable[object]) -> None:
    """Describe each field of the schemas. The classes of the schemas are found from those of the answers, ``roots``."""
    shapes: dict[str, type] = {}
    for root in roots:
        _collect(root, shapes)
    for name, schema in schemas.items():
        if (shape := shapes.get(name)) is None:
            schema["description"] = plain(schema["description"])  # an enumeration
            continue
        schema["description"] = _without_items(shape)
        texts = {**COMMON, **_texts_of(shape)}
        for field, member in schema.get("properties", {}).items():
            if field in texts:
                member.setdefault("description", texts[field])


def plain(text: str) -> str:
    """A docstring as CommonMark: code has single marks."""
    return text.replace("``", "`")


def _collect(annotation: object, found: dict[str, type]) -> None:
    """The typed dictionaries and models that an annotation leads to, by name."""
    if isinstance(annotation, type) and _is_shape(annotation) and annotation.__name__ not in found:
        found[annotation.__name__] = annotation
        for each in get_type_hints(annotation, include_extras=True).values():
            _collect(each, found)
    for each in get_args(annotation):
        _collect(each, found)


def _is_shape(kind: type) -> bool:
    return is_typeddict(kind) or issubclass(kind, pydantic.BaseModel)


def _texts_of(shape: type) -> dict[str, str]:
    """The texts of the fields of a class, those that it inherits included."""
    found: dict[str, str] = {}
    for base in get_original_bases(shape):
        if isinstance(base, type) and _is_shape(base) and base is not pydantic.BaseModel:
            found.update(_texts_of(base))
    for names, text in _ITEM.findall(getdoc(shape) or ""):
        sentence = plain(" ".join(text.split())).rstrip(".;")
        found.update(dict.fromkeys(re.findall(r"\w+", names), f"{sentence[0].upper()}{sentence[1:]}"))
    return found


def _without_items(shape: type) -> str:
    text = _ITEM.sub("", getdoc(shape) or "")
    return plain(re.sub(r"\n{2,}", "\n\n", text).strip().rstrip(":"))
