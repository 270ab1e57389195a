"""What a request says about its rollout: in the body, in the query, and as a setting of a group."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.resources import static_cluster
from xds.model.errors import ValidationError
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER
from xds.push.request import PushOptions
from xds.rollouts.plan import plan_document, read_plan

SNAPSHOT = "/api/v1/groups/edge/snapshot"
RESOURCE = "/api/v1/groups/edge/resources/clusters/a"
BODY: dict[str, Any] = {"resources": [static_cluster("a", 80)]}


@pytest.fixture
def given(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[PushOptions]:
    """The options of the pushes that reach the publisher."""
    publisher, found = api.plane.publisher, list[PushOptions]()
    apply = publisher._transact

    async def recorded(requests: Any, options: PushOptions, write: Any = None) -> Any:
        found.append(options)
        return await apply(requests, PushOptions(), write)

    monkeypatch.setattr(publisher, "_transact", recorded)
    return found


async def test_the_plan_is_in_the_body(api: Api, given: list[PushOptions]) -> None:
    plan = {"waves": ["1", "50%"], "hold_s": 5}
    assert (await api.client.put(SNAPSHOT, json={**BODY, "rollout": plan})).status_code == 200
    assert (await api.client.put(SNAPSHOT, json={**BODY, "rollout": "1,50%", "retry": True})).status_code == 200
    assert (await api.client.put(SNAPSHOT, json={**BODY, "rollout": "all_at_once"})).status_code == 200
    back = {"to": 1, "rollout": {}, "retry": True}
    assert (await api.client.post("/api/v1/groups/edge/rollback", json=back)).status_code == 200
    change = {"changes": [{"group": "edge", "put": [static_cluster("b", 80)]}], "rollout": plan}
    assert (await api.client.post("/api/v1/transactions", json=change)).status_code == 200
    seen = [(each.rollout, each.all_at_once, each.retry) for each in given]
    assert seen == [
        (plan, False, False),
        ({"waves": "1,50%"}, False, True),
        (None, True, False),
        ({}, False, True),
        (plan, False, False),
    ]


async def test_the_query_has_the_plan_where_the_body_is_a_resource(api: Api, given: list[PushOptions]) -> None:
    plan = {"waves": ["1"], "timeout_s": 60}
    for query, seen in (
        ({"rollout": json.dumps(plan), "retry": "true"}, (plan, False, True)),
        ({"rollout": "all_at_once"}, (None, True, False)),
        ({"rollout": "1,10%"}, ({"waves": "1,10%"}, False, False)),
        ({}, (None, False, False)),
    ):
        assert (await api.client.put(RESOURCE, params=query, json=static_cluster("a", 80))).status_code == 200
        assert (given[-1].rollout, given[-1].all_at_once, given[-1].retry) == seen
    refused = await api.client.put(RESOURCE, params={"rollout": "{"}, json=static_cluster("a", 80))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/rollout")
    twice = await api.client.put(SNAPSHOT, params={"rollout": "1"}, json={**BODY, "rollout": "1"})
    assert (twice.status_code, twice.json()["errors"][0]["code"]) == (422, "conflict")


@pytest.mark.parametrize(
    ("rollout", "pointer"),
    [
        ({"waves": ["0%"]}, "/rollout/waves/0"),
        ({"waves": ["50%", "10%"]}, "/rollout/waves/1"),
        ({"waves": ["101%"]}, "/rollout/waves/0"),
        ({"hold_s": 90, "timeout_s": 60}, "/rollout/hold_s"),
        ({"selector": "node.id =="}, "/rollout/selector"),
        ({"nodes": ["n"] * 1001}, "/rollout/nodes"),
        ({"wave": ["1"]}, "/rollout/wave"),
        ("soon", "/rollout"),
        (7, "/rollout"),
    ],
    ids=str,
)
async def test_a_wrong_plan_is_refused_with_its_place(api: Api, rollout: object, pointer: str) -> None:
    answer = await api.client.put(SNAPSHOT, json={**BODY, "rollout": rollout})
    assert (answer.status_code, [each["pointer"] for each in answer.json()["errors"]][:1]) == (422, [pointer])
    assert api.plane.publisher.groups.find("edge") is None


async def test_what_a_plan_leaves_out_is_that_of_its_group(api: Api) -> None:
    """A hold may be longer than the usual time of a wave where the group allows more."""
    await api.client.put("/api/v1/groups/edge", json={"rollout": {"waves": "1", "timeout_s": 1200}})
    for number, (hold_s, status) in enumerate(((600, 200), (1300, 422))):
        pushed = {"resources": [static_cluster("a", 80 + number)], "rollout": {"hold_s": hold_s}}
        answer = await api.client.put(SNAPSHOT, json=pushed)
        assert answer.status_code == status, answer.text
    await api.client.put("/api/v1/groups/edge", json={})
    other = {"resources": [static_cluster("b", 80)], "rollout": {"hold_s": 600}}
    refused = await api.client.put(SNAPSHOT, json=other)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/rollout/hold_s")


async def test_a_dry_run_names_the_kinds_that_only_the_last_wave_has(api: Api) -> None:
    await api.client.put(SNAPSHOT, json=BODY)
    zones = {"n1": "a", "n2": "a", "n3": "b", "n4": "b"}
    for name, zone in zones.items():
        node = Node(name, locality=Locality("", zone), user_agent="envoy 1.40.0" if name != "n4" else "envoy 1.39.0")
        Client(api.plane.fleet, node, "edge").subscribe(CLUSTER)

    async def kinds(waves: list[str]) -> list[str]:
        body = {"resources": [static_cluster("a", 81)], "rollout": {"waves": waves}}
        answer = (await api.client.put(SNAPSHOT, json=body, params={"dry_run": "true"})).json()
        assert answer["rollout"]["effect"] == "started"
        found: list[str] = answer["rollout"].get("last_kinds", [])
        return found

    # The first nodes are of different kinds.
    assert len(await kinds(["2"])) == 1
    assert await kinds(["3"]) == []
    assert await kinds(["100%"]) == []
    named = {"resources": [static_cluster("a", 81)], "rollout": {"waves": [], "nodes": ["n1", "n2"]}}
    answer = (await api.client.put(SNAPSHOT, json=named, params={"dry_run": "true"})).json()
    assert answer["rollout"]["last_kinds"] == ["envoy 1.39.0 in b", "envoy 1.40.0 in b"]


async def test_a_transaction_of_several_groups_takes_no_plan(api: Api, given: list[PushOptions]) -> None:
    changes = [{"group": name, "put": [static_cluster("a", 80)]} for name in ("edge", "other")]
    refused = await api.client.post("/api/v1/transactions", json={"changes": changes, "rollout": {"waves": ["1"]}})
    assert (refused.status_code, "a rollout is of one group" in refused.text) == (422, True)
    entry = {"Kind": "service-defaults", "Name": "shop", "Protocol": "http"}
    with_entry = {"changes": changes[:1], "config_entries": {"put": [entry]}, "rollout": {}}
    assert (await api.client.post("/api/v1/transactions", json=with_entry)).status_code == 422
    emergency = {"changes": changes, "rollout": "all_at_once"}
    assert (await api.client.post("/api/v1/transactions", json=emergency)).status_code == 200
    assert given[-1].all_at_once


async def test_a_group_is_deleted_at_once(api: Api) -> None:
    await api.put("edge", static_cluster("a", 80))
    answer = await api.client.delete("/api/v1/groups/edge", params={"rollout": "1"})
    assert (answer.status_code, "deleted at once" in answer.json()["detail"]) == (400, True)
    assert api.plane.publisher.groups.find("edge") is not None


async def test_a_misspelt_parameter_of_a_push_is_refused(api: Api) -> None:
    answer = await api.client.put(SNAPSHOT, params={"rolout": "1"}, json=BODY)
    assert (answer.status_code, answer.json()["errors"][0]["hint"]) == (400, "did you mean 'rollout'?")
    misspelt = await api.client.put(SNAPSHOT, json={**BODY, "rolout": "1"})
    assert (misspelt.status_code, misspelt.json()["errors"][0]["hint"]) == (422, 'did you mean "rollout"?')
    validated = await api.client.post("/api/v1/validate", json={**BODY, "rollout": "1"})
    assert validated.status_code == 422  # there is nothing to roll out


async def test_a_group_has_a_plan(api: Api) -> None:
    wanted = {"rollout": {"waves": "1,10%", "hold_s": 5, "on_failure": "hold"}}
    answer = await api.client.put("/api/v1/groups/edge", json=wanted)
    assert answer.status_code == 200
    plan = read_plan(wanted["rollout"])
    assert api.plane.publisher.settings.get("edge").rollout == plan
    shown = answer.json()["rollout"]
    assert read_plan(shown) == plan
    assert shown == {name: each for name, each in plan_document(plan).items() if name not in {"selector", "nodes"}}
    again = await api.client.put("/api/v1/groups/edge", json={"rollout": shown})
    assert again.json()["settings_etag"] == answer.json()["settings_etag"]
    await api.plane.publisher.settings.load()
    assert api.plane.publisher.settings.get("edge").rollout == plan
    wrong = await api.client.put("/api/v1/groups/edge", json={"rollout": {"hold_s": -1}})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/rollout/hold_s")
    assert (await api.client.put("/api/v1/groups/edge", json={})).json()["rollout"] is None


async def test_the_document_of_settings_without_a_plan_is_as_before(api: Api) -> None:
    await api.client.put("/api/v1/groups/edge", json={"priority": 3})
    (stored,) = await api.plane.store.docs("group")
    assert json.loads(stored.body) == {"selector": "", "priority": 3, "on_nack": ""}


def test_a_file_has_no_plan(api: Api) -> None:
    with pytest.raises(ValidationError, match="unknown field 'rollout'"):
        api.options.decoder.document(json.dumps({**BODY, "rollout": "1"}), "json")


async def test_a_repeated_request_is_answered_with_its_rollout(api: Api) -> None:
    await api.client.put(SNAPSHOT, json=BODY)
    Client(api.plane.fleet, Node("edge-1", "edge"), "edge").subscribe(CLUSTER)
    body = {"resources": [static_cluster("b", 80)], "rollout": {"waves": ["1"]}}

    async def put() -> Any:
        return (await api.client.put(SNAPSHOT, json=body, headers={"Idempotency-Key": "once"})).json()

    first = await put()
    assert (first["rollout"]["effect"], first["rollout"]["head"]) == ("started", 2)
    assert await put() == first
