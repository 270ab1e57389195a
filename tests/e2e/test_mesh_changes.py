"""Changes of protocols, of upstreams documents and of instances beside entries, under load: no request is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.mesh_site import ENTRIES, Json, Mesh
from tests.e2e.test_mesh import RESOLVER, SUBSETS, loaded, mesh, splitter
from tests.support.upstream import Upstream

__all__ = ["loaded", "mesh"]  # fixtures

pytestmark = pytest.mark.soak

TCP: Json = {"Kind": "service-defaults", "Name": "web", "Protocol": "tcp"}
SPLITTER: Json = {"kind": "service-splitter", "name": "web"}
# What a document may say of an upstream, and of all proxies.
OF_UPSTREAM: list[Json] = [
    {"connect_timeout": "2s"},
    {"limits": {"max_connections": 1000}},
    {"passive_health_check": {"interval": "1s", "max_failures": 3}},
    {"balance_outbound_connections": "exact_balance"},
    {},
    {"limits": {"max_connections": 1000}, "connect_timeout": "3s"},
]
OF_PROXIES: list[Json] = [{"locality_aware": True}, {"validate_clusters": True}, {"failover": "priority"}, {}]


def transact(mesh: Mesh, **entries: list[Json]) -> None:
    mesh.ask("POST", "/api/v1/transactions", json={"config_entries": entries})


def test_a_service_that_changes_its_protocol(loaded: Mesh) -> None:
    """The splitter of a service that speaks tcp is refused, unless it goes in the same transaction."""
    loaded.write(splitter(50))
    loaded.wait_answers("web-v1", "web-v2")
    assert loaded.server.request("POST", ENTRIES, json=[TCP]).status_code == 422
    transact(loaded, put=[TCP], delete=[SPLITTER])
    loaded.wait_answers("web-v1")
    loaded.write({**RESOLVER, "DefaultSubset": "v2"})
    loaded.wait_answers("web-v2")
    transact(loaded, put=[{**TCP, "Protocol": "http"}, splitter(100)])
    loaded.wait_answers("web-v1")
    loaded.undo()
    loaded.wait_answers("web-v2")
    loaded.undo()
    loaded.wait_answers("web-v1")
    loaded.undo()
    loaded.wait_answers("web-v1", "web-v2")
    loaded.wait_synced()
    assert loaded.lost() == []


def test_every_field_of_an_upstreams_document(loaded: Mesh) -> None:
    loaded.write(splitter(50))
    for of_upstream in OF_UPSTREAM:
        for group, port in loaded.ports.items():
            upstream = {"service": "web", "bind_port": port, **of_upstream}
            for of_proxies in OF_PROXIES:
                document = {"upstreams": [upstream], **of_proxies}
                loaded.ask("PUT", f"/api/v1/groups/{group}/upstreams", json=document)
        loaded.wait_answers("web-v1", "web-v2")
        loaded.wait_synced()
        assert loaded.lost() == [], of_upstream


def test_instances_and_subsets_that_change_with_entries(loaded: Mesh, upstream: Callable[[str], Upstream]) -> None:
    more = upstream("web-more")
    loaded.register("web", more, version="v1")
    loaded.wait_answers("web-v1", "web-more")
    loaded.write(splitter(50))
    loaded.ask("DELETE", f"/api/v1/registrations/{more.name}")
    loaded.wait_answers("web-v1", "web-v2")
    loaded.register("web", more, version="v2")
    loaded.wait_answers("web-v1", "web-v2", "web-more")
    loaded.delete("service-splitter/web")
    loaded.wait_answers("web-v1")
    loaded.register("web", more, version="v1")  # from one subset into another
    loaded.wait_answers("web-v1", "web-more")
    loaded.write({**RESOLVER, "Subsets": {"v1": SUBSETS["v2"], "v2": SUBSETS["v1"]}})
    loaded.wait_answers("web-v2")
    loaded.undo()
    loaded.wait_answers("web-v1", "web-more")
    loaded.write({**RESOLVER, "Subsets": {"v1": {"OnlyPassing": True}, "v2": SUBSETS["v1"]}})
    loaded.wait_answers("web-v1", "web-v2", "web-more")
    assert loaded.lost() == []
