"""Config entries of the five kinds: from text or plain values to checked values, and back to JSON.

``entry_json`` writes JSON that ``read_entry`` reads as an equal entry. Names are those of Consul.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from xds.codec.document import TextDocuments, TextFormat, malformed, read_values
from xds.codec.findings import Findings, normalized_name, short_repr
from xds.codec.foreign_document import consul_object_hint
from xds.codec.positions import DocumentPart, TextLayout, locate
from xds.codec.scalar import json_kind
from xds.consul.shape import KEY_LIMIT, read_message, write_message
from xds.consul.shared import check_common
from xds.mesh.core.entries.defaults import ProxyDefaults, ServiceDefaults, check_proxy_defaults, check_service_defaults
from xds.mesh.core.entries.resolver import ServiceResolver, check_resolver
from xds.mesh.core.entries.router import ServiceRouter, check_router
from xds.mesh.core.entries.splitter import ServiceSplitter, check_splitter
from xds.model.compared_name import ComparedName, compared
from xds.model.errors import ValidationError, Violation

ConfigEntry = ServiceRouter | ServiceSplitter | ServiceResolver | ServiceDefaults | ProxyDefaults
Key = tuple[str, ComparedName]  # kind, and name as it is compared
WrittenKey = tuple[str, str]  # kind, and name as it was written

_CHECKS: Mapping[type[Any], Callable[[Any, Findings], None]] = {
    ServiceRouter: check_router,
    ServiceSplitter: check_splitter,
    ServiceResolver: check_resolver,
    ServiceDefaults: check_service_defaults,
    ProxyDefaults: check_proxy_defaults,
}
KINDS: Mapping[str, type[Any]] = {kind.kind: kind for kind in _CHECKS}
# Consul's other kinds. They are refused with an error that names the kind.
OTHER_KINDS = (
    "api-gateway",
    "bound-api-gateway",
    "control-plane-request-limit",
    "exported-services",
    "file-system-certificate",
    "http-route",
    "ingress-gateway",
    "inline-certificate",
    "jwt-provider",
    "mesh",
    "sameness-group",
    "service-intentions",
    "tcp-route",
    "terminating-gateway",
)
_KIND_KEYS = ("Kind", "kind")
# The kind of an entry in HCL. HCL is not YAML, but a YAML parser reads it as one long text.
_HCL = re.compile(r"^\s*[\"']?kind[\"']?\s*=", re.IGNORECASE | re.MULTILINE)
_HCL_SEARCHED = 64 * 1024  # characters
# Further fields in the answers of Consul's API. They are not part of the entry.
_IGNORED = frozenset(("kind", "createindex", "modifyindex", "hash"))


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """``entries`` are in the order of the text; ``warnings`` are findings that are not errors."""

    entries: tuple[ConfigEntry, ...]
    warnings: tuple[Violation, ...] = ()


def key_of(entry: ConfigEntry) -> Key:
    """The key of an entry. Entries whose names differ in case only have one key."""
    return entry_key(entry.kind, entry.name)


def entry_key(kind: str, name: str) -> Key:
    """The key of the entry with this kind and name. Kinds are compared with their case."""
    return kind, compared(name)


def entry_json(entry: ConfigEntry) -> dict[str, object]:
    """The JSON object of an entry, in Consul's names."""
    return {"Kind": entry.kind, **write_message(entry)}


def read_entries(
    text: bytes | str, format: TextFormat = "auto", source: str = "", *, kind: str = "", name: str = ""
) -> ReadEntries:
    """Read the entries of a text: one entry, a list, or several documents. ``source`` names the file in findings.

    ``kind`` and ``name`` are as in ``read_entry``. With a ``name``, the text must have exactly one entry.

    Raises ``MalformedError`` for text that cannot be parsed, ``ValidationError`` with the findings of all entries
    otherwise.
    """
    layout, given = read_entry_values(text, format, source)
    findings = Findings()
    read: dict[Key, ConfigEntry] = {}
    for index, value in enumerate(given):
        findings.select_resource(index)
        entry = _read(value, findings, kind, name)
        if entry is not None and read.setdefault(key_of(entry), entry) is not entry:
            findings.add("duplicate_entry", f"a second {entry.kind} of the name {short_repr(entry.name)}")
    if name and len(given) != 1:
        findings.add("not_one_entry", f"expected one config entry, not {len(given)}")
    if findings:
        raise ValidationError(locate(layout, findings.violations))
    return ReadEntries(tuple(read.values()), tuple(locate(layout, findings.warnings)) if findings.warnings else ())


def read_entry_values(
    text: bytes | str, format: TextFormat = "auto", source: str = ""
) -> tuple[TextLayout, list[object]]:
    """The values of single entries, not validated yet, and their positions in a text. Raises ``MalformedError``."""
    begins = text[:_HCL_SEARCHED]
    if _HCL.search(begins if isinstance(begins, str) else begins.decode("utf-8", "replace")):
        raise malformed("HCL is not read: write JSON or YAML (`consul config read` prints JSON)", source=source)
    values = read_values(text, format, source)
    if not values.documents:
        raise malformed("empty document", source=source)
    return _single_entries(values)


def _single_entries(values: TextDocuments) -> tuple[TextLayout, list[object]]:
    """The values of single entries, and their positions in the text."""
    parts, given = [], list[object]()
    for number, value in values.documents.items():
        listed = value if isinstance(value, list) else [value]
        parts.append(DocumentPart(number, (), len(listed), is_list=isinstance(value, list)))
        given += listed
    layout = values.layout
    return TextLayout(layout.text, layout.is_json, layout.source, tuple(parts)), given


def read_entry(value: object, *, kind: str = "", name: str = "") -> ReadEntries:
    """Read one entry from plain values. ``kind`` and ``name`` come from the path of a request.

    The value may leave them out, and must not differ from them. Raises ``ValidationError`` with every finding, without
    positions in a text.
    """
    findings = Findings()
    entry = _read(value, findings, kind, name)
    if findings or entry is None:
        raise ValidationError(findings.violations)
    return ReadEntries((entry,), tuple(findings.warnings))


def entry_from_json(value: Mapping[str, object]) -> ConfigEntry:
    """A stored entry, which was checked when it was written. Raises ``ValidationError`` if it is no longer valid."""
    findings = Findings()
    kind = KINDS.get(str(value.get("Kind")))
    entry: ConfigEntry | None = None if kind is None else read_message(kind, value, findings, (), _IGNORED)
    if findings or entry is None:
        raise ValidationError(findings.violations or [Violation("unknown_kind", "unsupported kind of config entry")])
    return entry


def _read(value: object, findings: Findings, kind: str = "", name: str = "") -> ConfigEntry | None:
    if not isinstance(value, dict):
        findings.add("wrong_type", f"a config entry is an object, not {json_kind(value)}")
        return None
    kind_class = _kind(value, kind, findings)
    if kind_class is None:
        return None
    given = value if not name or "name" in map(normalized_name, value) else {"Name": name, **value}
    findings.name_resource(kind_class.kind, str(given.get("Name", given.get("name", "")))[:KEY_LIMIT])
    entry: ConfigEntry = read_message(kind_class, given, findings, (), _IGNORED)
    if not findings.is_full:
        check_common(entry.name, entry.meta, entry.namespace, entry.partition, findings)
        _CHECKS[kind_class](entry, findings)
    if name and compared(entry.name) != compared(name):
        findings.add("name_mismatch", f"expected the name {short_repr(name)}, not {short_repr(entry.name)}", ("Name",))
    return entry


def _kind(value: Mapping[str, object], expected: str, findings: Findings) -> type[Any] | None:
    given = next((value[key] for key in _KIND_KEYS if value.get(key) is not None), expected)
    if not given:
        hint = f"one of {', '.join(KINDS)}"
        findings.add("missing_kind", "a config entry needs a Kind", ("Kind",), hint=hint)
        return None
    if not isinstance(given, str) or given not in KINDS:
        findings.add(*_kind_error(given), ("Kind",), hint=consul_object_hint(value) or _kind_hint(given))
        return None
    if expected and given != expected:
        findings.add("kind_mismatch", f"expected the kind {expected}, not {given}", ("Kind",))
        return None
    return KINDS[given]


def check_kind(kind: str) -> None:
    """Raises ``ValidationError`` for a kind that is not supported. The message names Consul's other kinds."""
    if kind not in KINDS:
        raise ValidationError([Violation(*_kind_error(kind), hint=_kind_hint(kind))])


def _kind_error(given: object) -> tuple[str, str]:
    if given in OTHER_KINDS:
        return "unsupported_kind", f"config entries of the kind {given} are not supported"
    return "unknown_kind", f"invalid config entry kind: {short_repr(given)}"


def _kind_hint(given: object) -> str:
    close = get_close_matches(str(given)[:80], list(KINDS), n=1) if given not in OTHER_KINDS else []
    return f'did you mean "{close[0]}"?' if close else f"one of {', '.join(KINDS)}"
