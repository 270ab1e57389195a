"""Random histories of sources, and what follows from them by the rules, computed in another way than the index does."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from xds.services.core.instance import Check, Health, Instance

SOURCES = ("a", "b", "c")
SERVICES = ("web", "api")
DRAIN_S = 15.0
SHARE = 0.5
WINDOW_S = 10.0


def instance(number: int, health: Health = Health.PASSING, host: int | None = None) -> Instance:
    """Instance ``number``; several sources have the same ones. ``host`` differs from it where it has moved."""
    checks = (Check("c", health),) if health is not Health.PASSING else ()
    return Instance(f"i{number}", f"10.0.0.{number if host is None else host}", 80, checks=checks)


def instance_sets(limit: int = 7) -> st.SearchStrategy[list[Instance]]:
    """The instances of a service, each id once."""
    one = st.builds(
        instance,
        st.integers(1, limit),
        st.sampled_from((Health.PASSING, Health.PASSING, Health.CRITICAL, Health.WARNING)),
        st.none() | st.integers(1, limit + 3),
    )
    return st.lists(one, max_size=limit, unique_by=lambda each: each.id)


@dataclass
class Expected:
    """What one source's instances of one service must be. It draws conclusions from places alone."""

    shown: dict[str, Instance] = field(default_factory=dict)
    kept: dict[str, Instance] = field(default_factory=dict)
    good: frozenset[str] = frozenset()  # ids before the loss that is held
    good_n: int = 0
    losing_since: float = -1e9
    losing_from: int = 0
    left_at: dict[str, float] = field(default_factory=dict)  # when the instance at an address left the set

    def put(self, instances: dict[str, Instance], now: float) -> None:
        """What the source shows now."""
        places, gone = self.places, {id: one for id, one in self.shown.items() if id not in instances}
        before = self.good_n if self.kept else max(len(self.shown), self._recent(now))
        if before - len(instances) > SHARE * before:
            if not self.kept:
                self.good, self.good_n = frozenset(self.shown), before
            lost = self.kept | gone
            self.kept = {id: one for id, one in lost.items() if id in self.good and id not in instances}
        else:
            if (gone or self.kept.keys() - instances.keys()) and not self._recent(now):
                self.losing_since, self.losing_from = now, before
            self.kept = {}
        self.shown = instances
        self._leave(places, now)

    def accept(self, now: float) -> None:
        """The loss is accepted."""
        places = self.places
        if self.kept:
            self.kept, self.losing_since = {}, -1e9
        self._leave(places, now)

    def restart(self) -> None:
        """Recent losses that were not held are forgotten."""
        self.losing_since = -1e9

    @property
    def places(self) -> set[str]:
        """The addresses of what is present or kept."""
        return {one.address for one in (*self.shown.values(), *self.kept.values())}

    def draining(self, now: float) -> set[str]:
        """The addresses that drain."""
        return {place for place, left in self.left_at.items() if now < left + DRAIN_S}

    def _leave(self, before: set[str], now: float) -> None:
        self.left_at.update(dict.fromkeys(before - self.places, now))
        for place in self.places:
            self.left_at.pop(place, None)

    def _recent(self, now: float) -> int:
        return self.losing_from if now - self.losing_since <= WINDOW_S else 0
