"""``/validate`` and pushes check the whole set; a real Envoy is run if one is configured."""

from __future__ import annotations

import json
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from tests.support import resources as r
from tests.support.envoy import envoy_binary
from xds.access.tokens import Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.codec.resources import DecodedPush, ResourceDecoder
from xds.tasks.threads import INPUT_BYTES

VALIDATE = "/api/v1/validate"
SNAPSHOT = "/api/v1/groups/edge/snapshot"
LOST = {"resources": [r.route_config("r", r.route("nope"))]}
CLASH = {"resources": [r.listener(name, r.inline_routes("r"), 8080) for name in "ab"]}
REFUSED = {"resources": [r.refused_cluster("bad"), r.static_cluster("good", 80)]}


def codes(answer: httpx.Response, key: str) -> list[tuple[str, str]]:
    return [(one["code"], one["resource"]) for one in answer.json()[key]]


def asking(api: Api, envoy: Path | None = None, tokens: Tokens | None = None) -> httpx.AsyncClient:
    """A client of a server with an Envoy for validation."""
    return Api(api.plane, ApiOptions(envoy=envoy or envoy_binary(), tokens=tokens or Tokens())).client


async def test_names_that_lead_nowhere_are_warnings(api: Api) -> None:
    for method, path in (("POST", VALIDATE), ("PUT", SNAPSHOT)):
        answer = await api.client.request(method, path, json=LOST)
        assert answer.status_code == 200
        assert codes(answer, "warnings") == [("missing_reference", "routes/r")]
        (warning,) = answer.json()["warnings"]
        assert (warning["index"], warning["pointer"]) == (0, "/virtual_hosts/0/routes/0/route/cluster")


async def test_warnings_refuse_a_strict_push(api: Api) -> None:
    for method, path in (("POST", VALIDATE), ("PUT", SNAPSHOT)):
        answer = await api.client.request(method, path, json=LOST, params={"strict": "true"})
        assert answer.status_code == 422
        assert codes(answer, "errors") == [("missing_reference", "routes/r")]
    assert (await api.client.get(SNAPSHOT)).status_code == 404


async def test_a_small_push_is_read_without_a_thread_unless_its_cost_has_no_bound(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of YAML, of regular expressions and of errors is not bounded by the size of the body."""
    document, threads = ResourceDecoder.document, list[int]()

    def noting(*arguments: Any, **named: Any) -> DecodedPush:
        threads.append(threading.get_ident())
        return document(*arguments, **named)

    monkeypatch.setattr(ResourceDecoder, "document", noting)
    matching = r.route_config("r", {"match": {"safe_regex": {"regex": "/new-to-this-test"}}, "route": {"cluster": "c"}})
    loop = threading.get_ident()
    for body, form, is_on_loop in (
        (json.dumps({"resources": [r.static_cluster("c", 80)]}), "json", [True]),
        (json.dumps({"resources": [r.static_cluster("c", 80)]}), "yaml", [False]),
        (json.dumps({"resources": [r.static_cluster("c", 80), matching]}), "json", [True, False]),
        (json.dumps({"resources": [{"@type": "unknown/type"}]}), "json", [True, False]),
        (json.dumps({"resources": [r.static_cluster("c" * 2000, 80)]}) + " " * INPUT_BYTES, "json", [False]),
    ):
        threads.clear()
        await api.client.put(SNAPSHOT, content=body, headers={"Content-Type": f"application/{form}"})
        assert [each == loop for each in threads] == is_on_loop


async def test_content_that_envoy_surely_rejects_is_an_error(api: Api) -> None:
    for method, path in (("POST", VALIDATE), ("PUT", SNAPSHOT)):
        answer = await api.client.request(method, path, json=CLASH)
        assert answer.status_code == 422
        assert codes(answer, "errors") == [("address_clash", "listeners/b")]


async def test_a_refused_deletion_names_the_nodes_without_a_group(api: Api) -> None:
    await api.put("edge", r.static_cluster("c", 80), r.route_config("r", r.route("c")))
    answer = await api.client.delete("/api/v1/groups/edge/resources/clusters/c", params={"force": "true"})
    assert codes(answer, "warnings") == [("still_referenced", "routes/r")]


async def test_a_transaction_is_looked_at_group_by_group(api: Api) -> None:
    changes = [{"group": "one", "snapshot": LOST}, {"group": "two", "put": [r.static_cluster("nope", 80)]}]
    answer = await api.client.post("/api/v1/transactions", json={"changes": changes})
    assert [[one["code"] for one in each["warnings"]] for each in answer.json()["results"]] == [
        ["missing_reference"],
        [],
    ]
    refused = await api.client.post(
        "/api/v1/transactions", json={"changes": [*changes, {"group": "x", "snapshot": CLASH}]}
    )
    assert refused.status_code == 422
    assert codes(refused, "errors") == [("address_clash", "listeners/b")]


async def test_envoy_is_asked_where_there_is_one(api: Api) -> None:
    assert (await api.client.post(VALIDATE, json=REFUSED)).status_code == 200
    answer = await asking(api).post(VALIDATE, json=REFUSED, params={"envoy": "true"})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["code"], error["resource"], error["index"]) == ("envoy_refused", "clusters/bad", 0)
    fine = await asking(api).post(VALIDATE, json={"resources": r.web_resources("c", 80)}, params={"envoy": "true"})
    assert fine.json() == {"valid": True, "resources": 4, "errors": [], "warnings": []}


async def test_validation_by_envoy_without_an_envoy_is_refused(api: Api) -> None:
    answer = await api.client.post(VALIDATE, json=REFUSED, params={"envoy": "true"})
    assert answer.status_code == 400
    assert "codec.envoy" in answer.json()["detail"]


async def test_an_envoy_that_cannot_be_started(api: Api, tmp_path: Path) -> None:
    answer = await asking(api, tmp_path / "gone").post(VALIDATE, json=REFUSED, params={"envoy": "true"})
    assert answer.status_code == 503


async def test_asking_envoy_opens_files_here_and_is_not_everybodys(api: Api) -> None:
    tokens = Tokens([(sha256(b"t").hexdigest(), Grant("team", frozenset({"read", "write:group/edge"})))])
    headers = {"authorization": "Bearer t"}
    client = asking(api, tokens=tokens)
    answer = await client.post(VALIDATE, json=REFUSED, params={"envoy": "true"}, headers=headers)
    assert answer.status_code == 403
    assert (await client.post(VALIDATE, json=REFUSED, headers=headers)).status_code == 200
