"""The names in a client certificate, read from DER, which both gRPC transports and uvicorn provide.

Nothing is verified here: TLS has verified the signature and the issuer. Only names and the end of validity are read. A
certificate that cannot be read has no names and therefore no rights.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

NAMES_LIMIT = 100
NAME_LIMIT = 2048  # SPIFFE: "URIs up to 2048 bytes"

_SEQUENCE, _OCTETS, _OBJECT_ID, _BOOLEAN, _UTC_TIME = 0x30, 0x04, 0x06, 0x01, 0x17
_GENERALIZED_TIME, _VERSION, _EXTENSIONS = 0x18, 0xA0, 0xA3
_DNS_NAME, _URI = 0x82, 0x86
_COMMON_NAME, _ALT_NAMES = bytes.fromhex("550403"), bytes.fromhex("551d11")
_ENCODINGS = {0x0C: "utf-8", 0x12: "ascii", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----\s+(.*?)-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The names of a certificate, in its order. ``not_after`` is epoch seconds.

    ``cn`` is empty if the subject has no common name, or several.
    """

    uris: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    cn: str = ""
    not_after: float = 0.0


def read_pem(text: str) -> Certificate:
    """The first certificate of a PEM text. Raises ``ValueError``."""
    match = _PEM.search(text)
    if match is None:
        raise ValueError("no certificate in PEM form")
    return read_der(base64.b64decode(match[1]))


def read_der(data: bytes) -> Certificate:
    """Raises ``ValueError`` for an invalid certificate."""
    try:
        return _certificate(data)
    except (IndexError, StopIteration) as error:
        raise ValueError("invalid certificate: it ends early") from error


def _certificate(data: bytes) -> Certificate:
    """RFC 5280 4.1: version, serial, algorithm, issuer, validity, subject, key, and optional fields."""
    outer = _content(data, _SEQUENCE)
    fields = list(_elements(_content(outer, _SEQUENCE)))
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    _, _, _, (_, validity), (_, subject), _ = fields[:6] if len(fields) >= 6 else _short()
    uris, dns = _alt_names(fields[6:])
    common = [value for oid, value in _attributes(subject) if oid == _COMMON_NAME]
    not_after = list(_elements(validity))[1]
    return Certificate(uris, dns, common[0] if len(common) == 1 else "", _time(*not_after))


def _short() -> list[tuple[int, bytes]]:
    raise ValueError("invalid certificate: fields are missing")


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element (X.690 8.1; DER has definite lengths only)."""
    at = 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            octets = length & 0x7F
            if not 1 <= octets <= 4:
                raise ValueError("invalid certificate: a length that DER does not allow")
            length, at = int.from_bytes(data[at : at + octets], "big"), at + octets
        if at + length > len(data):
            raise ValueError("invalid certificate: it ends early")
        yield tag, data[at : at + length]
        at += length


def _content(data: bytes, tag: int) -> bytes:
    actual, content = next(_elements(data))
    if actual != tag:
        raise ValueError(f"invalid certificate: expected tag {tag:#x}, got {actual:#x}")
    return content


def _attributes(name: bytes) -> Iterator[tuple[bytes, str]]:
    """The attributes of a distinguished name."""
    for _, relative in _elements(name):
        for _, attribute in _elements(relative):
            (_, oid), (tag, value) = list(_elements(attribute))[:2]
            yield oid, _text(value, _ENCODINGS.get(tag, ""))


def _alt_names(optional: list[tuple[int, bytes]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The URIs and DNS names of the subject alternative name (RFC 5280 4.2.1.6)."""
    names: dict[int, list[str]] = {_URI: [], _DNS_NAME: []}
    for tag, content in optional:
        if tag != _EXTENSIONS:
            continue
        for _, extension in _elements(_content(content, _SEQUENCE)):
            parts = [part for part in _elements(extension) if part[0] != _BOOLEAN]
            if parts[0] == (_OBJECT_ID, _ALT_NAMES) and parts[1][0] == _OCTETS:
                for kind, name in _elements(_content(parts[1][1], _SEQUENCE)):
                    if kind in names and len(names[kind]) < NAMES_LIMIT:
                        names[kind].append(_text(name, "ascii"))
    return tuple(filter(None, names[_URI])), tuple(filter(None, names[_DNS_NAME]))


def _text(data: bytes, encoding: str) -> str:
    """Empty for text that cannot be decoded, is not printable, or is too long."""
    try:
        text = data.decode(encoding) if encoding else ""
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() and len(text) <= NAME_LIMIT else ""


def _time(tag: int, data: bytes) -> float:
    """RFC 5280 4.1.2.5: UTCTime until 2049, years below 50 are 20xx; always UTC with seconds."""
    text = data.decode("ascii", "replace")
    if tag == _UTC_TIME:
        text = ("20" if text[:2] < "50" else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("invalid certificate: no end of validity")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
