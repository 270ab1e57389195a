"""Consul's paths for services: who may register what, whose address counts, and what readers see of all sources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from xds.access.tokens import EVERYTHING, Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.services.core.instance import Check, Health, Instance

PATIENCE_S = 10.0
WEB: dict[str, Any] = {"ID": "web-1", "Name": "web", "Address": "10.0.0.1", "Port": 80, "Check": {"TTL": "300s"}}
DB: dict[str, Any] = {"Node": "n1", "Address": "10.9.0.1", "Service": {"ID": "db-1", "Service": "db", "Port": 5432}}


async def put(api: Api, path: str, body: object = None, **arguments: Any) -> httpx.Response:
    content = json.dumps(body) if body is not None else None
    return await api.client.put(f"/v1/{path}", content=content, **arguments)


async def register(api: Api, **changes: Any) -> None:
    answer = await put(api, "agent/service/register", {**WEB, **changes})
    assert (answer.status_code, answer.text) == (200, "")


def addresses(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return sorted(item["Service"]["Address"] or item["Node"]["Address"] for item in answer.json())


# Who may


@pytest.fixture
async def door(api: Api) -> AsyncIterator[Api]:
    scopes = {"boss": {"admin"}, "eye": {"read"}, "web": {"register:web"}, "shops": {"register:shop-*", "read"}}
    grants = {name: Grant(name, frozenset(held)) for name, held in scopes.items()} | {
        "all": Grant("all", frozenset({"register:*"}))
    }
    tokens = Tokens((sha256(token.encode()).hexdigest(), grant) for token, grant in grants.items())
    found = Api(api.plane, ApiOptions(tokens=tokens))
    await found.start()
    yield found
    await found.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("agent/service/register", WEB),
        ("agent/service/register", {**WEB, "Name": "shop-1"}),  # takes the instance of web
        ("agent/service/deregister/web-1", None),
        ("agent/service/maintenance/web-1?enable=true", None),
        ("agent/service/maintenance/web-1?enable=false", None),
        ("agent/check/register", {"Name": "x", "ServiceID": "web-1", "TTL": "1s"}),
        ("agent/check/deregister/service:web-1", None),
        ("agent/check/pass/service:web-1", None),
        ("agent/check/warn/service:web-1", None),
        ("agent/check/fail/service:web-1", None),
        ("agent/check/update/service:web-1", {"Status": "critical"}),
        ("catalog/register", DB),
        ("catalog/register", {"Node": "n1", "Address": "10.9.9.9"}),
        ("catalog/register", {"Node": "n2", "Address": "10.9.9.9"}),  # of no service
        ("catalog/register", {"Node": "n1", "SkipNodeUpdate": True, "Check": {"Name": "disk"}}),
        ("catalog/deregister", {"Node": "n1"}),
        ("catalog/deregister", {"Node": "n1", "ServiceID": "db-1"}),
    ],
)
async def test_a_token_registers_only_services_that_its_scope_names(door: Api, path: str, body: object) -> None:
    boss = {"X-Consul-Token": "boss"}
    for each, given in (("agent/service/register", WEB), ("catalog/register", DB)):
        assert (await put(door, each, given, headers=boss)).status_code == 200
    table = list(door.registrations.table)
    for token in ("eye", "shops"):
        refused = await put(door, path, body, headers={"X-Consul-Token": token})
        assert refused.status_code == 403, refused.text
        assert f"the token '{token}' lacks the scope" in refused.text
    assert list(door.registrations.table) == table
    allowed = await put(door, path, body, headers={"X-Consul-Token": "all"})
    assert allowed.status_code == 200, allowed.text


async def test_a_scope_names_services_by_a_glob(door: Api) -> None:
    shops = {"X-Consul-Token": "shops"}
    assert (await put(door, "agent/service/register", {**WEB, "Name": "shop-1"}, headers=shops)).status_code == 200
    assert (await put(door, "agent/check/pass/service:web-1", headers=shops)).status_code == 200
    refused = await put(door, "agent/service/register", {**WEB, "Name": "shop"}, headers=shops)
    assert (refused.status_code, refused.text) == (403, "the token 'shops' lacks the scope register:shop")
    assert (await door.client.get("/v1/health/service/shop-1", headers=shops)).status_code == 200
    reads = await door.client.get("/v1/health/service/web", headers={"X-Consul-Token": "web"})
    assert (reads.status_code, reads.text) == (403, "the token 'web' lacks the scope read")
    assert (await door.client.get("/v1/health/service/web")).status_code == 401


@pytest.mark.parametrize(
    ("glob", "name", "is_allowed"),
    [
        ("web", "Web", True),
        ("Web", "web", True),
        ("SHOP-*", "shop-1", True),
        ("shop-[A-C]", "shop-b", True),
        ("[!w]*", "WEB", False),  # another case is no way around a glob that leaves a service out
        ("shop-*", "WEB", False),
    ],
)
async def test_the_glob_of_a_scope_matches_a_service_whatever_the_case(
    api: Api, glob: str, name: str, is_allowed: bool
) -> None:
    grant = Grant("one", frozenset({f"register:{glob}"}))
    door = Api(api.plane, ApiOptions(tokens=Tokens([(sha256(b"one").hexdigest(), grant)])))
    await door.start()
    answer = await put(door, "agent/service/register", {**WEB, "Name": name}, headers={"X-Consul-Token": "one"})
    assert answer.status_code == (200 if is_allowed else 403), answer.text
    await door.close()


def test_the_glob_of_a_group_has_a_case() -> None:
    grant = Grant("one", frozenset({"write:group/Shop*"}))
    assert grant.allows("write:group/Shop-1")
    assert not grant.allows("write:group/shop-1")


@pytest.mark.parametrize(
    "path", ["agent/self", "status/leader", "status/peers", "health/connect/web", "catalog/connect/web"]
)
async def test_probes_need_the_scope_read(door: Api, path: str) -> None:
    for token, status in (("eye", 200), ("shops", 200), ("web", 403), ("nobody", 401)):
        answer = await door.client.get(f"/v1/{path}", headers={"X-Consul-Token": token})
        assert answer.status_code == status, (token, answer.text)
    assert (await door.client.get(f"/v1/{path}")).status_code == 401


async def test_the_mesh_connects_to_the_instances_of_all_sources(api: Api) -> None:
    """As a client does that reads the chain of a service, and then the instances of its targets."""
    api.catalog.sink("files", "files", hold_share=1).put("web", [Instance("a", "10.0.0.7", 80)])
    await register(api)
    found = await api.client.get("/v1/health/service/web")
    assert len(found.json()) == 2
    for path in ("health/connect/web", "health/connect/web?connect"):
        answer = await api.client.get(f"/v1/{path}")
        assert (answer.json(), answer.headers["x-consul-index"]) == (found.json(), found.headers["x-consul-index"])
    (passing,) = (await api.client.get("/v1/health/connect/web?passing")).json()
    assert passing["Service"]["Address"] == "10.0.0.7"


@pytest.mark.parametrize("glob", ["?", "[*]", "*-1", "register:*"])
async def test_a_narrow_glob_that_matches_a_star_may_not_register_nodes(api: Api, glob: str) -> None:
    grant = Grant("narrow", frozenset({f"register:{glob}"}))
    door = Api(api.plane, ApiOptions(tokens=Tokens([(sha256(b"narrow").hexdigest(), grant)])))
    refused = await put(
        door, "catalog/register", {"Node": "n", "Address": "10.0.0.1"}, headers={"X-Consul-Token": "narrow"}
    )
    assert refused.status_code == 403


async def test_refused_registrations_are_in_the_audit_list(api: Api) -> None:
    await put(api, "agent/service/register", {**WEB, "Port": 0})
    await put(api, "agent/check/pass/absent")
    await put(api, "catalog/register", {"Node": "n"})
    await api.client.get("/v1/agent/service/absent")
    listed = (await api.client.get("/api/v1/audit")).json()["items"]
    subjects = [(item["subject"], item["refused"]) for item in listed]
    assert subjects == [
        ("PUT /v1/agent/service", True),
        ("PUT /v1/agent/check", True),
        ("PUT /v1/catalog", True),
    ]


async def test_no_page_of_another_origin_may_register(api: Api) -> None:
    for path in ("agent/service/register", "catalog/register"):
        refused = await put(api, path, WEB, headers={"Origin": "http://evil.example"})
        assert refused.status_code == 403
    assert not len(api.registrations.table)


@pytest.mark.parametrize("path", ["agent/service/register", "catalog/register", "agent/check/register"])
async def test_a_body_that_is_too_large_is_refused(api: Api, path: str) -> None:
    refused = await put(api, path, {**WEB, "Meta": {"a": "x" * (300 << 10)}})
    assert refused.status_code == 413


# Whose address counts


async def test_an_instance_without_an_address_has_the_one_that_it_registers_from(api: Api) -> None:
    await register(api, Address="")
    found = await api.client.get("/v1/health/service/web")
    (item,) = found.json()
    assert (item["Node"]["Address"], item["Service"]["Address"]) == ("127.0.0.1", "")
    assert [one.instance.address for one in api.catalog.instances("web")] == ["127.0.0.1"]


# Reading


async def test_readers_see_the_instances_of_all_sources(api: Api) -> None:
    await register(api)
    checks = (Check("ready", Health.WARNING, kind="kubernetes"), Check("going", Health.DRAINING))
    sink = api.catalog.sink("cluster-1", "kubernetes")
    sink.put("web", [Instance("pod-1", "10.7.0.1", 8080, tags=("blue",), node="pod-1", meta={"a": "b"}, checks=checks)])
    found = (await api.client.get("/v1/health/service/web")).json()
    assert [item["Service"]["ID"] for item in found] == ["web-1", "pod-1"]
    pod = found[1]
    assert (pod["Service"]["Address"], pod["Service"]["Port"], pod["Node"]["Node"]) == ("10.7.0.1", 8080, "pod-1")
    assert [(check["CheckID"], check["Status"]) for check in pod["Checks"]] == [
        ("ready", "warning"),
        ("going", "critical"),
    ]
    assert addresses(await api.client.get("/v1/health/service/web", params={"filter": 'Service.Meta.a == "b"'})) == [
        "10.7.0.1"
    ]
    assert (await api.client.get("/v1/catalog/services")).json() == {"web": ["blue"]}
    assert list((await api.client.get("/v1/agent/services")).json()) == ["web-1"]


async def test_other_datacenters_are_read_by_name(api: Api) -> None:
    sink = api.catalog.sink("consul", "consul", hold_share=1)
    sink.put(
        "web",
        [Instance("a", "10.1.0.1", 80, tags=("a",)), Instance("b", "10.2.0.1", 80, tags=("b",), datacenter="dc2")],
    )
    sink.put("far", [Instance("c", "10.2.0.2", 80, datacenter="dc2")])
    assert (await api.client.get("/v1/catalog/services")).json() == {"web": ["a"]}
    assert (await api.client.get("/v1/catalog/datacenters")).json() == ["dc1", "dc2"]
    assert (await api.client.get("/v1/catalog/services", params={"dc": "dc2"})).json() == {"far": [], "web": ["b"]}
    for datacenter, address in (("", "10.1.0.1"), ("dc1", "10.1.0.1"), ("dc2", "10.2.0.1")):
        answer = await api.client.get("/v1/health/service/web", params={"dc": datacenter})
        assert addresses(answer) == [address]
    sink.remove("far")
    sink.put("web", [Instance("a", "10.1.0.1", 80)])
    await api.client.get("/v1/health/service/web")
    await api.client.get("/v1/catalog/services")
    assert (await api.client.get("/v1/health/service/web", params={"dc": "dc2"})).status_code == 500
    wrong = await put(api, "catalog/register", {**DB, "Datacenter": "dc2"})
    assert (wrong.status_code, wrong.text) == (500, "No path to datacenter: 'dc2'")


async def test_an_instance_that_drains_is_not_read(api: Api) -> None:
    """Proxies drain it; who asks Consul's API is to send it nothing new."""
    await register(api)
    await register(api, ID="web-2", Address="10.0.0.2", Check=None)
    assert addresses(await api.client.get("/v1/health/service/web")) == ["10.0.0.1", "10.0.0.2"]
    assert (await put(api, "agent/service/deregister/web-2")).status_code == 200
    assert addresses(await api.client.get("/v1/health/service/web")) == ["10.0.0.1"]
    assert len(api.catalog.instances("web")) == 2


async def test_a_registration_is_visible_to_the_next_request(api: Api) -> None:
    for number in range(20):
        await register(api, ID=f"web-{number}", Port=1 + number, Check=None, Tags=[f"t{number}"])
        own = (await api.client.get("/api/v1/services/web")).json()
        assert f"web-{number}" in [one["id"] for one in own["instances"]]
        assert len((await api.client.get("/v1/health/service/web")).json()) == 1 + number
        assert f"t{number}" in (await api.client.get("/v1/catalog/services")).json()["web"]


# Waiting


async def waiting(api: Api, path: str, index: int) -> asyncio.Task[httpx.Response]:
    """A blocking query that waits."""
    before = len(api.view.waiters)
    query = asyncio.create_task(api.client.get(f"/v1/{path}", params={"index": index, "wait": "5m"}))
    async with asyncio.timeout(PATIENCE_S):
        while len(api.view.waiters) != before + 1:
            assert not query.done(), query.result().text
            await asyncio.sleep(0.01)
    return query


async def index_of(api: Api, path: str) -> int:
    return int((await api.client.get(f"/v1/{path}")).headers["X-Consul-Index"])


async def test_a_change_wakes_only_queries_for_its_service(api: Api) -> None:
    await register(api)
    await register(api, ID="api-1", Name="api", Check=None)
    paths = ("health/service/web", "catalog/service/web", "health/checks/web", "health/service/absent")
    queries = {path: await waiting(api, path, await index_of(api, path)) for path in paths}
    named = await waiting(api, "catalog/services", await index_of(api, "catalog/services"))
    await register(api, ID="api-1", Name="api", Check=None, Port=81)
    await asyncio.sleep(0.2)
    assert not any(query.done() for query in (*queries.values(), named))
    await put(api, "agent/check/pass/service:web-1")
    for path in paths[:3]:
        answer = await asyncio.wait_for(queries[path], PATIENCE_S)
        assert answer.json()
    await asyncio.sleep(0.2)
    assert not queries["health/service/absent"].done()
    assert not named.done()  # neither names nor tags have changed
    await register(api, ID="new", Name="absent", Check=None)
    assert (await asyncio.wait_for(queries["health/service/absent"], PATIENCE_S)).json()
    assert "absent" in (await asyncio.wait_for(named, PATIENCE_S)).json()


async def test_a_service_that_goes_wakes_and_its_index_grows(api: Api) -> None:
    await register(api)
    before = await index_of(api, "health/service/web")
    query = await waiting(api, "health/service/web", before)
    await put(api, "agent/service/deregister/web-1")
    answer = await asyncio.wait_for(query, PATIENCE_S)
    assert answer.json() == []
    assert int(answer.headers["X-Consul-Index"]) > before
    await register(api)
    assert await index_of(api, "health/service/web") > int(answer.headers["X-Consul-Index"])


async def test_a_wait_ends_with_the_same_index_and_answer(api: Api) -> None:
    await register(api)
    first = await api.client.get("/v1/health/service/web")
    again = await api.client.get(
        "/v1/health/service/web", params={"index": first.headers["X-Consul-Index"], "wait": "20ms"}
    )
    assert (again.json(), again.headers["X-Consul-Index"]) == (first.json(), first.headers["X-Consul-Index"])


async def test_an_index_of_an_earlier_process_is_answered_at_once_and_is_lower(api: Api) -> None:
    """A client that waits with it would else miss what happened in between."""
    await register(api)
    index = await index_of(api, "health/service/web")
    for old in (1, index - 1_000_000):
        async with asyncio.timeout(PATIENCE_S):
            answer = await api.client.get("/v1/health/service/web", params={"index": old, "wait": "5m"})
        assert int(answer.headers["X-Consul-Index"]) == index
    async with asyncio.timeout(PATIENCE_S):
        answer = await api.client.get("/v1/health/service/web", params={"index": index + 10**9, "wait": "5m"})
    assert int(answer.headers["X-Consul-Index"]) == index


async def test_too_many_waiting_queries_are_answered_429(api: Api) -> None:
    await register(api)
    api.view.waiters.limit = 1
    index = await index_of(api, "health/service/web")
    query = await waiting(api, "health/service/web", index)
    refused = await api.client.get("/v1/health/service/web", params={"index": index})
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert api.services.limit_hits["service_waiters"] == 1
    query.cancel()
    await asyncio.gather(query, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_S):
        while len(api.view.waiters):
            await asyncio.sleep(0.01)


async def test_a_token_that_is_taken_back_ends_a_query_that_waits(door: Api) -> None:
    headers = {"X-Consul-Token": "boss"}
    await put(door, "agent/service/register", WEB, headers=headers)
    first = await door.client.get("/v1/health/service/web", headers={"X-Consul-Token": "eye"})
    index = int(first.headers["X-Consul-Index"])
    query = asyncio.create_task(
        door.client.get("/v1/health/service/web", params={"index": index}, headers={"X-Consul-Token": "eye"})
    )
    async with asyncio.timeout(PATIENCE_S):
        while not len(door.view.waiters):
            await asyncio.sleep(0.01)
    door.options.tokens.assign(Tokens([(sha256(b"boss").hexdigest(), EVERYTHING)]))
    await put(door, "agent/check/pass/service:web-1", headers=headers)
    assert (await asyncio.wait_for(query, PATIENCE_S)).status_code == 403


# The server's own paths


async def test_the_servers_own_path_registers_the_same(api: Api) -> None:
    answer = await api.client.put("/api/v1/registrations/web-1", json={**WEB, "ID": None})
    assert answer.status_code == 200, answer.text
    item = answer.json()
    assert (item["id"], item["service"], item["address"], item["health"]) == ("web-1", "web", "10.0.0.1", "critical")
    (check,) = item["checks"]
    assert (check["id"], check["ttl_s"], check["of_node"], check["expires_at"] is not None) == (
        "service:web-1",
        300.0,
        False,
        True,
    )
    assert addresses(await api.client.get("/v1/health/service/web")) == ["10.0.0.1"]
    answer = await api.client.put("/api/v1/registrations/web-1", json={**WEB, "Check": None})
    assert answer.json()["checks"] == []  # what is put is all that there is
    await put(api, "catalog/register", {**DB, "Check": {"Name": "disk", "Status": "warning"}})
    listed = (await api.client.get("/api/v1/registrations")).json()["items"]
    assert [(one["node"], one["id"], one["health"]) for one in listed] == [
        ("n1", "db-1", "warning"),
        ("xds-server", "web-1", "passing"),
    ]
    assert [check["of_node"] for check in listed[0]["checks"]] == [True]
    pages = (await api.client.get("/api/v1/registrations", params={"limit": 1})).json()
    rest = (await api.client.get("/api/v1/registrations", params={"page_token": pages["next_page_token"]})).json()
    assert [one["id"] for one in (*pages["items"], *rest["items"])] == ["db-1", "web-1"]
    for path in ("registrations/web-1", "registrations/web-1/maintenance", "registrations/absent"):
        assert (await api.client.delete(f"/api/v1/{path}")).status_code == (200 if path.endswith("web-1") else 404)


async def test_the_servers_own_path_names_every_fault(api: Api) -> None:
    refused = await api.client.put(
        "/api/v1/registrations/web-1", json={**WEB, "ID": "other", "Port": 0, "Address": "a"}
    )
    assert refused.status_code == 422
    assert {error["pointer"] for error in refused.json()["errors"]} == {"/ID", "/Port", "/Address"}


async def test_the_servers_own_paths_need_the_same_rights(door: Api) -> None:
    def by(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    assert (await door.client.put("/api/v1/registrations/web-1", json=WEB, headers=by("web"))).status_code == 200
    for token in ("eye", "shops"):
        for method, path in (
            ("PUT", "registrations/web-1"),
            ("DELETE", "registrations/web-1"),
            ("PUT", "registrations/web-1/maintenance"),
            ("DELETE", "registrations/web-1/maintenance"),
        ):
            refused = await door.client.request(method, f"/api/v1/{path}", json=WEB, headers=by(token))
            assert (refused.status_code, refused.json()["missing_scope"]) == (403, "register:web")
    assert (await door.client.get("/api/v1/registrations", headers=by("web"))).status_code == 403
    assert (await door.client.get("/api/v1/registrations", headers=by("eye"))).status_code == 200


# Who did what


async def audited(api: Api) -> list[tuple[str, str, str, int]]:
    """Actor, action, subject and count of each registration in the audit list, oldest first."""
    items = (await api.client.get("/api/v1/audit", params={"refused": False}, headers=_as("boss"))).json()["items"]
    found = [(one["actor"], one["action"], one["subject"], one["count"]) for one in items]
    return [one for one in found if one[1].startswith("registration.")]


def _as(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_registrations_and_deregistrations_are_audited(door: Api) -> None:
    await put(door, "agent/service/register", WEB, headers=_as("web"))
    await put(door, "agent/service/maintenance/web-1?enable=true&reason=disk", headers=_as("boss"))
    await put(door, "agent/service/deregister/web-1", headers=_as("all"))
    await put(door, "catalog/register", DB, headers=_as("all"))
    await put(door, "catalog/deregister", {"Node": "n1"}, headers=_as("boss"))
    assert await audited(door) == [
        ("web", "registration.put", "web-1", 1),
        ("boss", "registration.put", "web-1", 1),
        ("all", "registration.deleted", "web-1", 1),
        ("all", "registration.put", "n1/db-1", 1),
        ("boss", "registration.deleted", "n1/db-1", 1),
    ]
    items = (await door.client.get("/api/v1/audit", headers=_as("boss"))).json()["items"]
    first, second, third = (one for one in items if one.get("subject") == "web-1")
    told = {"service": "web", "id": "web-1", "address": "10.0.0.1", "port": 80, "checks": ["service:web-1"]}
    assert (first["new"], first.get("old")) == ([told], None)
    assert [each["id"] for each in second["new"]] == ["web-1"] and second["old"] == [told]
    assert third.get("new") is None and third["old"] == second["new"]
    assert first["peer"].startswith("127.0.0.1:") or first["peer"] == "", first["peer"]


async def test_the_author_that_a_client_names_is_kept_beside_the_actor(door: Api) -> None:
    path = "/api/v1/registrations/web-1"
    body = {key: value for key, value in WEB.items() if key != "ID"}
    answer = await door.client.put(path, json=body, params={"author": "ann"}, headers=_as("web"))
    assert answer.status_code == 200, answer.text
    await door.client.delete(path, params={"author": "ann"}, headers=_as("web"))
    items = (await door.client.get("/api/v1/audit", headers=_as("boss"))).json()["items"]
    assert [(one["actor"], one["author"], one["action"]) for one in items] == [
        ("web", "ann", "registration.put"),
        ("web", "ann", "registration.deleted"),
    ]


async def test_heartbeats_and_repeated_registrations_are_not_audited(door: Api) -> None:
    for _ in range(3):
        await put(door, "agent/service/register", WEB, headers=_as("web"))
        await put(door, "agent/check/pass/service:web-1", headers=_as("web"))
        await put(door, "agent/check/fail/service:web-1", headers=_as("web"))
    assert await audited(door) == [("web", "registration.put", "web-1", 1)]


async def test_an_instance_that_comes_and_goes_again_and_again_is_two_entries(door: Api) -> None:
    for port in range(1, 6):
        await put(door, "agent/service/register", {**WEB, "Port": port}, headers=_as("web"))
        await put(door, "agent/service/deregister/web-1", headers=_as("web"))
    assert await audited(door) == [
        ("web", "registration.put", "web-1", 5),
        ("web", "registration.deleted", "web-1", 5),
    ]


async def test_a_node_with_many_instances_is_one_entry_of_bounded_size(door: Api) -> None:
    for number in range(30):
        service = {"ID": f"db-{number}", "Service": "db", "Port": 5432 + number}
        await put(door, "catalog/register", {**DB, "Service": service}, headers=_as("all"))
    await put(door, "catalog/deregister", {"Node": "n1"}, headers=_as("boss"))
    items = (await door.client.get("/api/v1/audit", headers=_as("boss"))).json()["items"]
    last = items[-1]
    assert (last["action"], last["subject"]) == ("registration.deleted", "n1/")
    assert len(last["old"]) == 21 and last["old"][-1].keys() == {"omitted"}


# Consul's own words


@pytest.mark.parametrize("near", ["_agent", "n1", "nowhere", "_ip", ""])
@pytest.mark.parametrize("path", ["catalog/service/db", "health/service/db", "health/checks/db", "catalog/services"])
async def test_near_keeps_the_order_as_consul_does_without_coordinates(api: Api, path: str, near: str) -> None:
    """Consul sorts by network coordinates, and not at all if it knows none of the node that is asked for."""
    for number in (2, 1, 3):
        service = {"ID": f"db-{number}", "Service": "db", "Port": 5432}
        node = {**DB, "Node": f"n{number}", "Address": f"10.9.0.{number}", "Service": service}
        check = {"Node": node["Node"], "CheckID": f"c{number}", "Name": "c", "Status": "passing"}
        await put(api, "catalog/register", {**node, "Check": {**check, "ServiceID": f"db-{number}"}})
    await register(api, Name="db", ID="db-0", Address="10.9.0.9")
    plain, asked = await api.client.get(f"/v1/{path}"), await api.client.get(f"/v1/{path}", params={"near": near})
    assert asked.status_code == 200
    assert asked.json() == plain.json()
    assert asked.headers["X-Consul-Index"] == plain.headers["X-Consul-Index"]


async def test_an_output_that_cannot_be_encoded_is_refused(api: Api) -> None:
    await register(api, Check={"TTL": "10s"})
    answer = await put(api, "agent/check/update/service:web-1", {"Status": "passing", "Output": "half: \ud800"})
    assert answer.status_code == 400
    assert "/Output: a text with half a surrogate pair" in answer.text
