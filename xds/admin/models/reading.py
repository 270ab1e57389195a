"""Reads JSON answers as frozen dataclasses, by the types of their fields.

Members without a field are ignored, so that a client works with a newer server. A member that is missing, or null
although its field cannot be None, gets the field's default or the empty value of its type: an older server does not
send it. An object with no member of its class is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from xds.admin.models.writing import may_be_absent, member_of

T = TypeVar("T")


class ShapeError(ValueError):
    """An answer does not have the form that the API documents."""


def read_object(kind: type[T], value: object) -> T:
    """An object as a dataclass. Raises ``ShapeError``."""
    result: T = read_value(kind, value)
    return result


def read_value(kind: Any, value: Any) -> Any:
    """A JSON value as a value of a type. Raises ``ShapeError``."""
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin is UnionType:
        return None if value is None else _read_present(kind, value)
    read = _READERS.get(origin or kind)
    if read is not None:
        return read(kind, value)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value)
    return _scalar(kind, value)


def _read_present(kind: Any, value: Any) -> Any:
    """A value of one of several types. More than one besides None are scalars."""
    kinds = [each for each in get_args(kind) if each is not NoneType]
    if len(kinds) == 1:
        return read_value(kinds[0], value)
    _check(value, tuple(kinds), " or ".join(each.__name__ for each in kinds))
    return value


def _tuple(kind: Any, value: Any) -> tuple[Any, ...]:
    _check(value, (list, tuple), "a list")
    item = get_args(kind)[0]
    return tuple(read_value(item, each) for each in value)


def _mapping(kind: Any, value: Any) -> dict[str, Any]:
    _check(value, Mapping, "an object")
    arguments = get_args(kind)
    item = arguments[1] if arguments else Any
    return {str(name): read_value(item, each) for name, each in value.items()}


def _time(kind: Any, value: Any) -> datetime | None:
    if value == "":  # of a group that has only settings
        return None
    _check(value, str, "a time")
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ShapeError(f"expected a time, not {value[:100]!r}") from None


def _scalar(kind: Any, value: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    _check(value, kind, kind.__name__)
    return value


def _dataclass(kind: Any, value: Any) -> Any:
    _check(value, Mapping, "an object")
    given: dict[str, Any] = {}
    for name, member, hint, may_be_none in _fields(kind):
        if member in value and (value[member] is not None or may_be_none):
            given[name] = read_value(hint, value[member])
    if not given and _fields(kind):
        raise ShapeError(f"{kind.__name__}: no member of it")
    given = {**_empty_values(kind), **given}
    try:
        return kind(**given)
    except TypeError as error:
        raise ShapeError(f"{kind.__name__}: {error}") from None


@cache
def _fields(kind: Any) -> tuple[tuple[str, str, Any, bool], ...]:
    """Name, name in JSON, type, and whether it may be None."""
    hints = get_type_hints(kind)
    return tuple(
        (each.name, member_of(each), hints[each.name], NoneType in get_args(hints[each.name]))
        for each in dataclasses.fields(kind)
    )


@cache
def _empty_values(kind: Any) -> Mapping[str, Any]:
    """The empty values of fields without a default, where their types have one."""
    defaults = {each.name for each in dataclasses.fields(kind) if may_be_absent(each)}
    return {
        name: None if may_be_none else _EMPTY[get_origin(hint) or hint]
        for name, _, hint, may_be_none in _fields(kind)
        if name not in defaults and (may_be_none or (get_origin(hint) or hint) in _EMPTY)
    }


def _check(value: object, kinds: Any, what: str) -> None:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise ShapeError(f"expected {what}, not {type(value).__name__}")


_READERS: Mapping[Any, Callable[[Any, Any], Any]] = {
    tuple: _tuple,
    Mapping: _mapping,
    dict: _mapping,
    datetime: _time,
}
_EMPTY: Mapping[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, tuple: (), Mapping: {}}
