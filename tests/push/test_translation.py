"""Resources for clients on the v2 transport, and resources that v2 cannot express."""

from __future__ import annotations

from typing import Any

import pytest

from tests.push.test_publisher import GROUP, resources
from tests.support.connected import Client
from tests.support.plane import Plane
from tests.support.resources import static_cluster
from xds.envoy.translation import PROBLEM_LIMIT, SHOWN_LIMIT, V2, translate_to_v2
from xds.fleet.node_state import NodeState
from xds.model.node import Node
from xds.model.resource import default_version_info
from xds.model.resource_type import CLUSTER, V2_URLS
from xds.model.snapshot import ResourceSet, build_snapshot
from xds.push.progress import PushVerdict, verdict_of

NO_SUCH_VALUE = "/dns_lookup_family: the v2 API has no value 4"


def cluster(name: str, **fields: Any) -> dict[str, Any]:
    return static_cluster(name, 80, **fields)


def newer(name: str) -> dict[str, Any]:
    """A cluster that the v2 API cannot express."""
    return cluster(name, dns_lookup_family="ALL")


def translated(plane: Plane) -> ResourceSet:
    view = plane.cache.view(GROUP, V2)
    assert view is not None
    return view.snapshot.get(V2_URLS[CLUSTER])


def connected(plane: Plane, *names: str, api: str = V2, type_url: str = V2_URLS[CLUSTER]) -> Client:
    client = Client(plane.fleet, Node("n1", GROUP), GROUP, api)
    client.subscribe(type_url, *names)
    return client


def node(plane: Plane) -> NodeState:
    found = plane.fleet.node("n1")
    assert found is not None
    return found


def unsent(plane: Plane) -> dict[str, list[tuple[str, str]]]:
    found = plane.publisher.views.unexpressed(node(plane))
    return {alias: [(each.name, each.problem) for each in members] for alias, members in found.items()}


def test_resources_that_v2_cannot_express_are_left_out_with_the_reason() -> None:
    snapshot = build_snapshot(GROUP, 1, resources(cluster("old"), newer("new")), {})
    held = snapshot.get(CLUSTER)
    found = translate_to_v2(held)
    assert found is not None
    assert (found.type.type_url, list(found.resources), found.omitted) == (
        V2_URLS[CLUSTER],
        ["old"],
        {"new": NO_SUCH_VALUE},
    )
    assert (found.origin_id, found.version_info) == (held.id, held.version_info)
    assert (held.origin_id, held.omitted) == (held.id, {})


def test_the_hash_in_a_label_is_that_of_the_set_of_v2_clients() -> None:
    pushed = resources(cluster("old"), newer("new"))
    plain = build_snapshot(GROUP, 1, pushed, {}).get(CLUSTER)
    held = build_snapshot(GROUP, 1, pushed, {CLUSTER: default_version_info(1, plain.digest)}).get(CLUSTER)
    found = translate_to_v2(held)
    assert found is not None
    assert found.version_info == default_version_info(1, found.digest) != held.version_info


async def test_a_node_shows_resources_that_it_is_not_sent(plane: Plane) -> None:
    await plane.publisher.push(GROUP, resources(cluster("a")))
    connected(plane)
    assert unsent(plane) == {}
    await plane.publisher.push(GROUP, resources(cluster("a"), newer("b")))
    assert unsent(plane) == {"clusters": [("b", NO_SUCH_VALUE)]}
    await plane.publisher.push(GROUP, resources(cluster("a"), cluster("b")))
    assert unsent(plane) == {}


@pytest.mark.parametrize(("names", "shown"), [((), ["b", "c"]), (("b",), ["b"]), (("a", "z"), [])])
async def test_only_untranslated_resources_that_a_node_requests_are_shown(
    plane: Plane, names: tuple[str, ...], shown: list[str]
) -> None:
    await plane.publisher.push(GROUP, resources(cluster("a"), newer("b"), newer("c")))
    connected(plane, *names)
    assert [name for name, _ in unsent(plane).get("clusters", [])] == shown


async def test_nodes_of_today_lack_nothing(plane: Plane) -> None:
    await plane.publisher.push(GROUP, resources(newer("b")))
    connected(plane, api="", type_url=CLUSTER)
    assert unsent(plane) == {}


async def test_the_list_of_untranslated_resources_is_bounded(plane: Plane) -> None:
    many = [newer(f"c{number}") for number in range(SHOWN_LIMIT + 5)]
    deep = cluster("deep", load_assignment={"cluster_name": "deep", "endpoints": [{"metadata": {}}] * 50})
    await plane.publisher.push(GROUP, resources(deep, *many))
    for _ in range(2):
        connected(plane)
    assert len(unsent(plane)["clusters"]) == SHOWN_LIMIT
    assert max(map(len, translated(plane).omitted.values())) == PROBLEM_LIMIT


async def test_pushes_wait_for_nodes_on_the_old_transport(plane: Plane) -> None:
    await plane.publisher.push(GROUP, resources(cluster("a")))
    client = connected(plane)
    client.ack(translated(plane))
    await plane.publisher.push(GROUP, resources(cluster("a"), cluster("b"), newer("c")))

    async def decided() -> PushVerdict:
        found = await plane.publisher.groups.pushes.progress(GROUP, 2)
        assert found is not None
        return verdict_of(found)

    assert await decided() is PushVerdict.PENDING
    client.nack(translated(plane), "no")
    assert await decided() is PushVerdict.REFUSED
    client.ack(translated(plane))
    assert await decided() is PushVerdict.DONE


async def test_the_revision_of_translated_content_is_known(plane: Plane) -> None:
    await plane.publisher.push(GROUP, resources(cluster("a")))
    await plane.publisher.push(GROUP, resources(cluster("b")))
    connected(plane).ack(translated(plane))
    [state] = node(plane).types
    assert (state.type, state.revision) == ("clusters", 2)


async def test_own_types_of_another_api_are_not_waited_for(plane: Plane) -> None:
    """A stream on the v3 transport that requests a v2 type gets what was pushed in that type: nothing here."""
    connected(plane, api="", type_url=V2_URLS[CLUSTER])
    connected(plane)
    await plane.publisher.push(GROUP, resources(cluster("a")))
    found = await plane.publisher.groups.pushes.progress(GROUP, 1)
    assert found is not None
    assert found.pending == 1
