"""Equal NACKs merged as documents are those that are merged as records."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.fleet.test_merged_nacks import record
from xds.admin.merged_pages import nacks_by_message
from xds.admin.models.nacks import Nack
from xds.admin.models.writing import document_of
from xds.fleet.merged_nacks import merge_by_message
from xds.fleet.state import NackRecord, NackState

SEEDS = range(20)


def documents(records: list[NackRecord]) -> list[dict[str, Any]]:
    return [document_of(Nack.from_domain(each)) for each in records]


def merged(records: list[NackRecord]) -> list[dict[str, Any]]:
    return [document_of(Nack.from_merged(each)) for each in merge_by_message(records)]


@pytest.mark.parametrize("seed", SEEDS)
def test_documents_and_records_are_merged_alike(seed: int) -> None:
    """Single ones, those of one server, and those of two servers of which each has merged its own."""
    rng = random.Random(seed)
    records = [
        record(
            number,
            f"n{rng.randrange(6)}",
            rng.choice([(), ("a",), ("b",)]),
            float(rng.randrange(50)),
            message=rng.choice(("bad", "worse")),
            state=rng.choice(tuple(NackState)),
            count=rng.randrange(1, 4),
        )
        for number in range(30)
    ]
    records.sort(key=lambda one: (one.last, one.id), reverse=True)
    expected = merged(records)
    assert nacks_by_message([{"items": documents(records)}]) == expected
    assert nacks_by_message([{"items": expected}]) == expected
    halves = [[each for each in records if each.id % 2 == half] for half in (0, 1)]
    assert nacks_by_message([{"items": merged(half)} for half in halves]) == expected


def test_rejected_resources_come_first_and_many_nodes_are_counted() -> None:
    many = [record(number, f"n{number}", last=float(number)) for number in range(20)]
    first, second = nacks_by_message([{"items": documents([*many, record(99, "x", ("b",))])}])
    assert (first["guilty"], first["nodes"]) == (["b"], ["x"])
    assert (len(second["nodes"]), second["nodes_total"], second["count"], second["id"]) == (20, 20, 20, 19)
    assert second["nodes"][:3] == ["n0", "n1", "n2"]
