"""What is served of large services, which is made from what was served before."""

from __future__ import annotations

from xds.services.core.holding import HoldRule
from xds.services.core.index import CatalogLimits, ServiceIndex, SourceHoldings
from xds.services.core.instance import Health, Instance

RULE = HoldRule(0.5, 10.0, 15.0)


def one(id: str, host: int, weight: int = 1) -> Instance:
    return Instance(id, f"10.0.0.{host}", 80, weight=weight)


class World:
    """An index that takes each service for a large one, and a source ``a``."""

    def __init__(self) -> None:
        self.index = ServiceIndex(CatalogLimits(), reuse_from=1)
        self.a = self.index.add_source("a", RULE)

    def show(self, *instances: Instance, source: SourceHoldings | None = None, now: float = 0.0) -> None:
        self.index.show(source or self.a, "web", instances, now)

    @property
    def served(self) -> list[tuple[str, str]]:
        """The hosts that are served, and whose they are, in order."""
        return [(found.instance.address.rpartition(".")[2], found.instance.id) for found in self.index.served("web")]


def test_an_instance_that_moves_is_served_at_its_new_place_and_drains_at_the_old_one() -> None:
    world = World()
    world.show(one("x", 1), one("y", 2), one("z", 3))
    assert world.served == [("1", "x"), ("2", "y"), ("3", "z")]
    world.show(one("x", 5), one("y", 2), one("z", 3))
    assert world.served == [("1", "x"), ("2", "y"), ("3", "z"), ("5", "x")]
    world.index.end_drains(15.0)
    assert world.served == [("2", "y"), ("3", "z"), ("5", "x")]


def test_two_instances_that_exchange_their_places_are_served_at_their_new_ones() -> None:
    world = World()
    world.show(one("x", 1), one("y", 2), one("z", 3))
    assert len(world.served) == 3
    world.show(one("x", 2), one("y", 1), one("z", 3))
    assert world.served == [("1", "y"), ("2", "x"), ("3", "z")]


def test_unchanged_content_is_the_same_object() -> None:
    world = World()
    world.show(one("x", 1), one("y", 2), one("z", 3))
    before = world.index.served("web")
    world.show(one("x", 1), one("y", 2, weight=5), one("z", 3))
    after = world.index.served("web")
    assert (after[0] is before[0], after[1] is before[1], after[2] is before[2]) == (True, False, True)
    assert after[1].instance.weight == 5
    world.show(one("x", 1), one("y", 2, weight=5), one("w", 4))
    drained = world.index.served("web")
    assert (drained[0] is after[0], drained[1] is after[1]) == (True, True)
    assert [found.health for found in drained] == [Health.PASSING, Health.PASSING, Health.DRAINING, Health.PASSING]


def test_a_kept_instance_differs_from_one_that_is_shown() -> None:
    world = World()
    world.show(one("w", 1), one("x", 2), one("y", 3))
    assert [found.is_held for found in world.index.served("web")] == [False] * 3
    world.show(one("w", 1), now=1.0)
    assert [found.is_held for found in world.index.served("web")] == [False, True, True]
    world.show(one("w", 1), one("x", 2), one("y", 3), now=2.0)
    assert [found.is_held for found in world.index.served("web")] == [False] * 3


def test_the_first_source_by_name_has_a_place_and_gives_it_up_when_it_goes() -> None:
    world = World()
    other = world.index.add_source("0", RULE)
    world.show(one("x", 1), one("y", 2))
    assert [found.source for found in world.index.served("web")] == ["a", "a"]
    world.show(one("v", 2), source=other)
    assert [found.source for found in world.index.served("web")] == ["a", "0"]
    world.index.forget_source("0", 3.0)
    assert [found.source for found in world.index.served("web")] == ["a", "a"]
    world.index.end_drains(18.0)
    assert [found.source for found in world.index.served("web")] == ["a", "a"]
