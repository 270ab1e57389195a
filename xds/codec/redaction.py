"""Resource documents without their secrets, and the check that a redacted document is not pushed back.

Envoy's ``sensitive`` annotation marks the fields that hold secrets. Bytes that cannot be inspected are secret when they
are a Secret, or of a type that may contain one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from xds.codec import schema
from xds.codec.findings import FieldPath, Findings
from xds.codec.naming import TYPE_KEY, VALUE_KEY
from xds.codec.walk import ANY, reachable, submessages, unpack
from xds.proto import field_options

REDACTED = "[redacted]"
# What Envoy's /config_dump writes for a secret in a field of bytes.
_REDACTED_BYTES = base64.b64encode(REDACTED.encode()).decode()

_SECRETS = frozenset(("envoy.extensions.transport_sockets.tls.v3.Secret", "envoy.api.v2.auth.Secret"))
_TYPED_STRUCTS = frozenset(("xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"))


def redact(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a rendered resource with every sensitive value replaced by `REDACTED`, within ``Any`` and wrappers too.

    The copy cannot be decoded: a string stands for each hidden message or list.
    """
    return dict(_redact_any(document))


def is_hidden_in_errors(message: str, value: object) -> bool:
    """Whether findings must not show a value that is read as ``message``.

    True for all of a Secret, and for a value that is not an object where a message with sensitive fields is expected:
    it may be the secret itself.
    """
    return message in _SECRETS or (not isinstance(value, dict) and bool(field_options.sensitive_fields(message)))


def _redact_any(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Redact a message with its ``@type``."""
    type_url = document.get(TYPE_KEY)
    if not isinstance(type_url, str):
        return document
    message = schema.descriptor(type_url)
    if VALUE_KEY in document:
        return {**document, VALUE_KEY: REDACTED} if _is_secret(type_url, document[VALUE_KEY]) else document
    if message is None:
        return document
    if message.full_name in _TYPED_STRUCTS:
        return _redact_typed_struct(document)
    if message.full_name == ANY:
        return {**document, "value": _redact_any(document.get("value", {}))}
    return _redact_fields(message, document)


def _redact_typed_struct(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Redact JSON of the type that ``type_url`` names; it was not checked against that type."""
    message = schema.descriptor(str(document.get("type_url", document.get("typeUrl", ""))))
    value = document.get("value")
    if message is None or not isinstance(value, dict):
        return document
    return {**document, "value": REDACTED if message.full_name in _SECRETS else _redact_fields(message, value)}


def _redact_fields(message: Descriptor, document: Mapping[str, Any]) -> dict[str, Any]:
    sensitive, fields = field_options.sensitive_fields(message.full_name), _by_name(message)
    return {
        key: value
        if (field := fields.get(key)) is None
        else REDACTED
        if field.name in sensitive
        else _redact_field(field, value)
        for key, value in document.items()
    }


@cache
def _by_name(message: Descriptor) -> Mapping[str, FieldDescriptor]:
    return {**message.fields_by_camelcase_name, **message.fields_by_name}


def _redact_field(field: FieldDescriptor, value: Any) -> Any:
    """The redacted value of a field: of a message, or of a list or map of messages. Other values stay unchanged."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        kind = kind.fields_by_name["value"].message_type
        if kind is not None and isinstance(value, dict):
            return {key: _redact_value(kind, item) for key, item in value.items()}
    if kind is None:
        return value
    return [_redact_value(kind, item) for item in value] if isinstance(value, list) else _redact_value(kind, value)


def _redact_value(kind: Descriptor, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return _redact_any(value) if kind.full_name == ANY else _redact_fields(kind, value)


def _is_secret(type_url: str, text: Any) -> bool:
    """Whether bytes are a Secret, hold a sensitive value, or may hold one and cannot be read."""
    message_class = schema.message_class(type_url)
    if type_url.rpartition("/")[2] in _SECRETS:
        return True
    if message_class is None:
        return False
    try:
        return _holds_secret(message_class.FromString(base64.b64decode(text)))
    except (DecodeError, binascii.Error, TypeError, ValueError):
        return not _holders().isdisjoint(reachable(message_class.DESCRIPTOR))


def _holds_secret(message: Any) -> bool:
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpack(message)
        if inner is None:
            return message.type_url.rpartition("/")[2] in _SECRETS or schema.descriptor(message.type_url) is not None
        return _holds_secret(inner)
    sensitive = field_options.sensitive_fields(message.DESCRIPTOR.full_name)
    if sensitive and any(field.name in sensitive for field, _ in message.ListFields()):
        return True
    return any(_holds_secret(inner) for inner in submessages(message, _holders()))


@cache
def _holders() -> frozenset[str]:
    """Types with a sensitive field, and ``Any``, which may hold them."""
    return frozenset((ANY, *(name for name in field_options.messages() if field_options.sensitive_fields(name))))


_HINT = "push the value itself; show_secrets=true returns it to those who may see it, Envoy's config dump never"


def may_be_redacted(text: bytes | str) -> bool:
    """False when a whole document holds no redacted value."""
    marks = (REDACTED, _REDACTED_BYTES)
    return any(mark.encode() in text if isinstance(text, bytes) else mark in text for mark in marks)


def check_not_redacted(value: object, findings: Findings) -> None:
    """Add an error for each redacted value: the document was read without its secrets."""
    for path in _places(value, ()):
        findings.add("redacted", "a redacted value cannot be pushed", path, hint=_HINT)


def _places(value: object, path: FieldPath) -> Iterator[FieldPath]:
    waiting = [(value, path)]
    while waiting:
        current, at = waiting.pop()
        if current in (REDACTED, _REDACTED_BYTES):
            yield at
        elif isinstance(current, dict):
            waiting += [(inner, (*at, str(key))) for key, inner in current.items()]
        elif isinstance(current, list):
            waiting += [(inner, (*at, index)) for index, inner in enumerate(current)]


def redact_message(type_url: str, body: bytes) -> bytes:
    """The bytes of a message with its sensitive strings and bytes replaced by `REDACTED`, as Envoy's dumps have them.

    Unlike the result of `redact` it can be decoded. Bytes that cannot be read are returned where their type cannot hold
    a secret, else nothing is.
    """
    message_class = schema.message_class(type_url)
    if message_class is None:
        return body
    try:
        message = message_class.FromString(body)
    except DecodeError:
        return b"" if not _holders().isdisjoint(reachable(message_class.DESCRIPTOR)) else body
    if not _holds_secret(message):
        return body
    _hide_sensitive(message)
    return bytes(message.SerializeToString(deterministic=True))


def _hide_sensitive(message: Any) -> None:
    if message.DESCRIPTOR.full_name == ANY:
        message.value = redact_message(message.type_url, message.value)
        return
    sensitive = field_options.sensitive_fields(message.DESCRIPTOR.full_name)
    for field, _ in message.ListFields():
        if field.name in sensitive:
            _redact_texts(message, field)
    for inner in submessages(message, _holders()):
        _hide_sensitive(inner)


def _redact_texts(message: Any, field: FieldDescriptor) -> None:
    """Replace all texts of a field, and those of the messages in it; clear fields of other types."""
    is_text, is_bytes = field.type == FieldDescriptor.TYPE_STRING, field.type == FieldDescriptor.TYPE_BYTES
    value = REDACTED if is_text else REDACTED.encode()
    if field.message_type is not None and not field.message_type.GetOptions().map_entry:
        content = getattr(message, field.name)
        for inner in content if field.is_repeated else (content,):
            for each, _ in inner.ListFields():
                _redact_texts(inner, each)
    elif not (is_text or is_bytes):
        message.ClearField(field.name)
    elif field.is_repeated:
        getattr(message, field.name)[:] = [value] * len(getattr(message, field.name))
    else:
        setattr(message, field.name, value)
