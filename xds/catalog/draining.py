"""Removed instances drain for a set time first: their last load reports count, and their connections end well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xds.catalog.instance import Health, Instance

DRAINING_LIMIT = 10_000  # of one source's instances of one service; beyond it the oldest go at once

Place = tuple[str, int]  # address and port


def place_of(instance: Instance) -> Place:
    """Address and port: two instances with the same ones are one endpoint."""
    return instance.address, instance.port


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """An instance as a source showed it last.

    ``since`` is when it was first seen, ``changed_at`` when it was first seen as it is now (epoch seconds).
    """

    instance: Instance
    since: float
    changed_at: float


@dataclass(frozen=True, slots=True)
class Drained:
    """An instance that drains until ``until`` (epoch seconds) and is gone then."""

    seen: SeenInstance
    until: float


class Draining:
    """The draining instances of one source and service, by place. At most ``DRAINING_LIMIT``."""

    __slots__ = ("_by_place",)

    def __init__(self) -> None:
        self._by_place: dict[Place, Drained] = {}

    def __iter__(self) -> Iterator[Drained]:
        return iter(self._by_place.values())

    def __len__(self) -> int:
        return len(self._by_place)

    def begin(self, seen: SeenInstance, now: float, drain_s: float) -> None:
        """Let an instance drain. What its source showed as draining since some time has that time behind it."""
        began = seen.changed_at if seen.instance.health is Health.DRAINING else now
        if began + drain_s > now:
            self.restore(Drained(seen, began + drain_s))

    def restore(self, drained: Drained) -> None:
        """Add an instance with its deadline."""
        place = place_of(drained.seen.instance)
        self._by_place.pop(place, None)
        self._by_place[place] = drained
        if len(self._by_place) > DRAINING_LIMIT:
            del self._by_place[next(iter(self._by_place))]

    def stop(self, places: Iterable[Place]) -> None:
        """Instances with these places are present again. They are looked at only if anything drains."""
        if self._by_place:
            for place in self._by_place.keys() & set(places):
                del self._by_place[place]

    def end(self, now: float) -> bool:
        """Remove what has drained. True if anything was removed."""
        ended = [place for place, drained in self._by_place.items() if drained.until <= now]
        for place in ended:
            del self._by_place[place]
        return bool(ended)

    @property
    def next_end(self) -> float | None:
        """When the next instance will have drained; None: there is none."""
        return min((drained.until for drained in self._by_place.values()), default=None)
