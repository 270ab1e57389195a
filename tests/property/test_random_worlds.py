"""Worlds of many seeds: none loses a request, and each ends at the newest content.

The stories are those of `test_swaps`, chosen by chance alone. In a quarter of them each cut is a restart of the server,
which forgets its clients; in another quarter more pushes come in a drain than the removal log keeps whatever their age.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.property.random_stories import RandomStory
from tests.property.test_swaps import Action, Cut, Push, Wait, play
from xds.protocol.dialect import Variant
from xds.snapshots.order import OrderRules
from xds.snapshots.removal_log import PUSHES_KEPT

CHUNKS, CHUNK = 20, 1_000
SPLIT_CHUNKS = 1  # on separate streams
SLICE = 25  # of `make test`


def play_seeds(variant: Variant, split: bool, first: int, count: int) -> None:
    """Play the worlds of these seeds."""
    for seed in range(first, first + count):
        try:
            play(*RandomStory(seed).story(variant, split))
        except Exception as error:
            error.add_note(f"play(*RandomStory({seed}).story({variant}, {split}))")
            raise


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_some_random_worlds_lose_no_request(variant: Variant, split: bool) -> None:
    play_seeds(variant, split, 0, SLICE)


def test_some_random_worlds_restart_after_more_pushes_in_a_drain_than_the_log_keeps() -> None:
    stories = [RandomStory(seed).story(Variant.DELTA, False) for seed in range(SLICE)]
    assert any(_restarts_after_many_pushes(happenings) for *_, happenings, _ in stories)


def _restarts_after_many_pushes(happenings: Sequence[Action]) -> bool:
    """Whether the server restarts after more pushes than `PUSHES_KEPT` in less time than listeners drain."""
    pushes, waited_s = 0, 0.0
    for each in happenings:
        if isinstance(each, Wait):
            waited_s += each.seconds
            if waited_s >= OrderRules().listener_drain_s:
                pushes, waited_s = 0, 0.0
        elif isinstance(each, Push):
            pushes += 1
        elif isinstance(each, Cut):
            pushes += len(each.missed)
            if each.restart and pushes > PUSHES_KEPT:
                return True
    return False


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_random_worlds_lose_no_request(variant: Variant, chunk: int) -> None:
    play_seeds(variant, False, chunk * CHUNK, CHUNK)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(SPLIT_CHUNKS))
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_random_worlds_on_separate_streams_lose_no_request(variant: Variant, chunk: int) -> None:
    play_seeds(variant, True, chunk * CHUNK, CHUNK)
