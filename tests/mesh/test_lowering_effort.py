"""What a change of config entries makes anew: what it touches, and that once for all groups."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mesh.test_lowered_groups import GROUP, HTTP, RESOLVER, WEB, bodies, put_entries, put_upstreams, splitter
from tests.support.plane import Plane
from xds.codec import schema
from xds.mesh.core.lower.lowered import LoweredResource
from xds.mesh.core.lower.lowering import lower_backend
from xds.mesh.core.lower.upstreams import Upstream
from xds.mesh.group_lowering import LoweredRecords
from xds.model.resource_type import ENDPOINT
from xds.services.core.instance import Instance

Json = dict[str, Any]

GROUPS = ("shop", "cart")
API: Json = {"Kind": "service-resolver", "Name": "api", "Redirect": {"Service": "db"}}


class Effort:
    """Notes which upstreams are lowered, and which resources are made to bytes and checked."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.upstreams: list[str] = []
        self.resources: list[str] = []
        record = LoweredRecords.of

        def lowered(upstream: Upstream, *arguments: Any) -> Any:
            self.upstreams.append(upstream.name)
            return lower_backend(upstream, *arguments)

        def of(records: LoweredRecords, one: LoweredResource) -> Any:
            self.resources.append(one.label)
            return record(records, one)

        patch.setattr("xds.mesh.group_lowering.lower_backend", lowered)
        patch.setattr(LoweredRecords, "of", of)

    def clear(self) -> None:
        self.upstreams.clear()
        self.resources.clear()


@pytest.fixture
async def effort(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Effort:
    """Two groups that call the same services, where ``all`` leads to web as well."""
    both: Json = {"Kind": "service-resolver", "Name": "all", "Redirect": {"Service": "db"}}
    await put_entries(plane, HTTP, RESOLVER, splitter(90), API, both)
    for group in GROUPS:
        await put_upstreams(plane, "web", "api", "all", group=group)
    return Effort(monkeypatch)


async def test_each_upstream_is_lowered_once_for_all_groups(plane: Plane, effort: Effort) -> None:
    before = bodies(plane)
    await put_entries(plane, splitter(50))
    assert effort.upstreams == ["web"]
    assert bodies(plane) != before
    assert bodies(plane) == bodies(plane, "cart")


async def test_routes_and_clusters_are_lowered_and_checked_once_for_all_ports(plane: Plane, effort: Effort) -> None:
    await put_upstreams(plane, "api", "web", group="other")  # at the ports of the other groups, the other way round
    effort.clear()
    await put_entries(plane, splitter(50), {**RESOLVER, "ConnectTimeout": "2s"})
    assert effort.upstreams.count("web") == 1
    clusters = [one for one in effort.resources if one.startswith("clusters/v1.web.")]
    assert len(clusters) == 1
    ports = {key[1] for group in ("shop", "other") for key in plane.mesh.lowered.content(group).records}
    assert {"web:127.0.0.1:9001", "web:127.0.0.1:9002"} <= ports


async def test_only_resources_of_changed_upstreams_are_checked(plane: Plane, effort: Effort) -> None:
    await put_entries(plane, splitter(50))
    assert {one for one in effort.resources if "api" in one or "db" in one} == set()


async def test_incremental_lowering_equals_lowering_at_once(plane: Plane, effort: Effort) -> None:
    """Clusters that several upstreams share come and go, with their origins."""
    for entry in (
        {**API, "Redirect": {"Service": "web"}},
        splitter(10),
        {**API, "ConnectTimeout": "2s", "Redirect": None},
        {**RESOLVER, "Failover": {"*": {"Service": "db"}}},
        API,
    ):
        await put_entries(plane, {key: value for key, value in entry.items() if value is not None})
        again = await plane.reloaded()
        for group in GROUPS:
            content, fresh = plane.mesh.lowered.content(group), again.mesh.lowered.content(group)
            assert list(content.records) == list(fresh.records)
            assert content.records == fresh.records
            assert content.origins == fresh.origins
            assert list(content.assignments.items()) == list(fresh.assignments.items())
            assert (content.parts, content.warnings) == (fresh.parts, fresh.warnings)
        await again.publisher.close()


async def test_an_upstream_that_goes_takes_its_own_resources_only(plane: Plane, effort: Effort) -> None:
    await put_upstreams(plane, "api", group="shop")
    await put_upstreams(plane, "api", group="fresh")
    assert bodies(plane, "shop") == bodies(plane, "fresh")
    found, fresh = (plane.mesh.lowered.content(group) for group in ("shop", "fresh"))
    assert found.origins == fresh.origins
    assert found.assignments == fresh.assignments


async def test_streams_are_woken_where_a_change_makes_other_assignments_only(plane: Plane) -> None:
    """With priorities, another failover leaves the cluster as it is: no revision, and the endpoints differ."""
    await put_entries(plane, HTTP, API)
    await put_upstreams(plane, "web", failover="priority")
    sink = plane.catalog.sink("test", "test")
    sink.replace({name: [Instance(name, "10.0.0.1", port)] for port, name in enumerate(("web", "db", "spare"), 80)})
    await plane.catalog.tick()
    plane.woken.clear()
    for service, names in (("db", 2), ("spare", 2)):
        await put_entries(plane, {"Kind": "service-resolver", "Name": "web", "Failover": {"*": {"Service": service}}})
        assert plane.woken == [GROUP], service
        assert len(assignment_of(plane).endpoints) == names
        plane.woken.clear()


def assignment_of(plane: Plane) -> Any:
    snapshot = plane.cache.get(GROUP)
    assert snapshot is not None
    message: Any = schema.require("envoy.config.endpoint.v3.ClusterLoadAssignment")()
    message.ParseFromString(snapshot.get(ENDPOINT).resources[WEB].body)
    return message
