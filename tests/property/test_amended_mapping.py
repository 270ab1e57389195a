"""An amended mapping equals the dictionary that is changed in the same way, in its order too."""

from __future__ import annotations

import random

import pytest

from xds.model.amended_mapping import SHARED_FROM, AmendedMapping, amend


@pytest.mark.parametrize("seed", range(6))
def test_it_equals_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    plain = {f"k{number}": number for number in range(2 * SHARED_FROM)}
    mapping = amend(plain, {}, (), shares=True)
    assert isinstance(mapping, AmendedMapping)
    model = dict(plain)
    shared = 0
    for step in range(400):
        put = {f"k{dice.randrange(2 * SHARED_FROM + 30)}": -step for _ in range(dice.choice((0, 1, 1, 3)))}
        removed = [key for key in dice.sample(sorted(model), dice.choice((0, 0, 1, 2))) if key not in put]
        before = dict(mapping) if step % 50 == 0 else None
        earlier, mapping = mapping, amend(mapping, put, removed, shares=True)
        for key in removed:
            del model[key]
        model.update(put)
        shared += isinstance(mapping, AmendedMapping)
        assert len(mapping) == len(model)
        assert all(mapping[key] == value for key, value in put.items())
        assert not any(key in mapping or mapping.get(key) is not None for key in removed)
        if before is not None:
            assert dict(earlier) == before, "an earlier mapping does not change"
            assert list(mapping.items()) == list(model.items())
    assert list(mapping.items()) == list(model.items())
    assert 300 < shared < 400, "most share, and once in a while all is copied"
    with pytest.raises(KeyError):
        mapping["nothing"]


def test_small_mappings_are_copied() -> None:
    assert amend({"a": 1, "b": 2}, {"c": 3}, ("a",), shares=True) == {"b": 2, "c": 3}
    assert isinstance(amend({"a": 1}, {"c": 3}, (), shares=True), dict)
