"""What lingers on nodes and what is held back from them."""

from __future__ import annotations

from tests.fleet.conftest import Client, resource_set, response
from tests.fleet.test_fleet import node, type_of
from xds.fleet.event_log import EventFilter, EventKind
from xds.fleet.fleet import Fleet
from xds.fleet.order_state import NAMES_SHOWN, lingering_until
from xds.fleet.state import HeldResources, LingeringResources, Sync
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, V2_URLS
from xds.model.snapshot import Snapshot
from xds.protocol.events import HeldContent as HeldBack
from xds.protocol.events import HoldChanged, LingerChanged, LingerCut
from xds.snapshots.linger import NOTHING_LINGERS, Lingering, Removal

PEER, OTHER = "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"


def removal(revision: int, ends_s: float | None, **names: str) -> Removal:
    """``names`` by alias, several by spaces."""
    urls = {"clusters": CLUSTER, "endpoints": ENDPOINT, "old": V2_URLS[CLUSTER]}
    return Removal(revision, {urls[alias]: frozenset(each.split()) for alias, each in names.items()}, ends_s)


def lingers(client: Client, *removals: Removal) -> None:
    client.apply_events(LingerChanged(Lingering(removals) if removals else NOTHING_LINGERS))


def held(client: Client, *trees: HeldBack) -> None:
    client.apply_events(HoldChanged(trees))


WEB = HeldBack(((LISTENER, frozenset({"web"})), (ROUTE, frozenset({"r"}))), ("c",))


def test_lingering_is_shown_push_by_push(fleet: Fleet) -> None:
    client = Client(fleet)
    lingers(client, removal(7, 1100.0, clusters="a b", endpoints="a"), removal(8, None, clusters="c"))
    state = node(fleet)
    assert state.lingering == (
        LingeringResources("clusters", 7, 2, 1100.0, ("a", "b")),
        LingeringResources("endpoints", 7, 1, 1100.0, ("a",)),
        LingeringResources("clusters", 8, 1, None, ("c",)),
    )
    assert state.lingering_total == 4
    assert fleet.census(0).lingering == {"default": 1}
    lingers(client)
    assert (node(fleet).lingering, fleet.census(0).lingering) == ((), {"default": 0})


def test_early_ends_of_lingering_are_one_event_for_a_group(fleet: Fleet) -> None:
    """A fleet of thousands is cut at the same push: one event, or the history of changes would be pushed out."""
    for number in range(3):
        client = Client(fleet, f"n{number}", "edge")
        client.apply_events(LingerCut((removal(7, None, clusters="a b", endpoints="a"),)))
    Client(fleet, "other", "core").apply_events(LingerCut((removal(7, None, clusters="a"),)))
    Client(fleet, "n1", "edge").apply_events(
        LingerCut((removal(7, None, clusters="a"), removal(8, None, clusters="c")))
    )
    page = fleet.events.after(0, EventFilter(frozenset({EventKind.ORDER})), 10)
    assert [(event.action, event.group, event.node, event.revision) for event in page.events] == [
        ("linger_cut", "edge", "n0", 7),
        ("linger_cut", "core", "other", 7),
        ("linger_cut", "edge", "n1", 8),
    ]
    assert page.events[0].details == {"resources": 3, "types": "clusters, endpoints"}


def test_ends_are_shown_in_epoch_seconds(fleet: Fleet) -> None:
    client = Client(fleet)
    fleet.apply_events(client.id, [LingerChanged(Lingering((removal(7, 65.0, clusters="a"),)))], 2000.0, 50.0)
    assert node(fleet).lingering[0].until == 2015.0
    assert lingering_until(fleet.clients("n1")) == {CLUSTER: {"a": 2015.0}}


def test_many_names_are_counted_and_some_are_shown(fleet: Fleet) -> None:
    lingers(Client(fleet), removal(7, 1.0, clusters=" ".join(f"c{number:04}" for number in range(1000))))
    (found,) = node(fleet).lingering
    assert (found.count, len(found.names), found.names[0]) == (1000, NAMES_SHOWN, "c0000")


def test_streams_of_a_client_report_one_state(fleet: Fleet) -> None:
    one, two = Client(fleet), Client(fleet)
    lingers(one, removal(7, 1.0, clusters="a"))
    lingers(two, removal(8, 2.0, clusters="b"))
    assert [each.revision for each in node(fleet).lingering] == [8]
    # Whichever stream goes, the engine has the others tell it again.
    assert fleet.stream_closed(one.id, 5.0)
    assert node(fleet).lingering == ()
    assert not fleet.stream_closed(two.id, 5.0)


def test_clients_of_one_node_id_are_put_together(fleet: Fleet) -> None:
    lingers(Client(fleet), removal(7, 10.0, clusters="a"))
    lingers(Client(fleet, peer=OTHER), removal(7, 20.0, clusters="a b"))
    lingers(Client(fleet, api="v2"), removal(7, 30.0, old="d"))
    assert node(fleet).lingering == (LingeringResources("clusters", 7, 3, 30.0, ("a", "b", "d")),)
    lingers(Client(fleet, peer=OTHER), removal(7, None, clusters="a b"))
    assert node(fleet).lingering[0].until is None


def test_held_content_is_shown_with_the_clusters_that_it_waits_for(fleet: Fleet) -> None:
    client = Client(fleet)
    for alias in ("listeners", "clusters"):
        client.ack(response(resource_set(alias, "1", web="a")))
    other = HeldBack(((LISTENER, frozenset({"other"})),), ("c",))
    lua = HeldBack(((LISTENER, frozenset({"lua"})),), ("c", "d"), is_unreadable=True)
    behind = HeldBack(((LISTENER, frozenset({"mail"})),), (), waits_for_others=((ROUTE, frozenset({"y", "x"})),))
    held(client, WEB, other, lua, behind)
    assert node(fleet).held == (
        HeldResources((("listeners", "other"), ("listeners", "web"), ("routes", "r")), 3, ("c",)),
        HeldResources((("listeners", "lua"),), 1, ("c", "d"), any_cluster=True),
        HeldResources((("listeners", "mail"),), 1, (), waits_for_others=(("routes", "x"), ("routes", "y"))),
    )
    assert fleet.census(0).held == {"default": 1}
    # All that was sent is ACKed, but not all that was pushed is sent.
    assert type_of(fleet, "listeners").state is Sync.PENDING
    assert type_of(fleet, "clusters").state is Sync.SYNCED
    held(client)
    assert (node(fleet).held, type_of(fleet, "listeners").state) == ((), Sync.SYNCED)


def test_a_node_with_held_content_is_not_in_step(fleet: Fleet) -> None:
    client = Client(fleet)
    served = resource_set("clusters", "1", a="a")
    fleet.published(Snapshot("default", 1, {CLUSTER: served}))
    with fleet.events.watching({EventKind.ACK}):
        held(client, WEB)
        client.ack(response(served))
        held(client)
        client.ack(response(served))
    page = fleet.events.after(0, EventFilter(frozenset({EventKind.ACK})), 10)
    assert [event.action for event in page.events] == ["acked", "acked", "synced"]


def test_a_waiter_looks_again_when_something_is_released(fleet: Fleet) -> None:
    client = Client(fleet)
    before = fleet.changes
    held(client, WEB)
    assert fleet.changes > before


def test_a_stream_without_a_node_makes_no_events(fleet: Fleet) -> None:
    fleet.stream_opened(99, PEER, "ADS", "delta", 1.0)
    fleet.apply_events(99, [LingerChanged(Lingering((removal(7, 1.0, clusters="a"),))), HoldChanged((WEB,))], 1.0)
    assert not fleet.stream_closed(99, 2.0)
