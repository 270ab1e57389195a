"""The instances that one source has shown of one service: the last good set, a held loss, and draining instances.

If a source loses more than a share of a service at once, the source is more likely wrong than the service. The lost
instances are held until the source shows enough again, or an operator accepts the loss. Instances that the source still
shows, and new ones, are updated meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from xds.services.core.draining import InstanceDrains, ObservedInstance, SocketAddress, begin_draining, socket_address
from xds.services.core.instance import Instance


@dataclass(frozen=True, slots=True)
class HoldRule:
    """A loss is held when more than ``share`` of a service's instances disappear within ``window_s`` seconds.

    With a ``share`` of 1 no loss is held. Removed instances drain for ``drain_s`` seconds.
    """

    share: float = 0.5
    window_s: float = 10.0
    drain_s: float = 15.0

    def is_held(self, before: int, now: int) -> bool:
        """Whether the loss of ``before - now`` of ``before`` instances is held."""
        return before - now > self.share * before


class ServiceHolding:
    """The instances of one service as one source shows them. All of them are served: present, lost and draining.

    ``present`` has the instances that the source shows, by id. ``lost`` has those of the last good set that it no
    longer shows, by id; it is empty unless a loss is held. ``was_shown``: the source has ever shown an instance.
    ``is_gone``: the source no longer has the service.
    """

    __slots__ = (
        "_good_ids",
        "_peak_at",
        "_peak_n",
        "draining",
        "good_n",
        "held_since",
        "is_gone",
        "lost",
        "present",
        "was_shown",
    )

    def __init__(self) -> None:
        self.present: dict[str, ObservedInstance] = {}
        self.lost: dict[str, ObservedInstance] = {}
        self.draining = InstanceDrains()
        self.was_shown = False
        self.is_gone = False
        self.held_since = 0.0  # epoch seconds; 0 while nothing is held
        self.good_n = 0  # instances before the held loss
        self._good_ids: frozenset[str] = frozenset()  # ids of the last good set while a loss is held
        self._peak_n = 0  # instances before the latest losses that were not held; these losses began at ``_peak_at``
        self._peak_at = -inf

    def __iter__(self) -> Iterator[ObservedInstance]:
        """All instances but the draining ones."""
        yield from self.present.values()
        yield from self.lost.values()

    def __len__(self) -> int:
        return len(self.present) + len(self.lost)

    @property
    def is_held(self) -> bool:
        """Whether a loss is held."""
        return bool(self.lost)

    @property
    def is_empty(self) -> bool:
        """Whether there is no instance, not even a draining one."""
        return not (self.present or self.lost or len(self.draining))

    def put(self, instances: Mapping[str, Instance], now: float, rule: HoldRule) -> bool:
        """Set the instances that the source shows now, by id. True if anything changed."""
        present, changed = self._read(instances, now)
        missing = [one for id, one in self.present.items() if id not in present]
        reference_n = self._reference_n(now, rule)
        # The rule may have changed since the loss.
        ends_hold = self.is_held and not rule.is_held(reference_n, len(present))
        if not (changed or missing or ends_hold):
            return False
        self.was_shown = self.was_shown or bool(present)
        previous, self.present = self.present, present
        moved = [previous[id] for id in changed if id in previous and _has_moved(previous[id], present[id])]
        moved += [one for id, one in self.lost.items() if id in present and _has_moved(one, present[id])]
        lost = {id: one for id, one in self.lost.items() if id not in present}
        if rule.is_held(reference_n, len(present)):
            self._hold(lost, missing, reference_n, frozenset(previous), now, rule)
        else:
            self._release([*lost.values(), *missing], reference_n, now, rule)
        for one in moved:
            begin_draining(self.draining, one, now, rule.drain_s)
        self.draining.stop(self._addresses())
        return True

    def accept(self, now: float, rule: HoldRule) -> int:
        """Accept the held loss: the lost instances drain. Returns their number."""
        lost_n = len(self.lost)
        self._release(list(self.lost.values()), len(self.present), now, rule)
        self._peak_at = -inf
        self.draining.stop(self._addresses())
        return lost_n

    def restore(self, present: Iterable[ObservedInstance]) -> None:
        """Set the last good set from before a restart."""
        self.present = {one.instance.id: one for one in present}

    def restore_loss(
        self, lost: Iterable[ObservedInstance], late: Collection[str], good_n: int, held_since: float
    ) -> None:
        """Set the loss that was held before a restart. ``late`` are the ids of ``present`` that came after the loss."""
        self.lost = {one.instance.id: one for one in lost}
        self._good_ids = frozenset((self.present.keys() | self.lost.keys()).difference(late))
        self.good_n, self.held_since = good_n, held_since

    @property
    def late(self) -> list[str]:
        """The ids of ``present`` that came after the held loss."""
        return [id for id in self.present if id not in self._good_ids] if self.lost else []

    def _addresses(self) -> Iterator[SocketAddress]:
        return (socket_address(one.instance) for one in self)

    def _read(self, instances: Mapping[str, Instance], now: float) -> tuple[dict[str, ObservedInstance], list[str]]:
        """The instances of the source by id, and the ids of new and changed ones. Others stay the same objects."""
        present: dict[str, ObservedInstance] = {}
        changed = []
        previous = self.present.get
        for id, instance in instances.items():
            one = previous(id)
            if one is None or (one.instance is not instance and one.instance != instance):
                changed.append(id)
                known = one or self.lost.get(id)
                one = ObservedInstance(instance, known.since if known is not None else now, now)
            present[id] = one
        return present, changed

    def _reference_n(self, now: float, rule: HoldRule) -> int:
        """The number of instances that a loss is compared with."""
        if self.lost:
            return self.good_n
        recent = self._peak_n if now - self._peak_at <= rule.window_s else 0
        return max(len(self.present), recent)

    def _hold(
        self,
        lost: dict[str, ObservedInstance],
        missing: list[ObservedInstance],
        reference_n: int,
        good_ids: frozenset[str],
        now: float,
        rule: HoldRule,
    ) -> None:
        """Begin to hold a loss, or continue. ``lost`` is held already; of ``missing``, later instances drain."""
        if not self.lost:
            self.good_n, self.held_since, self._good_ids = reference_n, now, good_ids
        for one in missing:
            if one.instance.id in self._good_ids:
                lost[one.instance.id] = one
            else:  # it came after the loss
                begin_draining(self.draining, one, now, rule.drain_s)
        self.lost = lost
        if not lost:  # all instances of the last good set are present again
            self._end_hold()

    def _release(self, lost: list[ObservedInstance], reference_n: int, now: float, rule: HoldRule) -> None:
        """Let lost instances drain, and hold no loss."""
        for one in lost:
            begin_draining(self.draining, one, now, rule.drain_s)
        if lost and now - self._peak_at > rule.window_s:
            self._peak_n, self._peak_at = reference_n, now
        self.lost = {}
        self._end_hold()

    def _end_hold(self) -> None:
        self.good_n, self.held_since, self._good_ids = 0, 0.0, frozenset()


def _has_moved(before: ObservedInstance, now: ObservedInstance) -> bool:
    return socket_address(before.instance) != socket_address(now.instance)
