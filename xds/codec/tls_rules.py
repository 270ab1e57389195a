"""Rules on certificates and keys, measured with Envoy 1.40.

Findings say nothing of the content of a key.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.inline_data import inline_content
from xds.codec.rules import MessageRule, Problem, missing

_TLS = "envoy.extensions.transport_sockets.tls.v3"
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)\s*-----END \1-----", re.DOTALL)
_HEADERS = re.compile(r"\A(?:[A-Za-z-]+:.*\n)+\s*")  # of an encrypted key
_SPACE = re.compile(r"\s+")
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_CRL = ("X509 CRL",)


def _check_certificate(one: Any) -> list[Problem]:
    """Check a ``TlsCertificate``: a chain and its key, each as PEM. One without any field is ignored."""
    if one.HasField("pkcs12") or not one.ListFields():
        return []
    problems = [*_inline(one, "certificate_chain", _CERTIFICATES), *_key(one)]
    if not one.HasField("certificate_chain"):
        detail = "a certificate needs its certificate_chain"
        problems.append(missing(("certificate_chain",), detail))
    if not one.HasField("private_key") and not one.HasField("private_key_provider"):
        problems.append(missing(("private_key",), "a certificate needs its private_key"))
    return problems


def _key(one: Any) -> Iterator[Problem]:
    data = inline_content(one, "private_key")
    if data is not None and not any(kind.endswith("PRIVATE KEY") for kind in _blocks(data)):
        yield _not_pem("private_key", one.private_key, "a PRIVATE KEY")


def _check_validation(one: Any) -> list[Problem]:
    """Check a ``CertificateValidationContext``. Envoy ignores an empty ``crl``, but not an empty ``trusted_ca``."""
    problems = [*_inline(one, "trusted_ca", _CERTIFICATES)]
    return [*problems, *_inline(one, "crl", _CRL)] if inline_content(one, "crl") else problems


def _inline(one: Any, field: str, kinds: tuple[str, ...]) -> Iterator[Problem]:
    data = inline_content(one, field)
    if data is not None and not any(kind in kinds for kind in _blocks(data)):
        yield _not_pem(field, getattr(one, field), f"a {kinds[0]}")


def _not_pem(field: str, source: Any, what: str) -> Problem:
    path = (field, str(source.WhichOneof("specifier")))
    return Problem(path, "bad_pem", f"{field} is not PEM of {what}", f'it begins with "-----BEGIN {what[2:]}-----"')


def _blocks(text: str) -> Iterator[str]:
    """The kinds of the PEM blocks whose content is base64."""
    for block in _PEM.finditer(text):
        try:
            base64.b64decode(_SPACE.sub("", _HEADERS.sub("", block[2])), validate=True)
        except (binascii.Error, ValueError):
            continue
        yield block[1]


def _check_upstream(context: Any) -> list[Problem]:
    """Check the TLS of a cluster: Envoy presents one certificate."""
    common = context.common_tls_context
    by_sds = len(common.tls_certificate_sds_secret_configs)
    if len(common.tls_certificates) + by_sds < 2:
        return []
    field = "tls_certificate_sds_secret_configs" if by_sds else "tls_certificates"
    detail = "Envoy as a client uses one certificate; several are for listeners only"
    return [Problem(("common_tls_context", field), "too_many", detail)]


# The fields that give a listener its certificates.
_SOURCES = (
    *("tls_certificates", "tls_certificate_sds_secret_configs", "tls_certificate_provider_instance"),
    *("tls_certificate_certificate_provider", "tls_certificate_certificate_provider_instance"),
    *("custom_tls_certificate_selector", "custom_handshaker"),
)


def _check_downstream(context: Any) -> list[Problem]:
    """Check the TLS of a listener: it presents a certificate."""
    common = context.common_tls_context
    if any(field.name in _SOURCES for field, _ in common.ListFields()):
        return []
    detail = "TLS of a listener needs a certificate"
    hint = "tls_certificates, or tls_certificate_sds_secret_configs for a secret by SDS"
    return [missing(("common_tls_context",), detail, hint)]


_AUTHORITIES = (
    *("trusted_ca", "system_root_certs", "ca_certificate_provider_instance", "custom_validator_config"),
    "watched_directory",
)


def _check_peer_names(validation: Any) -> list[Problem]:
    """Check an inline ``validation_context``: names prove nothing without an authority. One by SDS may have it."""
    given = {field.name for field, _ in validation.ListFields()}
    names = [name for name in ("match_typed_subject_alt_names", "match_subject_alt_names") if name in given]
    if not names or not given.isdisjoint(_AUTHORITIES):
        return []
    detail = "names of a peer are verified with a trusted_ca only"
    return [Problem((names[0],), "missing_field", detail)]


# What Envoy 1.40 takes, by OpenSSL's and by IANA's names. Builds with another TLS library take others.
_SUITE_NAMES = """
    AES128-GCM-SHA256 AES128-SHA AES256-GCM-SHA384 AES256-SHA DES-CBC3-SHA ECDHE-ECDSA-AES128-GCM-SHA256
    ECDHE-ECDSA-AES128-SHA ECDHE-ECDSA-AES128-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-ECDSA-AES256-SHA
    ECDHE-ECDSA-CHACHA20-POLY1305 ECDHE-PSK-AES128-CBC-SHA ECDHE-PSK-AES256-CBC-SHA ECDHE-PSK-CHACHA20-POLY1305
    ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-AES128-SHA ECDHE-RSA-AES128-SHA256 ECDHE-RSA-AES256-GCM-SHA384
    ECDHE-RSA-AES256-SHA ECDHE-RSA-CHACHA20-POLY1305 PSK-AES128-CBC-SHA PSK-AES256-CBC-SHA
    TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
    TLS_ECDHE_PSK_WITH_AES_128_CBC_SHA TLS_ECDHE_PSK_WITH_AES_256_CBC_SHA
    TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA
    TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 TLS_PSK_WITH_AES_128_CBC_SHA
    TLS_PSK_WITH_AES_256_CBC_SHA TLS_RSA_WITH_3DES_EDE_CBC_SHA TLS_RSA_WITH_AES_128_CBC_SHA
    TLS_RSA_WITH_AES_128_GCM_SHA256 TLS_RSA_WITH_AES_256_CBC_SHA TLS_RSA_WITH_AES_256_GCM_SHA384
"""
_SUITES = frozenset(_SUITE_NAMES.split())
# Beside names there are words for groups of suites, which expressions such as ECDHE+AES combine.
_SUITE = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)+")
_CURVES = frozenset(("P-256", "P-384", "P-521", "X25519"))
_CURVE = re.compile(r"[A-Z]-[0-9]+|[Xx][0-9]+|[a-z]+[0-9]+[a-z0-9]*")


def _check_parameters(parameters: Any) -> list[Problem]:
    """Warn of cipher suites and curves of ``TlsParameters`` that Envoy's standard build does not have."""
    problems = []
    for index, text in enumerate(parameters.cipher_suites):
        for name in _SUITE.finditer(text):
            if name[0] not in _SUITES:
                problems.append(_unknown("cipher_suites", index, f"cipher suite {name[0][:80]!r}"))
                break
    for index, text in enumerate(parameters.ecdh_curves):
        if _CURVE.fullmatch(text) and text not in _CURVES:
            problems.append(_unknown("ecdh_curves", index, f"curve {text[:80]!r}"))
    return problems


def _unknown(field: str, index: int, what: str) -> Problem:
    detail = f"Envoy's standard build has no {what}, and refuses the whole resource for it"
    return Problem((field, index), "unknown_cipher", detail, is_warning=True)


TLS_FIELD_RULES: Mapping[str, Mapping[str, MessageRule]] = {
    f"{_TLS}.CommonTlsContext": {"validation_context": _check_peer_names},
}
TLS_RULES: Mapping[str, MessageRule] = {
    f"{_TLS}.TlsCertificate": _check_certificate,
    f"{_TLS}.TlsParameters": _check_parameters,
    f"{_TLS}.CertificateValidationContext": _check_validation,
    f"{_TLS}.UpstreamTlsContext": _check_upstream,
    f"{_TLS}.DownstreamTlsContext": _check_downstream,
}
