"""Members of the JSON objects that Consul and Kubernetes write: each has the type it must have, or there is none. Pure.

``null`` means that there is none: both write it for an empty list or object. All functions raise ``MemberError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from xds.codec.findings import short_repr
from xds.model.errors import XdsError

Json = Mapping[str, Any]
T = TypeVar("T")

_TYPES: Mapping[type, str] = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "a boolean"}


class MemberError(XdsError):
    """A member has not the type it must have. The message names it."""


def scalar(parent: Json, name: str, default: T) -> T:
    """A string, an integer or a boolean, as ``default`` is; that itself if there is none."""
    value = parent.get(name)
    return default if value is None else _of_type(value, type(default), name)


def text(parent: Json, name: str) -> str:
    """A string; empty if there is none."""
    return scalar(parent, name, "")


def object_of(parent: Json, name: str) -> Json:
    """An object; empty if there is none."""
    value = parent.get(name)
    return {} if value is None else _of_type(value, dict, name)


def texts_by_name(parent: Json, name: str) -> Mapping[str, str]:
    """An object of strings."""
    value = object_of(parent, name)
    for one in value.values():
        _of_type(one, str, f"a value of {name}")
    return value


def objects(parent: Json, name: str) -> Sequence[Json]:
    """A list of objects."""
    return _list(parent, name, dict)


def texts(parent: Json, name: str) -> Sequence[str]:
    """A list of strings."""
    return _list(parent, name, str)


def _list(parent: Json, name: str, kind: type[T]) -> Sequence[T]:
    value = parent.get(name)
    return (
        () if value is None else [_of_type(one, kind, f"an element of {name}") for one in _of_type(value, list, name)]
    )


def _of_type(value: Any, kind: type[T], what: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise MemberError(f"{what} must be {_TYPES[kind]}, not {short_repr(value)}")
    return value
