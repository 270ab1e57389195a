"""How far a push has come: what `apply --wait` counts."""

from __future__ import annotations

from dataclasses import replace

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.fleet import Fleet
from xds.fleet.state import Convergence, HeldResources, Sync
from xds.model.snapshot import ResourceSet, mix
from xds.protocol.events import HeldContent as HeldBack
from xds.protocol.events import HoldChanged
from xds.snapshots.overlay import apply_overrides

OLD = resource_set("clusters", "1", c1="a", gone="a")
PUSHED = resource_set("clusters", "2", c1="b")


def convergence(fleet: Fleet, *pushed: ResourceSet) -> Convergence:
    return fleet.convergence("default", {each.type.type_url: each for each in pushed or (PUSHED,)})


def test_each_connected_subscriber_counts_once(fleet: Fleet) -> None:
    Client(fleet, "done").ack(response(PUSHED))
    Client(fleet, "late").ack(response(OLD))
    Client(fleet, "refusing").nack(response(PUSHED))
    Client(fleet, "elsewhere", "other").ack(response(OLD))
    Client(fleet, "deaf").subscribe("endpoints", "c1")
    gone = Client(fleet, "gone")
    gone.ack(response(OLD))
    gone.close()
    found = convergence(fleet)
    assert (found.synced, found.pending, found.nacked, found.total) == (1, 1, 1, 3)
    assert found.pending_nodes == ("late",)
    assert [record.node for record in found.nacks] == ["refusing"]


def test_only_those_connected_at_commit_count(fleet: Fleet) -> None:
    Client(fleet, "early").ack(response(PUSHED))
    among = fleet.connected("default")
    Client(fleet, "late").ack(response(OLD))
    assert fleet.convergence("default", {PUSHED.type.type_url: PUSHED}, among).total == 1


def test_content_counts_not_the_label(fleet: Fleet) -> None:
    relabelled = resource_set("clusters", "2", c1="older content")
    Client(fleet, "same label").ack(response(relabelled))
    Client(fleet, "same content").ack(response(resource_set("clusters", "other", c1="b")))
    found = convergence(fleet)
    assert (found.synced, found.pending_nodes) == (1, ("same label",))


def lingering(pushed: ResourceSet, before: ResourceSet = OLD) -> ResourceSet:
    """What is served while what the push removed lingers."""
    return mix(pushed, before, before.resources.keys() - pushed.resources.keys())


def test_a_push_has_arrived_while_removed_resources_linger(fleet: Fleet) -> None:
    client = Client(fleet)
    client.ack(response(lingering(PUSHED)))
    assert convergence(fleet).synced == 1
    assert fleet.converged_at("default", {PUSHED.type.type_url: PUSHED}) == client.now
    client.ack(response(PUSHED))
    assert convergence(fleet).synced == 1


def test_a_push_has_not_arrived_while_some_of_it_is_held_back(fleet: Fleet) -> None:
    client = Client(fleet)
    client.ack(response(mix(PUSHED, OLD, ["c1", "gone"])))
    client.apply_events(HoldChanged((HeldBack(((PUSHED.type.type_url, frozenset({"c1"})),), ("c2",)),)))
    found = convergence(fleet)
    assert (found.pending, found.pending_nodes) == (1, ("n1",))
    assert found.held == (("n1", HeldResources((("clusters", "c1"),), 1, ("c2",))),)
    client.apply_events(HoldChanged(()))
    client.ack(response(lingering(PUSHED)))
    assert (convergence(fleet).synced, convergence(fleet).held) == (1, ())


def test_a_refusal_while_something_lingers_is_a_refusal_of_the_push(fleet: Fleet) -> None:
    Client(fleet).nack(response(lingering(PUSHED)))
    assert convergence(fleet).nacked == 1


def overlaid(pushed: ResourceSet, **contents: str) -> ResourceSet:
    """A set with other contents in the place of some that were pushed."""
    return apply_overrides(
        pushed, {name: replace(pushed.resources[name], version=text) for name, text in contents.items()}
    )


def test_a_push_under_an_overlay_has_arrived(fleet: Fleet) -> None:
    """The nodes of a locality hold what was pushed as it is overlaid for them: `apply --wait` ends."""
    Client(fleet, "near").ack(response(overlaid(PUSHED, c1="near")))
    Client(fleet, "far").ack(response(overlaid(PUSHED, c1="far")))
    Client(fleet, "late").ack(response(overlaid(resource_set("clusters", "1", c1="a"), c1="near")))
    found = convergence(fleet)
    assert (found.synced, found.pending_nodes) == (2, ("late",))


def test_a_refusal_under_an_overlay_is_a_refusal_of_the_push(fleet: Fleet) -> None:
    Client(fleet, "new").nack(response(lingering(overlaid(PUSHED, c1="near"))))
    assert convergence(fleet).nacked == 1
    Client(fleet, "old").nack(response(lingering(overlaid(resource_set("clusters", "1", c1="a"), c1="near"))))
    found = convergence(fleet)
    assert (found.nacked, found.pending_nodes) == (1, ("old",))


def test_a_refusal_of_an_older_push_is_pending(fleet: Fleet) -> None:
    Client(fleet).nack(response(resource_set("clusters", "1", c1="bad")))
    assert convergence(fleet).pending == 1


def test_in_step_without_an_answer(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("endpoints", "c1")
    client.ack(response(resource_set("endpoints", "1", c1="a"), names=("c1",)))
    pushed = resource_set("endpoints", "2", c1="a", c2="b")
    assert convergence(fleet, pushed).pending == 1
    client.in_step(pushed)
    assert convergence(fleet, pushed).synced == 1


def test_all_pushed_types_must_arrive(fleet: Fleet) -> None:
    client = Client(fleet)
    client.ack(response(PUSHED))
    listeners = resource_set("listeners", "2", http="b")
    client.send(response(listeners))
    assert convergence(fleet, PUSHED, listeners).pending == 1
    client.ack(response(listeners))
    assert convergence(fleet, PUSHED, listeners).synced == 1


def test_changes_grow_when_a_push_moves_forward(fleet: Fleet) -> None:
    client = Client(fleet)
    before = fleet.changes
    client.send(response(PUSHED))
    assert fleet.changes == before
    client.ack(response(PUSHED))
    assert fleet.changes > before


def test_an_envoy_that_starts_is_pending_until_it_has_acked_its_first_clusters(fleet: Fleet) -> None:
    """It requests listeners only afterwards: `apply --wait` must not end before they are requested."""
    client = Client(fleet)
    client.subscribe("clusters", "*")
    listeners = resource_set("listeners", "1", web="a")
    assert convergence(fleet, listeners).pending_nodes == ("n1",)
    client.send(response(PUSHED))
    assert convergence(fleet, listeners).pending_nodes == ("n1",)
    client.ack(response(PUSHED))
    client.subscribe("listeners", "*")
    client.nack(response(listeners))
    assert convergence(fleet, listeners).nacked == 1


def test_a_client_that_has_its_clusters_and_no_listeners_does_not_count(fleet: Fleet) -> None:
    Client(fleet).ack(response(PUSHED))
    assert convergence(fleet, resource_set("listeners", "1", web="a")).total == 0


def test_a_node_that_rejects_what_did_not_change_has_the_changes_once_it_has_acked_them(fleet: Fleet) -> None:
    client, clusters = Client(fleet), PUSHED.type.type_url
    client.subscribe("clusters", "*")

    def states(target: ResourceSet, *changed: str) -> list[Sync]:
        found = fleet.states_of("default", {clusters: target}, {"n1"}, {"clusters": frozenset(changed)})
        return [state for state, _ in found.values()]

    before = resource_set("clusters", "1", c1="a", bad="x")
    client.nack(response(before), guilty=("bad",))
    assert states(before, "bad") == [Sync.NACKED]
    after = resource_set("clusters", "2", c1="b", bad="x")
    assert states(after, "c1") == [Sync.NACKED]  # not sent yet
    without_bad = mix(after, resource_set("clusters", "0"), ("bad",))
    client.ack(response(without_bad))
    assert states(after, "c1") == [Sync.SYNCED]
    assert states(after, "c1", "bad") == [Sync.NACKED]
    assert fleet.convergence("default", {clusters: after}).nacked == 1
