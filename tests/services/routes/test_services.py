"""Services, bindings and held losses by the admin API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.resources import cluster_load_assignment, eds_cluster
from xds.model.node import Locality
from xds.services.core.instance import Check, Health, Instance

URL = "/api/v1"
WEB = Instance(
    "web-1",
    "10.0.0.1",
    80,
    ports={"grpc": 90},
    meta={"version": "2"},
    tags=("blue",),
    weight=3,
    locality=Locality("eu", "1"),
    node="n1",
    checks=(Check("c", Health.WARNING, "http", "http", "slow"),),
)


def show(api: Api, service: str, *instances: Instance, source: str = "targets") -> None:
    api.plane.catalog.sink(source, "files").put(service, instances)


async def bound(api: Api, document: Any, name: str = "web", **arguments: Any) -> Any:
    return await api.client.put(f"{URL}/groups/edge/bindings/{name}", json=document, **arguments)


@pytest.fixture
async def edge(api: Api) -> Api:
    (await api.put("edge", eds_cluster("web"), cluster_load_assignment("web", 1))).raise_for_status()
    return api


async def test_services_are_counted_by_health_and_paged(api: Api) -> None:
    show(api, "web", WEB, Instance("web-2", "10.0.0.2", 80))
    show(api, "api", Instance("a", "10.0.0.3", 80), source="other")
    answer = (await api.client.get(f"{URL}/services")).json()
    assert [item["service"] for item in answer["items"]] == ["api", "web"]
    web = answer["items"][1]
    assert web.pop("changed_at") == "1970-01-12T13:46:40.000Z"
    assert web == {
        "service": "web",
        "instances": 2,
        "passing": 1,
        "warning": 1,
        "critical": 0,
        "draining": 0,
        "held": 0,
        "sources": ["targets"],
        "bindings": 0,
    }
    page = (await api.client.get(f"{URL}/services?limit=1")).json()
    rest = (await api.client.get(f"{URL}/services", params={"page_token": page["next_page_token"]})).json()
    assert [each["items"][0]["service"] for each in (page, rest)] == ["api", "web"]
    only = (await api.client.get(f"{URL}/services?source=other")).json()
    assert [item["service"] for item in only["items"]] == ["api"]


async def test_a_service_shows_each_instance_with_its_source_and_age(edge: Api) -> None:
    show(edge, "web", WEB)
    await bound(edge, {"service": "web"})
    answer = (await edge.client.get(f"{URL}/services/web")).json()
    assert answer["bindings"] == [{"group": "edge", "assignment": "web", "lowered": False}]
    assert answer["is_known"]
    assert answer["instances"] == [
        {
            "id": "web-1",
            "address": "10.0.0.1",
            "port": 80,
            "ports": {"grpc": 90},
            "health": "warning",
            "source": "targets",
            "source_kind": "files",
            "source_read_at": "1970-01-12T13:46:40.000Z",
            "since": "1970-01-12T13:46:40.000Z",
            "changed_at": "1970-01-12T13:46:40.000Z",
            "is_held": False,
            "drains_until": None,
            "weights": {"passing": 3, "warning": 1},
            "locality": {"region": "eu", "zone": "1", "sub_zone": ""},
            "datacenter": "",
            "node": "n1",
            "meta": {"version": "2"},
            "tags": ["blue"],
            "checks": [{"id": "c", "status": "warning", "name": "http", "kind": "http", "output": "slow", "notes": ""}],
        }
    ]
    missing = await edge.client.get(f"{URL}/services/nowhere")
    assert (missing.status_code, missing.json()["detail"]) == (404, "there is no service 'nowhere'")


async def test_a_service_shows_the_instances_that_a_filter_selects(api: Api) -> None:
    ending = Instance("web-3", "10.0.0.3", 80, checks=(Check("c", Health.DRAINING),))
    show(api, "web", WEB, Instance("web-2", "10.0.0.2", 80), ending)

    async def ask(filter: str) -> Any:
        return await api.client.get(f"{URL}/services/web", params={"filter": filter})

    for filter, found in (
        ("Service.Meta.version == 2", {"web-1": "warning"}),
        ("Service.Health != passing", {"web-1": "warning", "web-3": "draining"}),
        ("Service.ID == none", {}),
    ):
        answer = (await ask(filter)).json()
        assert {each["id"]: each["health"] for each in answer["instances"]} == found
    for wrong in ("Service.Color == red", "(", "x" * 5000):
        refused = await ask(wrong)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/filter")


async def test_a_binding_is_put_shown_compared_and_deleted(edge: Api) -> None:
    show(edge, "web", WEB)
    first = await bound(edge, {"service": "web", "filter": "Service.Meta.version == 2"}, params={"author": "ann"})
    item = first.json()
    assert first.status_code == 200
    assert (item["state"], item["endpoints"], item["warnings"], item["changed"]) == ("live", 1, [], True)
    assert item["actor"] == "ann"
    etag = first.headers["etag"]
    assert etag == f'"{item["etag"]}"'
    again = await bound(edge, {"service": "web", "filter": "Service.Meta.version == 2"})
    assert not again.json()["changed"]
    stale = await bound(edge, {"service": "api"}, headers={"If-Match": '"b-00000000"'})
    assert stale.status_code == 412
    taken = await bound(edge, {"service": "api"}, headers={"If-None-Match": "*"})
    assert taken.status_code == 412
    listed = (await edge.client.get(f"{URL}/groups/edge/bindings")).json()
    assert [each["assignment"] for each in listed["items"]] == ["web"]
    dry = await edge.client.delete(f"{URL}/groups/edge/bindings/web", params={"dry_run": True})
    assert dry.json() == {"group": "edge", "assignment": "web", "dry_run": True}
    gone = await edge.client.delete(f"{URL}/groups/edge/bindings/web", headers={"If-Match": etag})
    assert gone.json() == {"group": "edge", "assignment": "web"}
    assert (await edge.client.get(f"{URL}/groups/edge/bindings/web")).status_code == 404


@pytest.mark.parametrize(("query", "owner", "draining_n"), [({}, "leaving", 1), ({"drain_s": 0}, "pushed", 0)])
async def test_the_deletion_of_a_binding_shows_draining_endpoints(
    edge: Api, query: dict[str, int], owner: str, draining_n: int
) -> None:
    show(edge, "web", WEB)
    await bound(edge, {"service": "web"})
    refused = await edge.client.delete(f"{URL}/groups/edge/bindings/web", params={"drain_s": -1})
    assert refused.status_code == 422
    await edge.client.delete(f"{URL}/groups/edge/bindings/web", params=query)
    item = (await edge.client.get(f"{URL}/groups/edge/endpoints/web")).json()
    assert (item["owner"]["kind"], item["draining_n"], item["leaving"]) == (owner, draining_n, bool(draining_n))


async def test_a_dry_run_shows_selected_instances_and_changes_nothing(edge: Api) -> None:
    show(edge, "web", WEB)
    answer = await bound(edge, {"service": "web"}, params={"dry_run": True})
    assert (answer.json()["dry_run"], answer.json()["endpoints"]) == (True, 1)
    assert len(edge.plane.bindings) == 0


async def test_warnings_name_likely_mistakes_and_strict_refuses_them(edge: Api) -> None:
    show(edge, "web", WEB)

    async def codes(name: str, **document: object) -> list[str]:
        answer = await bound(edge, document, name, params={"dry_run": True})
        return [each["code"] for each in answer.json()["warnings"]]

    assert await codes("web", service="wbe") == ["unknown_service"]
    assert await codes("nobody", service="web") == ["unused"]
    assert await codes("web", service="web", datacenter="dc9") == ["selects_nothing"]
    assert await codes("web", service="web", port="http") == ["unknown_port"]
    strict = await bound(edge, {"service": "wbe"}, params={"strict": True})
    assert strict.status_code == 422
    (error,) = strict.json()["errors"]
    assert (error["code"], error["hint"]) == ("unknown_service", "did you mean 'web'?")


async def test_a_cluster_with_another_assignment_is_an_error_that_names_it(edge: Api) -> None:
    await edge.put("edge", eds_cluster("web", service_name="web-eds"), cluster_load_assignment("web-eds", 1))
    answer = await bound(edge, {"service": "web"})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["detail"], error["hint"]) == (
        "cluster 'web' takes its endpoints from assignment 'web-eds'",
        "bind 'web-eds'",
    )


@pytest.mark.parametrize("body", ["[]", "{}", '{"service": ""}', '{"service": "a", "x": 1}', "{", "3", "null"])
async def test_bad_bindings_are_refused_and_nothing_changes(edge: Api, body: str) -> None:
    path = f"{URL}/groups/edge/bindings/web"
    answer = await edge.client.put(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}
    assert answer.json()["errors"]
    assert len(edge.plane.bindings) == 0


async def test_a_binding_of_a_group_that_does_not_exist_is_refused(api: Api) -> None:
    assert (await bound(api, {"service": "web"})).status_code == 404
    assert (await api.client.get(f"{URL}/groups/edge/bindings")).status_code == 404


async def test_a_name_that_is_set_by_hand_is_a_conflict_that_names_both(edge: Api) -> None:
    put = await edge.client.put(f"{URL}/groups/edge/endpoints/web", json=cluster_load_assignment("web", 5))
    assert put.status_code == 200
    answer = await bound(edge, {"service": "web"})
    assert answer.status_code in {409, 412}
    assert "is set by hand" in answer.text
    assert "bound to service 'web'" in answer.text


async def test_a_held_loss_is_shown_and_accepted_and_noted(api: Api) -> None:
    show(api, "web", WEB, Instance("web-2", "10.0.0.2", 80), Instance("web-3", "10.0.0.3", 80))
    await api.plane.catalog.tick()
    show(api, "web")
    item = (await api.client.get(f"{URL}/services/web")).json()
    assert [each["is_held"] for each in item["instances"]] == [True] * 3
    path = f"{URL}/sources/targets/accept"
    dry = await api.client.post(path, params={"dry_run": True})
    assert dry.json() == {"source": "targets", "accepted": {"web": 3}, "dry_run": True}
    assert (await api.client.post(path, params={"service": "api"})).status_code == 404
    done = await api.client.post(path, params={"author": "ann"})
    assert done.json() == {"source": "targets", "accepted": {"web": 3}}
    item = (await api.client.get(f"{URL}/services/web")).json()
    assert {each["health"] for each in item["instances"]} == {"draining"}
    again = await api.client.post(path)
    assert (again.status_code, again.json()["detail"]) == (404, "no loss of source 'targets' is held")
    assert (await api.client.post(f"{URL}/sources/nobody/accept")).status_code == 404
    events = (await api.client.get(f"{URL}/audit")).json()["items"]
    assert (events[0]["action"], events[0]["author"]) == ("source.accepted", "ann")


async def test_an_explanation_says_which_source_and_instance_each_endpoint_comes_from(edge: Api) -> None:
    show(edge, "web", WEB, Instance("old", "10.0.0.9", 80, meta={"version": "1"}))
    show(edge, "web", Instance("pod", "10.0.0.2", 80, meta={"version": "2"}), source="cluster")
    await bound(edge, {"service": "web", "filter": "Service.Meta.version == 2"})
    node = {"id": "n1", "cluster": "edge"}
    (alone,) = (
        await edge.client.post(f"{URL}/explain", json=node, params={"type": "endpoints", "name": "web"})
    ).json()["resources"]
    assert alone["owner"]["service"] == "web"
    assert alone["sources"] == {"targets": 1, "cluster": 1}
    told = [(one["address"], one["port"], one["source"], one["instance"], one["health"]) for one in alone["instances"]]
    assert told == [("10.0.0.1", 80, "targets", "web-1", "warning"), ("10.0.0.2", 80, "cluster", "pod", "passing")]
    # Among others, the numbers are enough.
    (brief,) = (await edge.client.post(f"{URL}/explain", json=node, params={"type": "endpoints"})).json()["resources"]
    assert brief["sources"] == {"targets": 1, "cluster": 1}
    assert "instances" not in brief
