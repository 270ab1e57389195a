"""Each workload of the suite in its shortest form: it runs to its end, and every column of its table has a figure."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.peers.peer import Kind, number_of
from bench.suite import idle, measure, rate, report, storm
from bench.suite.goals import BROADCASTER, LINEAR, OURS, SNAPSHOT
from bench.suite.results import Results
from bench.suite.scale import BOTH, Scale, Size
from bench.suite.stage import Stage
from bench.suite.workloads import WORKLOADS
from tests.bench.test_peers import GO_TIMEOUT_S

SHORTEST = Scale(
    name="shortest",
    rounds=1,
    variants=BOTH,
    sizes=(Size(4, 3),),
    assignments=16,
    named=((4, 4), (16, 3)),
    rate_streams=(3,),
    rate_s=0.5,
    storm_rounds=1,
    storm_streams=5,
    storm_later_s=0.5,
    idle_rounds=1,
    idle=((4, 5),),
    growth=((4, (2, 4)),),
    envoys=1,
    envoy_clusters=(2,),
    tls_streams=3,
    node_streams=3,
    types_streams=3,
)
FEWER = (
    (rate, "ASSIGNMENTS", 20),
    (rate, "NAMES", 10),
    (storm, "SIZE", 4),
    (storm, "ESTABLISHED", 3),
    (storm, "STEADY_S", 1.5),  # two pushes of one a second
    (idle, "WARM_STREAMS", 3),
    (idle, "IDLE_S", 0.1),
    (measure, "WARM_ROUNDS", 0),
)
# go-control-plane needs Go: its tests are part of `make soak`.
OF_GO: frozenset[Kind] = frozenset({SNAPSHOT, LINEAR})
# Those that go-control-plane takes part in, each a minute of one core, and those that it does not.
WITH_PEERS = ("a", "b", "c", "d", "e", "f", "node", "types", "five")
ALONE = [pytest.param(each, marks=pytest.mark.soak) for each in WORKLOADS if each not in WITH_PEERS]


async def run(letter: str, folder: Path, without: frozenset[Kind]) -> Results:
    """Run a workload; every figure of every cell is a number."""
    stage = Stage(SHORTEST, Results(), folder / "results.json", without)
    await WORKLOADS[letter].run(stage)
    kept = Results.load(stage.path)
    assert {key.partition("/")[0] for key in kept.cells} == {letter}
    for key, cell in kept.cells.items():
        assert OURS in cell.figures
        missing = set(WORKLOADS[letter].columns) - set(cell.figures[OURS])
        assert not missing, f"{key} lacks {missing}"
        assert all(math.isfinite(value) for row in cell.figures.values() for each in row.values() for value in each)
        if letter == "c":
            # On a busy machine, a newer version replaces one that some stream has not ACKed yet.
            acked, never_acked = cell.values(OURS, "latency_ms"), cell.values(OURS, "never_acked")
            assert len(acked) > sum(never_acked), "versions were not recognised among the ACKs"
    return kept


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in FEWER:
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv("XDS_SERVER__DRAIN_S", "0")


@pytest.mark.parametrize("letter", ["a", *ALONE])
async def test_a_workload_runs_to_its_end(letter: str, tmp_path: Path) -> None:
    """Without go-control-plane, with whatever else the workload compares."""
    kept = await run(letter, tmp_path, OF_GO)
    kinds = {kind for cell in kept.cells.values() for kind in cell.figures}
    assert not kinds & OF_GO
    assert (BROADCASTER in kinds) == (letter == "a")


@pytest.mark.soak  # a minute of building Go
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("go-control-plane")
@pytest.mark.parametrize("letter", WITH_PEERS)
async def test_a_workload_runs_to_its_end_with_its_peers(letter: str, tmp_path: Path) -> None:
    kept = await run(letter, tmp_path, frozenset())
    assert all(SNAPSHOT in cell.figures for cell in kept.cells.values())
    assert WORKLOADS[letter].title in report.render(kept)


def test_versions_are_in_the_order_of_pushes() -> None:
    """The revision of one resource of ours has a hash behind it; labels and go-control-plane's versions are numbers."""
    assert [number_of(version) for version in ("2+ce5c5dcb", "10+00000000", "7")] == [2, 10, 7]
