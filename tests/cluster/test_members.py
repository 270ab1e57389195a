"""Servers of one store know each other, and one of them holds the lease."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.shared_register import SharedRegister
from xds.cluster.lease import ACT_S, Lease
from xds.cluster.members import HEARTBEAT_S, OneServer, RegisteredMembers, member_id
from xds.cluster.secret import ACCEPTED_S
from xds.store.member_register import GONE_AFTER_S, LEASE_S, NO_NUMBER


@dataclass
class Site:
    """Servers on one register. Their clocks differ by hours, and only run at one speed."""

    now_s: float = 1_000.0

    def __post_init__(self) -> None:
        self.register = SharedRegister(lambda: self.now_s, self.monotonic)

    def monotonic(self) -> float:
        return self.now_s - 900.0

    def server(self) -> RegisteredMembers:
        return RegisteredMembers(self.register, self.monotonic)

    async def joined(self, name: str) -> RegisteredMembers:
        server = self.server()
        await server.start(f"http://{name}:18080")
        await server._task.stop()
        return server


@pytest.fixture
def site() -> Site:
    return Site()


async def beat(*servers: RegisteredMembers) -> None:
    for server in servers:
        await server._beat()


async def test_servers_see_each_other_and_have_numbers_of_their_own(site: Site) -> None:
    servers = [await site.joined(name) for name in "abc"]
    await beat(*servers)
    assert [each.id for each in servers[1].others()] == ["a:18080", "c:18080"]
    assert [each.me.number for each in servers] == [0, 1, 2]
    assert not any(each.problem for each in servers)


async def test_a_server_without_heartbeats_is_gone(site: Site) -> None:
    a, b = await site.joined("a"), await site.joined("b")
    site.now_s += GONE_AFTER_S + 1
    await beat(b)
    assert b.others() == []
    await beat(a, b)
    assert [each.id for each in b.others()] == ["a:18080"]


async def test_a_server_that_leaves_is_gone_at_once_and_another_one_holds_the_lease(site: Site) -> None:
    a = site.server()
    await a.start("http://a:18080")
    b = await site.joined("b")
    assert (a.holds_lease(), b.holds_lease()) == (True, False)
    await a.close()
    assert not a.holds_lease()
    await beat(b)
    assert b.holds_lease() and b.others() == []


async def test_one_server_holds_the_lease_and_the_next_one_takes_it_after_its_death(site: Site) -> None:
    a, b = await site.joined("a"), await site.joined("b")
    assert (a.holds_lease(), b.holds_lease()) == (True, False)
    for _ in range(10):
        site.now_s += HEARTBEAT_S
        await beat(a, b)
    assert (a.holds_lease(), b.holds_lease()) == (True, False)
    assert a.holder == b.holder == "a:18080"
    held = []
    for _ in range(6):  # a is dead
        site.now_s += HEARTBEAT_S
        await beat(b)
        held.append(b.holds_lease())
    assert held == [False] * 5 + [True]
    assert b.holder == "b:18080"


async def test_a_stopped_holder_stops_acting_before_another_one_begins(site: Site) -> None:
    a, b = await site.joined("a"), await site.joined("b")
    while not b.holds_lease():
        assert a.holds_lease() == (site.now_s < 1_000 + ACT_S)
        site.now_s += 0.5
        await beat(b)
    assert site.now_s > 1_000 + LEASE_S
    assert not a.holds_lease()
    await beat(a)
    assert not a.holds_lease() and a.holder == "b:18080"


def test_a_lease_counts_from_when_its_renewal_was_sent() -> None:
    lease = Lease(is_mine=True, sent_s=100.0)
    assert lease.holds(100.0 + ACT_S - 0.1)
    assert not lease.holds(100.0 + ACT_S)
    assert not Lease(is_mine=False, sent_s=100.0).holds(100.0)


async def test_the_lease_ends_while_the_database_is_away_and_the_members_stay_known(site: Site) -> None:
    a, _ = await site.joined("a"), await site.joined("b")
    await beat(a)
    site.register.is_away = True
    site.now_s += ACT_S
    await beat(a)
    assert not a.holds_lease()
    assert [each.id for each in a.others()] == ["b:18080"]
    assert "the database is away" in a.problem and a.failures == 1
    site.register.is_away = False
    await beat(a)
    assert a.holds_lease() and not a.problem


async def test_a_server_that_starts_without_its_database_does_not_know_the_others(site: Site) -> None:
    """So its view is partial: it is not taken for the only one."""
    await site.joined("a")
    site.register.is_away = True
    b = await site.joined("b")
    assert [(each.id, each.url) for each in b.others()] == [("unknown", "")] and not b.known().others
    assert b.known().me.started_s > 0
    site.register.is_away = False
    await beat(b)
    assert [each.id for each in b.others()] == ["a:18080"]


async def test_of_two_servers_with_one_address_the_second_is_told_and_is_no_member(site: Site) -> None:
    a, twin = await site.joined("a"), await site.joined("a")
    for _ in range(8):
        site.now_s += HEARTBEAT_S
        await beat(a, twin)
    assert "has the address http://a:18080: give each server its own server.advertise" in twin.problem
    assert twin.me.number == NO_NUMBER and not twin.holds_lease()
    assert [(each.id, each.url) for each in twin.others()] == [("a:18080", "")]  # named as one that does not answer
    assert not a.problem and a.holds_lease()


async def test_a_server_that_was_killed_comes_back_with_its_number(site: Site) -> None:
    await site.joined("z")
    killed, again = await site.joined("a"), await site.joined("a")
    assert again.problem
    site.now_s += GONE_AFTER_S + 0.1
    await beat(again)
    assert not again.problem and again.me.number == killed.me.number == 1


async def test_a_new_secret_is_taken_up_without_a_call_refused(site: Site) -> None:
    a, b = await site.joined("a"), await site.joined("b")
    old = a.secret()
    await site.register.rotate_secret()
    for first, second in ((a, b), (b, a)):  # one has heard of it, the other has not yet
        await beat(first)
        assert second.accepts(first.secret()) and first.accepts(second.secret())
    site.now_s += GONE_AFTER_S
    await beat(a)
    assert a.secret() != old
    assert b.accepts(a.secret()) and a.accepts(b.secret())
    site.now_s += ACCEPTED_S
    await beat(a, b)
    assert a.secret() == b.secret() and not a.accepts(old) and not a.accepts("")


async def test_one_server_alone_holds_the_lease_and_has_no_others() -> None:
    alone = OneServer()
    await alone.start("http://127.0.0.1:18080")
    assert alone.holds_lease() and alone.others() == () and alone.holder == alone.me.id == "127.0.0.1:18080"
    assert alone.accepts(alone.secret()) and not alone.accepts("")
    await alone.close()


def test_a_server_that_nobody_reaches_has_an_id_of_its_own() -> None:
    assert member_id("") != member_id("")
    assert member_id("https://[::1]:18080") == "[::1]:18080"
