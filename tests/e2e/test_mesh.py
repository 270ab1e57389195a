"""Config entries that real Envoys run: entries change under load, and no request is lost.

The Envoys have their default drain flags. Each is a group of its own, since two proxies of one group would accept at
the same address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.mesh_site import GROUPS, HTTP, Json, Mesh
from tests.support.background import Background
from tests.support.load import HttpLoad
from tests.support.process import free_port
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

# Connections that are older than a change of a listener keep its old routes, as long as Envoy drains them.
PER_CONNECTION = 50
LISTENER_CHANGES = r"^listener_manager\.listener_(added|modified|removed)$"

SUBSETS: Json = {each: {"Filter": f"Service.Meta.version == {each}"} for each in ("v1", "v2")}
RESOLVER: Json = {"Kind": "service-resolver", "Name": "web", "DefaultSubset": "v1", "Subsets": SUBSETS}
REDIRECT: Json = {"Kind": "service-resolver", "Name": "web", "Redirect": {"Service": "api"}}
ROUTER: Json = {"Kind": "service-router", "Name": "web", "Routes": [{"Destination": {"Service": "api"}}]}


def splitter(v1: float) -> Json:
    splits = [{"Weight": v1, "ServiceSubset": "v1"}, {"Weight": 100 - v1, "ServiceSubset": "v2"}]
    return {"Kind": "service-splitter", "Name": "web", "Splits": splits}


@pytest.fixture
def mesh(server: ServerProcess, upstream: Callable[[str], Upstream]) -> Mesh:
    """The instances of two services, and an upstream in each group."""
    made = Mesh(server)
    made.register("web", upstream("web-v1"), version="v1")
    made.register("web", upstream("web-v2"), version="v2")
    made.register("api", upstream("api-1"))
    made.write(HTTP, RESOLVER)
    for group in GROUPS:
        made.call(group, free_port())
    return made


@pytest.fixture
def loaded(mesh: Mesh, tmp_path: Path, running: ExitStack, background: Background) -> Iterator[Mesh]:
    """With Envoys, and load on each."""
    for group, variant in GROUPS.items():
        mesh.envoy(group, variant, tmp_path, running)
        mesh.loads[group] = running.enter_context(
            HttpLoad(background, mesh.ports[group], rps=150, per_connection=PER_CONNECTION)
        )
    mesh.wait_answers("web-v1")
    yield mesh
    assert mesh.server.nacks() == []
    assert [envoy.fetch_timeouts() for envoy in mesh.envoys.values()] == [{}, {}]


def test_entries_change_under_load_and_no_request_is_lost(loaded: Mesh) -> None:
    """Added, changed, deleted and undone, alone and several in one transaction."""
    loaded.write(splitter(50))
    loaded.wait_answers("web-v1", "web-v2")
    loaded.write(splitter(0))
    loaded.wait_answers("web-v2")
    loaded.write(ROUTER)
    loaded.wait_answers("api-1")
    loaded.undo()
    loaded.wait_answers("web-v2")
    loaded.delete("service-splitter/web")
    loaded.wait_answers("web-v1")
    loaded.write(REDIRECT)
    loaded.wait_answers("api-1")
    loaded.write({**RESOLVER, "DefaultSubset": "v2", "ConnectTimeout": "1s"}, splitter(50))
    loaded.wait_answers("web-v1", "web-v2")
    loaded.undo()
    loaded.wait_answers("api-1")
    loaded.delete("service-resolver/web")
    loaded.wait_answers("web-v1", "web-v2")
    loaded.undo()
    loaded.wait_answers("api-1")
    loaded.wait_synced()
    assert loaded.lost() == []


def test_a_service_that_is_new_here_gets_no_request_before_its_instances_are_known(
    loaded: Mesh, upstream: Callable[[str], Upstream]
) -> None:
    loaded.register("late", upstream("late-1"))
    loaded.write({**REDIRECT, "Redirect": {"Service": "late"}})
    loaded.wait_answers("late-1")
    assert loaded.lost() == []


def test_a_restart_changes_nothing_and_the_next_entry_arrives(loaded: Mesh) -> None:
    loaded.write(splitter(50))
    loaded.wait_answers("web-v1", "web-v2")
    loaded.wait_synced()
    before = {group: loaded.server.versions(group) for group in GROUPS}
    listeners = [envoy.stats(LISTENER_CHANGES) for envoy in loaded.envoys.values()]
    loaded.server.stop()
    loaded.server.start()
    assert {group: loaded.server.versions(group) for group in GROUPS} == before
    loaded.write(ROUTER)
    loaded.wait_answers("api-1")
    loaded.undo()
    loaded.wait_answers("web-v1", "web-v2")
    assert loaded.lost() == []
    assert [envoy.stats(LISTENER_CHANGES) for envoy in loaded.envoys.values()] == listeners


def test_pushed_and_lowered_resources_serve_side_by_side(loaded: Mesh) -> None:
    """A push under load leaves the routes of the mesh alone, and the other way round."""
    pushed: Json = {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "pushed",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "pushed"},
    }
    for group in GROUPS:
        loaded.server.push(group, [pushed])
    loaded.wait_synced()
    loaded.write(splitter(0))
    loaded.wait_answers("web-v2")
    for group, envoy in loaded.envoys.items():
        assert "pushed" in envoy.cluster_names()
        loaded.server.push(group, [], allow_empty="true")
    loaded.undo()
    loaded.wait_answers("web-v1")
    loaded.wait_synced()
    assert loaded.lost() == []
