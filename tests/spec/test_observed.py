"""Observed assignments are laid over the pushed snapshot, without a revision (docs/services.md#live-endpoints)."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from tests.spec.by_hand import REMOVED_S, wait
from tests.spec.conftest import Connect
from tests.spec.test_overlays import SITE, moved, start
from tests.support.sansio import Client, Server
from tests.support.texts import push
from xds.fleet.convergence import has_content
from xds.model.resource_type import CLUSTER, ENDPOINT, ROUTE
from xds.model.snapshot import ResourceSet
from xds.protocol.dialect import Variant
from xds.protocol.events import Send
from xds.snapshots.removal_log import PUSHES_KEPT


def served(server: Server) -> ResourceSet:
    found = server.cache.get("default")
    assert found is not None
    return found.get(ENDPOINT)


def pushed(server: Server) -> ResourceSet:
    found = server.cache.pushed("default")
    assert found is not None
    return found.get(ENDPOINT)


def test_an_observed_assignment_takes_the_place_of_a_pushed_one_and_only_it_is_sent(
    server: Server, connect: Connect
) -> None:
    server.push(SITE)
    client = start(connect())
    assert server.observe({"web": "live"})
    (send,) = client.pending()
    assert send.response.names == ("web",)
    client.settle()
    assert client.texts(ENDPOINT) == {"web": "live", "other": "1"}


def test_a_second_change_sends_one_assignment_too(server: Server, connect: Connect) -> None:
    """Also to a client that skipped changes: all that it missed is sent at once, and nothing else."""
    server.push(SITE)
    client = start(connect())
    server.observe({"web": "live", "other": "live"})
    client.settle()
    server.observe({"web": "2"}, wake=False)
    server.observe({"web": "3"})
    (send,) = client.pending()
    assert send.response.names == ("web",)
    client.settle()
    assert client.texts(ENDPOINT) == {"web": "3", "other": "live"}


def test_an_observed_assignment_may_stand_beside_pushed_ones(server: Server, connect: Connect) -> None:
    server.push({CLUSTER: {"web": "1"}})
    client = connect()
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, "web")
    client.settle()
    server.observe({"web": "live"})
    client.settle()
    assert client.texts(ENDPOINT) == {"web": "live"}
    server.observe({"web": "2"})
    client.settle()
    assert client.texts(ENDPOINT) == {"web": "2"}


def test_the_pushed_snapshot_is_not_altered_and_is_served_again(server: Server, connect: Connect) -> None:
    before = server.push(SITE)
    client = start(connect())
    server.observe({"web": "live", "beside": "live"})
    client.settle()
    assert server.cache.pushed("default") is before
    server.observe({}, gone=["web", "beside"])
    client.settle()
    assert client.texts(ENDPOINT) == {"web": "1", "other": "1"}
    assert server.cache.get("default") is before


def test_a_push_is_served_with_the_layer_in_the_same_step(server: Server, connect: Connect) -> None:
    """No client sees the pushed endpoints between."""
    server.push(SITE)
    server.observe({"web": "live"})
    client = start(connect())
    for text in "234":
        server.push({**SITE, CLUSTER: {"web": text}, ENDPOINT: {"web": text, "other": text}})
        while client.inbox:
            client.ack()
            assert client.texts(ENDPOINT)["web"] == "live"
    assert client.texts(ENDPOINT) == {"web": "live", "other": "4"}


def test_a_push_of_nothing_new_below_the_layer_sends_nothing(server: Server, connect: Connect) -> None:
    server.push(SITE)
    server.observe({"web": "live"})
    client = start(connect())
    server.push({**SITE, ENDPOINT: {"web": "2", "other": "1"}})
    client.settle()
    assert [event for event in client.events if isinstance(event, Send) and event.type_url == ENDPOINT][1:] == []


def test_an_observed_assignment_equal_to_the_pushed_one_is_the_pushed_one(server: Server) -> None:
    server.push(SITE)
    assert not server.observe({"web": "1"})
    assert served(server) is pushed(server)
    server.push({**SITE, ENDPOINT: {"web": "2", "other": "1"}})
    assert served(server).resources["web"].body == b"web=1"


def test_the_version_info_is_that_of_the_push_and_the_hash_of_the_served_set(server: Server) -> None:
    server.push(SITE, label="blue")
    server.observe({"web": "live"})
    server.observe({"other": "live"})
    assert served(server).version_info == f"blue+{served(server).digest.hex()[:8]}"


def test_two_servers_that_observe_the_same_say_the_same(server: Server) -> None:
    """However they came to it: by which changes, in which order, before or after the push."""
    other = Server()
    other.observe({"beside": "live", "web": "live"})
    other.push({**SITE, ENDPOINT: {"web": "0", "other": "0"}}, label="red")
    for each in (server, other):
        each.push(SITE, label="blue")
    server.observe({"web": "2", "gone": "2"})
    server.observe({"web": "live", "beside": "live"}, gone=["gone"])
    assert served(server).version_info == served(other).version_info
    assert served(server).digest == served(other).digest


def test_the_served_set_stands_for_the_pushed_one(server: Server, connect: Connect) -> None:
    """A client that has it is in step with the push, in this process and after a restart."""
    server.push(SITE)
    server.observe({"web": "live"})
    client = start(connect())
    acked = client.stream._offers.watches[ENDPOINT].known.base
    assert acked is not None and has_content(acked, pushed(server))


def test_live_changes_use_up_no_retained_revisions(server: Server, connect: Connect) -> None:
    """Nor the pushes of the removal log: what the first one had is still there for clients that return."""
    server.push(moved("web"))
    client = start(connect())
    client.disconnect()
    server.push(moved("other"))
    for count in range(3 * PUSHES_KEPT):
        server.observe({"other": f"{count}"})
    server.push(moved("other", "new"))
    assert server.cache.retained("default") == [1, 2, 3]
    assert "web" in server.cache.log("default").names(CLUSTER)
    client.reconnect()
    client.settle()
    assert set(client.texts(CLUSTER)) == {"web", "other", "new"}


@pytest.mark.parametrize("changes", [0, 1])
def test_a_client_that_returns_after_a_restart_is_sent_the_live_assignments_at_once(
    server: Server, connect: Connect, changes: int
) -> None:
    """All that it requests, and never the pushed ones that they replace."""
    server.push(SITE)
    server.observe({"web": "live"})
    client = start(connect())
    client.disconnect()
    server._start()
    server.observe({"web": "live"})
    (snapshot, on_nack) = server.pushed["default"][-1]
    server.cache.set(snapshot, on_nack=on_nack)
    if changes:
        server.observe({"web": "2"})
    client.reconnect()
    (send,) = client.pending(ENDPOINT)
    bodies = {each.name: each.body for each in send.response.resource_set.resources.values()}
    assert bodies == {"web": b"web=2" if changes else b"web=live", "other": b"other=1"}
    client.settle()
    assert client.texts(ENDPOINT)["web"] == ("2" if changes else "live")


def test_weights_are_laid_over_the_observed_assignment(server: Server, connect: Connect) -> None:
    server.push(SITE)
    server.lay_over({"za": {"web": "+a", "beside": "+a"}})
    client, far = start(connect(zone="za")), start(connect("far", peer="far", zone="zb"))
    client.want(ENDPOINT, ["web", "other", "beside"])
    server.observe({"web": "live", "beside": "live"})
    client.settle()
    far.settle()
    assert client.texts(ENDPOINT) == {"web": "live+a", "other": "1", "beside": "live+a"}
    assert far.texts(ENDPOINT)["web"] == "live"
    server.observe({"other": "live"})
    (send,) = client.pending()
    assert send.response.names == ("other",)


def test_an_observed_assignment_that_was_never_pushed_lingers_when_it_is_removed(
    server: Server, connect: Connect
) -> None:
    """Its cluster may still be in use: the endpoints stay for the time of removals, and are then told as gone."""
    server.push(SITE)
    server.observe({"beside": "live"})
    client = start(connect())
    client.want(ENDPOINT, ["web", "other", "beside"])
    client.settle()
    server.observe({}, gone=["beside"])
    client.settle()
    assert client.texts(ENDPOINT)["beside"] == "live"
    wait(server, REMOVED_S, client)
    if client.variant is Variant.DELTA:
        assert "beside" not in client.texts(ENDPOINT)
    server.observe({"beside": "again"})
    client.settle()
    assert client.texts(ENDPOINT)["beside"] == "again"


def test_a_live_change_does_not_wait_for_a_transition_nor_end_it(server: Server, connect: Connect) -> None:
    push(server, moved("web"))
    client = start(connect())
    push(server, moved("web", "new"))
    client.read(CLUSTER)
    while client.pending(ENDPOINT):
        client.ack(ENDPOINT)
    server.observe({"web": "live"})
    client.ack(ENDPOINT)
    assert client.texts(ENDPOINT)["web"] == "live"
    assert not client.pending(ROUTE)


def test_a_new_cluster_of_a_push_gets_its_observed_endpoints_first(server: Server, connect: Connect) -> None:
    server.push(SITE)
    client = start(connect())
    server.observe({"fresh": "live"})
    server.push({**SITE, CLUSTER: {"web": "1", "fresh": "1"}, ENDPOINT: {**SITE[ENDPOINT], "fresh": "pushed"}})
    client.settle()
    client.subscribe(ENDPOINT, "web", "other", "fresh")
    client.settle()
    assert client.texts(ENDPOINT)["fresh"] == "live"


def test_a_layer_outlives_its_group_until_it_is_removed(server: Server) -> None:
    assert not server.observe({"web": "live"}), "nobody is served it yet"
    server.push(SITE)
    assert served(server).resources["web"].body == b"web=live"
    server.drop()
    server.observe({}, gone=["web"])
    server.push(SITE)
    assert served(server) is pushed(server)


@pytest.mark.usefixtures("without_twins")
def test_clients_at_many_versions_of_a_large_set_share_its_memory(server: Server, variant: Variant) -> None:
    """Each client keeps the set that it ACKed last: each live change is the last one of some client.

    A whole set of 2,000 assignments has some 200 KB.
    """
    clients_n, each_bytes = 50, 40_000
    server.push({CLUSTER: {"web": "1"}})
    server.observe({f"s{number}": "live" for number in range(2_000)})
    clients = [Client(server, variant, f"n{number}", peer=f"p{number}") for number in range(clients_n)]
    for number, client in enumerate(clients):
        client.subscribe(CLUSTER)
        client.subscribe(ENDPOINT, f"s{number}")
        client.settle()
    tracemalloc.start()
    try:
        for number, client in enumerate(clients):
            server.observe({f"s{number}": "changed"})
            for each in clients:
                each.events.clear()
            client.settle()
            assert client.texts(ENDPOINT) == {f"s{number}": "changed"}
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < clients_n * each_bytes
    finally:
        tracemalloc.stop()
