"""Models as the JSON of the admin API.

A field with a default is absent while it has the default. `present_if` gives a field another rule, `member` another
name in JSON; `EMPTY_FOR_NONE` writes None as an empty text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from xds.admin.models.values import time_text

Json = dict[str, Any]
Writer = Callable[[Any], Any]
_RULE, _MEMBER, _TEXT = "present_if", "member", "empty_for_none"
EMPTY_FOR_NONE: Mapping[str, Any] = {_TEXT: True}


def present_if(rule: Callable[[Any], object]) -> Mapping[str, Any]:
    """The metadata of a field with a default that is present if ``rule`` holds for the object."""
    return {_RULE: rule}


def member(name: str) -> Mapping[str, Any]:
    """The metadata of a field whose name in JSON is a word of Python."""
    return {_MEMBER: name}


def member_of(field: dataclasses.Field[Any]) -> str:
    """The name of a field in JSON."""
    return str(field.metadata.get(_MEMBER, field.name))


def is_absent_for_none(field: dataclasses.Field[Any]) -> bool:
    """Whether answers lack a field that is None."""
    return may_be_absent(field) and _default(field) is None and _RULE not in field.metadata


def is_text_for_none(field: dataclasses.Field[Any]) -> bool:
    """Whether None is written as an empty text."""
    return _TEXT in field.metadata


def document_of(value: Any) -> Any:
    """A model, or a value with models in it, as JSON values. All else stays as it is."""
    if isinstance(value, dict):
        return {name: document_of(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [document_of(each) for each in value]
    writer = _writer_of(type(value))
    return writer(value) if writer is not None else value


def may_be_absent(field: dataclasses.Field[Any]) -> bool:
    """Whether answers may lack a field."""
    return _default(field) is not dataclasses.MISSING


@cache
def _writer(kind: Any) -> Writer:
    """A function that writes the objects of a class: what its types tell is found once."""
    fields, hints = dataclasses.fields(kind), get_type_hints(kind)
    names = tuple(map(member_of, fields))
    get: Any = attrgetter(*(each.name for each in fields))
    values_of = get if len(names) > 1 else lambda model: (get(model),)
    writers = tuple(
        (member_of(each), writer) for each in fields if (writer := _writer_of(hints[each.name])) is not None
    )
    texts = tuple(member_of(each) for each in fields if is_text_for_none(each))
    optional = [each for each in fields if may_be_absent(each)]
    rules = tuple((member_of(each), each.metadata[_RULE]) for each in optional if _RULE in each.metadata)
    defaults = tuple((member_of(each), _default(each)) for each in optional if _RULE not in each.metadata)

    def write(model: Any) -> Json:
        document = dict(zip(names, values_of(model), strict=True))
        for name, default in defaults:
            if document[name] == default:
                del document[name]
        for name, is_present in rules:
            if not is_present(model):
                del document[name]
        for name, writer in writers:
            if name in document and (value := document[name]) is not None:
                document[name] = writer(value)
        for name in texts:
            document[name] = document[name] or ""
        return document

    return write


def _writer_of(hint: Any) -> Writer | None:
    """A function that writes the values of a type, None excepted; None: they are JSON values."""
    if hint is datetime:
        return time_text
    if _is_model(hint):
        return _writer(hint)
    origin, parts = get_origin(hint), [_writer_of(each) for each in get_args(hint) if each is not Ellipsis]
    if origin is UnionType:
        return next(filter(None, parts), None)
    if origin is tuple:
        each_by = parts[0]
        return list if each_by is None else lambda values: list(map(each_by, values))
    if origin is Mapping:
        value_by = parts[1]
        return dict if value_by is None else lambda values: {name: value_by(each) for name, each in values.items()}
    return None


def _is_model(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
