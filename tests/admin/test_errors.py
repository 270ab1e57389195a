"""Every error is a problem+json. Bad input affects only its sender."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.process import REPOSITORY
from tests.support.resources import CLUSTER_TYPE, static_cluster
from xds.access.tokens import EVERYTHING, Tokens
from xds.admin.dependencies import ApiOptions
from xds.codec import schema
from xds.codec.resources import ResourceDecoder, decode_resource
from xds.tasks.lifecycle import Phase

SNAPSHOT = "/api/v1/groups/edge/snapshot"


def is_problem(body: dict[str, object], status: int) -> bool:
    return {"type", "title", "status", "detail", "instance", "request_id", "errors"} <= set(body) and (
        body["status"] == status
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/nowhere", 404),
        ("GET", "/api/v1/groups/none", 404),
        ("GET", "/api/v1/nodes/none", 404),
        ("GET", "/api/v1/groups/none/revisions", 404),
        ("POST", "/api/v1/groups", 405),
        ("GET", "/api/v1/groups?limit=x", 422),
        ("GET", "/api/v1/groups?page_token=%FF", 400),
        ("GET", "/api/v1/groups?page_token=%21", 400),
        ("GET", "/api/v1/groups/edge/revisions/x", 422),
        ("GET", "/api/v1/nacks?since=yesterday", 400),
        ("GET", "/api/v1/bootstrap?address=nowhere", 400),
        ("GET", "/api/v1/bootstrap?certificate=c&private_key=k", 400),
    ],
)
async def test_errors_are_problems(api: Api, method: str, path: str, status: int) -> None:
    answer = await api.client.request(method, path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert is_problem(answer.json(), status)
    assert answer.headers["x-request-id"] == answer.json()["request_id"] != ""


async def test_what_is_absent_is_an_empty_answer_for_those_who_prefer_it(api: Api) -> None:
    """A page asks so: a browser shows a 404 as an error of the page."""
    prefers = {"Prefer": "empty-if-absent"}
    absent = await api.client.get("/api/v1/nodes/none", headers=prefers)
    assert (absent.status_code, absent.content) == (204, b"")
    assert absent.headers["preference-applied"] == "empty-if-absent"
    assert (await api.client.get("/api/v1/groups/none?limt=1", headers=prefers)).status_code == 400
    assert (await api.client.delete("/api/v1/groups/none", headers=prefers)).status_code == 404


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"\xff\xfe", "application/yaml", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"[" * 100_000, "application/yaml", 400),
        (b"{a: &a [*a]}", "application/yaml", 400),
        (b"\x07\x07garbage", "application/x-protobuf", 400),
        (b"{}", "text/html", 415),
        (b'{"resources": 1}', "application/json", 422),
        (b'{"resources": [1]}', "application/json", 422),
        (b'{"resorces": []}', "application/json", 422),
    ],
)
async def test_bad_bodies(api: Api, body: bytes, content_type: str, status: int) -> None:
    answer = await api.client.put(SNAPSHOT, content=body, headers={"content-type": content_type})
    assert answer.status_code == status, answer.text
    assert is_problem(answer.json(), status)


async def test_the_body_limit_counts_received_bytes(api: Api) -> None:
    api = Api(api.plane, ApiOptions(body_bytes=1000))
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 400
            yield b"x" * 400

    chunked = await api.client.put(SNAPSHOT, content=endless())
    announced = await api.client.put(SNAPSHOT, content=b"x" * 1001)
    assert (chunked.status_code, announced.status_code) == (413, 413)
    assert sent < 5000
    assert is_problem(chunked.json(), 413)
    assert api.services.bodies_in_flight == 0


@pytest.mark.parametrize("path", ["resources/clusters/a", "snapshot"])
@pytest.mark.parametrize("media", ["json", "yaml", "x-protobuf"])
async def test_resource_limit_holds_at_every_door(api: Api, path: str, media: str) -> None:
    single = path != "snapshot"
    for length, status in ((100, 200), (2000, 422)):
        limited = Api(api.plane, ApiOptions(decoder=ResourceDecoder(1000)))
        answer = await limited.client.put(
            f"/api/v1/groups/edge/{path}",
            content=cluster_body(media, "x" * length, single),
            headers={"content-type": f"application/{media}"},
        )
        assert answer.status_code == status, answer.text
    [error] = answer.json()["errors"]
    assert (error["code"], error["resource"]) == ("too_large", "clusters/a")


def cluster_body(media: str, alt_stat_name: str, single: bool) -> bytes:
    """The cluster ``a``, by itself or as a snapshot."""
    cluster = {"@type": CLUSTER_TYPE, "name": "a", "alt_stat_name": alt_stat_name}
    if media != "x-protobuf":
        return json.dumps(cluster if single else {"resources": [cluster]}).encode()
    response: Any = schema.require("envoy.service.discovery.v3.DiscoveryResponse")()
    packed = response.resources.add(type_url=CLUSTER_TYPE)
    packed.value = decode_resource(cluster).body
    return bytes(packed.value if single else response.SerializeToString())


async def test_bodies_together_are_bounded(api: Api) -> None:
    api = Api(api.plane, ApiOptions(body_bytes=1000, bodies_in_flight_bytes=100))
    answer = await api.client.put(SNAPSHOT, content=b"x" * 101)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert api.services.bodies_in_flight == 0


async def test_request_id_is_kept(api: Api) -> None:
    answer = await api.client.get("/nowhere", headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "mine-1"


async def test_server_errors_show_no_details(api: Api) -> None:
    def broken() -> bytes:
        raise RuntimeError("secret inside")

    api.services.metrics = broken
    answer = await api.client.get("/metrics")
    assert is_problem(answer.json(), 500)
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] == answer.json()["request_id"]


async def test_tokens_guard_everything_but_health(api: Api) -> None:
    api = Api(api.plane, ApiOptions(tokens=Tokens((sha256(token).hexdigest(), EVERYTHING) for token in (b"t1", b"t2"))))
    for header in ({}, {"authorization": "Bearer t3"}, {"authorization": "Basic t1"}):
        for path in ("/api/v1/groups", "/metrics", "/v3/discovery:clusters", "/v2/discovery:clusters"):
            answer = await api.client.get(path, headers=header)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert (await api.client.get("/livez")).status_code == 200
    assert (await api.client.get("/api/v1/groups", headers={"authorization": "Bearer t2"})).status_code == 200


async def test_nothing_is_answered_before_the_state_is_loaded(api: Api) -> None:
    api.phase = Phase.STARTING
    assert (await api.client.get("/livez")).status_code == 200
    for path in ("/readyz", "/api/v1/groups", "/v3/discovery:clusters", "/v2/discovery:clusters"):
        assert (await api.client.get(path)).status_code == 503
    api.phase = Phase.READY
    assert (await api.client.get("/readyz")).json() == {"status": "ready", "detail": ""}
    api.phase = Phase.DRAINING
    assert (await api.client.get("/readyz")).status_code == 503
    assert (await api.client.get("/api/v1/groups")).status_code == 200


async def test_store_that_is_down_stops_pushes_not_reads(api: Api) -> None:
    await api.put("edge", static_cluster("a", 80))
    await api.plane.store.close()
    answer = await api.put("edge", static_cluster("b", 80))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (await api.client.get(SNAPSHOT)).status_code == 200


async def test_the_published_description_is_the_served_one(api: Api) -> None:
    published = json.loads((REPOSITORY / "api/openapi.json").read_text())
    assert (await api.client.get("/api/v1/openapi.json")).json() == published, "run `make generate`"


async def test_openapi_describes_the_routes(api: Api) -> None:
    document = (await api.client.get("/api/v1/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert "put" in document["paths"]["/api/v1/groups/{group}/snapshot"]
    assert (await api.client.get("/metrics")).text == "up 1\n"
