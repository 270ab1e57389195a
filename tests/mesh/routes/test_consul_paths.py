"""Consul's own paths: what its clients send and read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx
import pytest
from fastapi import Request

from tests.admin.conftest import Api
from xds.access.tokens import EVERYTHING, Grant, Tokens
from xds.admin.browser_rules import BrowserRules
from xds.admin.dependencies import ApiOptions
from xds.consul.blocking_queries import Blocking

PATIENCE_S = 10.0
HTTP = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
SPLITTER = {"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 90}, {"Weight": 10, "Service": "api"}]}


def resolver(name: str, timeout: str = "5s") -> dict[str, Any]:
    return {"Kind": "service-resolver", "Name": name, "ConnectTimeout": timeout}


async def write(api: Api, entry: object, **arguments: Any) -> httpx.Response:
    return await api.client.put("/v1/config", content=json.dumps(entry), **arguments)


async def written(api: Api, *entries: object) -> None:
    for entry in entries:
        done = await write(api, entry)
        assert (done.status_code, done.text) == (200, "true"), done.text


def index_of(answer: httpx.Response) -> int:
    return int(answer.headers["X-Consul-Index"])


async def test_an_entry_is_written_read_listed_and_deleted(api: Api) -> None:
    await written(api, HTTP, SPLITTER)
    found = await api.client.get("/v1/config/service-splitter/web")
    assert found.json() == {**SPLITTER, "CreateIndex": 2, "ModifyIndex": 2}
    assert found.headers["X-Consul-KnownLeader"] == "true"
    assert found.headers["X-Consul-LastContact"] == "0"
    listed = await api.client.get("/v1/config/service-splitter")
    assert listed.json() == [found.json()]
    gone = await api.client.delete("/v1/config/service-splitter/web")
    assert (gone.status_code, gone.json()) == (200, {})
    assert (await api.client.delete("/v1/config/service-splitter/web")).json() == {}
    absent = await api.client.get("/v1/config/service-splitter/web")
    assert (absent.status_code, absent.text) == (404, 'Config entry not found for "service-splitter" / "web"')
    assert absent.headers["content-type"].startswith("text/plain")
    assert (await api.client.get("/v1/config/service-splitter")).json() == []


async def test_pretty_answers_are_indented_as_consul_does(api: Api) -> None:
    await written(api, resolver("web", "7s"))
    text = (await api.client.get("/v1/config/service-resolver/web?pretty")).text
    assert text.startswith('{\n    "Kind": "service-resolver",\n')
    assert text.endswith("\n}\n")


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain", "application/json"])
async def test_a_body_is_json_whatever_its_content_type(api: Api, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    done = await write(api, resolver("web"), headers=headers)
    assert (done.status_code, done.text) == (200, "true")


async def test_compare_and_set(api: Api) -> None:
    assert (await write(api, resolver("web"), params={"cas": 0})).text == "true"
    assert (await write(api, resolver("web", "6s"), params={"cas": 0})).text == "false"
    modified = (await api.client.get("/v1/config/service-resolver/web")).json()["ModifyIndex"]
    assert (await write(api, resolver("web", "6s"), params={"cas": modified})).text == "true"
    assert (await write(api, resolver("web", "7s"), params={"cas": modified})).text == "false"
    assert (await write(api, resolver("web", "6s"), params={"cas": modified})).text == "true"  # it stands so already
    path = "/v1/config/service-resolver/web"
    assert (await api.client.delete(path, params={"cas": modified})).text == "false"
    modified = (await api.client.get(path)).json()["ModifyIndex"]
    assert (await api.client.delete(path, params={"cas": modified})).text == "true"
    assert (await api.client.delete(path, params={"cas": modified})).text == "true"


REFUSED_BODIES = [
    (b"{", 400, "Request decoding failed: "),
    (b"", 400, "Request decoding failed: "),
    (b"[]", 400, "Request decoding failed: a config entry is an object, not a list"),
    (b'{"Name": "web"}', 400, "Request decoding failed: "),
    (b'{"Kind": "service-router", "Name": "web", "Paths": []}', 400, "Request decoding failed: "),
    (b'{"Kind": "frob", "Name": "web"}', 400, "Request decoding failed: /Kind: invalid config entry kind"),
    (b'{"Kind": "ingress-gateway", "Name": "web"}', 400, "config entries of the kind ingress-gateway"),
    (b'{"Kind": "mesh"}', 400, "config entries of the kind mesh are not supported"),
    (b'{"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 50}]}', 500, "service-splitter/web"),
    (b'{"Kind": "service-resolver", "Name": "web", "Meta": {"a": "\\ud800"}}', 500, "half a surrogate"),
    (b"[" * 100_000, 400, "Request decoding failed: "),
    (b'{"Kind": "service-resolver", "Name": "web", "Meta": {"a": "' + b"a" * 2_000_000 + b'"}}', 413, "at most"),
    (b'{"Kind": "service-resolver", "Name": "web", "Namespace": "team"}', 500, "team"),
]


@pytest.mark.parametrize(("body", "status", "told"), REFUSED_BODIES)
async def test_a_refused_entry_is_a_line_of_text_and_changes_nothing(
    api: Api, body: bytes, status: int, told: str
) -> None:
    done = await api.client.put("/v1/config", content=body)
    assert done.status_code == status, done.text
    assert told in done.text
    assert done.headers["content-type"].startswith("text/plain")
    assert api.plane.mesh.entries.revision == 0


async def test_all_findings_of_an_entry_are_listed(api: Api) -> None:
    legs = [{"Weight": -1}, {"Weight": 200, "Service": "api"}]
    done = await write(api, {"Kind": "service-splitter", "Name": "web", "Splits": legs})
    assert done.status_code == 500
    assert done.text.startswith("3 errors occurred:\n\t* ") or done.text.startswith("2 errors occurred:\n\t* ")


async def test_a_write_that_breaks_a_chain_is_refused_with_the_path(api: Api) -> None:
    done = await write(api, SPLITTER)
    assert done.status_code == 500
    assert 'the chain of "web" would break' in done.text
    assert "path: splitter:web.default.default" in done.text
    await written(api, HTTP, SPLITTER)
    gone = await api.client.delete("/v1/config/proxy-defaults/global")
    assert gone.status_code == 500
    assert 'the chain of "web" would break' in gone.text


async def test_kinds_that_are_not_ours_are_refused_by_name(api: Api) -> None:
    for method, path in (("GET", ""), ("GET", "/mesh"), ("DELETE", "/mesh")):
        done = await api.client.request(method, f"/v1/config/mesh{path}")
        assert (done.status_code, done.text) == (400, "config entries of the kind mesh are not supported")
    unknown = await api.client.get("/v1/config/frob/web")
    assert (unknown.status_code, unknown.text) == (500, "invalid config entry kind: frob")


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ({"dc": "dc1", "ns": "default", "partition": "default"}, {}, 200),
        ({"dc": "", "ns": "", "stale": ""}, {}, 200),
        ({"dc": "dc2"}, {}, 500),
        ({"ns": "team"}, {}, 400),
        ({"partition": "team"}, {}, 400),
        ({}, {"X-Consul-Namespace": "team"}, 400),
        ({"index": "-1"}, {}, 400),
        ({"index": "x"}, {}, 400),
        ({"index": "9" * 5000}, {}, 400),
        ({"wait": "soon"}, {}, 400),
        ({"filter": "Name == web"}, {}, 400),
    ],
)
async def test_parameters_are_taken_or_refused_by_name(
    api: Api, query: dict[str, str], headers: dict[str, str], status: int
) -> None:
    for path in ("/v1/config/service-resolver", "/v1/discovery-chain/web"):
        if "filter" in query and "chain" in path:
            continue
        done = await api.client.get(path, params=query, headers=headers)
        assert done.status_code == status, done.text
        assert status == 200 or "X-Consul-Index" not in done.headers


# Chains


async def test_the_chain_of_any_service_is_answered(api: Api) -> None:
    chain = (await api.client.get("/v1/discovery-chain/web")).json()["Chain"]
    assert chain["Default"] is True
    assert chain["Protocol"] == "tcp"
    await written(api, HTTP, SPLITTER)
    found = await api.client.get("/v1/discovery-chain/web", params={"compile-dc": "dc9"})
    assert found.json()["Chain"]["StartNode"] == "splitter:web.default.default"
    assert found.json()["Chain"]["Datacenter"] == "dc9"
    assert (await api.client.get("/v1/discovery-chain/")).text == "Missing chain name"


async def test_overrides_in_the_body_of_a_post(api: Api) -> None:
    body = {"OverrideProtocol": "grpc", "override_connect_timeout": "7s", "OverrideMeshGateway": {"Mode": "remote"}}
    found = await api.client.post("/v1/discovery-chain/web", content=json.dumps(body))
    chain = found.json()["Chain"]
    assert chain["Protocol"] == "grpc"
    target = chain["Targets"]["web.default.default.dc1"]
    assert (target["ConnectTimeout"], target["MeshGateway"]) == ("7s", {"Mode": "remote"})
    assert chain["CustomizationHash"]
    plain = await api.client.post("/v1/discovery-chain/web", content=b"{}")
    assert plain.json() == (await api.client.get("/v1/discovery-chain/web")).json()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "Request decoding failed: "),
        (b"[]", "Request decoding failed: the body is an object"),
        (b'{"OverrideMeshGateway": {"Mode": "far"}}', "Invalid OverrideMeshGateway.Mode parameter"),
        (b'{"OverrideConnectTimeout": "soon"}', "not a duration"),
        (b'{"OverrideConnectTimeout": true}', "a duration, or an integer"),
        (b'{"OverrideProtocol": 1}', "OverrideProtocol is a string"),
        (b'{"Override": 1}', "unknown or repeated fields: Override"),
    ],
)
async def test_overrides_that_cannot_be_read_are_refused(api: Api, body: bytes, told: str) -> None:
    done = await api.client.post("/v1/discovery-chain/web", content=body)
    assert done.status_code == 400
    assert told in done.text


# Blocking queries


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def waiters(api: Api) -> int:
    return len(api.plane.mesh.entries.waiting)


@pytest.fixture
async def blocked(api: Api) -> AsyncIterator[Any]:
    """Begins a blocking query, and says when it waits."""
    running: list[asyncio.Task[httpx.Response]] = []

    async def begin(path: str, index: int, wait: str = "5m") -> asyncio.Task[httpx.Response]:
        before = waiters(api)
        running.append(asyncio.create_task(api.client.get(path, params={"index": index, "wait": wait})))
        await until(lambda: waiters(api) == before + 1)
        return running[-1]

    yield begin
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_write_to_another_service_wakes_nobody_and_one_to_this_does(api: Api, blocked: Any) -> None:
    await written(api, HTTP, SPLITTER)
    first = await api.client.get("/v1/discovery-chain/web")
    query = await blocked("/v1/discovery-chain/web", index_of(first))
    other = await blocked("/v1/discovery-chain/other", index_of(await api.client.get("/v1/discovery-chain/other")))
    await written(api, resolver("other", "9s"))
    await asyncio.wait_for(other, PATIENCE_S)
    assert not query.done()
    await written(api, resolver("api", "9s"))  # the splitter of web leads to it
    found = await asyncio.wait_for(query, PATIENCE_S)
    assert found.json()["Chain"]["Nodes"]["resolver:api.default.default.dc1"]["Resolver"]["ConnectTimeout"] == "9s"
    assert index_of(found) > index_of(first)
    again = await api.client.get("/v1/discovery-chain/web")
    assert index_of(again) == index_of(found)


async def test_a_write_that_leaves_the_chain_as_it_is_wakes_nobody(api: Api, blocked: Any) -> None:
    await written(api, resolver("web", "7s"))
    query = await blocked("/v1/discovery-chain/web", index_of(await api.client.get("/v1/discovery-chain/web")))
    path = "/v1/config/service-resolver/web"
    entry = await blocked(path, index_of(await api.client.get(path)))
    await written(api, {**resolver("web", "7s"), "Meta": {"owner": "team-web"}})
    await asyncio.wait_for(entry, PATIENCE_S)
    assert not query.done()
    await written(api, resolver("web", "8s"))
    assert (await asyncio.wait_for(query, PATIENCE_S)).status_code == 200


async def test_queries_for_entries_wake_when_one_is_created_changed_or_deleted(api: Api, blocked: Any) -> None:
    path = "/v1/config/service-resolver/web"
    absent = await api.client.get(path)
    assert (absent.status_code, index_of(absent)) == (404, 1)
    query = await blocked(path, 1)
    other = await blocked("/v1/config/service-resolver/api", 1)
    await written(api, resolver("api"))
    await asyncio.wait_for(other, PATIENCE_S)
    assert not query.done()
    await written(api, resolver("web"))
    created = await asyncio.wait_for(query, PATIENCE_S)
    assert created.json()["Name"] == "web"
    listed = await blocked("/v1/config/service-resolver", index_of(created))
    query = await blocked(path, index_of(created))
    assert (await api.client.delete(path)).json() == {}
    assert (await asyncio.wait_for(query, PATIENCE_S)).status_code == 404
    assert [each["Name"] for each in (await asyncio.wait_for(listed, PATIENCE_S)).json()] == ["api"]


async def test_the_first_write_of_all_is_not_missed_between_two_queries(api: Api) -> None:
    empty = await api.client.get("/v1/config/service-resolver")
    await written(api, resolver("web"))
    found = await asyncio.wait_for(
        api.client.get("/v1/config/service-resolver", params={"index": index_of(empty)}), PATIENCE_S
    )
    assert [each["Name"] for each in found.json()] == ["web"]


async def test_after_the_wait_the_answer_has_the_same_index(api: Api) -> None:
    await written(api, resolver("web"))
    found = await api.client.get("/v1/discovery-chain/web")
    query: dict[str, int | str] = {"index": index_of(found), "wait": "20ms"}
    again = await asyncio.wait_for(api.client.get("/v1/discovery-chain/web", params=query), PATIENCE_S)
    assert again.json() == found.json()
    assert index_of(again) == index_of(found)


async def test_an_index_of_another_store_is_answered_at_once(api: Api) -> None:
    """The client sees the index go back, and begins anew."""
    await written(api, resolver("web"))
    found = await asyncio.wait_for(
        api.client.get("/v1/discovery-chain/web", params={"index": 900, "wait": "5m"}), PATIENCE_S
    )
    assert index_of(found) == 2


async def test_a_client_that_goes_away_frees_its_place(api: Api, blocked: Any) -> None:
    await written(api, resolver("web"))
    query = await blocked("/v1/discovery-chain/web", 2)
    query.cancel()
    await until(lambda: waiters(api) == 0)


@pytest.mark.parametrize(
    ("query", "index", "wait_s"),
    [
        ("", 0, 300.0),
        ("index=7", 7, 300.0),
        ("index=7&wait=90s", 7, 90.0),
        ("index=7&wait=1m30s", 7, 90.0),
        ("index=7&wait=1h", 7, 600.0),
        ("index=7&wait=0s", 7, 300.0),
        ("index=7&wait=-5s", 7, 300.0),
    ],
)
def test_how_long_a_query_waits(query: str, index: int, wait_s: float) -> None:
    scope = {"type": "http", "query_string": query.encode(), "headers": []}
    assert Blocking.of(Request(scope)) == Blocking(index, wait_s)


async def test_too_many_waiting_queries_are_answered_429(api: Api, blocked: Any) -> None:
    api.plane.mesh.entries.waiting.limit = 1
    await written(api, resolver("web"))
    await blocked("/v1/discovery-chain/web", 2)
    refused = await api.client.get("/v1/discovery-chain/web", params={"index": 2})
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert api.services.limit_hits["config_entry_waiters"] == 1


# Who may


@pytest.fixture
async def door(api: Api) -> AsyncIterator[Api]:
    grants = {"boss": EVERYTHING, "eye": Grant("eye", frozenset({"read"}))}
    tokens = Tokens((sha256(token.encode()).hexdigest(), grant) for token, grant in grants.items())
    yield Api(api.plane, ApiOptions(tokens=tokens))


async def test_the_token_of_consuls_clients_is_a_bearer_token(door: Api) -> None:
    refused = await write(door, resolver("web"))
    assert (refused.status_code, refused.text) == (401, "a valid bearer token is required")
    refused = await write(door, resolver("web"), headers={"X-Consul-Token": "eye"})
    assert (refused.status_code, refused.text) == (403, "the token 'eye' lacks the scope admin")
    assert (await write(door, resolver("web"), headers={"X-Consul-Token": "boss"})).text == "true"
    both = {"X-Consul-Token": "eye", "Authorization": "Bearer boss"}
    assert (await write(door, resolver("web"), headers=both)).status_code == 403
    for headers in ({"X-Consul-Token": "eye"}, {"Authorization": "Bearer eye"}):
        assert (await door.client.get("/v1/discovery-chain/web", headers=headers)).status_code == 200
        assert (await door.client.post("/v1/discovery-chain/web", content=b"{}", headers=headers)).status_code == 200
    # elsewhere it is a header like any other
    assert (await door.client.get("/api/v1/groups", headers={"X-Consul-Token": "eye"})).status_code == 401


async def test_a_token_that_is_taken_back_ends_a_query_that_waits(door: Api) -> None:
    headers = {"X-Consul-Token": "eye"}
    await written_by(door, "boss", resolver("web"))
    query = asyncio.create_task(door.client.get("/v1/discovery-chain/web", params={"index": 2}, headers=headers))
    await until(lambda: waiters(door) == 1)
    kept = Tokens([(sha256(b"boss").hexdigest(), EVERYTHING)])
    door.options.tokens.assign(kept)
    await written_by(door, "boss", resolver("web", "9s"))
    assert (await asyncio.wait_for(query, PATIENCE_S)).status_code == 403


async def written_by(door: Api, token: str, entry: object) -> None:
    assert (await write(door, entry, headers={"X-Consul-Token": token})).text == "true"


@pytest.mark.parametrize("page", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_no_page_of_another_origin_may_write(api: Api, page: dict[str, str]) -> None:
    for method, path in (("PUT", "/v1/config"), ("DELETE", "/v1/config/service-resolver/web")):
        refused = await api.client.request(method, path, content=json.dumps(resolver("web")), headers=page)
        assert (refused.status_code, refused.text) == (403, "pages of another origin may not change anything")
    assert api.plane.mesh.entries.revision == 0


async def test_a_page_under_a_name_of_its_own_reads_nothing(api: Api) -> None:
    guarded = Api(api.plane, ApiOptions(browser=BrowserRules(())))
    refused = await guarded.client.get("/v1/config/service-resolver", headers={"Host": "evil.example"})
    assert refused.status_code == 403
    assert "set server.http.hosts" in refused.text


async def test_refused_writes_are_in_the_audit_list(api: Api) -> None:
    await write(api, SPLITTER)
    await write(api, {"Kind": "mesh"})
    await api.client.get("/v1/config/mesh")
    listed = (await api.client.get("/api/v1/audit")).json()["items"]
    assert [(item["subject"], item["refused"]) for item in listed] == [("PUT /v1/config", True)] * 2


async def test_unknown_paths_are_answered_in_text(api: Api) -> None:
    absent = await api.client.get("/v1/agent/members")
    assert (absent.status_code, absent.text) == (404, "no such path: /v1/agent/members")
    wrong = await api.client.post("/v1/config")
    assert wrong.status_code == 405


async def test_the_index_of_a_chain_moves_only_when_the_chain_changes(api: Api) -> None:
    await written(api, resolver("web", "7s"))
    index = index_of(await api.client.get("/v1/discovery-chain/web"))
    await written(api, {**resolver("web", "7s"), "Meta": {"owner": "team-web"}}, resolver("other"))
    assert index_of(await api.client.get("/v1/discovery-chain/web")) == index
    await written(api, {**resolver("web", "8s"), "Meta": {"owner": "team-web"}})
    assert index_of(await api.client.get("/v1/discovery-chain/web")) == index + 3
    assert (await api.client.delete("/v1/config/service-resolver/web")).json() == {}
    assert index_of(await api.client.get("/v1/discovery-chain/web")) == index + 4


@pytest.mark.parametrize("query", [{"compile-dc": "dc9"}, {}])
async def test_a_chain_that_is_seen_otherwise_has_an_index_of_its_own(api: Api, query: dict[str, str]) -> None:
    """All requests for web go elsewhere, but not where tcp is asked for, which knows no splitter."""
    await written(api, HTTP, {"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 100, "Service": "api"}]})
    body = b'{"OverrideProtocol": "tcp"}'
    first = await api.client.post("/v1/discovery-chain/web", params=query, content=body)
    plain = await api.client.get("/v1/discovery-chain/web", params=query)
    await written(api, resolver("web", "9s"))
    found = await asyncio.wait_for(
        api.client.post("/v1/discovery-chain/web", params={**query, "index": index_of(first)}, content=body), PATIENCE_S
    )
    assert found.json() != first.json()
    assert index_of(found) > index_of(first)
    assert index_of(await api.client.get("/v1/discovery-chain/web", params=query)) == index_of(plain)
