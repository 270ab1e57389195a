"""The options of Envoy's .proto files: validation rules, required oneofs, sensitive fields, deprecations.

They are extracted from Envoy's own binary, and from xds-protos for messages that it lacks (the v2 API); both are
Apache-2.0. Replacements of deprecated fields come from comments that envoy-data-plane keeps. The file names the
releases; ``python -m tools.proto.generate options`` generates it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "envoy_options.json"

Rules = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deprecation:
    """``is_disallowed``: Envoy refuses the field unless a runtime flag allows it. ``since`` is an API version or empty.

    ``advice`` is the replacement that the .proto file recommends, or empty.
    """

    is_disallowed: bool
    since: str
    advice: str


def rules(message: str) -> Mapping[str, Rules]:
    """The ``validate.FieldRules`` of a message's fields in their JSON form, by field name."""
    return {name: field["rules"] for name, field in _fields(message).items() if "rules" in field}


def required_oneofs(message: str) -> tuple[str, ...]:
    """Oneofs of which one member must be set."""
    return tuple(_load()["messages"].get(message, {}).get("required_oneofs", ()))


def sensitive_fields(message: str) -> frozenset[str]:
    """Fields that hold secrets."""
    return frozenset(name for name, field in _fields(message).items() if field.get("sensitive"))


def deprecated_fields(message: str) -> Mapping[str, Deprecation]:
    """Deprecated fields by name."""
    return {
        name: _deprecation(field["deprecated"]) for name, field in _fields(message).items() if "deprecated" in field
    }


def deprecated_values(enum: str) -> Mapping[str, Deprecation]:
    """Deprecated values of an enum by name."""
    return {name: _deprecation(value) for name, value in _load()["enums"].get(enum, {}).items()}


def messages() -> frozenset[str]:
    """Full names of all messages with any option."""
    return frozenset(_load()["messages"])


def encode(sources: list[str], messages: Mapping[str, Any], enums: Mapping[str, Any]) -> bytes:
    """The file's bytes: one line per message and enum, sorted, so that changes can be reviewed."""
    lines = [
        f'{{"sources":{_compact(sources)},"license":"Apache-2.0",',
        f'"messages":{{\n{_lines(messages)}\n}},',
        f'"enums":{{\n{_lines(enums)}\n}}}}\n',
    ]
    return "\n".join(lines).encode()


def _lines(entries: Mapping[str, Any]) -> str:
    return ",\n".join(f"{_compact(name)}:{_compact(entries[name])}" for name in sorted(entries) if entries[name])


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _fields(message: str) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = _load()["messages"].get(message, {}).get("fields", {})
    return fields


def _deprecation(entry: Mapping[str, Any]) -> Deprecation:
    return Deprecation(entry.get("disallowed", False), entry.get("since", ""), entry.get("advice", ""))


@cache
def _load() -> Any:
    return json.loads(PATH.read_bytes())
