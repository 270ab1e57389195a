"""Decodes what is pushed: documents, single resources and serialized responses, to checked `Resource` objects.

A server makes one `ResourceDecoder` and hands it to everything that reads pushes: it remembers resources and message
parts that passed the checks. The functions of this module read once and remember nothing. The input forms are described
in docs/internals/design.md#codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from xds.codec import schema
from xds.codec.crosscheck import RESOURCE_LIMIT, check_unique
from xds.codec.document import TEXT_LIMIT, Document, document_of, malformed, parse_document, read_values
from xds.codec.findings import Findings
from xds.codec.naming import TYPE_KEY, name_field, to_duration, to_seconds
from xds.codec.positions import TextLayout, locate
from xds.codec.redaction import may_be_redacted
from xds.codec.resource_reader import ResourceCache, ResourceReader, WrapperFields
from xds.codec.validate_fast import FastValidator
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.names import canonical_name
from xds.model.resource import Resource
from xds.model.text_flaws import CODE, flaw_of

InputFormat = Literal["json", "yaml", "auto", "protobuf"]


@dataclass(frozen=True, slots=True)
class DecodedPush:
    """``resources`` in pushed order; ``label`` and ``labels`` (by type URL) are the caller's version_info.

    ``warnings`` are findings that do not reject the push. ``members`` are others of the document (`document`).
    """

    resources: list[Resource] = field(default_factory=list)
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Violation, ...] = ()
    members: Mapping[str, object] = field(default_factory=dict)


class ResourceDecoder:
    """Decodes pushes with one size limit, and reads unchanged resources of earlier pushes in half the time.

    ``resource_limit`` is in bytes of the serialized message. Safe to use from several threads.
    """

    __slots__ = ("_cache", "_resource_limit", "_validator")

    def __init__(self, resource_limit: int = RESOURCE_LIMIT, *, remembers: bool = True) -> None:
        self._resource_limit = resource_limit
        self._cache = ResourceCache() if remembers else None
        self._validator = FastValidator() if remembers else None

    def document(
        self, body: bytes | str, media: InputFormat = "auto", *, source: str = "", members: Collection[str] = ()
    ) -> DecodedPush:
        """Decode a whole push: JSON, YAML, or a serialized DiscoveryResponse (``protobuf``).

        ``source`` names the file in findings. ``members`` may stand beside the resources. Raises ``MalformedError`` for
        input that cannot be parsed, and ``ValidationError`` with every finding otherwise.
        """
        findings = Findings(source)
        reader = self._reader(findings)
        if media == "protobuf":
            return _decode_response(body, reader, findings)
        document = parse_document(body, media, source, members)
        reader.may_hold_redacted = may_be_redacted(body)
        push = _located(
            document.layout, lambda: _decode_values(document, reader, findings, _consumed(document.resources))
        )
        return replace(push, members=document.members) if document.members else push

    def values(self, value: object) -> DecodedPush:
        """Decode a push that is part of a larger document, from plain values. Raises as `document`."""
        findings, document = Findings(), document_of(value)
        return _decode_values(document, self._reader(findings), findings, document.resources)

    def single(self, body: bytes | str, media: InputFormat, type_url: str, name: str) -> DecodedPush:
        """Decode the body of one resource of a known type and name: text, or its serialized message (``protobuf``).

        Raises as `document`.
        """
        findings = Findings()
        reader = self._reader(findings)
        if media == "protobuf":
            octets = body.encode() if isinstance(body, str) else body
            return DecodedPush([self.message(type_url, octets, name=name)])
        texts = read_values(body, media, content="all")
        if len(texts.documents) != 1:
            raise malformed(f"expected one resource, not {len(texts.documents)} documents")
        ((number, value),) = texts.documents.items()
        reader.may_hold_redacted = may_be_redacted(body)

        def decode() -> DecodedPush:
            resource = _decode_one(value, type_url, name, reader, findings)
            return DecodedPush([resource], warnings=tuple(findings.warnings))

        return _located(texts.layout, decode, number)

    def resource(self, value: object, *, type_url: str = "", name: str = "", source: str = "") -> Resource:
        """Decode one resource from plain values.

        ``type_url`` and ``name`` are known to the caller, from the path of a request for instance: the value may omit
        ``@type`` then, and a value that contradicts them is an error. Raises ``ValidationError``.
        """
        findings = Findings(source)
        return _decode_one(value, type_url, name, self._reader(findings), findings)

    def message(
        self, type_url: str, body: bytes, *, name: str = "", aliases: Sequence[str] = (), ttl_s: float | None = None
    ) -> Resource:
        """Decode one resource from its serialized message and the fields of its wrapper. Raises ``ValidationError``."""
        findings = Findings()
        exact_s = None if ttl_s is None else to_seconds(to_duration(ttl_s))  # as the wire would carry it
        resource = self._reader(findings).packed(type_url, body, WrapperFields(name, tuple(aliases), exact_s))
        if findings or resource is None:
            raise ValidationError(findings.violations)
        return resource

    def _reader(self, findings: Findings) -> ResourceReader:
        return ResourceReader(findings, self._resource_limit, self._cache, self._validator)


def decode_document(
    body: bytes | str, media: InputFormat = "auto", *, source: str = "", resource_limit: int = RESOURCE_LIMIT
) -> DecodedPush:
    """As `ResourceDecoder.document`, remembering nothing."""
    return ResourceDecoder(resource_limit, remembers=False).document(body, media, source=source)


def decode_resource(
    value: object, *, type_url: str = "", name: str = "", source: str = "", resource_limit: int = RESOURCE_LIMIT
) -> Resource:
    """As `ResourceDecoder.resource`, remembering nothing."""
    return ResourceDecoder(resource_limit, remembers=False).resource(value, type_url=type_url, name=name, source=source)


def resource_from_bytes(
    type_url: str,
    body: bytes,
    *,
    name: str = "",
    aliases: Sequence[str] = (),
    ttl_s: float | None = None,
    resource_limit: int = RESOURCE_LIMIT,
) -> Resource:
    """As `ResourceDecoder.message`, remembering nothing."""
    decoder = ResourceDecoder(resource_limit, remembers=False)
    return decoder.message(type_url, body, name=name, aliases=aliases, ttl_s=ttl_s)


def _decode_values(
    document: Document, reader: ResourceReader, findings: Findings, values: Iterable[object]
) -> DecodedPush:
    resources = reader.read_all(values, reader.value)
    return _checked(resources, findings, document.label, document.labels)


def _consumed(values: list[object]) -> Iterator[object]:
    """The values one by one, each released once it is read: freeing all of them at once would block other threads."""
    for index, value in enumerate(values):
        values[index] = None
        yield value


def _decode_response(body: bytes | str, reader: ResourceReader, findings: Findings) -> DecodedPush:
    response = _parse_response(body)
    if flaw := flaw_of(response.version_info):
        findings.add(CODE, flaw, ("version_info",))
    resources = reader.read_all(response.resources, lambda packed: reader.packed(packed.type_url, packed.value))
    return _checked(resources, findings, response.version_info)


def _checked(
    resources: Mapping[int, Resource], findings: Findings, label: str = "", labels: Mapping[str, str] | None = None
) -> DecodedPush:
    check_unique(resources, findings)
    if findings:
        raise ValidationError(findings.violations)
    return DecodedPush(list(resources.values()), label, labels or {}, tuple(findings.warnings))


def _located(layout: TextLayout, decode: Callable[[], DecodedPush], number: int = 0) -> DecodedPush:
    """The result of ``decode``, or its error, with the lines and columns of the findings."""
    try:
        push = decode()
    except ValidationError as error:
        raise ValidationError(locate(layout, error.violations, number)) from None
    return replace(push, warnings=tuple(locate(layout, push.warnings, number))) if push.warnings else push


def _decode_one(value: object, type_url: str, name: str, reader: ResourceReader, findings: Findings) -> Resource:
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
