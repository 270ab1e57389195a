"""What one source has shown of one service: the last good set, losses that are held back, and what drains.

A source that loses more than a share of a service at once is likely to be wrong, not the service: what it no longer
shows is kept until the source shows enough again, or an operator accepts the loss. Instances that it still shows, and
new ones, are taken over meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from xds.catalog.draining import Draining, Place, SeenInstance, place_of
from xds.catalog.instance import Instance


@dataclass(frozen=True, slots=True)
class HoldRule:
    """A loss is held when more than ``share`` of a service's instances go within ``window_s`` seconds.

    A ``share`` of 1 holds nothing.
    """

    share: float = 0.5
    window_s: float = 10.0
    drain_s: float = 15.0

    def is_held(self, before: int, now: int) -> bool:
        """Whether the loss of ``before - now`` of ``before`` instances is held."""
        return before - now > self.share * before


class ServiceHolding:
    """The instances of one service as one source shows them. All of them are served: present, kept and draining.

    ``kept`` are those of the last good set that the source no longer shows; it is empty unless a loss is held. Both are
    by id. ``was_shown``: the source has shown an instance at some time. ``is_gone``: it no longer has the service.
    """

    __slots__ = (
        "_good",
        "_peak_at",
        "_peak_n",
        "draining",
        "good_n",
        "held_since",
        "is_gone",
        "kept",
        "present",
        "was_shown",
    )

    def __init__(self) -> None:
        self.present: dict[str, SeenInstance] = {}
        self.kept: dict[str, SeenInstance] = {}
        self.draining = Draining()
        self.was_shown = False
        self.is_gone = False
        self.held_since = 0.0  # epoch seconds; 0 while nothing is held
        self.good_n = 0  # instances before the loss that is held
        self._good: frozenset[str] = frozenset()  # the ids of the last good set while a loss is held
        self._peak_n = 0  # instances before the latest losses that were not held; they began at ``_peak_at``
        self._peak_at = -inf

    def __iter__(self) -> Iterator[SeenInstance]:
        yield from self.present.values()
        yield from self.kept.values()

    def __len__(self) -> int:
        return len(self.present) + len(self.kept)

    @property
    def is_held(self) -> bool:
        """Whether a loss is held."""
        return bool(self.kept)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left, not even a draining instance."""
        return not (self.present or self.kept or len(self.draining))

    def put(self, instances: Mapping[str, Instance], now: float, rule: HoldRule) -> bool:
        """Take over what the source shows now, by id. True if anything changed."""
        shown, changed = self._shown(instances, now)
        gone = [seen for id, seen in self.present.items() if id not in shown]
        before = self._before(now, rule)
        is_over = self.is_held and not rule.is_held(before, len(shown))  # the rule may be another one than before
        if not (changed or gone or is_over):
            return False
        self.was_shown = self.was_shown or bool(shown)
        present, self.present = self.present, shown
        moved = [present[id] for id in changed if id in present and _has_moved(present[id], shown[id])]
        back = [seen for id, seen in self.kept.items() if id in shown and _has_moved(seen, shown[id])]
        kept = {id: seen for id, seen in self.kept.items() if id not in shown}
        if rule.is_held(before, len(shown)):
            self._hold(kept, gone, before, frozenset(present), now, rule)
        else:
            self._let_go([*kept.values(), *gone], before, now, rule)
        for seen in (*moved, *back):
            self.draining.begin(seen, now, rule.drain_s)
        self.draining.stop(self._places())
        return True

    def accept(self, now: float, rule: HoldRule) -> int:
        """Accept the loss that is held: what is kept drains. Returns the number of these instances."""
        lost = len(self.kept)
        self._let_go(list(self.kept.values()), len(self.present), now, rule)
        self._peak_at = -inf
        self.draining.stop(self._places())
        return lost

    def restore(self, present: Iterable[SeenInstance]) -> None:
        """Take over the last good set from before a restart."""
        self.present = {seen.instance.id: seen for seen in present}

    def restore_loss(self, kept: Iterable[SeenInstance], late: Collection[str], good_n: int, held_since: float) -> None:
        """Take over the loss that was held before a restart; ``late`` are the present ids that came after it."""
        self.kept = {seen.instance.id: seen for seen in kept}
        self._good = frozenset((self.present.keys() | self.kept.keys()).difference(late))
        self.good_n, self.held_since = good_n, held_since

    @property
    def late(self) -> list[str]:
        """The present ids that came after the loss that is held."""
        return [id for id in self.present if id not in self._good] if self.kept else []

    def _places(self) -> Iterator[Place]:
        return (place_of(seen.instance) for seen in self)

    def _shown(self, instances: Mapping[str, Instance], now: float) -> tuple[dict[str, SeenInstance], list[str]]:
        """The instances of the source by id, and the ids of new and changed ones. Most is the same object as before."""
        shown: dict[str, SeenInstance] = {}
        changed = []
        present = self.present.get
        for id, instance in instances.items():
            seen = present(id)
            if seen is None or (seen.instance is not instance and seen.instance != instance):
                changed.append(id)
                known = seen or self.kept.get(id)
                seen = SeenInstance(instance, known.since if known is not None else now, now)
            shown[id] = seen
        return shown, changed

    def _before(self, now: float, rule: HoldRule) -> int:
        """The number of instances that a loss is compared with."""
        if self.kept:
            return self.good_n
        recent = self._peak_n if now - self._peak_at <= rule.window_s else 0
        return max(len(self.present), recent)

    def _hold(
        self,
        kept: dict[str, SeenInstance],
        gone: list[SeenInstance],
        before: int,
        good: frozenset[str],
        now: float,
        rule: HoldRule,
    ) -> None:
        if not self.kept:
            self.good_n, self.held_since, self._good = before, now, good
        for seen in gone:
            if seen.instance.id in self._good:
                kept[seen.instance.id] = seen
            else:  # it came after the loss
                self.draining.begin(seen, now, rule.drain_s)
        self.kept = kept
        if not kept:  # all of them are back, or none was left to keep
            self._end_hold()

    def _let_go(self, gone: list[SeenInstance], before: int, now: float, rule: HoldRule) -> None:
        for seen in gone:
            self.draining.begin(seen, now, rule.drain_s)
        if gone and now - self._peak_at > rule.window_s:
            self._peak_n, self._peak_at = before, now
        self.kept = {}
        self._end_hold()

    def _end_hold(self) -> None:
        self.good_n, self.held_since, self._good = 0, 0.0, frozenset()


def _has_moved(before: SeenInstance, now: SeenInstance) -> bool:
    return place_of(before.instance) != place_of(now.instance)
