"""Equal NACKs of several nodes are one, whichever server they are of."""

from __future__ import annotations

import random
from typing import Any

import pytest

from xds.admin.merged_pages import nacks_by_message
from xds.admin.models.copying import copied
from xds.admin.models.nacks import Nack
from xds.admin.models.values import time_of, time_text
from xds.admin.models.writing import document_of
from xds.fleet.merged_nacks import equal_nacks_of, merge_by_message
from xds.fleet.state import NackRecord, NackState

SEEDS = range(20)


def record(number: int, node: str, guilty: tuple[str, ...] = (), last: float = 1.0, **more: object) -> NackRecord:
    about = f"about {guilty}"
    fields = {"message": about, "first": 1.0, "last": last, "guilty": guilty, **more}
    return NackRecord(number, node, "edge", "clusters", "CLUSTER", "1", "n1", 13, **fields)  # type: ignore[arg-type]


def merged(records: list[NackRecord]) -> list[dict[str, Any]]:
    return [document_of(Nack.from_merged(each)) for each in merge_by_message(map(equal_nacks_of, records))]


def expectation(records: list[NackRecord]) -> list[tuple[Any, ...]]:
    """State, message, rejected names, nodes, count, first and last of each, found one by one."""
    found = []
    for state, message, guilty in {(each.state, each.message, each.guilty) for each in records}:
        equal = [each for each in records if (each.state, each.message, each.guilty) == (state, message, guilty)]
        latest = max(equal, key=lambda each: (each.last, each.id))
        nodes, first = sorted({each.node for each in equal}), min(each.first for each in equal)
        count = sum(each.count for each in equal)
        told = (state.value, message, list(guilty), nodes, count, time_text(time_of(first)), latest.id)
        found.append(((state is not NackState.OPEN, not guilty, -len(nodes), -latest.last, -latest.id), told))
    return [told for _, told in sorted(found)]


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_nacks_are_one_with_all_nodes_and_the_sum(seed: int) -> None:
    """Single ones, those of one server, and those of two servers of which each has merged its own."""
    rng = random.Random(seed)
    records = [
        record(
            number,
            f"n{rng.randrange(6)}",
            rng.choice([(), ("a",), ("b",)]),
            float(rng.randrange(50)),
            first=float(rng.randrange(9)),
            message=rng.choice(("bad", "worse")),
            state=rng.choice(tuple(NackState)),
            count=rng.randrange(1, 4),
        )
        for number in range(30)
    ]
    records.sort(key=lambda one: (one.last, one.id), reverse=True)
    expected = merged(records)
    fields = ("state", "message", "guilty", "nodes", "count", "first", "id")
    assert [tuple(each[name] for name in fields) for each in expected] == expectation(records)
    single = [document_of(copied(Nack, each)) for each in records]
    assert nacks_by_message([{"items": single}]) == nacks_by_message([{"items": expected}]) == expected
    halves = [[each for each in records if each.id % 2 == half] for half in (0, 1)]
    assert nacks_by_message([{"items": merged(half)} for half in halves]) == expected


def test_rejected_resources_come_first_and_many_nodes_are_counted() -> None:
    many = [record(number, f"n{number}", last=float(number)) for number in range(20)]
    first, second = merged([*many, record(99, "x", ("b",))])
    assert (first["guilty"], first["nodes"]) == (["b"], ["x"])
    assert (len(second["nodes"]), second["nodes_total"], second["count"], second["id"]) == (20, 20, 20, 19)
    assert second["nodes"][:3] == ["n0", "n1", "n2"]
