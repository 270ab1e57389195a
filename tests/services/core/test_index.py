"""Random histories of several sources, restarts and times against the rules (`service_world`)."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.services.core.service_world import (
    DRAIN_S,
    SERVICES,
    SHARE,
    SOURCES,
    WINDOW_S,
    Expected,
    instance_sets,
)
from tests.support.examples import examples
from xds.services.core.holding import HoldRule
from xds.services.core.holding_record import HoldingEncoder, decoded
from xds.services.core.index import REUSE_FROM, CatalogLimits, ServiceIndex
from xds.services.core.instance import Health, Instance

RULE = HoldRule(SHARE, WINDOW_S, DRAIN_S)
sources, services = st.sampled_from(SOURCES), st.sampled_from(SERVICES)


class SourcesAndTime(RuleBasedStateMachine):
    """Sources show, lose, remove and come back; operators accept; the server restarts; time passes."""

    reuse_from = REUSE_FROM  # instances

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.index = ServiceIndex(CatalogLimits(), reuse_from=self.reuse_from)
        self.encoder = HoldingEncoder(self.reuse_from, limit=10)
        self.expected = {(source, service): Expected() for source in SOURCES for service in SERVICES}
        self.served: dict[str, list[tuple[Instance, Health, bool]]] = {}
        self.stored: dict[tuple[str, str], bytes] = {}
        for source in SOURCES:
            self.index.add_source(source, RULE)

    @rule(source=sources, service=services, instances=instance_sets())
    def put(self, source: str, service: str, instances: list[Instance]) -> None:
        self.index.show(self.index.add_source(source, RULE), service, instances, self.now)
        self.expected[source, service].put({one.id: one for one in instances}, self.now)

    @rule(source=sources, service=services)
    def remove(self, source: str, service: str) -> None:
        self.index.drop(self.index.add_source(source, RULE), service, self.now)
        self.expected[source, service].put({}, self.now)

    @rule(source=sources, used=st.sets(services))
    def accept(self, source: str, used: Collection[str]) -> None:
        self.index.accept(self.index.add_source(source, RULE), used, self.now)
        for service in used:
            self.expected[source, service].accept(self.now)

    @rule(wanted=st.frozensets(services))
    def use(self, wanted: frozenset[str]) -> None:
        self.index.set_wanted(wanted)

    @rule(seconds=st.sampled_from((0.0, 1.0, 5.0, 10.0, 14.0, 15.0, 60.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.index.end_drains(self.now)

    @rule()
    def restart(self) -> None:
        index = ServiceIndex(CatalogLimits(), reuse_from=self.reuse_from)
        index.set_wanted(self.index.wanted)
        for source in self.index.sources():
            again = index.add_source(source.name, RULE)
            for service, holding in source.by_service.items():
                index.restore(again, service, decoded(HoldingEncoder().encoded("", holding)))
        self.index = index
        for expected in self.expected.values():
            expected.restart()

    @invariant()
    def every_instance_is_served_as_its_first_source_shows_it(self) -> None:
        for service in SERVICES:
            owners: dict[str, tuple[str, Health]] = {}
            for kind in ("shown", "kept"):
                for source in SOURCES:
                    held: dict[str, Instance] = getattr(self.expected[source, service], kind)
                    for _, shown in sorted(held.items()):
                        owners.setdefault(shown.address, (source, shown.health))
            draining = set().union(*(self.expected[source, service].draining(self.now) for source in SOURCES))
            served = self.index.served(service)
            assert [one.instance.address for one in served] == sorted(owners.keys() | draining)
            for one in served:
                if one.drains_until is None:
                    assert (one.source, one.health) == owners[one.instance.address]
                else:
                    assert one.health is Health.DRAINING
                    assert one.instance.address in draining - owners.keys()

    @invariant()
    def what_changed_is_told_and_stored(self) -> None:
        for service in SERVICES:
            served = [(one.instance, one.health, one.is_held) for one in self.index.served(service)]
            assert served == self.served.get(service, []) or service in self.index.changed
            self.served[service] = served
        stored = {
            (source.name, service): self.encoder.encoded((source.name, service), holding)
            for source in self.index.sources()
            for service, holding in source.by_service.items()
        }
        for (name, service), body in stored.items():
            holding = self.index.holding(name, service)
            assert holding is not None and body == HoldingEncoder().encoded("", holding)
        differ = {key for key in stored.keys() | self.stored.keys() if stored.get(key) != self.stored.get(key)}
        assert differ <= self.index.unsaved
        self.stored = stored
        self.index.changed.clear()
        self.index.unsaved.clear()

    @invariant()
    def held_losses_are_told(self) -> None:
        for source in self.index.sources():
            held = {service for service in SERVICES if self.expected[source.name, service].kept}
            assert source.held_services == held

    @invariant()
    def counts_are_right(self) -> None:
        for source in self.index.sources():
            assert source.instances_n == sum(len(holding) for holding in source.by_service.values())

    def teardown(self) -> None:
        """When all losses are accepted and everything has drained, the union of what is shown is served."""
        for source in SOURCES:
            self.accept(source, SERVICES)
        self.wait(DRAIN_S)
        for service in SERVICES:
            shown = {one.address for source in SOURCES for one in self.expected[source, service].shown.values()}
            assert {one.instance.address for one in self.index.served(service)} == shown
            assert all(one.drains_until is None for one in self.index.served(service))
        assert self.index.next_end is None


class LargeServices(SourcesAndTime):
    """The same, where what was served and stored of a service is used again, as for services with many instances."""

    reuse_from = 1


TestSourcesAndTime = SourcesAndTime.TestCase
TestSourcesAndTime.settings = examples(60, stateful_step_count=30, deadline=None)
TestLargeServices = LargeServices.TestCase
TestLargeServices.settings = examples(60, stateful_step_count=30, deadline=None)
