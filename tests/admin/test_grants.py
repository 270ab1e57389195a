"""Rights: scopes per route, secrets, required preconditions."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import CERTIFICATE_PEM, KEY_PEM, static_cluster
from xds.access.tokens import EVERYTHING, Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.admin.routing import SCOPE_KEY
from xds.model.node import Node

SNAPSHOT = "/api/v1/groups/edge/snapshot"
A = static_cluster("a", 80)
SECRET = {
    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    "name": "cert",
    "tls_certificate": {
        "certificate_chain": {"inline_string": CERTIFICATE_PEM},
        "private_key": {"inline_string": KEY_PEM.replace("MIIE", "hunter2A")},
    },
}
SCOPES = {
    "all": EVERYTHING,
    "reader": Grant("reader", frozenset({"read"})),
    "auditor": Grant("auditor", frozenset({"read", "secrets:read"})),
    "writer": Grant("writer", frozenset({"write:group/edge*"})),
    "proxy": Grant("proxy", frozenset({"xds"})),
}


def guarded(api: Api, **options: Any) -> Api:
    tokens = Tokens((sha256(name.encode()).hexdigest(), grant) for name, grant in SCOPES.items())
    return Api(api.plane, ApiOptions(tokens=tokens, **options))


async def ask(api: Api, token: str, method: str, path: str, **arguments: Any) -> httpx.Response:
    return await api.client.request(method, path, headers={"authorization": f"Bearer {token}"}, **arguments)


@pytest.mark.parametrize(
    ("method", "path", "allowed", "missing"),
    [
        ("GET", "/api/v1/groups", {"all", "reader", "auditor"}, "read"),
        ("GET", "/api/v1/nodes", {"all", "reader", "auditor"}, "read"),
        ("GET", "/api/v1/nodes?text=n1&order=trouble&counts=true", {"all", "reader", "auditor"}, "read"),
        ("GET", "/api/v1/nodes/n1/timeline", {"all", "reader", "auditor"}, "read"),
        ("GET", "/api/v1/events?kinds=nosuch", {"all", "reader", "auditor"}, "read"),
        ("GET", "/metrics", {"all", "reader", "auditor"}, "read"),
        ("PUT", SNAPSHOT, {"all", "writer"}, "write:group/edge"),
        ("PUT", "/api/v1/groups/core/snapshot", {"all"}, "write:group/core"),
        ("DELETE", "/api/v1/groups/core", {"all"}, "write:group/core"),
        ("PUT", "/api/v1/groups/core", {"all"}, "write:group/core"),
        ("POST", "/api/v1/groups/core/rollback", {"all"}, "write:group/core"),
        ("POST", "/api/v1/groups/core/rollout", {"all"}, "write:group/core"),
        ("POST", "/api/v1/groups/edge/rollout", {"all", "writer"}, "write:group/edge"),
        ("GET", "/api/v1/rollouts", {"all", "reader", "auditor"}, "read"),
        ("POST", "/api/v1/groups/edge/release", {"all", "writer"}, "write:group/edge"),
        ("POST", "/api/v1/nodes/n1/release", {"all", "writer"}, "write:group/edge-1"),
        ("POST", "/api/v1/nodes/n2/release", {"all"}, "admin"),
        ("POST", "/api/v1/validate", {"all", "reader", "auditor"}, "read"),
        ("POST", "/api/v1/explain", {"all", "reader", "auditor"}, "read"),
        ("GET", "/api/v1/whoami", set(SCOPES), ""),
        ("POST", "/v3/discovery:clusters", {"all", "proxy"}, "xds"),
        ("POST", "/v2/discovery:clusters", {"all", "proxy"}, "xds"),
    ],
)
async def test_each_route_needs_one_scope(api: Api, method: str, path: str, allowed: set[str], missing: str) -> None:
    Client(api.plane.fleet, Node("n1"), "edge-1")
    api = guarded(api)
    for name in SCOPES:
        answer = await ask(api, name, method, path)
        assert (answer.status_code == 403) == (name not in allowed), (name, answer.status_code, answer.text)
        if answer.status_code == 403:
            problem = answer.json()
            assert answer.headers["content-type"] == "application/problem+json"
            assert problem["missing_scope"] == missing
            assert missing in problem["detail"]
            assert "insufficient_scope" in answer.headers["www-authenticate"]


async def test_a_transaction_needs_the_scope_of_each_group(api: Api) -> None:
    api = guarded(api)
    changes = [{"group": group, "put": [A]} for group in ("edge-1", "core")]
    answer = await ask(api, "writer", "POST", "/api/v1/transactions", json={"changes": changes})
    assert (answer.status_code, answer.json()["missing_scope"]) == (403, "write:group/core")
    assert api.plane.publisher.groups.all() == []
    answer = await ask(api, "writer", "POST", "/api/v1/transactions", json={"changes": changes[:1]})
    assert answer.status_code == 200


async def test_every_write_is_guarded_by_default(api: Api) -> None:
    """A route without a declared scope is closed, not open."""
    document = (await api.client.get("/api/v1/openapi.json")).json()
    declared = {
        (method, path): operation.get(SCOPE_KEY)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if path.startswith("/api/")
    }
    lenient = {key for key, scope in declared.items() if scope in ("any", "read")}
    assert lenient == {
        ("post", "/api/v1/transactions"),
        ("post", "/api/v1/validate"),
        ("post", "/api/v1/explain"),
        ("post", "/api/v1/auth/test"),
        ("post", "/api/v1/nodes/{id}/release"),  # needs the scope of the node's group
        ("get", "/api/v1/whoami"),
        ("get", "/api/v1/version"),
        # These need the scope to register the service of the instance.
        ("put", "/api/v1/registrations/{id}"),
        ("delete", "/api/v1/registrations/{id}"),
        ("put", "/api/v1/registrations/{id}/maintenance"),
        ("delete", "/api/v1/registrations/{id}/maintenance"),
    }


async def test_the_token_signs_the_push_whatever_the_client_says(api: Api) -> None:
    api = guarded(api)
    for author in ("", "the-boss", "all"):
        body = {"resources": [static_cluster("a", 80 + len(author))]}
        await ask(api, "writer", "PUT", SNAPSHOT, json=body, params={"author": author})
        meta = api.plane.publisher.groups.content("edge").meta
        assert (meta.actor, meta.author) == ("writer", author)


async def test_whoami_shows_the_principal_and_its_scopes(api: Api) -> None:
    nobody = {"name": "", "principal": "", "principals": [], "scopes": ["admin"], "authenticated": False}
    assert (await api.client.get("/api/v1/whoami")).json() == nobody
    answer = await ask(guarded(api), "auditor", "GET", "/api/v1/whoami")
    who = {"name": "auditor", "principal": "token:auditor", "principals": ["token:auditor"]}
    assert answer.json() == {**who, "scopes": ["read", "secrets:read"], "authenticated": True}


async def test_version_and_config(api: Api) -> None:
    options = replace(api.options, config={"server": {"drain_s": 5}})
    api = Api(api.plane, options)
    found = (await api.client.get("/api/v1/version")).json()
    assert set(found) == {"version", "python", "envoy_data_plane", "rollouts"}
    assert (await api.client.get("/api/v1/config")).json() == {"server": {"drain_s": 5}}


# Secrets


@pytest.mark.parametrize(
    "path",
    [
        SNAPSHOT,
        "/api/v1/groups/edge/revisions/1",
        "/api/v1/groups/edge/resources/secrets",
        "/api/v1/groups/edge/resources/secrets/cert",
    ],
)
async def test_secrets_are_shown_on_request_with_the_scope(api: Api, path: str) -> None:
    await api.put("edge", SECRET)
    hidden = (await api.client.get(path)).text
    assert "hunter2" not in hidden
    assert "[redacted]" in hidden
    assert "MIIB" in hidden
    assert "hunter2" in (await api.client.get(path, params={"show_secrets": "true"})).text
    api = guarded(api)
    refused = await ask(api, "reader", "GET", f"{path}?show_secrets=true")
    assert (refused.status_code, refused.json()["missing_scope"]) == (403, "secrets:read")
    assert "hunter2" in (await ask(api, "auditor", "GET", f"{path}?show_secrets=true")).text


async def test_a_hidden_value_cannot_be_put_back(api: Api) -> None:
    await api.put("edge", A, SECRET)
    document = (await api.client.get(SNAPSHOT)).json()
    answer = await api.client.put(SNAPSHOT, json=document)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["code"], error["resource"]) == ("redacted", "secrets/cert")
    assert error["pointer"].startswith("/tls_certificate/private_key")
    assert "show_secrets" in error["hint"]
    one = "/api/v1/groups/edge/resources/secrets/cert"
    answer = await api.client.put(one, json=(await api.client.get(one)).json())
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "redacted")
    shown = (await api.client.get(SNAPSHOT, params={"show_secrets": "true"})).json()
    assert (await api.client.put(SNAPSHOT, json=shown)).json()["changed"] is False


# Writes that must say what they build on


async def test_a_write_without_precondition_is_refused_where_one_is_required(api: Api) -> None:
    api = Api(api.plane, ApiOptions(require_if_match=True))
    assert (await api.put("edge", A)).status_code == 428
    first = await api.put("edge", A, headers={"if-none-match": "*"})
    assert first.status_code == 200
    changes = {"changes": [{"group": "edge", "put": [A]}]}
    assert (await api.client.post("/api/v1/transactions", json=changes)).status_code == 428
    answer = await api.put("edge", static_cluster("b", 80), headers={"if-match": first.headers["etag"]})
    assert answer.status_code == 200


async def test_a_team_may_change_its_own_settings_and_no_selector(api: Api) -> None:
    """Selector and priority decide over the nodes of other groups, the rest only over those of the group."""
    group = "/api/v1/groups/edge"
    (await ask(guarded(api), "all", "PUT", group, json={"selector": "node.id == x", "priority": 3})).raise_for_status()
    own = {"on_nack": "proceed", "removal_delay_s": 5.0, "listener_drain_s": 60.0}
    kept = {"selector": "node.id == x", "priority": 3}
    api = guarded(api)
    assert (await ask(api, "writer", "PUT", group, json={**kept, **own})).json()["on_nack"] == "proceed"
    for other in ({"selector": "node.id == y"}, {"priority": 4}, {"selector": ""}):
        refused = await ask(api, "writer", "PUT", group, json={**kept, **own, **other})
        assert (refused.status_code, refused.json()["missing_scope"]) == (403, "admin")
    assert (await ask(api, "writer", "PUT", group, json=own)).status_code == 403, "what is left out is reset"
    assert (await ask(api, "all", "GET", group)).json()["selector"] == "node.id == x"
    stale = {"authorization": "Bearer writer", "if-match": '"s-00000000"'}
    assert (await api.client.put(group, json={**kept, **own}, headers=stale)).status_code == 412
