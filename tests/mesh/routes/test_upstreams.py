"""Upstreams of groups over the admin API."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.access.tokens import Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER, ENDPOINT, ROUTE, V2_URLS
from xds.services.core.instance import Instance

Json = dict[str, Any]

GROUP = "/api/v1/groups/shop"
PATH = f"{GROUP}/upstreams"
WEB = "web.default.dc1.internal.consul"
DOCUMENT: Json = {"upstreams": [{"service": "web", "bind_port": 9191}]}
HTTP: Json = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
ROUTER: Json = {
    "Kind": "service-router",
    "Name": "web",
    "Routes": [{"Match": {"HTTP": {"PathPrefix": "/admin"}}, "Destination": {"Service": "admin"}}],
}


@pytest.fixture
async def shop(api: Api) -> Api:
    """A group with a pushed cluster and an upstream with a router."""
    await api.put("shop", static_cluster("pushed", 1))
    written = await api.client.post("/api/v1/config-entries", json=[HTTP, ROUTER])
    assert written.status_code == 200, written.text
    put = await api.client.put(PATH, json=DOCUMENT)
    assert put.status_code == 200, put.text
    return api


async def test_a_document_is_written_read_and_deleted(shop: Api) -> None:
    found = (await shop.client.get(PATH)).json()
    assert found["document"] == DOCUMENT
    assert found["resources"] == {"clusters": 2, "listeners": 1, "routes": 1}
    assert [each["name"] for each in found["assignments"]] == [f"admin.{WEB[4:]}", WEB]
    route = next(each for each in found["lowered"] if each["type"] == "routes")
    assert route["upstreams"] == ["web"]
    assert "service-router/web" in route["entries"]
    gone = await shop.client.delete(PATH)
    assert sorted(gone.json()["changes"]) == ["clusters", "listeners", "routes"]
    assert (await shop.client.get(PATH)).status_code == 404


async def test_the_answer_and_a_dry_run_show_the_changes(shop: Api) -> None:
    more = {"upstreams": [*DOCUMENT["upstreams"], {"service": "api", "bind_port": 9192}]}
    dry = (await shop.client.put(PATH, json=more, params={"dry_run": "true"})).json()
    assert dry["changes"]["clusters"]["added"] == [f"api.{WEB[4:]}"]
    assert dry["dry_run"]
    assert (await shop.client.get(PATH)).json()["document"] == DOCUMENT
    done = (await shop.client.put(PATH, json=more)).json()
    assert (done["changes"], done["revision"]) == (dry["changes"], 3)


async def test_etags_guard_the_document(shop: Api) -> None:
    etag = (await shop.client.get(PATH)).headers["etag"]
    assert etag.startswith('"u-')
    assert (await shop.client.put(PATH, json=DOCUMENT, headers={"If-Match": '"u-00000000"'})).status_code == 412
    assert (await shop.client.put(PATH, json=DOCUMENT, headers={"If-None-Match": "*"})).status_code == 412
    assert (await shop.client.put(PATH, json=DOCUMENT, headers={"If-Match": etag})).status_code == 200
    assert (await shop.client.put(PATH, json=DOCUMENT, headers={"If-Match": '"r2"'})).status_code == 400


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"upstreams": [{"bind_port": 1}]}, "/upstreams/0/service"),
        ({"upstreams": [{"service": "web", "bind_port": 70_000}]}, "/upstreams/0/bind_port"),
        ({"upstreams": [{"service": "web", "port": 7}]}, "/upstreams/0/port"),
    ],
)
async def test_a_wrong_document_is_refused_with_its_place(shop: Api, document: Json, pointer: str) -> None:
    refused = await shop.client.put(PATH, json=document)
    assert refused.status_code == 422
    assert pointer in [each["pointer"] for each in refused.json()["errors"]]


async def test_the_list_shows_the_classes_of_proxies(shop: Api) -> None:
    await shop.client.put("/api/v1/groups/other/upstreams", json=DOCUMENT, params={"selector": "node.cluster == a"})
    found = (await shop.client.get("/api/v1/upstreams")).json()
    assert [(each["group"], each["upstreams"], each["selector"]) for each in found["items"]] == [
        ("other", 1, "node.cluster == a"),
        ("shop", 1, ""),
    ]
    assert found["limit"] == 1000


async def test_a_clash_of_names_is_reported_with_both_owners(shop: Api) -> None:
    refused = await shop.client.put(f"{GROUP}/resources/clusters/{WEB}", json=static_cluster(WEB, 1))
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["code"] == "owned_name"
    assert "lowered from upstream 'web'" in error["detail"]
    assert "by proxy-defaults/global" in error["detail"]
    bound = await shop.client.put(f"{GROUP}/bindings/{WEB}", json={"service": "web"})
    assert bound.status_code in {409, 412}
    assert "lowered from upstream 'web'" in bound.json()["detail"]


async def test_the_snapshot_has_pushed_resources_only_and_round_trips(shop: Api) -> None:
    found = (await shop.client.get(f"{GROUP}/snapshot")).json()
    assert ([each["name"] for each in found["resources"]], found["lowered"]) == (["pushed"], 4)
    again = await shop.client.put(f"{GROUP}/snapshot", json=found)
    assert (again.status_code, again.json()["changed"]) == (200, False)
    everything = (await shop.client.get(f"{GROUP}/snapshot", params={"lowered": "true"})).json()
    assert len(everything["resources"]) == 5
    old = (await shop.client.get(f"{GROUP}/revisions/2")).json()
    assert [each["name"] for each in old["resources"]] == ["pushed"]


async def test_resources_say_where_they_come_from(shop: Api) -> None:
    items = (await shop.client.get(f"{GROUP}/resources/clusters")).json()["items"]
    assert {each["name"]: "lowered" in each for each in items} == {
        f"admin.{WEB[4:]}": True,
        "pushed": False,
        WEB: True,
    }


async def test_an_assignment_that_is_not_pushed_is_found_among_the_live_ones(shop: Api) -> None:
    answer = await shop.client.get(f"{GROUP}/resources/endpoints/{WEB}")
    assert answer.status_code == 404
    assert f"xds endpoints show {WEB} -g shop" in answer.json()["detail"]


async def test_explain_names_entry_document_and_instance(shop: Api) -> None:
    shop.catalog.sink("s", "file").put("web", [Instance("one", "10.0.0.1", 80)])
    await shop.catalog.tick()
    node = {"id": "shop"}
    asked = {"type": "endpoints", "name": WEB}
    (found,) = (await shop.client.post("/api/v1/explain", json=node, params=asked)).json()["resources"]
    assert found["owner"] == {"kind": "lowered", "upstream": "web"}
    assert found["sources"] == {"s": 1}
    assert found["instances"][0]["instance"] == "one"
    assert found["lowered"]["upstreams"] == ["web"]
    asked = {"type": "routes", "name": "web"}
    (found,) = (await shop.client.post("/api/v1/explain", json=node, params=asked)).json()["resources"]
    assert "service-router/web" in found["lowered"]["entries"]
    assert "it is lowered from upstream 'web' by" in found["detail"]


async def test_explain_names_the_origin_for_a_client_of_the_v2_api(shop: Api) -> None:
    shop.catalog.sink("s", "file").put("web", [Instance("one", "10.0.0.1", 80)])
    await shop.catalog.tick()
    view = shop.plane.cache.view("shop", "v2")
    assert view is not None
    client = Client(shop.plane.fleet, Node("n1", "shop"), "shop", "v2")
    for type_url in (CLUSTER, ENDPOINT, ROUTE):
        held = view.snapshot.get(V2_URLS[type_url])
        client.subscribe(V2_URLS[type_url], *held.resources)
        client.ack(held)
    found = (await shop.client.get("/api/v1/nodes/n1/explain")).json()["resources"]
    by_name = {(each["type"].rpartition(".")[2], each["name"]): each for each in found}
    for key in (("Cluster", WEB), ("ClusterLoadAssignment", WEB), ("RouteConfiguration", "web")):
        assert by_name[key]["lowered"]["upstreams"] == ["web"], by_name
        assert "it is lowered from upstream 'web'" in by_name[key]["detail"]
    assert by_name["ClusterLoadAssignment", WEB]["sources"] == {"s": 1}


async def test_a_write_of_entries_is_answered_with_the_changed_groups(shop: Api) -> None:
    changed = {**ROUTER, "Routes": []}
    for params in ({"dry_run": "true"}, {}):
        answer = (await shop.client.post("/api/v1/config-entries", json=changed, params=params)).json()
        (group,) = answer["groups"]
        assert group["group"] == "shop"
        assert group["changes"]["clusters"]["removed"] == [f"admin.{WEB[4:]}"]
        assert group["changes"]["routes"]["changed"] == ["web"]
    history = (await shop.client.get(f"{GROUP}/revisions")).json()["items"]
    assert [each["kind"] for each in history] == ["lowered", "lowered", "push"]
    difference = (await shop.client.get(f"{GROUP}/revisions/3/diff")).json()
    assert f"admin.{WEB[4:]}" in str(difference)


async def test_an_entry_that_lowers_to_invalid_resources_is_refused(shop: Api) -> None:
    match = {"HTTP": {"PathRegex": "("}}
    refused = await shop.client.post("/api/v1/config-entries", json={**ROUTER, "Routes": [{"Match": match}]})
    assert refused.status_code == 422
    error = refused.json()["errors"][0]
    assert (error["resource"], error["pointer"]) == ("service-router/web", "/Routes/0/Match/HTTP/PathRegex")
    assert "group 'shop'" in error["hint"]


async def test_entries_and_snapshots_in_one_transaction(shop: Api) -> None:
    body = {
        "changes": [{"group": "shop", "put": [static_cluster("more", 2)]}],
        "config_entries": {"delete": [{"kind": "service-router", "name": "web"}]},
    }
    done = await shop.client.post("/api/v1/transactions", json=body)
    assert done.status_code == 200, done.text
    assert done.json()["results"][0]["changes"]["clusters"] == {
        "added": ["more"],
        "changed": [],
        "removed": [f"admin.{WEB[4:]}"],
    }


async def test_rights(api: Api) -> None:
    tokens = Tokens([(sha256(b"team").hexdigest(), Grant("team", frozenset({"write:group/shop"})))])
    guarded = Api(api.plane, ApiOptions(tokens=tokens))
    team: Json = {"headers": {"Authorization": "Bearer team"}}
    put = guarded.client.put
    assert (await put(PATH, json=DOCUMENT, **team)).status_code == 200
    assert (await put("/api/v1/groups/other/upstreams", json=DOCUMENT, **team)).status_code == 403
    assert (await put(PATH, json=DOCUMENT, params={"selector": "node.id == a"}, **team)).status_code == 403
    assert (await guarded.client.delete(PATH, **team)).status_code == 200


def cluster_names(api: Api) -> set[str]:
    content = api.plane.publisher.groups.content("shop")
    return set(content.snapshot.get(CLUSTER).resources)


async def test_undo_of_a_group_reverts_pushed_resources_only(shop: Api) -> None:
    await shop.put("shop", static_cluster("new", 1))
    await shop.client.post("/api/v1/config-entries", json={**ROUTER, "Routes": []})
    plan: httpx.Response = await shop.client.get(f"{GROUP}/undo")
    assert plan.json()["takes_back"]["revision"] == 3
    await shop.client.post(f"{GROUP}/rollback", json={"to": plan.json()["to"]})
    assert cluster_names(shop) == {"pushed", WEB}


async def test_a_policy_of_traffic_assignment_steers_a_lowered_cluster(shop: Api) -> None:
    """The lowered cluster has no warning that a pushed one with the same endpoints would not have."""
    await shop.client.put(PATH, json={**DOCUMENT, "locality_aware": True})
    zones = [Instance(f"i{zone}", f"10.0.0.{zone}", 80, locality=Locality("eu", f"eu-{zone}")) for zone in (1, 2)]
    shop.catalog.sink("s", "file").put("web", zones)
    await shop.catalog.tick()
    policy = {"capacity": {"rates": [{"per_endpoint_rps": 10}]}}
    put = await shop.client.put(f"{GROUP}/assignments/{WEB}", json=policy)
    assert (put.status_code, put.json()["warnings"]) == (200, [])
    found = (await shop.client.get(f"{GROUP}/assignments/{WEB}")).json()
    assert found["endpoints"] == WEB
