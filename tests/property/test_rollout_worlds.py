"""Random worlds with careful rollouts: no client loses a request, and who was in no wave never has what a wave had.

A wave grows to the node amid pushes, delays, cuts, restarts and refusals; rollouts are superseded, taken back and
promoted; assignments change for both lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import pytest

from tests.property.random_stories import RandomStory
from tests.property.rollout_world import FEATURES, RolloutWorld
from tests.property.swap_world import World
from tests.property.test_swaps import Action, Plan, Push, promised
from xds.protocol.dialect import Variant

IN_SOAK = 500
SLICE = 15  # of `make test`


@dataclass(frozen=True)
class RollOut(Push):
    """A site is rolled out; ``inside``: the node is in its first wave."""

    inside: bool = False

    def __call__(self, world: World) -> None:
        cast(RolloutWorld, world).roll_out(self.plan.site, self.inside, self.told)


@dataclass(frozen=True)
class Widen:
    """The next wave has the node."""

    def __call__(self, world: World) -> None:
        cast(RolloutWorld, world).widen()


@dataclass(frozen=True)
class Promote:
    """All are served the head."""

    def __call__(self, world: World) -> None:
        cast(RolloutWorld, world).promote()


@dataclass(frozen=True)
class TakeBack:
    """All are served the base, which is a revision of its own."""

    told: bool = True

    def __call__(self, world: World) -> None:
        cast(RolloutWorld, world).take_back(self.told)


@dataclass(frozen=True)
class Refresh:
    """Assignments change in both lines."""

    load: str

    def __call__(self, world: World) -> None:
        cast(RolloutWorld, world).refresh(self.load)


class RolloutStory(RandomStory):
    """The choices of one seed: those of a random world, half of them of rollouts."""

    def story(self, variant: Variant, split: bool) -> tuple[Variant, bool, str, Plan, list[Action], Plan]:
        """What happens in the world of this seed."""
        variant, split, features, first, happenings, last = super().story(variant, split)
        kept = " ".join(each for each in features.split() if each in FEATURES)
        return promised((variant, split, kept, first, self._with_rollouts(happenings), last))

    def _with_rollouts(self, happenings: Iterable[Action]) -> list[Action]:
        mixed: list[Action] = []
        for each in happenings:
            mixed.append(each)
            mixed += [self._of_rollout() for _ in range(self.random.randrange(3))]
        return mixed

    def _of_rollout(self) -> Action:
        makes: tuple[Callable[[], Action], ...] = (
            lambda: RollOut(self._plan(), self._is_so(), inside=self._is_so()),
            lambda: RollOut(self._plan(), self._is_so(), inside=self._is_so()),
            Widen,
            Promote,
            lambda: TakeBack(self._is_so()),
            lambda: Refresh(self._one_of("12")),
        )
        return self._one_of(makes)()


def play(
    variant: Variant, split: bool, features: str, first: Plan, happenings: Iterable[Action], last: Plan
) -> RolloutWorld:
    """Let it happen."""
    world = RolloutWorld(variant, split, frozenset(features.split()), first.site)
    for action in happenings:
        action(world)
        world.check()
    world.finish(last.site)
    return world


def play_seeds(variant: Variant, split: bool, first: int, count: int) -> None:
    """Play the worlds of these seeds."""
    for seed in range(first, first + count):
        try:
            play(*RolloutStory(seed).story(variant, split))
        except Exception as error:
            error.add_note(f"play(*RolloutStory({seed}).story({variant}, {split}))")
            raise


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_some_worlds_with_rollouts_lose_no_request(variant: Variant, split: bool) -> None:
    play_seeds(variant, split, 0, SLICE)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_worlds_with_rollouts_lose_no_request(variant: Variant, split: bool) -> None:
    play_seeds(variant, split, 0, IN_SOAK)
