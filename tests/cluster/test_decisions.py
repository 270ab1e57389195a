"""What the holder of the lease has decided is shown at every server."""

from __future__ import annotations

from typing import Any

from tests.cluster.conftest import Site
from tests.steering.assigned import KEY, cluster, endpoints
from xds.steering.core.policy_document import parse_policy
from xds.steering.served import ServedSteering
from xds.store.member_register import KnownMembers, Member

PATH = "/groups/edge/assignments"
CAPACITY: dict[str, Any] = {"rates": [{"per_locality_rps": 100.0}]}


async def decided_at(site: Site, holder: str) -> None:
    """A policy at both servers; each has the store of its own, and only the holder decides."""
    known = KnownMembers(Member("a", "", "1"), holder=holder, is_shared=True)
    for name, api in site.apis.items():
        await api.plane.publisher.push("edge", [cluster(), endpoints()])
        steering = api.services.feature(ServedSteering, "assignment")
        steering.assignments._holds_lease = lambda name=name: name == holder  # type: ignore[misc]
        await steering.assignments.load()
        await steering.assignments.put(KEY, parse_policy({"capacity": CAPACITY}, "web"))
        api.services.members = lambda: known


async def test_the_holder_answers_for_what_it_decides(site: Site) -> None:
    await decided_at(site, "b")
    for name in ("a", "b"):
        assert (await site.get(name, f"{PATH}/web"))["decided"]
        assert all(each["decided"] for each in (await site.get(name, PATH))["items"])
        assert "items" in await site.get(name, f"{PATH}/web/history")


async def test_while_the_holder_is_silent_a_server_shows_what_it_has(site: Site, silent: str) -> None:
    await decided_at(site, "b")
    site.rows[1] = type(site.rows[1])("b", silent)
    found = await site.get("a", f"{PATH}/web")
    assert not found["decided"] and found["cluster"] == "web"
