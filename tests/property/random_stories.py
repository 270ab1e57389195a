"""Stories of random worlds, made from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from tests.property.swap_world import CAUGHT_UP_S, FEATURES
from tests.property.test_swaps import (
    CHOICES,
    GROUPS,
    LABELS,
    NAMES,
    OBSERVED,
    OTHERS,
    OVERLAID,
    PICKED,
    TEXTS,
    TUNNEL,
    WAITS_S,
    Action,
    Cut,
    EndOne,
    Go,
    Label,
    LayOver,
    Observe,
    Pick,
    Plan,
    Push,
    Story,
    Wait,
    promised,
)
from xds.protocol.dialect import Variant
from xds.snapshots.removal_log import PUSHES_KEPT

LENGTHS = (3, 6, 12, 18)
CROWDED = (PUSHES_KEPT + 2, 2 * PUSHES_KEPT)  # pushes within one drain
SHORT_S = tuple(each for each in WAITS_S if each < CAUGHT_UP_S)
T = TypeVar("T")


class RandomStory:
    """The choices of one seed.

    There are no internal listeners. Of four worlds, in one each cut is a restart of the server, which forgets its
    clients, and one is crowded: its listeners drain meanwhile, and more pushes come than the log keeps whatever their
    age.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.is_forgetful = self.random.randrange(4) == 0
        self.is_crowded = self.random.randrange(4) == 0

    def story(self, variant: Variant, split: bool) -> Story:
        """What happens in the world of this seed."""
        features = {each for each in FEATURES if self._is_so()}
        if self.is_forgetful:  # without what a world would leave restarts out for
            features = features - {"labels"} | {"restarts"}
        first, happenings, last = self._plan(), self._happenings(), self._plan()
        if self.is_forgetful:
            happenings = [replace(each, restart=True) if isinstance(each, Cut) else each for each in happenings]
        return promised((variant, split, " ".join(sorted(features)), first, happenings, last))

    def _happenings(self) -> list[Action]:
        if not self.is_crowded:
            return [self._action() for _ in range(self._one_of(LENGTHS))]
        happenings: list[Action] = [self._push() for _ in range(self.random.randint(*CROWDED))]
        for make in (self._cut, self._go, self._short_wait, self._action):
            for _ in range(self.random.randint(1, 4)):
                happenings.insert(self.random.randrange(len(happenings) + 1), make())
        return happenings

    def _action(self) -> Action:
        makes: Sequence[Callable[[], Action]] = (
            self._push,
            self._push,
            self._go,
            lambda: Wait(self._one_of(WAITS_S)),
            self._cut,
            self._cut,
            lambda: EndOne(self.random.randrange(10)),
            lambda: LayOver(self._one_of(OVERLAID)),
            lambda: Observe(self._one_of(OBSERVED), self._one_of("34")),
            lambda: Label(self._one_of(LABELS)),
            lambda: Pick(self._one_of(PICKED), self.random.randrange(2)),
            lambda: self._one_of(OTHERS),
        )
        return self._one_of(makes)()

    def _plan(self) -> Plan:
        fields = {name: self._one_of(self._possible(name)) for name in CHOICES}
        texts = tuple(self._one_of(TEXTS) for _ in NAMES)
        return Plan(texts=texts, **fields)

    @staticmethod
    def _possible(name: str) -> Sequence[Any]:
        """What a field of a plan may be."""
        if name in ("r1", "r2", "inline"):
            return [each for each in CHOICES[name] if TUNNEL not in each]
        return CHOICES[name]

    def _push(self) -> Push:
        return Push(self._plan(), self._is_so(), self._one_of(GROUPS))

    def _cut(self) -> Cut:
        missed = tuple(self._plan() for _ in range(self.random.randrange(3)))
        seconds = self._one_of((0.0, 2.0))
        return Cut(self._is_so(), missed, seconds, self._is_so(), self._is_so(), self.random.randrange(2))

    def _go(self) -> Go:
        return Go(tuple(self.random.randrange(8) for _ in range(self.random.randint(1, 12))))

    def _short_wait(self) -> Wait:
        return Wait(self._one_of(SHORT_S))

    def _is_so(self) -> bool:
        return self.random.random() < 0.5

    def _one_of(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)
