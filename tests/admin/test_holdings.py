"""The resources of one node, and nodes by selector, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.labels import stem_of
from tests.support.resources import CERTIFICATE_PEM, KEY_PEM, static_cluster, tls_secret
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, SECRET, resource_type
from xds.model.snapshot import ResourceSet
from xds.snapshots.leftover import Leftover

PATH = f"/api/v1/nodes/{quote('n/1', safe='')}/resources"

HIDDEN = KEY_PEM.replace("MIIE", "hidden00")


def held(api: Api, type_url: str = CLUSTER) -> ResourceSet:
    return api.plane.publisher.groups.content("edge").snapshot.get(type_url)


@pytest.fixture
async def client(api: Api) -> Client:
    """A node that ACKed clusters a and b and the secret s; c is missing, and a second revision was NACKed."""
    await api.put("edge", static_cluster("a", 80), static_cluster("b", 80), tls_secret("s", CERTIFICATE_PEM, HIDDEN))
    made = Client(api.plane.fleet, Node("n/1", "edge", metadata={"role": "web"}), "edge")
    made.subscribe(CLUSTER)
    made.subscribe(SECRET, "s", "t")
    made.ack(held(api))
    made.ack(held(api, SECRET))
    await api.put("edge", static_cluster("a", 81), tls_secret("s", CERTIFICATE_PEM, HIDDEN))
    made.nack(held(api), "no")
    return made


async def items(api: Api, **query: str) -> list[dict[str, Any]]:
    answer = await api.client.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_acked_sent_and_served(api: Api, client: Client) -> None:
    shown = [(item["type"], item["name"], item["state"], stem_of(item["version_info"])) for item in await items(api)]
    assert shown == [
        ("clusters", "a", "nacked", "1"),
        ("clusters", "b", "nacked", "1"),
        ("secrets", "s", "synced", "1"),
        ("secrets", "t", "missing", "1"),
    ]
    for side in ("sent", "served"):
        assert [item["name"] for item in await items(api, side=side, type="clusters")] == ["a"]
    versions = [(await items(api, side=side, name="a"))[0]["version"] for side in ("acked", "served")]
    assert versions[0] != versions[1]


async def test_narrowed_to_a_type_and_a_glob(api: Api, client: Client) -> None:
    assert [item["name"] for item in await items(api, type=CLUSTER, name="[b-z]")] == ["b"]
    assert await items(api, type="listeners") == []


async def test_contents_without_secrets_unless_asked_for(api: Api, client: Client) -> None:
    secret, missing = await items(api, type="secrets", contents="true")
    assert "hidden" not in str(secret["resource"])
    assert "resource" not in missing
    shown, _ = await items(api, type="secrets", contents="true", show_secrets="true")
    assert "hidden" in str(shown["resource"])


async def test_content_that_only_the_node_knows_is_not_shown_as_empty(api: Api, client: Client) -> None:
    """A node that returns may have a version that no push of its group has."""
    foreign = Leftover(CLUSTER, "z", b"", "1f3a9c07")
    client.ack(ResourceSet(resource_type(CLUSTER), "other", {"z": foreign}))
    (shown,) = await items(api, type="clusters", contents="true")
    assert (shown["name"], shown["version"]) == ("z", "1f3a9c07")
    assert "resource" not in shown


async def test_pages(api: Api, client: Client) -> None:
    first = (await api.client.get(PATH, params={"limit": "3"})).json()
    rest = (await api.client.get(PATH, params={"limit": "3", "page_token": first["next_page_token"]})).json()
    assert [item["name"] for item in (*first["items"], *rest["items"])] == ["a", "b", "s", "t"]
    assert "next_page_token" not in rest


async def test_node_that_is_not_connected(api: Api, client: Client) -> None:
    client.leave()
    assert (await api.client.get(PATH)).status_code == 404
