"""Pushed text to plain values, and what stands around the resources in it.

Accepted: ``{"resources": [...], "version"?: label, "versions"?: {alias: label}}``, Envoy's file form
``{"version_info": label, "resources": [...]}``, a list of resources, a single resource, and any of these in several
YAML documents. ``versions`` are ignored beside a ``revision``: that is the answer of a GET, put back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from xds.codec.findings import json_pointer
from xds.codec.yaml_text import TextError, parse_yaml
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.resource_type import TYPE_PREFIX, V3_TYPES, type_url_of

Format = Literal["json", "yaml", "auto"]

TEXT_LIMIT = 64 * 1024 * 1024
_LABEL_KEYS = ("version", "version_info", "versionInfo")
# A DiscoveryResponse's other fields and what our own answers add; they say nothing about the content.
_IGNORED_KEYS = {"type_url", "typeUrl", "nonce", "canary", "control_plane", "controlPlane", "group", "revision", "etag"}


@dataclass(frozen=True, slots=True)
class Document:
    """``resources`` as plain values in pushed order; ``label`` and ``labels`` (by type URL) as the caller gave them."""

    resources: list[object] = field(default_factory=list)
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def malformed(detail: str, *, code: str = "malformed", source: str = "") -> MalformedError:
    """The error for input that cannot be read at all."""
    return MalformedError([Violation(code=code, detail=detail, source=source)])


def parse_values(text: bytes | str, format: Format = "auto", source: str = "") -> list[object]:
    """The documents of a text as plain values; empty ones are left out.

    ``source`` names the file in errors. Raises ``MalformedError`` with ``line:column``.
    """
    decoded = _decode(text, source)
    try:
        documents = _parse(decoded, format)
    except TextError as error:
        place = f"{error.line}:{error.column}" if error.line else ""
        raise malformed(error.detail, code="syntax", source=":".join(filter(None, (source, place)))) from None
    return [document for document in documents if document is not None]


def _decode(text: bytes | str, source: str) -> str:
    if len(text) > TEXT_LIMIT:
        raise malformed(f"larger than {TEXT_LIMIT} bytes", code="too_large", source=source)
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise malformed(f"not UTF-8 at byte {error.start}", code="encoding", source=source) from None


def _parse(text: str, format: Format) -> list[object]:
    """JSON is parsed as such wherever it may be: it is an order of magnitude faster than YAML."""
    if format == "json":
        return [_parse_json(text)]
    if format == "auto" and text.lstrip()[:1] in ("{", "["):
        try:
            return [_parse_json(text)]
        except TextError:
            pass
    return parse_yaml(text)


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise TextError(error.msg, error.lineno, error.colno) from None
    except _DuplicateKeyError as error:
        parse_yaml(text)  # knows where it stands
        raise TextError(str(error)) from None
    except RecursionError:
        raise TextError("nested too deeply") from None
    except ValueError as error:  # NaN, or an integer of thousands of digits
        raise TextError(str(error)) from None


class _DuplicateKeyError(Exception):
    pass


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    built = dict(pairs)
    if len(built) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return built


def _constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def parse_document(text: bytes | str, format: Format = "auto", source: str = "") -> Document:
    """Read pushed text. Raises ``MalformedError``, or ``ValidationError`` where the envelope is not as described."""
    parts = [_envelope(value) for value in parse_values(text, format, source)]
    if not parts:
        raise malformed("empty document", source=source)
    labels = {part.label for part in parts if part.label}
    if len(labels) > 1:
        raise ValidationError([Violation("conflict", f"documents disagree about the version: {sorted(labels)}")])
    merged = {type_url: label for part in parts for type_url, label in part.labels.items()}
    return Document([one for part in parts for one in part.resources], next(iter(labels), ""), merged)


def _envelope(value: object) -> Document:
    if isinstance(value, list):
        return Document(value)
    if not isinstance(value, dict):
        raise malformed(f"expected an object with resources, not {type(value).__name__}")
    if "@type" in value:
        return Document([value])
    violations = [*_unknown_keys(value)]
    resources = value.get("resources")
    if resources is None and "resources" not in value:
        violations.append(Violation("missing_field", "there is no 'resources' in the document", pointer="/resources"))
    listed = resources if isinstance(resources, list) else [resources] if isinstance(resources, dict) else []
    if resources is not None and not isinstance(resources, list | dict):
        violations.append(Violation("wrong_type", "expected a list", pointer="/resources"))
    label = _label(value, violations)
    labels = _labels(value.get("versions"), violations)
    if violations:
        raise ValidationError(violations)
    # An answer of ours that was edited names its revision, and the versions of then: told again, they would name two
    # contents alike, and a client that comes back could not say which of them it holds.
    return Document(listed, label, {} if "revision" in value else labels)


def _unknown_keys(value: Mapping[str, object]) -> list[Violation]:
    known = {"resources", "versions", *_LABEL_KEYS, *_IGNORED_KEYS}
    return [
        Violation("unknown_field", f"unknown field {key!r}", pointer=json_pointer((key,)))
        for key in value
        if key not in known
    ]


def _label(value: Mapping[str, object], violations: list[Violation]) -> str:
    given = {key: value[key] for key in _LABEL_KEYS if value.get(key) is not None}
    for key, label in given.items():
        if not isinstance(label, str):
            violations.append(Violation("wrong_type", "a version is a string", pointer=json_pointer((key,))))
    return next((label for label in given.values() if isinstance(label, str) and label), "")


def _labels(value: object, violations: list[Violation]) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        violations.append(Violation("wrong_type", "expected an object of versions by type", pointer="/versions"))
        return {}
    for key, label in value.items():
        if not isinstance(label, str):
            violations.append(Violation("wrong_type", "a version is a string", pointer=json_pointer(("versions", key))))
        if type_url_of(key) == TYPE_PREFIX + key and "." not in key:
            known = ", ".join(one.alias for one in V3_TYPES)
            detail = f"{key!r} is no type; known are {known} and type URLs"
            violations.append(Violation("unknown_type", detail, pointer=json_pointer(("versions", key))))
    return {type_url_of(key): label for key, label in value.items() if isinstance(label, str) and label}
