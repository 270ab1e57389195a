"""The way of a request through a chain, asked over the API."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api

ENTRIES = [
    {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}},
    {
        "Kind": "service-router",
        "Name": "web",
        "Routes": [
            {"Match": {"HTTP": {"PathPrefix": "/a", "QueryParam": [{"Name": "q", "Exact": "v"}]}}},
            {"Match": {"HTTP": {"Header": [{"Name": "x-a", "Exact": "1=2"}]}}, "Destination": {"Service": "api"}},
        ],
    },
    {"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 99.5}, {"Weight": 0.5, "Service": "api"}]},
    {"Kind": "service-resolver", "Name": "api", "Failover": {"*": {"Datacenters": ["dc2"]}}},
]
API_WAY = {
    "resolver": "resolver:api.default.default.dc1",
    "target": "api.default.default.dc1",
    "failover": ["api.default.default.dc2"],
}


@pytest.fixture
async def written(api: Api) -> Api:
    for entry in ENTRIES:
        assert (await api.client.put("/v1/config", content=json.dumps(entry))).text == "true"
    return api


async def walked(api: Api, **query: Any) -> httpx.Response:
    return await api.client.get("/api/v1/discovery-chains/web/walk", params=query)


async def test_the_whole_answer(written: Api) -> None:
    found = (await walked(written, path="/b?p=1", method="post", header=["x-a=1=2", "x-b="], query=["r=2"])).json()
    chain = found.pop("Chain")
    assert chain == (await written.client.get("/v1/discovery-chain/web")).json()["Chain"]
    assert found == {
        "request": {
            "method": "POST",
            "path": "/b",
            "query": [["p", "1"], ["r", "2"]],
            "headers": [["x-a", "1=2"], ["x-b", ""]],
        },
        "routes": [
            {"route": 1, "matches": False, "mismatch": "path does not begin with /a"},
            {"route": 2, "matches": True, "mismatch": ""},
        ],
        "next_node": "resolver:api.default.default.dc1",
        "path": "/b",
        "ways": [{"weight": 100, **API_WAY}],
    }


async def test_a_split_has_a_way_for_each_leg(written: Api) -> None:
    found = (await walked(written)).json()
    assert found["next_node"] == "splitter:web.default.default"
    own = {"resolver": "resolver:web.default.default.dc1", "target": "web.default.default.dc1", "failover": []}
    assert found["ways"] == [{"weight": 99.5, **own}, {"weight": 0.5, **API_WAY}]


async def test_a_service_without_entries_has_a_way_too(api: Api) -> None:
    found = (await walked(api)).json()
    assert [way["target"] for way in found["ways"]] == ["web.default.default.dc1"]
    assert found["routes"] == []


@pytest.mark.parametrize(
    "query",
    [
        {"path": "a"},
        {"method": "GET /"},
        {"header": "x"},
        {"query": "=1"},
        {"header": ["a=b"] * 201},
        {"path": "/" * 8193},
    ],
)
async def test_a_request_that_cannot_be_is_refused(api: Api, query: dict[str, Any]) -> None:
    assert (await walked(api, **query)).status_code == 422
