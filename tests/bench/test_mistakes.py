"""The single mistakes of ``bench.mistakes``: each changes one place, names it, and leaves the sample as it was."""

from __future__ import annotations

import copy
import random

import pytest

from bench.mistakes.corpus import Sample, samples
from bench.mistakes.mutate import MISTAKES, mistake
from tests.support.process import REPOSITORY

CORPUS = samples([REPOSITORY / "examples", REPOSITORY / "tests/codec/shapes"])


def test_the_corpus_has_resources_of_the_usual_types() -> None:
    assert len(CORPUS) > 100
    kinds = {sample.kind for sample in CORPUS}
    assert {"clusters", "listeners", "routes", "endpoints"} <= kinds


@pytest.mark.parametrize("kind", sorted(MISTAKES))
def test_every_kind_of_mistake_is_made_somewhere(kind: str) -> None:
    chance = random.Random(1)
    made = [(sample, found) for sample in CORPUS if (found := broken(sample, kind, chance)) is not None]
    assert made
    for sample, (value, place) in made[:20]:
        assert value != sample.value
        assert place


def broken(sample: Sample, kind: str, chance: random.Random) -> tuple[object, str] | None:
    """One mistake of this kind, the sample untouched."""
    before = copy.deepcopy(sample.value)
    found = mistake(sample.value, kind, chance)
    assert sample.value == before
    return found
