"""Our compiler and our rules beside Consul's own, over random sets of entries.

The recorded answers are part of every run; `make soak` asks Consul's compiler itself, which needs Go. To record anew:
``python -m tests.mesh.core.chain.test_oracle``.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.consul.oracle import CONSUL_1_10, CONSUL_1_14, answers
from bench.peers.go_program import GoProgram
from tests.mesh.core.chain.comparison import differences, question

RECORDED = Path(__file__).parent / "recorded"
RECORDED_SETS = 300
SOAK_SETS = 5_000
SHOWN = 5
GO_TIMEOUT_S = 2_000  # the first run builds Consul's packages, on whatever machine

PROGRAMS = pytest.mark.parametrize("program", [CONSUL_1_14, CONSUL_1_10], ids=lambda one: one.name)


def path_of(program: GoProgram) -> Path:
    return RECORDED / f"{program.name}.jsonl.gz"


def recorded(program: GoProgram) -> list[dict[str, Any]]:
    with gzip.open(path_of(program), "rt") as lines:
        return [json.loads(line) for line in lines]


def is_old(program: GoProgram) -> bool:
    return program is CONSUL_1_10


@PROGRAMS
def test_recorded_answers_of_consul_are_ours(program: GoProgram) -> None:
    held = recorded(program)
    assert len(held) == RECORDED_SETS
    found = [
        f"set {at}: {one}"
        for at, each in enumerate(held)
        for one in differences(each["question"], each["answer"], is_old=is_old(program))
    ]
    assert not found, "\n".join(found[:SHOWN])


@PROGRAMS
def test_the_recorded_sets_are_worth_comparing(program: GoProgram) -> None:
    """Enough of each outcome: else a generator that broke would go unseen."""
    held = recorded(program)
    entries = [entry for each in held for entry in each["answer"]["Entries"]]
    chains = [chain for each in held for chain in each["answer"]["Chains"]]
    refused = sum("Error" in entry for entry in entries)
    failed = sum("Error" in chain for chain in chains)
    nodes = [node["Type"] for chain in chains if "Chain" in chain for node in chain["Chain"]["Nodes"].values()]
    assert 0.05 < refused / len(entries) < 0.5
    assert 0.05 < failed / len(chains) < 0.6
    assert min(nodes.count(kind) for kind in ("router", "splitter", "resolver")) > 50


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
@PROGRAMS
def test_consul_itself_answers_as_we_do(program: GoProgram) -> None:
    asked = [question(RECORDED_SETS + seed, is_old=is_old(program)) for seed in range(SOAK_SETS)]
    found: list[str] = []
    for seed, (each, told) in enumerate(zip(asked, answers(program, asked), strict=True)):
        found += (f"seed {RECORDED_SETS + seed}: {one}" for one in differences(each, told, is_old=is_old(program)))
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:SHOWN])


def record() -> None:
    """Ask Consul's compilers and keep what they say."""
    RECORDED.mkdir(exist_ok=True)
    for program in (CONSUL_1_14, CONSUL_1_10):
        asked = [question(seed, is_old=is_old(program)) for seed in range(RECORDED_SETS)]
        held = [{"question": each, "answer": told} for each, told in zip(asked, answers(program, asked), strict=True)]
        lines = "".join(json.dumps(one, separators=(",", ":"), sort_keys=True) + "\n" for one in held)
        path_of(program).write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    record()
