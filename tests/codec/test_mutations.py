"""Shapes with one random value changed: whatever this codec refuses, Envoy refuses as well."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.codec.shape_files import Json, bootstrap_of, load_shape, make_files, shape_names
from tests.support.envoy import validate
from xds.codec.resources import decode_resource
from xds.model.errors import ValidationError

MUTATIONS = 200
DELETED = object()
TEXTS = ("", "a b", "x\ny", "-1s", "0s", "7", "x" * 300)
NUMBERS = (0, -1, 99, 101, 65536, 2**32, 1.5, True)
# A resource is known by its name, and found by its type; both are asked for whatever Envoy thinks of them.
KEPT = ("@type", "name", "cluster_name")

Path_ = tuple[str | int, ...]


def _places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key not in KEPT:
            yield (*path, key)
            yield from _places(item, (*path, key))


def _mutate(resource: Json, chance: random.Random) -> str:
    """Change one value in place; says what was changed."""
    path = chance.choice(list(_places(resource)))
    holder: Any = resource
    for step in path[:-1]:
        holder = holder[step]
    value = chance.choice((DELETED, *_others(holder[path[-1]])))
    if value is DELETED:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return f"{path} = {'nothing' if value is DELETED else repr(value)[:50]}"


def _others(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return TEXTS
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int | float):
        return NUMBERS
    return ([], value * 2, {}) if isinstance(value, list) else ({}, "", [])


def _refusal(resource: Json) -> str:
    named = "name" in resource or "cluster_name" in resource
    try:
        decode_resource(resource, name="" if named else "unnamed")
    except ValidationError as error:
        return str(error)
    return ""


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_input_that_is_refused_is_rejected_by_envoy(seed: int, tmp_path: Path) -> None:
    make_files(tmp_path)
    chance = random.Random(seed)
    refused, alone = 0, []
    for _ in range(MUTATIONS):
        name = chance.choice(shape_names())
        resources = copy.deepcopy(load_shape(name, tmp_path))
        mutated = chance.choice([one for one in resources if any(_places(one))])
        what = _mutate(mutated, chance)
        if reason := _refusal(mutated):
            refused += 1
            if validate(bootstrap_of(resources), tmp_path) == "":
                alone.append(f"{name} {what}: {reason}")
    assert refused > MUTATIONS // 4
    assert alone == []
