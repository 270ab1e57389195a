"""What all answers share: caching, compression, conditions, ids."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.resources import static_cluster
from xds.admin.answers import encode_json

SNAPSHOT = "/api/v1/groups/edge/snapshot"


async def test_answers_forbid_caching(api: Api) -> None:
    for path in ("/api/v1/groups", "/api/v1/groups/none", "/livez", "/metrics"):
        headers = (await api.client.get(path)).headers
        assert headers["cache-control"] == "no-store"
        assert "Authorization" in headers["vary"]


@pytest.mark.parametrize("path", [SNAPSHOT, "/api/v1/groups/edge/resources/clusters?limit=10000"])
async def test_large_answers_are_compressed_for_clients_that_accept_it(api: Api, path: str) -> None:
    await api.put("edge", *(static_cluster(f"c{number}", 80) for number in range(100)))
    plain = await api.client.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = await api.client.get(path, headers={"accept-encoding": "br, gzip;q=0.5"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()
    async with api.client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert gzip.decompress(raw) == plain.content
    assert len(raw) * 4 < len(plain.content)
    refused = await api.client.get(path, headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


async def test_small_answers_are_not_compressed(api: Api) -> None:
    answer = await api.client.get("/api/v1/groups", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    "path", [SNAPSHOT, "/api/v1/groups/edge/resources/clusters/a", "/api/v1/groups/edge/revisions/1"]
)
async def test_an_answer_that_the_client_has_is_304(api: Api, path: str) -> None:
    await api.put("edge", static_cluster("a", 80))
    etag = (await api.client.get(path)).headers["etag"]
    for given in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = await api.client.get(path, headers={"if-none-match": given})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert (await api.client.get(path, headers={"if-none-match": '"other"'})).status_code == 200
    assert (await api.client.get(path, headers={"if-none-match": etag[1:-3]})).status_code == 200


async def test_problems_carry_the_request_id(api: Api) -> None:
    answer = await api.client.get("/api/v1/groups/none", headers={"x-request-id": "mine"})
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("document", [{}, {"items": []}, {"a": 1, "resources": [{"b": [1, "ü"]}, {}], "c": None}])
def test_pieces_make_the_same_json(document: dict[str, Any]) -> None:
    assert json.loads(encode_json(document)) == document
