"""Each workload of the suite in its shortest form: it runs to its end, and every column of its table has a figure."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.peers.peer import Kind, number_of
from bench.suite import admin, idle, measure, profile, rate, report, storm
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
    profiled=1,
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
    admin=(4,),
    envoys=1,
    envoy_clusters=(2,),
    tls_streams=3,
    node_streams=3,
)
FEWER = (
    (profile, "STREAMS", 3),
    (profile, "PROFILED_PUSHES", 2),
    (rate, "ASSIGNMENTS", 20),
    (rate, "NAMES", 10),
    (storm, "SIZE", 4),
    (storm, "ESTABLISHED", 3),
    (storm, "STEADY_S", 1.5),  # two pushes of one a second
    (idle, "WARM_STREAMS", 3),
    (idle, "IDLE_S", 0.1),
    (admin, "DIVIDED", 4),
    (measure, "WARM_ROUNDS", 0),
    (admin, "WARM_ROUNDS", 0),
)
# go-control-plane needs Go: its tests, and that of the profile, are part of `make soak`.
OF_GO: frozenset[Kind] = frozenset({SNAPSHOT, LINEAR})
# Those in `make test`; the others, each a minute of one core, are part of `make soak`.
QUICK_ONES = {"a"}
LETTERS = [
    pytest.param(letter, marks=[] if letter in QUICK_ONES else pytest.mark.soak)
    for letter in WORKLOADS
    if letter != "profile"
]


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
    return kept


@contextmanager
def running(*command: str) -> Iterator[int]:
    """The pid of a process that lives as long as the block."""
    process = subprocess.Popen(command)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in FEWER:
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv("XDS_SERVER__DRAIN_S", "0")


@pytest.mark.parametrize("letter", LETTERS)
async def test_a_workload_runs_to_its_end(letter: str, tmp_path: Path) -> None:
    """Without go-control-plane, with whatever else the workload compares."""
    kept = await run(letter, tmp_path, OF_GO)
    kinds = {kind for cell in kept.cells.values() for kind in cell.figures}
    assert not kinds & OF_GO
    assert (BROADCASTER in kinds) == (letter == "a")
    if letter == "c":
        for cell in kept.cells.values():
            # On a busy machine, a newer version replaces one that some stream has not ACKed yet.
            acked, never_acked = cell.values(OURS, "latency_ms"), cell.values(OURS, "never_acked")
            assert len(acked) > sum(never_acked), "versions were not recognised among the ACKs"


@pytest.mark.soak  # a minute of building Go
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("go-control-plane")
@pytest.mark.parametrize("letter", ["a", "b", "c", "d", "e", "f", "node"])
async def test_a_workload_runs_to_its_end_with_its_peers(letter: str, tmp_path: Path) -> None:
    kept = await run(letter, tmp_path, frozenset())
    assert all(SNAPSHOT in cell.figures for cell in kept.cells.values())
    report.write(kept, tmp_path / "page.md", {})
    assert WORKLOADS[letter].title in (tmp_path / "page.md").read_text()


@pytest.mark.soak
async def test_the_profile_runs_to_its_end(tmp_path: Path) -> None:
    await run("profile", tmp_path, frozenset())


@pytest.mark.soak  # needs py-spy
async def test_a_profile_begins_when_py_spy_looks(tmp_path: Path) -> None:
    """Pushes that took less time than its start ended it without a word."""
    with running(sys.executable, "-c", "while True: pass") as pid:
        async with profile.recording(pid, tmp_path / "raw"):
            pass
    assert (tmp_path / "raw").exists()


@pytest.mark.soak  # needs py-spy
async def test_a_profile_tells_why_py_spy_sees_nothing(tmp_path: Path) -> None:
    with running("sleep", "60") as pid, pytest.raises(RuntimeError, match=r"py-spy ended with 1: .*python version"):
        async with profile.recording(pid, tmp_path / "raw"):
            pass


async def test_a_profile_without_py_spy_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RuntimeError, match=r"py-spy is missing: .* -m pip install -r bench/requirements\.txt"):
        async with profile.recording(0, tmp_path / "raw"):
            pass


def test_versions_are_in_the_order_of_pushes() -> None:
    """The revision of one resource of ours has a hash behind it; labels and go-control-plane's versions are numbers."""
    assert [number_of(version) for version in ("2+ce5c5dcb", "10+00000000", "7")] == [2, 10, 7]
