"""What readers of services see move: numbers of services and of names, tags and datacenters."""

from __future__ import annotations

from typing import Any

import pytest

from xds.services.catalog import ServiceCatalog
from xds.services.core.instance import Check, Health, Instance
from xds.services.view import ServiceView


def one(number: int, **fields: Any) -> Instance:
    return Instance(f"i{number}", f"10.0.{number >> 8}.{number & 255}", 80, **fields)


class World:
    """A view of a catalog with a service ``web`` of so many instances."""

    def __init__(self, count: int) -> None:
        self.catalog = ServiceCatalog()
        self.view = ServiceView(self.catalog, first=100)
        self.sink = self.catalog.sink("a", "files")
        self.instances = [one(number, tags=("blue",)) for number in range(count)]
        self.show()

    def show(self, *others: Instance) -> None:
        self.sink.put("web", [*self.instances, *others])
        self.view.state("web")

    def replace(self, instance: Instance) -> None:
        """Show the second instance as this one."""
        self.instances[1] = instance
        self.show()

    @property
    def numbers(self) -> tuple[int, int]:
        """That of the service, and that of all names and tags."""
        return self.view.service_revision("web"), self.view.names_revision


@pytest.fixture(params=[3, 300], ids=["few", "many"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_health_moves_the_service_and_not_the_names(world: World) -> None:
    service, names = world.numbers
    world.replace(one(1, tags=("blue",), checks=(Check("c", Health.CRITICAL),)))
    assert world.numbers == (service + 1, names)


def test_equal_instances_do_not_move_the_index(world: World) -> None:
    before = world.numbers
    world.replace(one(1, tags=("blue",), checks=()))
    world.sink.put("web", [one(number, tags=("blue",)) for number in range(len(world.instances))])
    world.view.state("web")
    assert world.numbers == before


def test_another_tag_moves_the_index_of_names_too(world: World) -> None:
    service, _ = world.numbers
    world.replace(one(1, tags=("green",)))
    assert world.numbers == (service + 1, service + 1)
    state = world.view.state("web")
    assert state is not None and state.tags == {"web": ("blue", "green")}


def test_another_datacenter_is_listed(world: World) -> None:
    world.replace(one(1, tags=("blue",), datacenter="dc2"))
    assert sorted(world.view.datacenters()) == ["", "dc2"]
    world.replace(one(1, tags=("blue",)))
    assert sorted(world.view.datacenters()) == [""]


def test_an_instance_that_comes_or_goes_moves_the_service(world: World) -> None:
    service, names = world.numbers
    world.show(one(999, tags=("blue",)))
    assert world.numbers == (service + 1, names)
    world.show()
    assert world.numbers == (service + 2, names)
