"""The lines of a group while a push is rolled out carefully: who is served what, and what a client may have had.

docs/rollouts.md: nodes of the wave are served the head, all others the base, until the rollout ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from tests.spec.by_hand import DRAINED_S, LOGGED_S, start, wait, with_listener
from tests.spec.conftest import Connect
from tests.support.sansio import Client, Server
from tests.support.texts import Site, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.snapshots.lines import GroupLine, GroupSplit

A, B, C = site("a"), site("b"), site("c")
GROUP = "default"


def split(server: Server, wave: Collection[str], had: Collection[str] = (), *, hidden_from: int = 2) -> GroupSplit:
    """A rollout over what the server serves now, to these nodes."""
    before = server.splits.get(GROUP)
    base = before.base if before is not None and before.base is not None else server.cache.pushed(GROUP)
    inside, former = frozenset(wave), frozenset(had)
    return GroupSplit(
        base,
        in_wave=lambda node: node.id in inside,
        had_head=lambda node: node.id in inside | former,
        is_hidden=lambda revision: revision >= hidden_from,
        step=(inside, former),
        since_s=server.now,
    )


def roll_out(server: Server, content: Site, wave: Collection[str], had: Collection[str] = ()) -> None:
    """Push a site to a wave."""
    server.note_split(split(server, wave, had))
    push(server, content)


def take_back(server: Server, content: Site, first: int = 2, last: int = 2, *, wake: bool = True) -> None:
    """All have the base again. The revisions from ``first`` to ``last`` were for waves only."""
    now = server.splits[GROUP]
    server.note_split(replace(now, base=None, step="ended", is_hidden=lambda each: first <= each <= last))
    push(server, content, wake=wake)


@pytest.fixture
def canary(server: Server, connect: Connect) -> Client:
    push(server, A)
    return start(connect("canary", peer="one"))


@pytest.fixture
def other(canary: Client, connect: Connect) -> Client:
    return start(connect("other", peer="two"))


def test_only_the_wave_is_served_the_head(server: Server, canary: Client, other: Client) -> None:
    roll_out(server, B, {"canary"})
    wait(server, 1.0, canary, other)
    assert canary.texts(ROUTE)["r1"] == "b"
    assert other.texts(ROUTE)["r1"] == "a"
    assert "b" not in other.texts(CLUSTER)


def test_a_push_to_a_wave_sends_nothing_to_the_others(server: Server, canary: Client, other: Client) -> None:
    wait(server, 1.0, canary, other)
    roll_out(server, B, {"canary"})
    view, events = other.stream.resolve(), len(other.events)
    roll_out(server, with_listener(B, "r1 @2"), {"canary"})
    wait(server, 1.0, canary)
    assert len(other.events) == events
    assert other.stream.resolve() is view, "a stream outside of the wave compares one object"


def test_a_node_that_starts_meanwhile_is_served_its_line(server: Server, canary: Client, connect: Connect) -> None:
    roll_out(server, B, {"canary", "late-canary"})
    newcomers = [start(connect(name, peer=name)) for name in ("late-canary", "newcomer")]
    assert [each.texts(ROUTE)["r1"] for each in newcomers] == ["b", "a"]


def test_what_a_wider_wave_lacks_lingers_from_then_on(server: Server, canary: Client, other: Client) -> None:
    """Not from the push on, which may be long ago: requests of its old routes need the clusters."""
    roll_out(server, B, {"canary"})
    wait(server, DRAINED_S + LOGGED_S, canary, other)
    server.roll(split(server, {"canary", "other"}))
    wait(server, 1.0, canary, other)
    assert other.texts(ROUTE)["r1"] == "b"
    assert "a" in other.texts(CLUSTER)
    other.reconnect()
    wait(server, 1.0, canary, other)
    assert "a" in other.texts(CLUSTER), "a client that returns needs it as well"
    wait(server, LOGGED_S, canary, other)
    assert set(other.texts(CLUSTER)) == {"b"}


@pytest.mark.parametrize("restarted", [False, True], ids=["same-server", "restarted"])
def test_who_never_had_a_push_is_never_sent_anything_of_it(
    server: Server, canary: Client, other: Client, connect: Connect, restarted: bool
) -> None:
    """Neither while it is rolled out nor after it was taken back, however often the client returns."""
    roll_out(server, B, {"canary"})
    for step in ("rolled out", "taken back"):
        wait(server, 1.0, canary, other)
        for each in (canary, other):
            each.disconnect()
        if restarted:
            server.restart()
        for each in (canary, other):
            each.reconnect()
        wait(server, 1.0, canary, other)
        assert "b" not in other.texts(CLUSTER), step
        if step == "rolled out":
            take_back(server, A)
    assert "b" in canary.texts(CLUSTER), "it lingers where it was in use"
    wait(server, LOGGED_S, canary, other)
    assert canary.texts(CLUSTER) == other.texts(CLUSTER) == A[CLUSTER]


def test_a_node_that_a_new_rollout_leaves_out_goes_back(server: Server, canary: Client, other: Client) -> None:
    roll_out(server, B, {"canary"})
    wait(server, 1.0, canary, other)
    roll_out(server, C, {"other"}, had={"canary"})
    wait(server, 1.0, canary, other)
    assert [each.texts(ROUTE)["r1"] for each in (canary, other)] == ["a", "c"]
    canary.reconnect()
    wait(server, 1.0, canary, other)
    assert "b" in canary.texts(CLUSTER), "connections that are older than the return may use it"
    assert "c" not in canary.texts(CLUSTER)


def test_the_line_of_a_node_is_the_same_after_a_restart(server: Server, canary: Client, other: Client) -> None:
    roll_out(server, B, {"canary"})
    wait(server, 1.0, canary, other)
    versions = {client: dict(client.types[CLUSTER].versions) for client in (canary, other)}
    labels = {client: client.types[LISTENER].version_info for client in (canary, other)}
    for each in (canary, other):
        each.disconnect()
    server.restart()
    for each in (canary, other):
        each.reconnect()
    wait(server, LOGGED_S, canary, other)
    assert [each.texts(ROUTE)["r1"] for each in (canary, other)] == ["b", "a"]
    assert labels == {client: client.types[LISTENER].version_info for client in (canary, other)}
    assert versions[other] == other.types[CLUSTER].versions


def test_a_live_endpoint_is_served_on_both_lines(server: Server, canary: Client, other: Client) -> None:
    roll_out(server, B, {"canary"})
    wait(server, 1.0, canary, other)
    assert server.observe({"a": "live", "b": "live"})
    assert server.cache.get(GROUP, GroupLine.BASE) is not server.cache.get(GROUP)
    wait(server, 1.0, canary, other)
    assert other.texts(ENDPOINT)["a"] == "live"
    take_back(server, A)
    wait(server, LOGGED_S, canary, other)
    assert canary.texts(ENDPOINT)["a"] == "live"


def test_a_promotion_serves_the_head_to_all(server: Server, canary: Client, other: Client) -> None:
    roll_out(server, B, {"canary"})
    wait(server, DRAINED_S, canary, other)
    server.roll(None)
    wait(server, 1.0, canary, other)
    assert other.texts(ROUTE)["r1"] == "b"
    assert "a" in other.texts(CLUSTER)
    assert not server.cache.is_split(GROUP)


def test_a_retry_before_the_wave_has_answered_the_base_is_sent_again(server: Server, canary: Client) -> None:
    """What the client refused is new content again, because the push in between had other content."""
    roll_out(server, B, {"canary"})
    while canary.pending():
        canary.nack() if canary.pending()[0].type_url == CLUSTER else canary.ack()
    take_back(server, A)
    roll_out(server, B, {"canary"})
    wait(server, 1.0, canary)
    assert canary.texts(ROUTE)["r1"] == "b"
    assert "b" in canary.texts(CLUSTER)


def test_a_retry_that_the_wave_sees_with_the_roll_back_at_once_is_sent_again(server: Server, canary: Client) -> None:
    """A busy server comes to the canary once after both pushes: what it refused has come back all the same."""
    bad = {**A, CLUSTER: {**A[CLUSTER], "b": "bad"}}
    roll_out(server, bad, {"canary"})
    canary.nack(CLUSTER, "Error adding/updating cluster(s) b: wrong")
    canary.settle()
    take_back(server, A, wake=False)
    roll_out(server, bad, {"canary"})
    assert any("b" in each.response.names for each in canary.settle())


def test_a_roll_back_sends_nodes_outside_of_the_wave_nothing_that_they_refused_before(
    server: Server, canary: Client, other: Client
) -> None:
    bad = {**A, CLUSTER: {**A[CLUSTER], "b": "bad"}}
    push(server, bad)
    other.nack(CLUSTER, "Error adding/updating cluster(s) b: wrong")
    wait(server, DRAINED_S, canary, other)
    roll_out(server, A, {"canary"}, had={"other"})
    take_back(server, bad)
    assert not any("b" in each.response.names for each in other.settle())
