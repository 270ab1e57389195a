"""DecodedPush documents and single values to resources.

Sources: spec/resource_codec.md, DESIGN 4.3; wrappers and aliases: spec/real_clients.md 2 (VHDS) and 0.9 (TTL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from xds.codec import interned, schema
from xds.codec.crosscheck import RESOURCE_LIMIT, check_size, check_unique
from xds.codec.document import TEXT_LIMIT, Document, document_of, malformed, parse_document, read_values
from xds.codec.findings import Findings
from xds.codec.kind import TypeInfo, type_info
from xds.codec.naming import NAME_KEY, TYPE_KEY, VALUE_KEY, aliases_of, name_field, name_of, to_duration, to_seconds
from xds.codec.parse import MessageParser, is_type_url
from xds.codec.positions import TextLayout, locate
from xds.codec.redaction import check_not_redacted, may_be_redacted
from xds.codec.references import first_check_of, references_of
from xds.codec.validate import check_constraints
from xds.codec.validate_fast import is_surely_valid
from xds.codec.walk import make_canonical
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.names import canonical_name
from xds.model.resource import Resource
from xds.model.resource_type import TYPE_PREFIX
from xds.model.versions import content_version

InputFormat = Literal["json", "yaml", "auto", "protobuf"]

NAME_LIMIT = 4096
# What stands in every type URL: without one in its bytes a message packs no other, and need not be searched for them.
# An ``Any`` that names its type without one keeps the bytes it came with.
_ANY_MARK = b"/"
# What a wrapper can say beyond what we keep; losing it silently would be worse than refusing it.
_NOT_KEPT = ("cache_control", "metadata")


@dataclass(frozen=True, slots=True)
class DecodedPush:
    """``resources`` in pushed order; ``label`` and ``labels`` (by type URL) are the caller's version_info.

    ``warnings`` are findings that stop nothing.
    """

    resources: list[Resource] = field(default_factory=list)
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class _Outside:
    """What is said about a resource outside its message; ``base`` is where the message stands, if within a wrapper."""

    name: str = ""
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    base: tuple[str, ...] = ()


_NOTHING = _Outside()


def decode_document(
    body: bytes | str, media: InputFormat = "auto", *, source: str = "", resource_limit: int = RESOURCE_LIMIT
) -> DecodedPush:
    """Read a whole push: JSON, YAML, or a serialized DiscoveryResponse (``protobuf``).

    ``source`` names the file in findings, ``resource_limit`` is in bytes. Raises ``MalformedError`` for what cannot be
    read, ``ValidationError`` with every finding otherwise.
    """
    findings = Findings(source)
    reader = _Reader(findings, resource_limit)
    if media == "protobuf":
        return _response(body, reader, findings)
    document = parse_document(body, media, source)
    reader.is_suspicious = may_be_redacted(body)
    return _placed(document.layout, lambda: _document(document, reader, findings, _consumed(document.resources)))


def decode_values(value: object, *, resource_limit: int = RESOURCE_LIMIT) -> DecodedPush:
    """Read a push that is a part of something larger, from plain values. Raises as ``decode_document``."""
    findings, document = Findings(), document_of(value)
    return _document(document, _Reader(findings, resource_limit), findings, document.resources)


def _document(document: Document, reader: _Reader, findings: Findings, values: Iterable[object]) -> DecodedPush:
    read = reader.read_all(values, reader.value)
    return _checked(read, findings, document.label, document.labels)


def _consumed(values: list[object]) -> Iterator[object]:
    """The values one by one, each let go of behind it: all at once would hold up every other thread for long."""
    for index, value in enumerate(values):
        values[index] = None
        yield value


def _response(body: bytes | str, reader: _Reader, findings: Findings) -> DecodedPush:
    response = _parse_response(body)
    read = reader.read_all(response.resources, lambda packed: reader.packed(packed.type_url, packed.value))
    return _checked(read, findings, response.version_info)


def _checked(
    read: Mapping[int, Resource], findings: Findings, label: str = "", labels: Mapping[str, str] | None = None
) -> DecodedPush:
    check_unique(read, findings)
    if findings:
        raise ValidationError(findings.violations)
    return DecodedPush(list(read.values()), label, labels or {}, tuple(findings.warnings))


def _placed(layout: TextLayout, decode: Callable[[], DecodedPush], number: int = 0) -> DecodedPush:
    """What ``decode`` gives or raises, with the places of its findings in the text."""
    try:
        pushed = decode()
    except ValidationError as error:
        raise ValidationError(locate(layout, error.violations, number)) from None
    return replace(pushed, warnings=tuple(locate(layout, pushed.warnings, number))) if pushed.warnings else pushed


def decode_resource(
    value: object, *, type_url: str = "", name: str = "", source: str = "", resource_limit: int = RESOURCE_LIMIT
) -> Resource:
    """Read one resource from plain values.

    ``type_url`` and ``name`` are what the caller knows already (the path of a request): ``@type`` may be left out
    then, and what disagrees is an error. Raises ``ValidationError``.
    """
    findings = Findings(source)
    return _decode_one(value, type_url, name, _Reader(findings, resource_limit), findings)


def decode_single(
    body: bytes | str, media: InputFormat, type_url: str, name: str, *, resource_limit: int = RESOURCE_LIMIT
) -> DecodedPush:
    """Read the body of one resource whose type and name are known: a text, or its serialized message (``protobuf``).

    Raises as ``decode_document``.
    """
    findings = Findings()
    reader = _Reader(findings, resource_limit)
    if media == "protobuf":
        octets = body.encode() if isinstance(body, str) else body
        return DecodedPush([resource_from_bytes(type_url, octets, name=name, resource_limit=resource_limit)])
    values = read_values(body, media)
    if len(values.documents) != 1:
        raise malformed(f"expected one resource, not {len(values.documents)} documents")
    ((number, value),) = values.documents.items()
    reader.is_suspicious = may_be_redacted(body)

    def decode() -> DecodedPush:
        resource = _decode_one(value, type_url, name, reader, findings)
        return DecodedPush([resource], warnings=tuple(findings.warnings))

    return _placed(values.layout, decode, number)


def _decode_one(value: object, type_url: str, name: str, reader: _Reader, findings: Findings) -> Resource:
    if type_url and isinstance(value, dict) and TYPE_KEY not in value:
        value = {TYPE_KEY: type_url, **value}
    resource = reader.value(value, name)
    if resource is not None and type_url and resource.type_url != type_url:
        findings.add("type_mismatch", f"expected {type_url}, not {resource.type_url}", (TYPE_KEY,))
    if resource is not None and name and resource.name != canonical_name(name):
        path = (name_field(resource.type_url),)
        findings.add("name_mismatch", f"expected the name {name!r}, not {resource.name!r}", path)
    if findings or resource is None:
        raise ValidationError(findings.violations)
    return resource


def resource_from_bytes(
    type_url: str,
    body: bytes,
    *,
    name: str = "",
    aliases: Sequence[str] = (),
    ttl_s: float | None = None,
    resource_limit: int = RESOURCE_LIMIT,
) -> Resource:
    """A resource from its serialized message and what a wrapper would say. Raises ``ValidationError``.

    ``resource_limit`` is in bytes.
    """
    findings = Findings()
    exact_s = None if ttl_s is None else to_seconds(to_duration(ttl_s))  # as it comes back from the wire
    resource = _Reader(findings, resource_limit).packed(type_url, body, _Outside(name, tuple(aliases), exact_s))
    if findings or resource is None:
        raise ValidationError(findings.violations)
    return resource


def _parse_response(body: bytes | str) -> Any:
    if isinstance(body, str) or len(body) > TEXT_LIMIT:
        raise malformed(f"expected at most {TEXT_LIMIT} bytes", code="too_large")
    try:
        response = schema.require(schema.RESPONSE_TYPE).FromString(body)
    except DecodeError:
        raise _not_a_response() from None
    # Nearly any bytes parse as a message of unknown fields.
    if len(UnknownFieldSet(response)):
        raise _not_a_response()
    return response


def _not_a_response() -> MalformedError:
    return malformed("not a serialized envoy.service.discovery.v3.DiscoveryResponse")


class _Reader:
    """Reads resources one by one; findings of all of them are collected.

    ``is_suspicious``: a value that was hidden from its reader may be among them.
    """

    def __init__(self, findings: Findings, resource_limit: int) -> None:
        self.is_suspicious = True
        self._findings = findings
        self._limit = resource_limit
        self._messages = MessageParser(findings)
        self._kinds: dict[str, TypeInfo] = {}

    def read_all(self, items: Iterable[Any], read: Callable[[Any], Resource | None]) -> dict[int, Resource]:
        """Read items in order, by position; those with findings are left out."""
        resources = {}
        for index, item in enumerate(items):
            self._findings.select_resource(index)
            resource = read(item)
            if resource is not None:
                resources[index] = resource
        self._findings.index = -1
        return resources

    def value(self, value: object, name: str = "") -> Resource | None:
        """Read a resource from plain values; ``name`` serves a type that has none of its own."""
        if not isinstance(value, dict):
            self._findings.add("wrong_type", "a resource is an object with @type")
            return None
        type_url = value.get(TYPE_KEY)
        if not isinstance(type_url, str) or not is_type_url(type_url):
            hint = f'"{TYPE_KEY}": "{TYPE_PREFIX}<message name>"'
            self._findings.add("missing_type", "a resource says what it is", hint=hint)
            return None
        self._label(type_url, value)
        if self.is_suspicious:
            before = len(self._findings)
            check_not_redacted(value, self._findings)
            if len(self._findings) > before:
                return None
        if VALUE_KEY in value:
            return self._opaque_value(type_url, value, name)
        return self._message_value(type_url, value, name)

    def _label(self, type_url: str, value: Mapping[str, object]) -> None:
        """Findings call a resource by its name, where it has one already."""
        key = name_field(type_url)
        name = value.get(NAME_KEY, value.get(key, value.get("clusterName" if key == "cluster_name" else key)))
        if isinstance(name, str) and name:
            self._findings.name_resource(type_url, name[:NAME_LIMIT])

    def _message_value(self, type_url: str, value: dict[str, object], name: str) -> Resource | None:
        kind = self._kind(type_url)
        if kind.message_class is None:
            self._messages.unknown_type(type_url)
            return None
        before, message = len(self._findings), kind.message_class()
        if kind.is_wrapper:
            return self._wrapper_value(message, value)
        self._messages.read(message, value, frozenset((TYPE_KEY,)))
        body = self._messages.pack(message)
        if len(self._findings) > before:
            check_constraints(message, self._findings, is_partial=True)
            return None
        outside = _Outside(name) if name and not name_of(type_url, message) else _NOTHING
        known = self._interned(kind.type_url, body) if outside is _NOTHING else None
        return known or self._resource(kind, body, message, outside)

    def _opaque_value(self, type_url: str, value: dict[str, object], name: str) -> Resource | None:
        before = len(self._findings)
        given = value.get(NAME_KEY, name)
        if not isinstance(given, str):
            self._findings.add("wrong_type", "a name is a string", (NAME_KEY,))
        body = self._messages.opaque(type_url, value, frozenset((NAME_KEY,)))
        if len(self._findings) > before:
            return None
        return self.packed(type_url, body, _Outside(str(given)))

    def _wrapper_value(self, wrapper: Any, value: dict[str, object]) -> Resource | None:
        before = len(self._findings)
        self._messages.read(wrapper, value, frozenset((TYPE_KEY,)))
        return None if len(self._findings) > before else self._unwrap(wrapper)

    def packed(self, type_url: str, body: bytes, outside: _Outside | None = None) -> Resource | None:
        """Read a resource from its serialized message."""
        if "/" not in type_url:
            self._findings.add("missing_type", f"{type_url[:200]!r} is no type URL")
            return None
        kind = self._kind(type_url)
        if outside is not None and kind.is_wrapper:
            self._findings.add("unsupported_type", "a wrapper cannot hold a wrapper")
            return None
        if kind.message_class is None:
            return self._resource(kind, body, None, outside or _NOTHING)
        before = self._interned(kind.type_url, body) if outside is None else None
        return before or self._parsed(type_url, kind, body, outside or _NOTHING)

    def _parsed(self, type_url: str, kind: TypeInfo, body: bytes, outside: _Outside) -> Resource | None:
        assert kind.message_class is not None
        try:
            message = kind.message_class.FromString(body)
            if kind.is_wrapper:
                return self._unwrap(message)
            if _ANY_MARK in body:
                make_canonical(message)
            canonical = message.SerializeToString(deterministic=True)
        except (DecodeError, EncodeError, RecursionError):
            self._findings.add("malformed", f"not the bytes of a {type_url[:200]}")
            return None
        is_another = outside is _NOTHING and canonical != body  # which was looked for
        known = self._interned(kind.type_url, canonical) if is_another else None
        return known or self._resource(kind, canonical, message, outside)

    def _unwrap(self, wrapper: Any) -> Resource | None:
        before = len(self._findings)
        for name in _NOT_KEPT:
            if name in wrapper.DESCRIPTOR.fields_by_name and wrapper.HasField(name):
                self._findings.add("unsupported_field", f"{name} of a resource wrapper is not supported", (name,))
        if not wrapper.resource.type_url:
            self._findings.add("missing_field", "a resource wrapper without a resource", ("resource",))
        outside = _Outside(wrapper.name, tuple(wrapper.aliases), self._ttl(wrapper), ("resource",))
        if len(self._findings) > before:
            return None
        return self.packed(wrapper.resource.type_url, wrapper.resource.value, outside)

    def _ttl(self, wrapper: Any) -> float | None:
        if "ttl" not in wrapper.DESCRIPTOR.fields_by_name or not wrapper.HasField("ttl"):
            return None
        ttl_s = to_seconds(wrapper.ttl)
        if ttl_s <= 0:
            self._findings.add("out_of_range", "a TTL must be above zero", ("ttl",))
        return ttl_s

    def _resource(self, kind: TypeInfo, body: bytes, message: Message | None, outside: _Outside) -> Resource | None:
        findings = self._findings
        before, warned = len(findings.violations), len(findings.warnings)
        type_url, name = kind.type_url, self._name(kind, message, outside)
        if name:
            findings.name_resource(type_url, name)
        check_size(body, self._limit, findings)
        if message is not None and not is_surely_valid(message.DESCRIPTOR, body):
            findings.base = outside.base
            check_constraints(message, findings)
            findings.base = ()
        if len(findings.violations) > before:
            return None
        derived = aliases_of(type_url, name, message) if kind.is_named_by_wrapper else ()
        aliases = tuple(dict.fromkeys((*derived, *outside.aliases))) if derived or outside.aliases else ()
        version = content_version(body, aliases, outside.ttl_s)
        references = () if message is None else references_of(type_url, message)
        first_check_s = 0.0 if message is None else first_check_of(type_url, message)
        resource = Resource(type_url, name, body, version, aliases, outside.ttl_s, references, first_check_s)
        if outside is _NOTHING and message is not None and len(findings.warnings) == warned:
            interned.keep(resource)
        return resource

    def _kind(self, type_url: str) -> TypeInfo:
        kind = self._kinds.get(type_url)
        if kind is None:
            kind = self._kinds[type_url] = type_info(type_url)
        return kind

    def _interned(self, type_url: str, body: bytes) -> Resource | None:
        """What these bytes were read as before, unless it is too large for this reader."""
        found = interned.find(type_url, body)
        if found is None or len(body) > self._limit:
            return None
        self._findings.name_resource(type_url, found.name)
        return found

    def _name(self, kind: TypeInfo, message: Message | None, outside: _Outside) -> str:
        """The canonical name, whether or not there is something wrong with it."""
        own = "" if kind.text_field is None else getattr(message, kind.text_field)
        given = outside.name or own
        name = canonical_name(given)
        pointer = (kind.text_field or NAME_KEY,)
        if not given:
            self._findings.add("missing_name", "a resource needs a name", pointer)
        elif len(given) > NAME_LIMIT:
            self._findings.add("too_large", f"a name of {len(given)} characters; the limit is {NAME_LIMIT}", pointer)
        elif given is not own and own and not kind.is_named_by_wrapper and name != canonical_name(own):
            self._findings.add("name_mismatch", f"wrapped as {given[:80]!r} but named {own[:80]!r}", pointer)
        return name
