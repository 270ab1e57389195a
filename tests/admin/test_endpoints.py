"""Live endpoints over the API: set, changed, drained and shown, with the owner of each assignment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import cluster_load_assignment, eds_cluster, load_assignment
from xds.access.tokens import Grant, Tokens, write_scope
from xds.admin.dependencies import ApiOptions
from xds.codec.resources import decode_resource
from xds.live.owners import Owner
from xds.model.node import Node
from xds.model.resource_type import ENDPOINT, V2_URLS
from xds.services.bindings import BINDING

PATH = "/api/v1/groups/edge/endpoints"
TOKENS = {"reader": {"read"}, "writer": {"read", write_scope("edge")}, "other": {"read", write_scope("core")}}


async def pushed(api: Api, *ports: int) -> None:
    answer = await api.put("edge", eds_cluster("web"), cluster_load_assignment("web", *ports))
    assert answer.status_code == 200


def shown(document: dict[str, Any]) -> dict[str, str]:
    return {each["address"].rpartition(":")[2]: each["health"] for each in document["endpoints"]}


async def test_an_assignment_is_set_shown_and_deleted(api: Api) -> None:
    await pushed(api, 81)
    before = (await api.client.get(f"{PATH}/web")).json()
    assert before["owner"] == {"kind": "pushed"} and before["etag"] == ""
    answer = await api.client.put(f"{PATH}/web?author=al", json=load_assignment("web", 82))
    assert answer.status_code == 200
    body = answer.json()
    assert body["changed"] and body["warnings"] == []
    assert shown(body) == {"82": "UNKNOWN", "81": "DRAINING"}
    assert body["endpoints"][1]["until"].endswith("Z") and "until" not in body["endpoints"][0]
    assert answer.headers["ETag"] == f'"{body["etag"]}"'
    assert body["owner"].items() >= {"kind": "hand", "author": "al"}.items()
    assert body["assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] == {
        "socket_address": {"address": "127.0.0.1", "port_value": 82}
    }
    got = (await api.client.get(f"{PATH}/web")).json()
    assert got == {name: value for name, value in body.items() if name not in {"changed", "warnings"}}
    again = await api.client.put(f"{PATH}/web", json=got["assignment"])
    assert again.status_code == 200 and not again.json()["changed"], "what is read can be put"
    assert (await api.client.delete(f"{PATH}/web?drain_s=0")).status_code == 200
    assert (await api.client.get(f"{PATH}/web")).json() == before
    assert (await api.client.delete(f"{PATH}/web")).status_code == 404


async def test_a_change_of_some_endpoints(api: Api) -> None:
    await pushed(api, 81, 82)
    change = {
        "put": [{"address": "127.0.0.1:83", "weight": 4, "health": "degraded"}],
        "remove": ["127.0.0.1:81", "127.0.0.1:99"],
        "localities": [{"locality": {"region": "r", "zone": "z"}, "weight": 7}],
    }
    answer = await api.client.patch(f"{PATH}/web?drain_s=3", json=change)
    body = answer.json()
    assert answer.status_code == 200, body
    assert shown(body) == {"82": "UNKNOWN", "83": "DEGRADED", "81": "DRAINING"}
    assert body["endpoints"][1]["weight"] == 4
    assert body["assignment"]["endpoints"][0]["load_balancing_weight"] == 7
    assert [(each["code"], each["detail"]) for each in body["warnings"]] == [
        ("absent_endpoint", "there is no endpoint 127.0.0.1:99: nothing to remove")
    ]
    held = api.plane.by_hand.find(("edge", "web"))
    assert held is not None and [one.until_s for one in held.draining] == [api.plane.now_s + 3]
    strict = await api.client.patch(f"{PATH}/web?strict=true", json={"remove": ["127.0.0.1:82", "127.0.0.1:99"]})
    assert strict.status_code == 422
    assert shown((await api.client.get(f"{PATH}/web")).json())["82"] == "UNKNOWN", "a strict refusal changes nothing"


async def test_all_spellings_of_an_ipv6_address_are_one_endpoint(api: Api) -> None:
    """Envoy takes two spellings for one endpoint, and keeps the first."""
    assignment = cluster_load_assignment("web", 81, 82)
    for each in assignment["endpoints"][0]["lb_endpoints"]:
        each["endpoint"]["address"]["socket_address"]["address"] = "2001:DB8::1"
    await api.put("edge", eds_cluster("web"), assignment)
    body = (
        await api.client.patch(f"{PATH}/web", json={"put": [{"address": "[2001:db8:0::1]:81", "weight": 3}]})
    ).json()
    assert [(each["address"], each.get("weight")) for each in body["endpoints"]] == [
        ("[2001:db8::1]:81", 3),
        ("[2001:db8::1]:82", None),
    ]
    answer = await api.client.patch(f"{PATH}/web?strict=true", json={"remove": ["[2001:db8::0:1]:82"]})
    assert shown(answer.json()) == {"81": "UNKNOWN", "82": "DRAINING"}
    clash = {"put": [{"address": "[2001:db8::1]:81"}], "remove": ["[2001:DB8::1]:81"]}
    assert (await api.client.patch(f"{PATH}/web", json=clash)).status_code == 422


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"put": [{"address": "1.2.3.4:5", "locality": {"zone": "\\uD800"}}]}', "/put/0/locality/zone"),
        (b'{"put": [{"address": "1.2.3.4:5", "\\udFff": 1}]}', "/put/0"),
        (b'{"put": [{"address": "1.2.3.4:5", "hostname": "a\\ude00\\ud83d"}]}', "/put/0/hostname"),
    ],
)
async def test_half_a_surrogate_pair_is_refused_with_its_place(api: Api, body: bytes, pointer: str) -> None:
    await pushed(api, 81)
    headers = {"Content-Type": "application/json"}
    answer = await api.client.patch(f"{PATH}/web", content=body, headers=headers)
    assert answer.status_code == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    whole = b'{"put": [{"address": "1.2.3.4:5", "locality": {"zone": "\\ud83d\\ude00"}}]}'
    assert (await api.client.patch(f"{PATH}/web", content=whole, headers=headers)).status_code == 200


async def test_the_list_names_the_owner_of_each(api: Api) -> None:
    await api.put("edge", *(cluster_load_assignment(name, 81) for name in ("a", "b", "c")))
    await api.client.put(f"{PATH}/b", json=load_assignment("b", 82, 83))
    bound = decode_resource(cluster_load_assignment("d", 90))
    api.plane.publisher.live.assign("edge", Owner(BINDING, "bound to service 'shop'", "shop"), {"d": bound})
    items = (await api.client.get(PATH)).json()["items"]
    assert [(each["name"], each["owner"]["kind"]) for each in items] == [
        ("a", "pushed"),
        ("b", "hand"),
        ("c", "pushed"),
        ("d", "binding"),
    ]
    assert items[3]["owner"]["service"] == "shop"
    assert (items[1]["endpoints_n"], items[1]["draining_n"]) == (3, 1)
    live = (await api.client.get(f"{PATH}?live=true&limit=1")).json()
    assert [each["name"] for each in live["items"]] == ["b"]
    rest = (await api.client.get(f"{PATH}?live=true&page_token={live['next_page_token']}")).json()
    assert [each["name"] for each in rest["items"]] == ["d"]
    assert (await api.client.get("/api/v1/groups/none/endpoints")).status_code == 404
    clash = await api.client.put(f"{PATH}/d", json=load_assignment("d", 82))
    assert clash.status_code == 409
    assert "is bound to service 'shop'" in clash.json()["detail"]


async def test_compare_and_set_by_header(api: Api) -> None:
    await pushed(api, 81)
    new = {"If-None-Match": "*"}
    first = await api.client.put(f"{PATH}/web", json=load_assignment("web", 82), headers=new)
    etag = {"If-Match": first.headers["ETag"]}
    assert (await api.client.put(f"{PATH}/web", json=load_assignment("web", 83), headers=new)).status_code == 412
    removal, web = {"remove": ["127.0.0.1:82"]}, f"{PATH}/web?allow_empty=true"
    assert (await api.client.patch(web, json=removal, headers=etag)).status_code == 200
    assert (await api.client.patch(web, json=removal, headers=etag)).status_code == 412
    assert (await api.client.delete(f"{PATH}/web", headers=etag)).status_code == 412
    assert (await api.client.delete(f"{PATH}/web", headers={"If-Match": "*"})).status_code == 200
    assert (await api.client.put(f"{PATH}/web", json={}, headers={"If-Match": '"r1"'})).status_code == 400


async def test_a_dry_run_shows_the_result(api: Api) -> None:
    await pushed(api, 81)
    answer = await api.client.patch(f"{PATH}/web?dry_run=true", json={"put": [{"address": "127.0.0.1:82"}]})
    assert answer.json()["dry_run"] and shown(answer.json()) == {"81": "UNKNOWN", "82": "UNKNOWN"}
    assert (await api.client.get(f"{PATH}/web")).json()["owner"] == {"kind": "pushed"}


async def test_an_assignment_that_no_cluster_uses_is_a_warning(api: Api) -> None:
    await pushed(api, 81)
    answer = await api.client.put(f"{PATH}/wbe", json=load_assignment("wbe", 82))
    assert [each["code"] for each in answer.json()["warnings"]] == ["unused_assignment"]


@pytest.mark.parametrize(
    ("document", "code", "pointer"),
    [
        ([], "wrong_type", ""),
        ({}, "empty", ""),
        ({"puts": []}, "unknown_field", "/puts"),
        ({"put": {}}, "wrong_type", "/put"),
        ({"put": [{"weight": 1}]}, "wrong_type", "/put/0/address"),
        ({"put": [{"address": "web:80"}]}, "invalid_address", "/put/0/address"),
        ({"put": [{"address": "10.0.0.1"}]}, "invalid_address", "/put/0/address"),
        ({"put": [{"address": "10.0.0.1:0"}]}, "invalid_address", "/put/0/address"),
        ({"put": [{"address": "10.0.0.1:080"}]}, "invalid_address", "/put/0/address"),
        ({"put": [{"address": "10.0.0.1:٨"}]}, "invalid_address", "/put/0/address"),
        ({"put": [{"address": "::1:80"}]}, "invalid_address", "/put/0/address"),
        ({"put": [{"address": "[10.0.0.1]:80"}]}, "invalid_address", "/put/0/address"),
        ({"put": [{"address": "10.0.0.1:80", "weight": 0}]}, "invalid_value", "/put/0/weight"),
        ({"put": [{"address": "10.0.0.1:80", "weight": True}]}, "invalid_value", "/put/0/weight"),
        ({"put": [{"address": "10.0.0.1:80", "health": "ill"}]}, "invalid_value", "/put/0/health"),
        ({"put": [{"address": "10.0.0.1:80", "priority": 129}]}, "invalid_value", "/put/0/priority"),
        ({"put": [{"address": "10.0.0.1:80", "locality": {"zoned": "a"}}]}, "unknown_field", "/put/0/locality/zoned"),
        ({"put": [{"address": "10.0.0.1:80"}], "remove": ["10.0.0.1:80"]}, "conflict", "/remove"),
        ({"remove": [7]}, "wrong_type", "/remove/0"),
        ({"localities": [{"locality": {"zone": "z"}}]}, "missing", "/localities/0/weight"),
        ({"localities": [{"locality": {"zone": "none"}, "weight": 1}]}, "unknown_locality", "/localities/0"),
        ({"put": [{"address": "10.0.0.1:80", "priority": 7}]}, "priority_gap", "/endpoints"),
    ],
)
async def test_a_bad_change_is_named_by_its_place_and_changes_nothing(
    api: Api, document: Any, code: str, pointer: str
) -> None:
    await pushed(api, 81)
    answer = await api.client.patch(f"{PATH}/web", json=document)
    assert answer.status_code == 422, answer.text
    assert (code, pointer) in [(each["code"], each["pointer"]) for each in answer.json()["errors"]]
    assert api.plane.publisher.live.owners("edge") == {}


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        (load_assignment("api", 81), 422, "name_mismatch"),
        ({"cluster_name": "web", "endpoints": [{"priority": 200}]}, 422, ""),
        ({"cluster_name": "web", "endpoints": [{"priority": 1}]}, 422, "priority_gap"),
        ({"cluster_name": "web", "endpoint": []}, 422, "unknown_field"),
        (eds_cluster("web"), 422, "type_mismatch"),
        ("{", 400, ""),
    ],
)
async def test_a_bad_assignment_is_refused_as_a_push_would_be(api: Api, document: Any, status: int, code: str) -> None:
    await pushed(api, 81)
    if isinstance(document, str):
        headers = {"Content-Type": "application/json"}
        answer = await api.client.put(f"{PATH}/web", content=document, headers=headers)
    else:
        answer = await api.client.put(f"{PATH}/web", json=document)
    assert answer.status_code == status, answer.text
    assert not code or code in [each["code"] for each in answer.json()["errors"]]
    assert api.plane.publisher.live.owners("edge") == {}


async def test_a_token_that_may_push_to_a_group_may_set_its_endpoints(api: Api) -> None:
    from hashlib import sha256

    from tests.support.plane import Plane

    plane = Plane()
    await plane.store.open()
    grants = [(sha256(name.encode()).hexdigest(), Grant(name, frozenset(held))) for name, held in TOKENS.items()]
    guarded = Api(plane, ApiOptions(tokens=Tokens(grants)))
    writer = {"Authorization": "Bearer writer"}
    await guarded.put("edge", eds_cluster("web"), cluster_load_assignment("web", 81), headers=writer)
    document = load_assignment("web", 82)
    for name, status in (("reader", 403), ("other", 403), ("writer", 200)):
        headers = {"Authorization": f"Bearer {name}"}
        assert (await guarded.client.put(f"{PATH}/web", json=document, headers=headers)).status_code == status
        change = {"put": [{"address": "127.0.0.1:83"}]}
        assert (await guarded.client.patch(f"{PATH}/web", json=change, headers=headers)).status_code == status
        assert (await guarded.client.get(f"{PATH}/web", headers=headers)).status_code == 200
    owner = (await guarded.client.get(f"{PATH}/web", headers=writer)).json()["owner"]
    assert owner["actor"] == "writer"
    for name, status in (("other", 403), ("writer", 200)):
        headers = {"Authorization": f"Bearer {name}"}
        assert (await guarded.client.delete(f"{PATH}/web", headers=headers)).status_code == status
    await plane.publisher.close()


async def test_names_with_slashes_and_an_assignment_as_yaml(api: Api) -> None:
    await api.put("edge", eds_cluster("web", service_name="team/web"))
    body = "cluster_name: team/web\nendpoints: []\n"
    headers = {"Content-Type": "application/yaml"}
    answer = await api.client.put(f"{PATH}/team/web", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["warnings"] == []
    snapshot = api.plane.cache.get("edge")
    assert snapshot is not None and "team/web" in snapshot.get(ENDPOINT).resources
    assert (await api.client.get(f"{PATH}/team%2Fweb")).json()["name"] == "team/web"


def node_of(api: Api, *, v2: bool = False) -> Client:
    """A connected node of the group that subscribes to endpoints and has ACKed what is served."""
    url = V2_URLS[ENDPOINT] if v2 else ENDPOINT
    view = api.plane.cache.view("edge", "v2" if v2 else "")
    assert view is not None
    made = Client(api.plane.fleet, Node("n1", "edge"), "edge", "v2" if v2 else "")
    made.subscribe(url, "web", "beside")
    made.ack(view.snapshot.get(url))
    return made


@pytest.mark.parametrize("v2", [False, True])
async def test_explain_and_the_resources_of_a_node_name_the_owner(api: Api, v2: bool) -> None:
    await pushed(api, 81)
    node_of(api, v2=v2).leave()
    kinds = {"type": "endpoints"}

    async def explained() -> dict[str, Any]:
        body = (await api.client.get("/api/v1/nodes/n1/explain", params=kinds)).json()
        return {each["name"]: each for each in body["resources"]}

    api.plane.now_s = 1_700_000_000.0
    client = node_of(api, v2=v2)
    assert (await explained())["web"]["owner"] == {"kind": "pushed"}
    client.leave()
    for name in ("web", "beside"):
        await api.client.put(f"{PATH}/{name}?author=al", json=load_assignment(name, 82))
    node_of(api, v2=v2)
    found = await explained()
    assert found["web"]["owner"]["kind"] == "hand"
    assert "it is set by hand by al at 2023-11-14T22:13:20Z, in place of the pushed one" in found["web"]["detail"]
    assert "and not pushed" in found["beside"]["detail"] and "pushed_version" not in found["beside"]
    assert found["web"]["pushed_version"] != found["web"]["version"]
    items = (await api.client.get("/api/v1/nodes/n1/resources", params=kinds)).json()["items"]
    assert [(each["name"], each["overlay"], each["state"]) for each in items] == [
        ("beside", ["live"], "synced"),
        ("web", ["live"], "synced"),
    ]
    listed = (await api.client.get("/api/v1/groups/edge/resources/endpoints")).json()["items"]
    assert [(each["name"], each["live"]["kind"]) for each in listed] == [("web", "hand")]


async def test_a_node_with_the_live_assignment_has_the_push_and_a_rejection_is_shown(api: Api) -> None:
    await pushed(api, 81)
    await api.client.put(f"{PATH}/web", json=load_assignment("web", 82))
    client = node_of(api)

    async def states() -> tuple[int, int, int]:
        body = (await api.client.get("/api/v1/groups/edge/rollout")).json()
        return body["synced"], body["pending"], body["nacked"]

    assert await states() == (1, 0, 0)
    await pushed(api, 83)
    assert await states() == (1, 0, 0), "the push changed only what is below: the node has all of it"
    more = [cluster_load_assignment("web", 83), cluster_load_assignment("beside", 84)]
    await api.put("edge", eds_cluster("web"), *more)
    assert await states() == (0, 1, 0)
    node_of(api)
    client.leave()
    assert await states() == (1, 0, 0)
    await api.client.put(f"{PATH}/web", json=load_assignment("web", 84))
    snapshot = api.plane.cache.get("edge")
    assert snapshot is not None
    refusing = node_of(api)
    refusing.nack(snapshot.get(ENDPOINT), "no")
    assert (await states())[2] == 1


async def test_a_backup_has_assignments_set_by_hand(api: Api) -> None:
    await pushed(api, 81)
    await api.client.put(f"{PATH}/web", json=load_assignment("web", 82))
    before = (await api.client.get(f"{PATH}/web")).json()
    archive = (await api.client.get("/api/v1/backup")).content
    await api.client.put(f"{PATH}/web", json=load_assignment("web", 83))
    await api.client.put(f"{PATH}/more", json=load_assignment("more", 90))
    headers = {"Content-Type": "application/x-tar"}
    done = await api.client.post("/api/v1/restore?replace=true", content=archive, headers=headers)
    assert done.status_code == 200, done.text
    assert (await api.client.get(f"{PATH}/web")).json() == before
    items = (await api.client.get(f"{PATH}?live=true")).json()["items"]
    assert [each["name"] for each in items] == ["web"]
