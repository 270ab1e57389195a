"""The benchmarks run and print, tried with tiny parameters; their figures are nobody's business here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.engine import bytes_per_stream
from bench.fanout import running_server
from bench.nodes import LISTS, PATHS
from tests.support.process import REPOSITORY, child_environment
from xds.protocol.dialect import Variant

RUN_TIMEOUT_S = 100
LARGE_FLEET_TIMEOUT_S = 600
# Of a stream of four types in sync, its node in the fleet's state included: 5,186. The budget for unknown names and the
# proof of warm clusters are 136 of them.
STREAM_BYTES = 5_248
# Module to tiny parameters and what its rows are named by.
BENCHES = {
    "bench.engine": (["--streams", "2", "--rounds", "1"], ("sotw", "delta")),
    "bench.fanout": (["--streams", "3", "--clusters", "2", "--rounds", "1"], ("sotw", "delta")),
    "bench.codec": (
        ["--resources", "20", "--endpoints", "10", "--rounds", "1"],
        ("cluster", "listener", "assignment", "document"),
    ),
    "bench.pushes": (
        ["--resources", "20", "--streams", "2", "--rate", "20", "--seconds", "0.5"],
        ("all-new", "assignments-changed", "single"),
    ),
    "bench.assignment_live": (["--phase-s", "1"], ("low", "high", "low-again", "killed")),
    "bench.chain": (["--services", "20,30", "--rounds", "1"], ("20", "30")),
    "bench.catalog": (
        ["--services", "20,30", "--streams", "3", "--rounds", "3", "--rate", "100", "--seconds", "0.5"],
        ("20", "30"),
    ),
    "bench.destination": (["--streams", "5", "--endpoints", "3,20", "--rounds", "1"], ("3", "20")),
    "bench.rollouts": (
        ["--proxies", "20", "--clusters", "3"],
        ("push", "begin", "wave-2", "wave-3", "wave-4", "promoted", "look", "supersede", "rolled_back"),
    ),
    "bench.nodes": (["--nodes", "200", "--rounds", "1"], (*LISTS, *PATHS)),
    "bench.assignment": (["--only", "jump,zone_loss"], ("jump", "zone_loss")),
}


# Those that start a server, an Envoy or a process for each row, and the one that test_chain.py measures.
LONG = {
    *("bench.engine", "bench.fanout", "bench.pushes", "bench.assignment_live", "bench.catalog", "bench.destination"),
    *("bench.assignment", "bench.chain"),
}
in_soak = [pytest.param(module, marks=pytest.mark.soak if module in LONG else ()) for module in BENCHES]


@pytest.mark.parametrize("module", in_soak)
def test_bench_runs_and_prints_its_rows(module: str) -> None:
    parameters, rows = BENCHES[module]
    done = subprocess.run(
        [sys.executable, "-m", module, *parameters],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env=child_environment(),
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _title, header, *lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} == set(rows)
    # A column's name may hold a space; no row has a cell more or less than the others.
    assert header.split()[0] in {"variant", "step", "scenario", "phase", "services", "endpoints", "list"}
    assert len({len(line.split()) for line in lines}) == 1, done.stdout


@pytest.mark.soak
def test_lists_of_a_large_fleet_answer_soon_and_hold_up_nothing() -> None:
    """The bounds are ten times the goals: 150 ms, and 20 ms in which the server does nothing else."""
    command = [sys.executable, "-m", "bench.nodes", "--rounds", "3"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LARGE_FLEET_TIMEOUT_S,
        env=child_environment(),
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    title, _header, *rows = done.stdout.splitlines()
    assert title.startswith("10000 nodes") and len(rows) == len(LISTS) + len(PATHS)
    slow = [row for row in rows if float(row.split()[1]) > 1_500 or float(row.split()[2]) > 200]
    assert not slow, done.stdout
    found = {row.split()[0]: row.split()[-1] for row in rows}
    assert (found["page"], found["nacked"], found["text"], found["long-page"]) == ("100", "100", "1", "500")


@pytest.mark.parametrize("variant", Variant)
def test_a_stream_in_sync_takes_no_more_memory_than_it_did(variant: Variant) -> None:
    # The first fleet of a process also makes what all later ones share.
    assert min(bytes_per_stream(variant, 100, 10, "envoy") for _ in range(2)) < STREAM_BYTES


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDS_SERVER__DRAIN_S", "never")
    with pytest.raises(SystemExit, match=r"(?s)ended with exit code.*drain"), running_server():
        pass


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", ["sotw", "delta"])
def test_every_stream_ends_in_step_after_a_minute_of_pushes(variant: str) -> None:
    """10,000 resources in one push, then 50 pushes a second of one resource each, with 200 streams."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.pushes", "--variant", variant],
        capture_output=True,
        text=True,
        timeout=800,
        env=child_environment(),
        cwd=REPOSITORY,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
