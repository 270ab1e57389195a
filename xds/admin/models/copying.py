"""Makes models of the server's own objects, which have most of their fields under the same names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from xds.admin.models.values import time_of
from xds.admin.models.writing import may_be_absent

T = TypeVar("T")
Converter = Callable[[Any], Any]


def copied(kind: type[T], source: object, /, **given: Any) -> T:
    """A model with the values that ``source`` has under the names of its fields, but for those ``given``.

    Epoch seconds become times, and objects the models of the fields' types; a tuple has such a model's values in their
    order. A field with a default may be missing in ``source``.
    """
    classes: Any = kind, type(source)
    names, values_of, converters = _plan(*classes, tuple(given))
    values = dict(zip(names, values_of(source), strict=True))
    for name, convert in converters:
        if values[name] is not None:
            values[name] = convert(values[name])
    return kind(**values, **given)


@cache
def _plan(
    kind: Any, source: Any, given: tuple[str, ...]
) -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]], tuple[tuple[str, Converter], ...]]:
    """The names to copy, what gets their values, and how some of them are converted: found once for two classes."""
    present = {*dir(source), *getattr(source, "__dataclass_fields__", ())}
    wanted = [each for each in dataclasses.fields(kind) if each.name not in given]
    names = tuple(each.name for each in wanted if each.name in present or not may_be_absent(each))
    get: Any = attrgetter(*names)
    hints = get_type_hints(kind)
    converters = tuple((name, convert) for name in names if (convert := _converter(hints[name])) is not None)
    return names, get if len(names) > 1 else lambda one: (get(one),), converters


def _converter(hint: Any) -> Converter | None:
    if hint is datetime:
        return time_of
    if hasattr(hint, "__dataclass_fields__"):
        return lambda value: hint(*value) if type(value) is tuple else copied(hint, value)
    arguments = [each for each in get_args(hint) if each not in (NoneType, Ellipsis)]
    if get_origin(hint) is UnionType and len(arguments) == 1:
        return _converter(arguments[0])
    if get_origin(hint) is tuple:
        convert = _converter(arguments[0])
        return tuple if convert is None else lambda values: tuple(map(convert, values))
    return None
