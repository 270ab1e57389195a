"""Secrets stay out of documents that are shown."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.codec.cases import CASES, TLS, T
from xds.codec import schema
from xds.codec.redaction import REDACTED, redact, redact_message
from xds.codec.render import render_resource
from xds.codec.resources import decode_resource
from xds.proto import field_options

MARK = "s3cr3t00"
INLINE = {"inline_string": f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----\n"}


def _secret(**content: object) -> dict[str, object]:
    return {"@type": f"{T}{TLS.removeprefix(T)}.Secret", "name": "s", **content}


def _redacted(document: dict[str, Any]) -> dict[str, Any]:
    return redact(render_resource(decode_resource(document)))


@pytest.mark.parametrize(
    "content",
    [
        {"tls_certificate": {"certificate_chain": {"filename": "/c"}, "private_key": INLINE, "password": INLINE}},
        {"tls_certificate": {"pkcs12": {"inline_bytes": base64.b64encode(MARK.encode()).decode()}}},
        {"session_ticket_keys": {"keys": [INLINE, INLINE]}},
        {"generic_secret": {"secret": INLINE}},
        {"generic_secret": {"secrets": {"a": INLINE}}},
    ],
)
def test_secrets_are_redacted(content: dict[str, object]) -> None:
    text = json.dumps(_redacted(_secret(**content)))
    assert MARK not in text and base64.b64encode(MARK.encode()).decode() not in text
    assert REDACTED in text


def test_rest_of_a_secret_is_kept() -> None:
    shown = _redacted(_secret(tls_certificate={"certificate_chain": {"filename": "/c"}, "private_key": INLINE}))
    assert shown["name"] == "s"
    assert shown["tls_certificate"] == {"certificate_chain": {"filename": "/c"}, "private_key": REDACTED}


def test_secret_within_a_cluster_and_its_wrapper() -> None:
    context = {
        "@type": f"{TLS}.UpstreamTlsContext",
        "sni": "kept.example",
        "common_tls_context": {"tls_certificates": [{"certificate_chain": {"filename": "/c"}, "private_key": INLINE}]},
    }
    cluster = {
        "@type": f"{T}envoy.config.cluster.v3.Cluster",
        "name": "c",
        "transport_socket": {"name": "tls", "typed_config": context},
    }
    wrapper = {"@type": f"{T}envoy.service.discovery.v3.Resource", "name": "c", "ttl": "5s", "resource": cluster}
    for document in (cluster, wrapper):
        text = json.dumps(_redacted(document))
        assert MARK not in text
        assert "kept.example" in text


def test_secret_within_a_typed_struct() -> None:
    """Both spellings: a TypedStruct holds JSON as it was written."""
    inner = {
        "@type": f"{T}xds.type.v3.TypedStruct",
        "type_url": f"{TLS}.TlsCertificate",
        "value": {"privateKey": INLINE, "password": INLINE, "certificate_chain": {"filename": "/c"}},
    }
    text = json.dumps(
        _redacted({"@type": f"{T}envoy.config.core.v3.TypedExtensionConfig", "name": "e", "typed_config": inner})
    )
    assert MARK not in text
    assert "/c" in text


def _opaque(type_url: str, body: bytes) -> dict[str, object]:
    return {"@type": type_url, "@value_base64": base64.b64encode(body).decode()}


def test_bytes_of_a_secret_are_redacted_whole() -> None:
    assert redact(_opaque(f"{TLS}.Secret", b"anything"))["@value_base64"] == REDACTED


def test_bytes_that_hold_a_secret_are_redacted() -> None:
    """Bytes are shown where a message has unknown fields; a key may be among the known ones."""
    secret: Any = schema.require(f"{TLS}.UpstreamTlsContext")()
    secret.common_tls_context.tls_certificates.add().private_key.inline_string = MARK
    plain = schema.require(f"{TLS}.UpstreamTlsContext")(sni="x").SerializeToString()
    unknown_field = b"\xfa\xff\xff\x0f\x01x"
    secret_bytes = secret.SerializeToString() + unknown_field
    assert redact(_opaque(f"{TLS}.UpstreamTlsContext", secret_bytes))["@value_base64"] == REDACTED
    shown = _opaque(f"{TLS}.UpstreamTlsContext", plain + unknown_field)
    assert redact(shown) == shown


def test_bytes_of_an_unknown_type_are_kept() -> None:
    shown = {"@type": "example.org/x.Y", "@value_base64": "AAAA", "@name": "n"}
    assert redact(shown) == shown


@pytest.mark.parametrize("name", [name for name in CASES if name != "secret"])
def test_documents_without_secrets_are_unchanged(name: str) -> None:
    rendered = render_resource(decode_resource(CASES[name]))
    assert redact(rendered) == rendered


def test_every_sensitive_field_is_one_of_the_schema() -> None:
    sensitive = {
        (message, field) for message in field_options.messages() for field in field_options.sensitive_fields(message)
    }
    assert len([one for one in sensitive if ".v3." in one[0]]) >= 28
    known = {(m, f) for m, f in sensitive if (found := schema.descriptor(m)) and f in found.fields_by_name}
    assert len(known) >= 35


def test_document_is_not_changed_in_place() -> None:
    document = _secret(generic_secret={"secret": INLINE})
    redact(document)
    assert document == _secret(generic_secret={"secret": INLINE})


@pytest.mark.parametrize(
    "content",
    [
        {"tls_certificate": {"certificate_chain": {"filename": "/c"}, "private_key": INLINE, "password": INLINE}},
        {"tls_certificate": {"pkcs12": {"inline_bytes": base64.b64encode(MARK.encode()).decode()}}},
        {"session_ticket_keys": {"keys": [INLINE, INLINE]}},
        {"generic_secret": {"secret": INLINE}},
        {"generic_secret": {"secrets": {"a": INLINE}}},
    ],
)
def test_redacted_bytes_hold_no_secret_and_can_be_decoded(content: dict[str, object]) -> None:
    resource = decode_resource(_secret(**content))
    hidden = redact_message(resource.type_url, resource.body)
    assert MARK.encode() not in hidden
    message: Any = schema.require("envoy.extensions.transport_sockets.tls.v3.Secret").FromString(hidden)
    assert message.name == "s"
    if "tls_certificate" in content and message.tls_certificate.HasField("certificate_chain"):
        assert message.tls_certificate.certificate_chain.filename == "/c"


def test_redacted_bytes_within_a_cluster() -> None:
    """An inline key within an ``Any`` of a transport socket."""
    pair = {"certificate_chain": {"filename": "/c"}, "private_key": INLINE}
    context = {"common_tls_context": {"tls_certificates": [pair]}}
    typed = {"@type": f"{T}{TLS.removeprefix(T)}.UpstreamTlsContext", **context}
    socket = {"name": "tls", "typed_config": typed}
    cluster = {"@type": f"{T}envoy.config.cluster.v3.Cluster", "name": "c", "transport_socket": socket}
    resource = decode_resource(cluster)
    assert MARK.encode() in resource.body
    assert MARK.encode() not in redact_message(resource.type_url, resource.body)


def test_bytes_without_secrets_stay_as_they_are() -> None:
    cluster = decode_resource({"@type": f"{T}envoy.config.cluster.v3.Cluster", "name": "c"})
    assert redact_message(cluster.type_url, cluster.body) == cluster.body
    assert redact_message(f"{T}acme.Unknown", b"anything") == b"anything"
    assert redact_message(f"{T}{TLS.removeprefix(T)}.Secret", b"\xff no message") == b""
