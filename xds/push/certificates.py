"""The expiry of pushed certificates: those in secrets, listeners and clusters that proxies present to others.

Only certificate chains that are inline in resources can be read. Trusted authorities are left out: a bundle may contain
expired ones without harm.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from xds.access.certificate import Certificate, read_der
from xds.codec import schema
from xds.codec.walk import ANY, submessages, unpack
from xds.model.resource import Resource
from xds.model.resource_type import alias_of
from xds.push.content import GroupContent

NAMES_SHOWN = 5

_MARK = b"-----BEGIN CERTIFICATE-----"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----\s+(.*?)-----END CERTIFICATE-----", re.DOTALL)
_CHAINS = frozenset(("envoy.extensions.transport_sockets.tls.v3.TlsCertificate", "envoy.api.v2.auth.TlsCertificate"))
_HOLDERS = frozenset((ANY, *_CHAINS))


@dataclass(frozen=True, slots=True)
class PushedCertificate:
    """A chain within a pushed resource. ``not_after`` (epoch seconds) is when the first of its certificates expires.

    ``names`` are some names of the leaf certificate: DNS names and URIs, or the common name.
    """

    group: str
    type: str
    name: str
    not_after: float
    names: tuple[str, ...] = ()


class PushedCertificates:
    """The certificates of all groups, read again when a group has changed. May be called from any thread."""

    def __init__(self, groups: Callable[[], Iterable[str]], content: Callable[[str], GroupContent | None]) -> None:
        self._groups = groups
        self._content = content
        self._cached: dict[str, tuple[str, tuple[PushedCertificate, ...]]] = {}

    def of(self, group: str) -> tuple[PushedCertificate, ...]:
        """The certificates of a group, by the time at which they expire."""
        content = self._content(group)
        if content is None:
            self._cached.pop(group, None)
            return ()
        etag, certificates = self._cached.get(group, ("", ()))
        if etag != content.etag:
            read = _certificates(content)
            certificates = tuple(sorted(read, key=lambda each: (each.not_after, each.type, each.name)))
            self._cached[group] = (content.etag, certificates)
        return certificates

    def all(self) -> list[PushedCertificate]:
        """The certificates of all groups, by the time at which they expire."""
        groups = list(self._groups())
        for deleted in self._cached.keys() - set(groups):
            self._cached.pop(deleted, None)
        return sorted((each for group in groups for each in self.of(group)), key=lambda each: each.not_after)


def _certificates(content: GroupContent) -> Iterator[PushedCertificate]:
    for resource in content.resources():
        if _MARK not in resource.body:  # nearly all resources end here
            continue
        for chain in _chains(resource):
            leaf = chain[0]
            ends = min(each.not_after for each in chain)
            names = (*leaf.dns, *leaf.uris) or ((leaf.cn,) if leaf.cn else ())
            yield PushedCertificate(
                content.group, alias_of(resource.type_url), resource.name, ends, names[:NAMES_SHOWN]
            )


def _chains(resource: Resource) -> Iterator[list[Certificate]]:
    message_class = schema.message_class(resource.type_url)
    if message_class is None:
        return
    try:
        message = message_class.FromString(resource.body)
    except DecodeError:
        return
    for certificate in _tls_certificates(message):
        source = certificate.certificate_chain
        chain = list(_read(source.inline_bytes or source.inline_string.encode()))
        if chain:
            yield chain


def _tls_certificates(message: Any) -> Iterator[Any]:
    if message.DESCRIPTOR.full_name in _CHAINS:
        yield message
        return
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpack(message)
        if inner is not None:
            yield from _tls_certificates(inner)
        return
    for submessage in submessages(message, _HOLDERS):
        yield from _tls_certificates(submessage)


def _read(text: bytes) -> Iterator[Certificate]:
    """The certificates of a PEM text, without those that cannot be read."""
    for block in _PEM.finditer(text):
        try:
            yield read_der(base64.b64decode(block[1]))
        except ValueError:
            continue
