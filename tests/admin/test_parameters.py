"""Query parameters: unknown ones, repeated ones, and odd values are refused before anything is done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from tests.admin.conftest import Api
from tests.support.description import DESCRIPTION
from tests.support.resources import static_cluster
from xds.admin.routing import check_request
from xds.app.admin import create_app
from xds.consul.routing import PARAMETERS, check_consul_request

SNAPSHOT = "/api/v1/groups/edge/snapshot"
BODY = {"resources": [static_cluster("a", 80)]}
# These have no collaborators in these tests: REST xDS is not part of the admin API, the others take no input, or only
# from other servers.
UNCHECKED = re.compile(r"/(v3/.*|internal/.*|livez|readyz|metrics|docs|ui.*)?")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation of the API."""
    for path, methods in DESCRIPTION["paths"].items():
        for method, operation in methods.items() if not UNCHECKED.fullmatch(path) else ():
            yield method.upper(), path, operation


def filled(path: str) -> str:
    """A path with a value for each of its parameters."""
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: "1" if found[1] == "revision" else "clusters", path)


async def test_a_misspelt_dry_run_is_no_push(api: Api) -> None:
    answer = await api.client.put(f"{SNAPSHOT}?dryrun=true", json=BODY)
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"] == [
        {
            "code": "unknown_parameter",
            "severity": "error",
            "resource": "",
            "pointer": "/dryrun",
            "source": "query",
            "detail": "there is no query parameter 'dryrun' here",
            "hint": "did you mean 'dry_run'?",
            "index": -1,
        }
    ]
    assert api.plane.publisher.groups.all() == []


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("dry-run=true", "did you mean 'dry_run'?"),
        ("DryRun=true", "did you mean 'dry_run'?"),
        ("dry_run%20=true", "did you mean 'dry_run'?"),
        ("allowempty", "did you mean 'allow_empty'?"),
        ("mesage=why", "did you mean 'message'?"),
        ("show_secrets=true", "known are allow_empty, author, dry_run"),
    ],
)
async def test_the_hint_names_the_closest_parameter(api: Api, given: str, hint: str) -> None:
    answer = await api.client.put(f"{SNAPSHOT}?{given}", json=BODY)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["hint"].startswith(hint)
    assert api.plane.publisher.groups.all() == []


@pytest.mark.parametrize("value", ["", "maybe", "%20true", "true%20", "2", "tru", "null"])
async def test_an_odd_boolean_is_no_push(api: Api, value: str) -> None:
    answer = await api.client.put(f"{SNAPSHOT}?dry_run={value}", json=BODY)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/dry_run"
    assert api.plane.publisher.groups.all() == []


async def test_a_boolean_without_a_value_is_no_push(api: Api) -> None:
    answer = await api.client.put(f"{SNAPSHOT}?dry_run", json=BODY)
    assert (answer.status_code, api.plane.publisher.groups.all()) == (422, [])


async def test_a_parameter_given_twice_is_refused(api: Api) -> None:
    answer = await api.client.put(f"{SNAPSHOT}?dry_run=true&dry_run=false", json=BODY)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["detail"] == "the query parameter 'dry_run' is given 2 times"
    assert api.plane.publisher.groups.all() == []


async def test_each_wrong_parameter_is_named(api: Api) -> None:
    answer = await api.client.put(f"{SNAPSHOT}?dryrun=1&wait=3&author=a&author=b", json=BODY)
    found = [(error["code"], error["pointer"]) for error in answer.json()["errors"]]
    assert found == [
        ("unknown_parameter", "/dryrun"),
        ("unknown_parameter", "/wait"),
        ("repeated_parameter", "/author"),
    ]


async def test_a_huge_name_of_a_parameter_is_cut(api: Api) -> None:
    answer = await api.client.put(f"{SNAPSHOT}?{'x' * 50_000}=1", json=BODY)
    assert answer.status_code == 400
    assert len(answer.content) < 1_000


async def test_a_refusal_is_in_the_audit_list_without_the_parameter(api: Api) -> None:
    await api.client.put(f"{SNAPSHOT}?dryrun=true", json=BODY)
    (entry,) = (await api.client.get("/api/v1/audit?refused=true")).json()["items"]
    assert entry["reason"] == "400 unknown_parameter"


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in operations()])
async def test_every_operation_refuses_an_unknown_parameter(api: Api, method: str, path: str) -> None:
    body: dict[str, Any] = {"json": {}} if method in ("PUT", "POST", "PATCH") else {}
    answer = await api.client.request(method, f"{filled(path)}?nosuch_parameter=1", **body)
    assert answer.status_code == 400, answer.text
    assert [error["code"] for error in answer.json()["errors"]] == ["unknown_parameter"]


@pytest.mark.parametrize(("method", "path", "operation"), list(operations()))
async def test_every_operation_describes_its_own_parameters(
    api: Api, method: str, path: str, operation: dict[str, Any]
) -> None:
    """Each described parameter passes, and twice only where it is a list."""
    named = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    lists = {each["name"] for each in named if each["schema"].get("type") == "array"}
    query = "&".join(f"{each['name']}=&{each['name']}=" for each in named)
    answer = await api.client.request(method, f"{filled(path)}?nosuch_parameter=1&{query}")
    found = {error["pointer"].removeprefix("/") for error in answer.json()["errors"]}
    assert found == {"nosuch_parameter", *(each["name"] for each in named)} - lists


async def test_every_route_is_checked(api: Api) -> None:
    """Those of Consul too, which the description leaves out."""
    checks = {check_request, check_consul_request}
    routes = [route for route in create_app(api.services).routes if isinstance(route, APIRoute)]
    unchecked = {route.path for route in routes if not checks & {each.call for each in route.dependant.dependencies}}
    assert {path for path in unchecked if not UNCHECKED.fullmatch(path)} == set()
    assert sum(route.path.startswith("/v1/") for route in routes) > 20


CONSUL_WRITES = [
    ("PUT", "/v1/config", {"Kind": "service-resolver", "Name": "a"}),
    ("DELETE", "/v1/config/service-resolver/a", None),
    ("PUT", "/v1/agent/service/register", {"Name": "a"}),
    ("PUT", "/v1/agent/service/deregister/a", None),
    ("PUT", "/v1/agent/service/maintenance/a", None),
    ("PUT", "/v1/agent/check/pass/a", None),
    ("PUT", "/v1/catalog/register", {"Node": "n", "Address": "10.0.0.1"}),
    ("PUT", "/v1/catalog/deregister", {"Node": "n"}),
    ("GET", "/v1/health/service/a", None),
    ("GET", "/v1/discovery-chain/a", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CONSUL_WRITES)
async def test_consuls_paths_take_consuls_parameters(api: Api, method: str, path: str, body: Any) -> None:
    for query, part in (("dryrun=1", "there is no query parameter 'dryrun'"), ("dc=a&dc=b", "given 2 times")):
        answer = await api.client.request(method, f"{path}?{query}", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
        assert part in answer.text
    answer = await api.client.request(method, f"{path}?csa=1", json=body)
    assert "did you mean 'cas'?" in answer.text
    assert api.plane.mesh.entries.revision == 0


async def test_parameters_of_consuls_clients_are_accepted(api: Api) -> None:
    query = "&".join(f"{name}=" for name in sorted(PARAMETERS - {"stale", "consistent", "filter"}))
    answer = await api.client.get(f"/v1/health/service/a?{query}&tag=a&node-meta=a:b")
    assert (answer.status_code, answer.json()) == (200, [])


async def test_a_registration_for_another_datacenter_is_refused(api: Api) -> None:
    """Consul reads the datacenter of a registration from the query as well as from the body."""
    answer = await api.client.put("/v1/catalog/register?dc=elsewhere", json={"Node": "n", "Address": "10.0.0.1"})
    assert (answer.status_code, "No path to datacenter" in answer.text) == (500, True)
    answer = await api.client.put("/v1/catalog/deregister?ns=team", json={"Node": "n"})
    assert (answer.status_code, "Enterprise" in answer.text) == (400, True)
