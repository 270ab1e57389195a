"""The nodes that reject a revision are counted over all servers, and `undo` goes by that."""

from __future__ import annotations

from tests.cluster.conftest import Site
from tests.support.resources import static_cluster
from xds.admin.fleet_progress import NodesElsewhere
from xds.push.undo import Refusals


async def test_refusals_are_counted_over_all_servers(site: Site) -> None:
    planner = site["a"].plane.publisher.undo
    planner.elsewhere = NodesElsewhere(site["a"].services.others).refusals
    await site.put("edge", static_cluster("good", 80))
    await site.put("edge", static_cluster("worse", 80))
    site.connect("a", "n1").nack(site.held("a"), "no")
    site.connect("b", "n2").nack(site.held("b"), "no")
    for name in ("n3", "n4", "n5"):
        site.connect("b", name).ack(site.held("b"))
    await planner.note_refusals(["edge"])
    line, _ = await site["a"].plane.store.history("edge")
    assert (line.refused, line.nodes) == (2, 5)


async def test_a_push_asks_no_other_server(site: Site) -> None:
    """It would wait for one that is silent. What the others answered last counts: they are asked each second."""
    planner = site["a"].plane.publisher.undo
    planner.elsewhere = NodesElsewhere(site["a"].services.others).refusals
    await site.put("edge", static_cluster("worse", 80))
    site.connect("b", "n2").nack(site.held("b"), "no")
    site.connect("a", "n1").nack(site.held("a"), "no")
    await planner.note_refusals(["edge"])
    site.connect("a", "n3").nack(site.held("a"), "no")

    async def asked(group: str, revision: int) -> Refusals:
        raise AssertionError(f"{group} {revision}")

    planner.elsewhere = asked
    await site["a"].put("edge", static_cluster("better", 80))
    _, line = await site["a"].plane.store.history("edge")
    assert (line.refused, line.nodes) == (3, 3)


async def test_the_nodes_of_a_silent_server_are_left_out(site: Site, silent: str) -> None:
    planner = site["a"].plane.publisher.undo
    planner.elsewhere = NodesElsewhere(site["a"].services.others).refusals
    await site.put("edge", static_cluster("worse", 80))
    site.connect("a", "n1").nack(site.held("a"), "no")
    site.rows[1] = type(site.rows[1])("b", silent)
    await planner.note_refusals(["edge"])
    (line,) = await site["a"].plane.store.history("edge")
    assert (line.refused, line.nodes) == (1, 1)
