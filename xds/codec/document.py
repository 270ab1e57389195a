"""Pushed documents: text to the resources in it, as plain values, with the version labels around them.

Accepted forms: ``{"resources": [...], "version"?: label, "versions"?: {alias: label}}``, Envoy's file form
``{"version_info": label, "resources": [...]}``, a list of resources, a single resource, and any of these in several
YAML documents. ``versions`` are ignored beside a ``revision``: such a document is the answer of a GET that is pushed
back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from typing import Literal

from xds.codec.findings import FINDINGS_LIMIT, json_pointer, short_repr
from xds.codec.foreign_document import foreign_violation
from xds.codec.positions import DocumentPart, TextLayout, locate
from xds.codec.text import YAML_TEXT_LIMIT, TextError, parse_json, parse_yaml, place_at
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.resource_type import TYPE_PREFIX, V3_TYPES, type_url_of
from xds.model.text_flaws import CODE, ContentPart, find_flaws, may_be_flawed

TextFormat = Literal["json", "yaml", "auto"]

TEXT_LIMIT = 64 * 1024 * 1024
_LABEL_KEYS = ("version", "version_info", "versionInfo")
_LABEL = "a version is a string"
# Other fields of a DiscoveryResponse, and fields that the admin API adds to its answers.
_RESPONSE_KEYS = {"type_url", "typeUrl", "nonce", "canary", "control_plane", "controlPlane"}
_IGNORED_KEYS = {*_RESPONSE_KEYS, "group", "revision", "etag", "lowered"}


@dataclass(frozen=True, slots=True)
class Document:
    """``resources`` as plain values in pushed order; ``label`` and ``labels`` (by type URL) as the caller gave them.

    ``layout`` is what `locate` needs to find them in the text. ``members`` are others that the caller allows.
    """

    resources: list[object] = field(default_factory=list)
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, object] = field(default_factory=dict)
    layout: TextLayout = field(default_factory=TextLayout)


@dataclass(frozen=True, slots=True)
class TextDocuments:
    """The documents of a text by their position in it, without empty ones."""

    documents: Mapping[int, object]
    layout: TextLayout


def malformed(detail: str, *, code: str = "malformed", source: str = "") -> MalformedError:
    """The error for input that cannot be parsed."""
    return MalformedError([Violation(code=code, detail=detail, source=source)])


def parse_values(
    text: bytes | str, format: TextFormat = "auto", source: str = "", *, content: ContentPart = "none"
) -> list[object]:
    """The documents of a text as plain values; empty ones are left out.

    ``source`` names the file in errors; ``content`` is what may have NUL. Raises ``MalformedError`` with
    ``line:column``, and ``ValidationError`` for texts that not every store can hold (`xds.model.text_flaws`).
    """
    return list(read_values(text, format, source, content=content).documents.values())


def read_values(
    text: bytes | str, format: TextFormat = "auto", source: str = "", *, content: ContentPart = "none"
) -> TextDocuments:
    """As ``parse_values``, with the layout that `locate` needs."""
    decoded = _decode(text, source)
    try:
        documents, is_json = _parse(decoded, format)
    except TextError as error:
        raise malformed(error.detail, code="syntax", source=_place(source, error.line, error.column)) from None
    by_number = {number: document for number, document in enumerate(documents) if document is not None}
    layout = TextLayout(decoded, is_json, source)
    for number, document in by_number.items() if may_be_flawed(decoded) else ():
        flaws = islice(find_flaws(document, content), FINDINGS_LIMIT)
        violations = [Violation(CODE, flaw, pointer=json_pointer(path)) for path, flaw in flaws]
        if violations:
            raise ValidationError(locate(layout, violations, number))
    return TextDocuments(by_number, layout)


def _place(source: str, line: int, column: int) -> str:
    return ":".join(part for part in (source, f"{line}:{column}" if line else "") if part)


def _decode(text: bytes | str, source: str) -> str:
    if len(text) > TEXT_LIMIT:
        raise malformed(f"larger than {TEXT_LIMIT} bytes", code="too_large", source=source)
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = bytes(error.object[: error.start]).decode()
        place = _place(source, *place_at(before, len(before)))
        raise malformed(f"not UTF-8 at byte {error.start}", code="encoding", source=place) from None


def _parse(text: str, format: TextFormat) -> tuple[list[object], bool]:
    """The documents, and whether they are JSON, which is an order of magnitude faster than YAML."""
    if format == "json":
        return [parse_json(text)], True
    if format == "auto" and text.lstrip()[:1] in ("{", "["):
        try:
            return [parse_json(text)], True
        except TextError:
            if len(text) > YAML_TEXT_LIMIT:
                raise
    return parse_yaml(text), False


def parse_document(
    text: bytes | str, format: TextFormat = "auto", source: str = "", members: Collection[str] = ()
) -> Document:
    """Read pushed text, whose top level may have ``members`` beside the resources.

    Raises ``MalformedError``, or ``ValidationError`` where its top level has another form.
    """
    values = read_values(text, format, source, content="typed")
    if not values.documents:
        raise malformed("empty document", source=source)
    read = []
    for number, value in values.documents.items():
        try:
            read.append(_envelope(value, number, members))
        except ValidationError as error:
            raise type(error)(locate(values.layout, error.violations[:FINDINGS_LIMIT], number)) from None
    labels = {part.label for part in read if part.label}
    if len(labels) > 1:
        detail = f"documents disagree about the version: {sorted(labels)}"
        raise ValidationError([Violation("conflict", detail, source=source)])
    return Document(
        [one for part in read for one in part.resources],
        next(iter(labels), ""),
        {type_url: label for part in read for type_url, label in part.labels.items()},
        {name: value for part in read for name, value in part.members.items()},
        replace(values.layout, parts=tuple(one for part in read for one in part.layout.parts)),
    )


def document_of(value: object) -> Document:
    """A push that is part of a larger document, as plain values. Raises as ``parse_document``, without positions."""
    return _envelope(value, 0)


def _envelope(value: object, number: int, members: Collection[str] = ()) -> Document:
    if isinstance(value, list):
        return _document(value, DocumentPart(number, (), len(value), is_list=True))
    if not isinstance(value, dict):
        raise malformed(f"expected an object with resources, not {type(value).__name__}")
    foreign = foreign_violation(value)
    if foreign is not None:
        raise ValidationError([foreign])
    if "@type" in value:
        return _document([value], DocumentPart(number))
    violations = [*_unknown_keys(value, members)]
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
    # An edited answer of the admin API holds the versions of its revision: served again, one version would name two
    # contents, and a reconnecting client could not say which of them it has.
    part = DocumentPart(number, ("resources",), len(listed), is_list=isinstance(resources, list))
    read = _document(listed, part, label, {} if "revision" in value else labels)
    return replace(read, members={name: value[name] for name in members if name in value})


def _document(
    resources: list[object], part: DocumentPart, label: str = "", labels: Mapping[str, str] | None = None
) -> Document:
    return Document(resources, label, labels or {}, layout=TextLayout(parts=(part,)))


def _unknown_keys(value: Mapping[str, object], members: Collection[str]) -> list[Violation]:
    known = {"resources", "versions", *members, *_LABEL_KEYS, *_IGNORED_KEYS}
    return [
        Violation(
            "unknown_field",
            f"unknown field {short_repr(key)}",
            pointer=json_pointer((key,)),
            hint=_key_hint(key, members),
        )
        for key in islice((key for key in value if key not in known), FINDINGS_LIMIT)
    ]


def _key_hint(key: str, members: Collection[str]) -> str:
    close = get_close_matches(key[:40], ("resources", "version", "versions", "version_info", *members), n=1)
    return f'did you mean "{close[0]}"?' if close else "a push is a list of resources, or an object with such a list"


def _label(value: Mapping[str, object], violations: list[Violation]) -> str:
    given = {key: value[key] for key in _LABEL_KEYS if value.get(key) is not None}
    for key, label in given.items():
        if not isinstance(label, str):
            violations.append(Violation("wrong_type", _LABEL, pointer=json_pointer((key,))))
    return next((label for label in given.values() if isinstance(label, str) and label), "")


def _labels(value: object, violations: list[Violation]) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        violations.append(Violation("wrong_type", "expected an object of versions by type", pointer="/versions"))
        return {}
    for key, label in value.items():
        if not isinstance(label, str):
            violations.append(Violation("wrong_type", _LABEL, pointer=json_pointer(("versions", key))))
        if not key.isprintable() or (type_url_of(key) == TYPE_PREFIX + key and "." not in key):
            hint = f"known are {', '.join(one.alias for one in V3_TYPES)} and type URLs"
            pointer = json_pointer(("versions", key))
            violations.append(Violation("unknown_type", f"{short_repr(key)} is not a type", pointer=pointer, hint=hint))
    return {type_url_of(key): label for key, label in value.items() if isinstance(label, str) and label}
