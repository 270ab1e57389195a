"""Sources that flood, lie, flap and fail: what they show is bounded and reported, and the rest is served."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from time import monotonic

import pytest

from tests.services.test_catalog import Clock, instances, shown
from xds.access.caller import Caller
from xds.fleet.event_log import EventFilter, EventLog
from xds.model.errors import NotFoundError, Violation
from xds.services.catalog import ServiceCatalog
from xds.services.core.holding import HoldRule
from xds.services.core.index import CatalogLimits, ServiceIndex
from xds.services.core.instance import Health, Instance


class RecordedCatalog:
    """A catalog with its events."""

    def __init__(self, limits: CatalogLimits | None = None) -> None:
        self.clock = Clock()
        self.events = EventLog()
        self.catalog = ServiceCatalog(HoldRule(drain_s=15.0), limits, self.clock, events=self.events)

    def actions(self) -> list[str]:
        return [event.action for event in self.events.after(0, EventFilter(), 1000).events]

    def messages(self) -> list[str]:
        return [event.message for event in self.events.after(0, EventFilter(), 1000).events]


def codes(catalog: ServiceCatalog, source: str = "a") -> list[str]:
    return [each.code for each in catalog.findings(source)]


async def test_instances_beyond_the_limit_are_left_out_and_those_that_were_there_stay() -> None:
    recorded = RecordedCatalog(CatalogLimits(instances_per_service=3))
    sink = recorded.catalog.sink("a", "files", hold_share=1.0)
    sink.put("web", instances(1, 2, 3))
    await recorded.catalog.tick()
    sink.put("web", instances(9, 8, 7, 6, 5, 2, 3, 1))
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web").keys() == {"i1", "i2", "i3"}
    assert codes(recorded.catalog) == ["too_many_instances"]
    assert recorded.actions() == ["rejected"]
    sink.put("web", instances(1, 2))
    await recorded.catalog.tick()
    assert codes(recorded.catalog) == []


async def test_instances_of_one_source_do_not_take_the_room_of_another() -> None:
    recorded = RecordedCatalog(CatalogLimits(instances_per_source=4))
    greedy, modest = recorded.catalog.sink("a", "files", 1.0), recorded.catalog.sink("b", "files", 1.0)
    greedy.put("web", instances(*range(1, 5)))
    greedy.put("api", instances(*range(1, 5)))
    modest.put("api", instances(7, 8))
    await recorded.catalog.tick()
    assert len(shown(recorded.catalog, "web")) == 4
    assert shown(recorded.catalog, "api").keys() == {"i7", "i8"}
    greedy.put("web", instances(1))
    greedy.put("api", instances(1, 2, 3))
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "api").keys() == {"i1", "i2", "i3", "i7", "i8"}


async def test_a_source_at_its_limit_may_change_its_instances() -> None:
    recorded = RecordedCatalog(CatalogLimits(instances_per_source=4))
    sink = recorded.catalog.sink("a", "files", 1.0)
    sink.put("web", instances(1, 2, 3, 4))
    await recorded.catalog.tick()
    sink.put("web", instances(1, 2, 3, 5))
    await recorded.catalog.tick()
    assert codes(recorded.catalog) == []
    assert shown(recorded.catalog, "web") == {**dict.fromkeys(("i1", "i2", "i3", "i5"), "passing"), "i4": "draining"}


class Counted(list[Instance]):
    """Instances, and how many of them were looked at."""

    looked_n = 0

    def __iter__(self) -> Iterator[Instance]:
        for one in super().__iter__():
            self.looked_n += 1
            yield one


def test_of_a_flood_only_accepted_instances_are_read() -> None:
    index = ServiceIndex(CatalogLimits(instances_per_service=10))
    source = index.add_source("a", HoldRule())
    many = Counted(instances(*range(1, 1000)))
    index.show(source, "web", many, 1.0)
    assert len(index.served("web")) == 10
    assert many.looked_n <= 11
    again = Counted(many)
    index.show(source, "web", again, 2.0)
    assert again.looked_n <= 11, "those that were there before are at the beginning, and are all that is wanted"


async def test_a_limit_that_was_lowered_takes_nothing_that_is_there() -> None:
    """A restart with a lower limit: what was stored is beyond it."""
    before = ServiceIndex(CatalogLimits())
    source = before.add_source("a", HoldRule())
    before.show(source, "web", instances(1, 2, 3, 4), 1.0)
    before.show(source, "api", instances(1, 2), 1.0)
    index = ServiceIndex(CatalogLimits(instances_per_source=3))
    source = index.add_source("a", HoldRule())
    for service in ("web", "api"):
        holding = before.holding("a", service)
        assert holding is not None
        index.restore(source, service, holding)
    index.show(source, "api", instances(2, 1, 5), 2.0)
    assert [one.instance.id for one in index.served("api")] == ["i1", "i2"]
    assert [each.code for each in source.findings["api"]] == ["too_many_instances"]
    index.show(source, "web", instances(1, 2, 4), 2.0)
    assert [one.health for one in index.served("web")] == ["passing", "passing", "draining", "passing"]
    assert "web" not in source.findings


async def test_services_beyond_the_limit_are_left_out() -> None:
    recorded = RecordedCatalog(CatalogLimits(services=3))
    sink = recorded.catalog.sink("a", "files")
    for n in range(100):
        sink.put(f"s{n}", instances(1))
    assert sink.pending_n == 6, "twice the limit; others do not even wait"
    await recorded.catalog.tick()
    assert recorded.catalog.names() == ["s0", "s1", "s2"]
    assert set(codes(recorded.catalog)) == {"too_many_services"}
    assert len(recorded.catalog.findings("a")) <= 3


async def test_services_that_were_there_are_followed_amid_a_flood_of_others() -> None:
    recorded = RecordedCatalog(CatalogLimits(services=3))
    sink = recorded.catalog.sink("a", "files", 1.0)
    sink.put("web", instances(1))
    await recorded.catalog.tick()
    sink.replace({**{f"s{n}": instances(1) for n in range(100)}, "web": instances(2)})
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web") == {"i1": "draining", "i2": "passing"}
    assert len(recorded.catalog.names()) == 3


async def test_names_that_a_source_makes_up_do_not_pile_up() -> None:
    """Each tick other services, whose names cannot be used or do not fit: nothing of them is kept for ever."""
    recorded = RecordedCatalog(CatalogLimits(services=2))
    sink = recorded.catalog.sink("a", "files", 1.0)
    for n in range(50):
        sink.replace({f"bad name {n}": instances(1), f"s{n}": (), f"t{n}": (), f"u{n}": ()})
        await recorded.catalog.tick()
    assert len(recorded.catalog.names()) <= 2
    assert len(recorded.catalog.findings("a")) <= 4


async def test_invalid_instances_are_left_out_with_their_place_and_the_rest_is_served() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    sink.put("web", [*instances(1), Instance("x", "web.example.org", 80), Instance("i1", "10.0.0.9", 80)])
    sink.put("no name!", instances(1))
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web") == {"i1": Health.PASSING}
    found = {(each.resource, each.code, each.pointer) for each in recorded.catalog.findings("a")}
    assert found == {
        ("web", "invalid_address", "/1/address"),
        ("web", "duplicate_id", "/2/id"),
        ("no name!", "invalid_service_name", ""),
    }


async def test_an_instance_may_have_hundreds_of_tags() -> None:
    """Consul bounds metadata, but not tags: proxies that are configured by tags have many."""
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "consul")
    sink.put("web", [Instance("i1", "10.0.0.1", 80, tags=tuple(f"traefik.http.rule-{n}" for n in range(300)))])
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web") == {"i1": "passing"}
    sink.put("web", [Instance("i1", "10.0.0.1", 80, tags=("t",) * 10_000)])
    await recorded.catalog.tick()
    assert codes(recorded.catalog) == ["too_many"]


async def test_a_flood_of_one_service_is_looked_at_once_a_tick() -> None:
    recorded = RecordedCatalog()
    calls: list[Collection[str]] = []

    async def listen(changed: Collection[str]) -> None:
        calls.append(changed)

    recorded.catalog.listen(listen)
    recorded.catalog.start()
    sink = recorded.catalog.sink("a", "files", 1.0)
    for n in range(10_000):
        sink.put("web", instances(1 + n % 100))
    await asyncio.sleep(0.3)
    assert len(calls) == 1
    await recorded.catalog.close()


async def test_a_flood_that_takes_long_to_take_over_leaves_half_of_the_time_to_others() -> None:
    """Such as ten thousand other instances each time: what follows from them takes longer than what is collected."""
    recorded = RecordedCatalog()
    busy_s = 0.0

    async def listen(changed: Collection[str]) -> None:
        nonlocal busy_s
        began = monotonic()
        while monotonic() - began < 0.15:
            pass
        busy_s += monotonic() - began

    recorded.catalog.listen(listen)
    recorded.catalog.start()
    sink = recorded.catalog.sink("a", "files", 1.0)
    began, n = monotonic(), 0
    while monotonic() - began < 2.0:
        n += 1
        sink.put("web", instances(1 + n % 100))
        await asyncio.sleep(0.01)
    assert 0.1 <= busy_s / (monotonic() - began) <= 0.6, "on a machine with other work it sleeps longer"
    await recorded.catalog.close()


async def test_spellings_of_one_address_are_one_endpoint() -> None:
    """Envoy keeps the first of two endpoints with one address: it must not be one that drains."""
    recorded = RecordedCatalog()
    one, other = recorded.catalog.sink("a", "files", 1.0), recorded.catalog.sink("b", "consul", 1.0)
    one.put("web", [Instance("x", "2001:DB8:0:0::1", 80)])
    other.put("web", [Instance("y", "2001:db8::1", 80)])
    await recorded.catalog.tick()
    assert [each.instance.address for each in recorded.catalog.instances("web")] == ["2001:db8::1"]
    one.put("web", [Instance("x", "2001:db8::0001", 80)])
    await recorded.catalog.tick()
    other.remove("web")
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web") == {"x": "passing"}
    assert recorded.catalog.findings("a") == []


async def test_a_source_that_floods_new_names_does_not_keep_others_waiting() -> None:
    recorded = RecordedCatalog()
    flooding = True

    async def flood() -> None:
        sink, n = recorded.catalog.sink("a", "files"), 0
        while flooding:
            for _ in range(500):
                sink.put(f"s{n % 15_000}", instances(1 + n % 7))
                n += 1
            await asyncio.sleep(0)

    recorded.catalog.start()
    task = asyncio.create_task(flood())
    heard = asyncio.Event()

    async def listen(changed: Collection[str]) -> None:
        if "quiet" in changed:
            heard.set()

    recorded.catalog.listen(listen)
    await asyncio.sleep(0.1)
    recorded.catalog.sink("z", "files").put("quiet", instances(1))
    try:
        await asyncio.wait_for(heard.wait(), 20)
    finally:
        flooding = False
        await task
        await recorded.catalog.close()


async def test_failures_and_recoveries_are_reported_once_however_often_they_alternate() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    for _ in range(100):
        sink.failed("connection refused")
        recorded.clock.now += 0.01
        sink.alive()
    assert recorded.actions() == ["failed", "recovered"]
    recorded.clock.now += 10
    sink.failed("timeout")
    (status,) = recorded.catalog.statuses()
    assert (status.is_failing, status.message, status.failures_n) == (True, "timeout", 101)
    assert recorded.actions() == ["failed", "recovered", "failed"]
    assert recorded.messages()[-1] == "timeout"


async def test_a_held_loss_and_its_end_are_reported_with_names_and_numbers() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    sink.replace({f"s{n}": instances(1, 2) for n in range(30)})
    await recorded.catalog.tick()
    sink.replace({})
    await recorded.catalog.tick()
    assert recorded.actions() == ["held"]
    assert recorded.messages()[0].startswith("lost 60 instances of s0, s1, s10,")
    assert "and 20 more at once" in recorded.messages()[0]
    recorded.clock.now += 1
    recorded.catalog.accept("a", "s0", Caller("ann"))
    await recorded.catalog.tick()
    assert recorded.actions() == ["held", "accepted", "held_ended"]
    recorded.clock.now += 1
    sink.replace({f"s{n}": instances(1, 2) for n in range(30)})
    await recorded.catalog.tick()
    assert recorded.catalog.held_losses("a") == {}
    assert recorded.actions()[3:] == ["held_ended"]


async def test_a_repeated_loss_is_reported_at_most_once_a_second() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    for _ in range(50):
        sink.put("web", instances(1, 2, 3))
        await recorded.catalog.tick()
        sink.put("web", ())
        await recorded.catalog.tick()
        recorded.clock.now += 0.02
    assert recorded.actions() == ["held"]
    assert shown(recorded.catalog, "web").keys() == {"i1", "i2", "i3"}


async def test_findings_are_reported_once_a_minute() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    for _ in range(10):
        sink.rejected([Violation("bad", "this is not an address", source="targets.json:3")])
        await recorded.catalog.tick()
        sink.rejected(())
        await recorded.catalog.tick()
    assert recorded.actions() == ["rejected"]
    assert "targets.json:3" in recorded.messages()[0]


async def test_a_source_that_fails_for_an_hour_and_returns_empty_changes_nothing() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    sink.put("web", instances(1, 2))
    await recorded.catalog.tick()
    for _ in range(60):
        recorded.clock.now += 60
        sink.failed("no route to host")
        await recorded.catalog.tick()
    sink.replace({})
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web") == {"i1": Health.PASSING, "i2": Health.PASSING}
    assert recorded.catalog.held_losses("a") == {"web": 2}


async def test_a_source_that_is_taken_out_drains_and_another_one_takes_over() -> None:
    recorded = RecordedCatalog()
    recorded.catalog.sink("a", "files").put("web", instances(1, 2))
    recorded.catalog.sink("b", "files").put("web", instances(2))
    recorded.catalog.use("test", ["web"])
    await recorded.catalog.tick()
    recorded.catalog.retain_sources(["b"])
    assert shown(recorded.catalog, "web") == {"i1": Health.DRAINING, "i2": Health.PASSING}
    recorded.clock.now += 15
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web") == {"i2": Health.PASSING}
    with pytest.raises(NotFoundError, match="no source 'a'"):
        recorded.catalog.accept("a")
    assert [each.name for each in recorded.catalog.holdings()] == ["b"], "nothing of it is left, though web is used"
    recorded.catalog.sink("a", "files").put("web", instances(1))
    await recorded.catalog.tick()
    assert shown(recorded.catalog, "web").keys() == {"i1", "i2"}


async def test_a_loss_that_is_held_drains_when_its_source_is_taken_out() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    sink.put("web", instances(1, 2, 3))
    await recorded.catalog.tick()
    sink.put("web", ())
    await recorded.catalog.tick()
    assert recorded.catalog.held_losses("a") == {"web": 3}
    recorded.catalog.retain_sources([])
    assert shown(recorded.catalog, "web") == dict.fromkeys(("i1", "i2", "i3"), Health.DRAINING)
    recorded.clock.now += 15
    await recorded.catalog.tick()
    assert recorded.catalog.names() == [] and recorded.catalog.holdings() == []


async def test_a_source_that_comes_back_while_it_drains_is_kept_like_any_other() -> None:
    recorded = RecordedCatalog()
    recorded.catalog.sink("a", "files").put("web", instances(1))
    await recorded.catalog.tick()
    recorded.catalog.retain_sources([])
    again = recorded.catalog.sink("a", "files", 1.0)
    again.put("api", instances(2))
    await recorded.catalog.tick()
    again.remove("api")
    await recorded.catalog.tick()
    recorded.clock.now += 15
    await recorded.catalog.tick()
    assert recorded.catalog.names() == []
    assert [each.name for each in recorded.catalog.holdings()] == ["a"]


async def test_an_accepted_loss_counts_no_more() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    sink.put("web", instances(1, 2, 3))
    await recorded.catalog.tick()
    sink.put("web", instances(1))
    await recorded.catalog.tick()
    (feed,) = recorded.catalog.feeds()
    before = (feed.source.instances_n, feed.source.lost_n)
    recorded.catalog.accept("a")
    after = (feed.source.instances_n, feed.source.lost_n)
    assert (before, after) == ((3, 2), (1, 0))


async def test_findings_of_a_service_are_removed_with_it() -> None:
    recorded = RecordedCatalog()
    sink = recorded.catalog.sink("a", "files")
    sink.put("no name!", instances(1))
    await recorded.catalog.tick()
    assert codes(recorded.catalog) == ["invalid_service_name"]
    sink.remove("no name!")
    await recorded.catalog.tick()
    assert codes(recorded.catalog) == []


async def test_a_listener_with_a_bug_does_not_keep_changes_from_others() -> None:
    recorded = RecordedCatalog()
    heard: list[Collection[str]] = []

    async def broken(changed: Collection[str]) -> None:
        raise ValueError("a bug")

    async def sound(changed: Collection[str]) -> None:
        heard.append(changed)

    recorded.catalog.listen(broken)
    recorded.catalog.listen(sound)
    recorded.catalog.sink("a", "files").put("web", instances(1))
    await recorded.catalog.tick()
    assert heard == [{"web"}]
    assert recorded.catalog.failures == 1
