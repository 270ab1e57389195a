"""Single mistakes in a resource, of the kinds that people make."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]
Place = tuple[str | int, ...]

# A resource is known by its name, and found by its type.
_KEPT = ("@type", "name", "cluster_name", "clusterName")
_DURATION = re.compile(r"[0-9.]+s")
_ENUM = re.compile(r"[A-Z][A-Z0-9_]{2,}")
_WRONG_ADDRESSES = ("300.1.2.3", "backend.example.com", "10.0.0.0/8", "")
_BROKEN = ("(", "[a", "*", "a{2,1}", "(?<=x)y")
_GONE = object()

# From a value and its key to what a mistake makes of it; None where it does not apply.
_Change = Callable[[str, Any, random.Random], Any]


def _drop(key: str, value: Any, chance: random.Random) -> Any:
    return _GONE


def _empty(key: str, value: Any, chance: random.Random) -> Any:
    if not value or not isinstance(value, str | list | dict):
        return None
    return type(value)()


def _number(key: str, value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return chance.choice((0, -1, 101, 65536, 2**32, 1.5))


def _negative_duration(key: str, value: Any, chance: random.Random) -> Any:
    return f"-{value}" if isinstance(value, str) and _DURATION.fullmatch(value) else None


def _zero_duration(key: str, value: Any, chance: random.Random) -> Any:
    return "0s" if isinstance(value, str) and _DURATION.fullmatch(value) else None


def _regex(key: str, value: Any, chance: random.Random) -> Any:
    if not isinstance(value, str) or "regex" not in key:
        return None
    return chance.choice((*_BROKEN, f"{value}("))


def _address(key: str, value: Any, chance: random.Random) -> Any:
    if not isinstance(value, str) or key not in ("address", "address_prefix", "addressPrefix"):
        return None
    return chance.choice(_WRONG_ADDRESSES)


def _other_kind(key: str, value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        return chance.choice(("text", 7))
    return {"x": 1} if isinstance(value, list) else chance.choice(({"x": 1}, [value, {"x": 1}]))


def _enum(key: str, value: Any, chance: random.Random) -> Any:
    return f"{value}_X" if isinstance(value, str) and _ENUM.fullmatch(value) else None


def _text(key: str, value: Any, chance: random.Random) -> Any:
    if not isinstance(value, str) or _ENUM.fullmatch(value) or _DURATION.fullmatch(value):
        return None
    return chance.choice(("a b", "x\ny", "%", "x" * 300, f"{value}%"))


def _repeat(key: str, value: Any, chance: random.Random) -> Any:
    return [*value, value[-1]] if isinstance(value, list) and value else None


def _reverse(key: str, value: Any, chance: random.Random) -> Any:
    return value[::-1] if isinstance(value, list) and len(value) > 1 else None


def _no_config(key: str, value: Any, chance: random.Random) -> Any:
    return _GONE if key in ("typed_config", "typedConfig") else None


def _type(key: str, value: Any, chance: random.Random) -> Any:
    if key not in ("typed_config", "typedConfig") or not isinstance(value, dict):
        return None
    name = str(value.get("@type", ""))
    other = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer"
    v2 = "type.googleapis.com/envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager"
    return {**value, "@type": chance.choice((name.replace(".v3.", ".v2."), f"{name}x", v2))} if name != other else None


def _pem(key: str, value: Any, chance: random.Random) -> Any:
    if key in ("inline_string", "inlineString", "inline_bytes", "inlineBytes") and isinstance(value, str):
        return chance.choice(("oops", "", "b29wcw=="))
    return None


_CHANGES: Mapping[str, _Change] = {
    "left out": _drop,
    "empty": _empty,
    "number": _number,
    "negative duration": _negative_duration,
    "zero duration": _zero_duration,
    "regex": _regex,
    "address": _address,
    "another kind": _other_kind,
    "enum word": _enum,
    "text": _text,
    "item twice": _repeat,
    "order": _reverse,
    "no typed_config": _no_config,
    "another type": _type,
    "inline data": _pem,
}
MISTAKES = (*_CHANGES, "key")


def mistake(value: Json, kind: str, chance: random.Random) -> tuple[Json, str] | None:
    """A copy of the resource with one mistake of the kind, and what was changed; None where it has no place for it."""
    made = copy.deepcopy(value)
    places = list(_places(made))
    chance.shuffle(places)
    for place in places:
        holder = _holder(made, place)
        old, key = holder[place[-1]], _key(place)
        if kind == "key":
            if isinstance(holder, dict):
                holder[f"{key[:-1]}"] = holder.pop(key)
                return made, f"{_shown(place)}: last letter of the key"
            continue
        new = _CHANGES[kind](key, old, chance)
        if new is None or new == old:
            continue
        if new is _GONE:
            del holder[place[-1]]
        else:
            holder[place[-1]] = new
        return made, f"{_shown(place)} = {'nothing' if new is _GONE else repr(new)[:60]}"
    return None


def _places(value: Any, path: Place = ()) -> Iterator[Place]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key != "@type" and not (len(path) == 0 and key in _KEPT):
            yield (*path, key)
            yield from _places(item, (*path, key))


def _holder(value: Any, place: Place) -> Any:
    for step in place[:-1]:
        value = value[step]
    return value


def _key(place: Place) -> str:
    """The last name on the way: an item of a list has that of its list."""
    return next((step for step in reversed(place) if isinstance(step, str)), "")


def _shown(place: Place) -> str:
    return "/".join(map(str, place))
