"""Differences between two revisions, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.admin.conftest import Api
from tests.support.resources import (
    CERTIFICATE_PEM,
    KEY_PEM,
    cluster_load_assignment,
    eds_cluster,
    static_cluster,
    tls_secret,
)
from xds.push.collector import Collector
from xds.snapshots.order import OrderRules
from xds.store.retention import Retention
from xds.tasks.threads import INLINE_RESOURCES

EDGE = "/api/v1/groups/edge"
A = static_cluster("a", 80)
MOVED = static_cluster("a", 81)
B = static_cluster("b", 80)


async def diff(api: Api, revision: int, **query: Any) -> dict[str, Any]:
    answer = await api.client.get(f"{EDGE}/revisions/{revision}/diff", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def told(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(item["type"], item["name"], item["change"]) for item in found["resources"]]


@pytest.fixture
async def edge(api: Api) -> Api:
    """Revisions 1 to 3: a and b; a changed, b removed, c added with its endpoints; c removed."""
    await api.put("edge", A, B)
    await api.put("edge", MOVED, eds_cluster("c"), cluster_load_assignment("c", 80))
    await api.put("edge", MOVED)
    return api


async def test_against_the_revision_before(edge: Api) -> None:
    found = await diff(edge, 2)
    assert (found["group"], found["from"], found["to"]) == ("edge", 1, 2)
    assert found["changes"] == {
        "clusters": {"added": ["c"], "changed": ["a"], "removed": ["b"]},
        "endpoints": {"added": ["c"], "changed": [], "removed": []},
    }
    assert told(found) == [
        ("clusters", "a", "changed"),
        ("clusters", "b", "removed"),
        ("clusters", "c", "added"),
        ("endpoints", "c", "added"),
    ]
    a, b, c, _ = found["resources"]
    ports = [str(a[side]).count(port) for side, port in (("before", "80"), ("after", "81"))]
    assert ports == [1, 1]
    assert (b["before"]["name"], b["after"]) == ("b", None)
    assert (c["before"], c["after"]["name"]) == (None, "c")


async def test_against_any_revision(edge: Api) -> None:
    assert told(await diff(edge, 3, **{"from": 1})) == [("clusters", "a", "changed"), ("clusters", "b", "removed")]
    assert told(await diff(edge, 1, **{"from": 3})) == [("clusters", "a", "changed"), ("clusters", "b", "added")]
    same = await diff(edge, 2, **{"from": 2})
    assert (same["changes"], same["resources"]) == ({}, [])


async def test_the_first_revision_comes_from_nothing(edge: Api) -> None:
    first = await diff(edge, 1)
    assert (first["from"], [change for _, _, change in told(first)]) == (0, ["added", "added"])


async def test_a_deletion_leaves_nothing(edge: Api) -> None:
    await edge.client.delete(EDGE)
    assert told(await diff(edge, 4)) == [("clusters", "a", "removed")]
    await edge.put("edge", B)
    assert told(await diff(edge, 5)) == [("clusters", "b", "added")]


async def test_names_only(edge: Api) -> None:
    found = await diff(edge, 2, contents="false")
    assert found["changes"]["clusters"]["changed"] == ["a"]
    assert "resources" not in found


async def test_resources_come_in_pages(edge: Api) -> None:
    first = await diff(edge, 2, limit=3)
    rest = await diff(edge, 2, limit=3, page_token=first["next_page_token"])
    assert told(first) + told(rest) == told(await diff(edge, 2))
    assert "next_page_token" not in rest
    assert rest["changes"] == first["changes"]


async def test_secrets_are_redacted(api: Api) -> None:
    for key in ("hidden01", "hidden02"):
        await api.put("edge", tls_secret("s", CERTIFICATE_PEM, KEY_PEM.replace("MIIE", key)))
    (item,) = (await diff(api, 2))["resources"]
    assert (item["change"], item["before"]) == ("changed", item["after"])
    assert "hidden" not in str(item)
    (item,) = (await diff(api, 2, show_secrets="true"))["resources"]
    assert ("hidden01" in str(item["before"]), "hidden02" in str(item["after"])) == (True, True)


async def test_a_large_difference(api: Api) -> None:
    count = INLINE_RESOURCES * 2
    await api.put("edge", *(static_cluster(f"c{n}", 80) for n in range(count)))
    await api.put("edge", *(static_cluster(f"c{n}", 81) for n in range(count)))
    found = await diff(api, 2)
    assert len(found["resources"]) == len(found["changes"]["clusters"]["changed"]) == count
    assert all(item["before"] != item["after"] for item in found["resources"])


async def test_as_yaml(edge: Api) -> None:
    answer = await edge.client.get(f"{EDGE}/revisions/2/diff", headers={"accept": "application/yaml"})
    assert yaml.safe_load(answer.text) == await diff(edge, 2)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{EDGE}/revisions/9/diff", 404),
        (f"{EDGE}/revisions/1/diff?from=9", 404),
        ("/api/v1/groups/none/revisions/1/diff", 404),
        (f"{EDGE}/revisions/{2**63 - 2}/diff?from={2**63 - 2}", 404),
        (f"{EDGE}/revisions/0/diff", 422),
        (f"{EDGE}/revisions/1/diff?from=-1", 422),
        (f"{EDGE}/revisions/1/diff?from={2**63}", 422),
    ],
)
async def test_revisions_that_are_not_there(edge: Api, path: str, status: int) -> None:
    assert (await edge.client.get(path)).status_code == status


async def test_a_comparison_with_collected_content_is_refused(api: Api) -> None:
    for turn in range(OrderRules().linger_max + 2):
        await api.put("edge", static_cluster(f"c{turn}", 80))
    await Collector(api.plane.store, api.plane.cache, Retention(revisions=1, age_s=-60), 1).collect()
    assert (await api.client.get(f"{EDGE}/revisions/1/diff")).status_code == 410
    assert (await api.client.get(f"{EDGE}/revisions/2/diff")).status_code == 410
    prefers = {"Prefer": "empty-if-absent"}
    assert (await api.client.get(f"{EDGE}/revisions/2/diff", headers=prefers)).status_code == 204
    assert told(await diff(api, 2, **{"from": 3}))


async def test_contents_of_large_resources_are_left_out_on_request(api: Api) -> None:
    large = [static_cluster("large", *range(1000, 3000 + more)) for more in range(2)]
    await api.put("edge", A, large[0])
    await api.put("edge", MOVED, large[1], B)
    found = await diff(api, 2, max_bytes=1000)
    assert told(found) == [("clusters", "a", "changed"), ("clusters", "b", "added"), ("clusters", "large", "changed")]
    small, added, left_out = found["resources"]
    assert (small["before"]["name"], "left_out_bytes" in small, added["before"]) == ("a", False, None)
    assert (left_out["before"], left_out["after"]) == (None, None)
    assert left_out["left_out_bytes"] > 1000
    whole = (await diff(api, 2, max_bytes=left_out["left_out_bytes"]))["resources"][2]
    assert whole["before"] != whole["after"]
    assert "left_out_bytes" not in whole
