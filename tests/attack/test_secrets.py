"""A secret value in a wrong field appears in no answer, log line or event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.attack.conftest import Beside
from tests.support.http import plain_client
from tests.support.process import LOOPBACK
from tests.support.server import ServerProcess

KEY = "TheVeryKey123"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
FILTER = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"


def secret(**fields: Any) -> dict[str, Any]:
    return {"@type": SECRET, "name": "s", **fields}


def within_tls(certificate: Any) -> dict[str, Any]:
    """Where a cluster holds its own certificate."""
    context = {"@type": TLS, "common_tls_context": {"tls_certificates": certificate}}
    return {"@type": CLUSTER, "name": "c", "transport_socket": {"name": "tls", "typed_config": context}}


def extension(type: str, **fields: Any) -> dict[str, Any]:
    config = {"@type": f"type.googleapis.com/envoy.extensions.{type}", **fields}
    return {"@type": FILTER, "name": "f", "typed_config": config}


MISTAKES: dict[str, dict[str, Any]] = {
    "a list for a string": secret(tls_certificate={"private_key": {"inline_string": [KEY]}}),
    "an object for a string": secret(tls_certificate={"private_key": {"inline_string": {"pem": KEY}}}),
    "no DataSource": secret(generic_secret={"secret": KEY}),
    "no DataSource in a map": secret(generic_secret={"secrets": {"a": KEY}}),
    "no map": secret(generic_secret={"secrets": KEY}),
    "no message": secret(generic_secret=KEY),
    "no certificate": secret(tls_certificate=KEY),
    "no certificate in a list": secret(tls_certificate=[KEY]),
    "no list of keys": secret(session_ticket_keys={"keys": KEY}),
    "no base64": secret(generic_secret={"secret": {"inline_bytes": f"{KEY}!"}}),
    "a list for base64": secret(generic_secret={"secret": {"inline_bytes": [KEY]}}),
    "a number": secret(generic_secret={"secret": {"inline_string": 4711081547110815}}),
    "the content beside it": secret(generic_secret={"secret": {"filename": [KEY]}}),
    "bytes of something else": {"@type": SECRET, "@value_base64": [KEY]},
    "a certificate of a cluster": within_tls(KEY),
    "certificates of a cluster": within_tls([KEY]),
    "a key of a cluster": within_tls([{"private_key": KEY}]),
    "a key's text of a cluster": within_tls([{"private_key": {"inline_string": [KEY]}}]),
    "a password of a cluster": within_tls([{"password": KEY}]),
    "users": extension("filters.http.basic_auth.v3.BasicAuth", users=KEY),
    "an API key": extension("filters.http.api_key_auth.v3.ApiKeyAuth", credentials=[KEY]),
    "an API key's text": extension("filters.http.api_key_auth.v3.ApiKeyAuth", credentials=[{"key": [KEY]}]),
    "a key of AWS": extension("common.aws.v3.InlineCredentialProvider", secret_access_key=[KEY], access_key_id="x"),
}
UNQUOTED = {
    "a tag": "!",
    "an alias": "*",
    "a reserved character": "@",
    "a directive": "%",
    "a folded block": "> ",
    "a quote": "'",
    "an open list": "[",
}


def check_untold(server: ServerProcess, answer: Any, told_before: int, secret: str = KEY) -> None:
    assert answer.status_code in {400, 422}, answer.text
    log = server.process.log()
    assert len(log) > told_before, "nothing was logged"
    for text in (answer.text, log):
        assert secret not in text and secret.encode().hex() not in text


@pytest.mark.parametrize("resource", MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("path", ["/api/v1/groups/secrets/snapshot", "/api/v1/validate"])
def test_a_wrong_type(victim: ServerProcess, path: str, resource: dict[str, Any]) -> None:
    before = len(victim.process.log()) if path.endswith("snapshot") else -1
    method = "PUT" if path.endswith("snapshot") else "POST"
    answer = victim.request(method, path, json={"resources": [resource]})
    key = "4711081547110815" if "4711081547110815" in json.dumps(resource) else KEY
    if method == "PUT":
        check_untold(victim, answer, before, key)
    assert key not in answer.text
    findings = answer.json()["errors"]
    assert findings and all(each["pointer"] or each["detail"] for each in findings)


@pytest.mark.parametrize("begins", UNQUOTED.values(), ids=UNQUOTED)
def test_a_password_that_is_yaml(victim: ServerProcess, beside: Beside, begins: str) -> None:
    text = (
        f'resources:\n- "@type": {SECRET}\n  name: s\n  generic_secret: {{secret: {{inline_string: {begins}{KEY}}}}}\n'
    )
    before = len(victim.process.log())
    headers = {"content-type": "application/yaml"}
    answer = victim.request("PUT", "/api/v1/groups/secrets/snapshot", content=text, headers=headers)
    check_untold(victim, answer, before)
    assert answer.json()["errors"][0]["source"] or answer.json()["errors"][0]["pointer"]


def test_a_value_that_is_no_secret_is_shown_in_an_error(victim: ServerProcess) -> None:
    resource = {"@type": CLUSTER, "name": "c", "type": "STATIC", "alt_stat_name": ["shown"]}
    answer = victim.request("POST", "/api/v1/validate", json={"resources": [resource]})
    assert "expected a string, not ['shown']" in answer.text


def test_no_event_has_the_secret(victim: ServerProcess) -> None:
    for resource in MISTAKES.values():
        victim.request("PUT", "/api/v1/groups/secrets/snapshot", json={"resources": [resource]})
    victim.push("secrets", [{"@type": CLUSTER, "name": "last", "type": "STATIC"}])
    headers = {"accept": "application/x-ndjson", "last-event-id": "0"}
    url = f"http://{LOOPBACK}:{victim.http_port}/api/v1/events"
    with plain_client() as client, client.stream("GET", url, headers=headers) as events:
        for line in events.iter_lines():
            assert KEY not in line
            if '"secrets"' in line:
                return
