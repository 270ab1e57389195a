"""Pages of lists by name are in natural order, also where a page begins amid numbers: 2, 10, 11."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.support.resources import cluster_load_assignment, eds_cluster
from xds.services.core.instance import Instance

URL = "/api/v1"
NAMES = ["c2", "c10", "C11", "c100"]


@pytest.fixture
async def numbered(api: Api) -> Api:
    """Groups, clusters, assignments, services, bindings and config entries of these names."""
    for name in reversed(NAMES):
        (await api.put(name, eds_cluster(name))).raise_for_status()
        api.plane.catalog.sink(name.lower(), "files").put(name, [Instance(name, "10.0.0.1", 80)])
    resources = [each for name in NAMES for each in (eds_cluster(name), cluster_load_assignment(name, 1))]
    (await api.put("edge", *resources)).raise_for_status()
    for name in reversed(NAMES):
        path = f"{URL}/groups/edge/bindings/{name}"
        (await api.client.put(path, json={"service": name})).raise_for_status()
        entry = {"Kind": "service-defaults", "Name": name, "Protocol": "http"}
        (await api.client.put(f"{URL}/config-entries/service-defaults/{name}", json=entry)).raise_for_status()
    return api


async def listed(api: Api, path: str, key: str, limit: int) -> list[str]:
    """The values of all pages."""
    found: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        answer = await api.client.get(f"{URL}/{path}", params=query)
        page = answer.raise_for_status().json()
        found += [item[key] for item in page["items"]]
        assert len(page["items"]) <= limit
        if not page.get("next_page_token"):
            return found
        query["page_token"] = page["next_page_token"]


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("groups", "group"),
        ("groups/edge/resources/clusters", "name"),
        ("groups/edge/resources/endpoints", "name"),
        ("groups/edge/endpoints", "name"),
        ("groups/edge/bindings", "assignment"),
        ("services", "service"),
        ("config-entries", "name"),
    ],
)
async def test_pages_of_names_are_in_natural_order(numbered: Api, path: str, key: str, limit: int) -> None:
    found = await listed(numbered, path, key, limit)
    assert [name for name in found if name != "edge"] == NAMES
