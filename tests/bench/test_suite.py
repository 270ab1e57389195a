"""The suite: what it says of results, and one small cell of it for real."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from mmap import mmap
from pathlib import Path

import pytest

from bench.load.fleet import Fleet, FleetSpec, Variant
from bench.peers.peer import Kind, Peer
from bench.suite import idle, process, report, storm
from bench.suite.goals import GOALS, Goal, judge, judge_all
from bench.suite.latency import convergence_s, quantile
from bench.suite.measure import Change, Clients, Side, alternate, push_once
from bench.suite.process import cpu_s, rest, rss_kb
from bench.suite.pushes import clients
from bench.suite.results import Cell, Figures, Results, merge
from bench.suite.scale import ALL, QUICK
from bench.suite.stage import Stage, connect_all, take_turns
from bench.suite.storm import Run, gather
from bench.suite.workloads import WORKLOADS

CPU = Goal("CPU", "all of 10", "a/*/10/all", "cpu_us", 0.5, "go-snapshot", unit="us")


def cell(key: str, ours: list[float], theirs: list[float], figure: str = "cpu_us", **conditions: float) -> Cell:
    return Cell(key, conditions, {"ours": {figure: ours}, "go-snapshot": {figure: theirs}})


def results(*cells: Cell) -> Results:
    return Results({"cpu": "a fast one", "cores": 2}, {cell.key: cell for cell in cells})


# Verdicts


def test_a_goal_is_judged_by_the_ratio_of_medians() -> None:
    verdict = judge(CPU, results(cell("a/sotw/10/all", [40, 50, 900], [90, 100, 110])))
    assert (verdict.value, verdict.ours, verdict.theirs) == (0.5, 50, 100)
    assert verdict.word == "met"
    assert (verdict.low, verdict.high) == (40 / 90, 900 / 110)


def test_the_worst_cell_decides() -> None:
    verdict = judge(CPU, results(cell("a/sotw/10/all", [10], [100]), cell("a/delta/10/all", [60], [100])))
    assert (verdict.cell, verdict.word) == ("a/delta/10/all", "**missed**")
    assert (verdict.cells, verdict.misses) == (2, 1)


def test_another_figure_of_the_peer_may_be_compared() -> None:
    goal = next(goal for goal in GOALS if (goal.figure, goal.peer_figure) == ("wall_ms", "call_ms"))
    found = cell("a/sotw/10/all", [40], [10], "wall_ms")
    found.figures["go-snapshot"]["call_ms"] = [50.0]
    assert judge(goal, results(found)).value == 0.8


def test_below_is_not_at_most() -> None:
    goal = replace(CPU, bound=1.0, below=True)
    assert not judge(goal, results(cell("a/sotw/10/all", [100], [100]))).met
    assert judge(replace(goal, below=False), results(cell("a/sotw/10/all", [100], [100]))).met


def test_a_goal_without_a_peer_is_absolute() -> None:
    goal = Goal("storm", "longest wait", "d/*", "longest_wait_s", 10, unit="s")
    verdict = judge(goal, results(cell("d/sotw", [10.5], [20], "longest_wait_s")))
    assert (verdict.value, verdict.theirs, verdict.met) == (10.5, None, False)


def test_a_goal_of_the_median_ignores_one_slow_round() -> None:
    goal = Goal("storm", "longest wait", "d/*", "longest_wait_s", 10, unit="s")
    verdict = judge(goal, results(cell("d/sotw", [9, 8, 12], [20], "longest_wait_s")))
    assert (verdict.value, verdict.low, verdict.high, verdict.met) == (9, 8, 12, True)


def test_a_single_rejected_client_in_any_round_is_a_miss() -> None:
    goal = next(goal for goal in GOALS if goal.figure == "rejected")
    verdict = judge(goal, results(cell("d/sotw", [0, 0, 0, 1, 0], [0], "rejected", streams=5_000)))
    assert (verdict.value, verdict.low, verdict.high, verdict.word) == (1, 0, 1, "**missed**")
    assert judge(goal, results(cell("d/sotw", [0] * 5, [7], "rejected", streams=5_000))).word == "met"


def test_a_goal_may_compare_two_cells_of_this_server() -> None:
    goal = replace(CPU, cells="f/10000", base="f/1000", peer="ours", bound=1.3)
    both = results(cell("f/1000", [100], [1]), cell("f/10000", [120], [1]))
    assert judge(goal, both).value == 1.2
    assert judge(goal, results(cell("f/10000", [120], [1]))).word == "not measured"


def test_a_smaller_run_is_named_in_the_verdict() -> None:
    goal = replace(CPU, asks=(("streams", 5_000),))
    assert judge(goal, results(cell("a/sotw/10/all", [1], [100], streams=200))).word == "met (with 200 streams)"
    assert judge(goal, results(cell("a/sotw/10/all", [1], [100], streams=5_000))).word == "met"


def test_a_goal_without_a_measurement_is_not_met() -> None:
    verdicts = judge_all(Results())
    assert len(verdicts) == len(GOALS)
    assert {verdict.word for verdict in verdicts} == {"not measured"}


def test_every_goal_asks_for_a_workload_that_there_is() -> None:
    assert {goal.cells.partition("/")[0] for goal in GOALS} - {"[abf]*"} <= set(WORKLOADS)


# Latency


def test_a_later_version_counts_as_the_earlier_one() -> None:
    accepted = [("1", 0.0), ("2", 1.0), ("3", 2.0)]
    acks = [(0.5, 7, "1"), (2.5, 7, "3"), (1.5, 8, "2"), (2.25, 8, "3")]
    assert convergence_s(accepted, acks, 2) == [1.5, 1.5, 0.5]


def test_an_ack_before_the_answer_is_no_time_at_all() -> None:
    assert convergence_s([("1", 5.0)], [(4.0, 0, "1")], 1) == [0.0]


def test_a_stream_that_never_acked_is_not_passed_over() -> None:
    assert convergence_s([("1", 0.0), ("2", 0.0)], [(1.0, 0, "2"), (1.0, 1, "1")], 2) == [1.0, None]
    assert convergence_s([("1", 0.0)], [(1.0, 0, "1"), (1.0, 0, "other")], 2) == [None]


def test_quantiles() -> None:
    values = [float(value) for value in range(100)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([], 0.5)) == (50.0, 99.0, 0.0)


# Results


def test_results_are_read_back_and_merged(tmp_path: Path) -> None:
    path = tmp_path / "performance" / "results.json"
    found = results(cell("a/sotw/10/all", [1.23456789], [2]), cell("e/sotw/10", [3], [4], "stream_kb"))
    found.save(path)
    again = Results.load(path)
    assert again.cells["a/sotw/10/all"].values("ours", "cpu_us") == [1.23457]
    again.put(cell("a/sotw/10/all", [9], [2]))
    again.save(path)
    merged = Results.load(path)
    assert (list(merged.cells), merged.machine["cores"]) == (["a/sotw/10/all", "e/sotw/10"], 2)
    assert merged.cells["a/sotw/10/all"].median("ours", "cpu_us") == 9


def test_results_of_another_schema_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"schema": 0, "machine": {}, "cells": []}))
    with pytest.raises(ValueError, match="schema 0"):
        Results.load(path)


# The page


def test_the_page_has_the_goals_the_machine_and_a_table_for_each_workload(tmp_path: Path) -> None:
    found = results(
        cell("a/sotw/10/all", [30] * 5, [100] * 5, streams=1_000),
        cell("d/sotw", [10.5] * 5, [20], "longest_wait_s", streams=5_000),
    )
    page = tmp_path / "performance.md"
    found.save(tmp_path / "performance" / report.RESULTS)
    report.write(page)
    text = page.read_text()
    assert "| cpu | a fast one |" in text
    assert (
        "| 10 clusters, SotW, of the snapshot cache | at most 0.35 | 0.3 | met | 30 / 100 us; `a/sotw/10/all` |" in text
    )
    assert "at most 10 s | 10.5 s | **missed** | `d/sotw` |" in text
    assert "| `a/sotw/10/all` | 1,000 | ours | 30 |" in text
    assert "100 (x 0.3)" in text
    assert "(e) Idle streams" not in text


def test_the_page_names_servers_with_fewer_than_five_rounds() -> None:
    found = results(
        cell("d/sotw", [10, 9, 8, 7, 30], [20], "longest_wait_s", streams=5_000),
        cell("e/sotw/10", [12, 13], [50, 52], "stream_kb", streams=1_000),
        cell("c/sotw/100", [3], [4], "p50", streams=100),
    )
    text = report.render(found)
    assert "each round starts one server anew" in text
    assert "one run each" not in text
    assert "| `d/sotw` | 5,000 | ours |  | 9 |" in text
    assert "go-control-plane, snapshot cache (1 round) |  | 20 |" in text
    assert "| `e/sotw/10` | 1,000 | ours (2 rounds) | 12.5 |" in text
    assert "| `c/sotw/100` | 100 | ours | 3 |" in text


def test_a_busy_machine_is_reported() -> None:
    found = results(cell("a/sotw/10/all", [80], [100]), cell("e/sotw/10", [80], [100], "stream_kb"))
    assert "busy" not in report.render(found)
    found.cells["e/sotw/10"].load = 4.5
    assert "load average above 4) while some cells of e were measured" in report.render(found)


def test_the_page_says_why_a_goal_is_missed_as_long_as_it_is() -> None:
    slow = report.render(results(cell("a/sotw/10/all", [132], [100], "call_ms")))
    assert "### What is missed, and why\n" in slow
    goal = next(goal for goal in GOALS if goal.figure == "call_ms")
    assert f"* **wall time, {goal.what}**.\n  {goal.why.splitlines()[0]}\n" in slow
    assert "What is missed" not in report.render(results(cell("a/sotw/10/all", [39], [100], "call_ms")))
    assert "What is missed" not in report.render(results())


def test_every_workload_describes_its_measurement() -> None:
    assert all(workload.text and workload.columns for workload in WORKLOADS.values())


# Measuring


@dataclass
class CountingServer:
    """Takes a millisecond of CPU a push, by its own account."""

    pushes: int = 0

    @dataclass
    class Pushed:
        version: str
        asked_at: float
        accepted_at: float

    def cpu_s(self) -> float:
        return self.pushes / 1e3

    async def push(self, clusters: int, assignments: int, changed: str, edition: int, listeners: int) -> Pushed:
        self.pushes += 1
        return self.Pushed(str(edition), 1.0, 1.5)


@dataclass
class PromptClients(Clients):
    """ACKs were sent at this time."""

    last_at: float
    marks: int = 0

    def mark(self) -> None:
        self.marks += 1

    async def acked(self, count: int, timeout_s: float) -> PromptClients:
        return self

    def cpu_s(self) -> float:
        return 0.0

    def stats(self) -> dict[str, int]:
        return {"bytes_in": 4_000 * self.marks}

    async def stop(self) -> None:
        """Nothing runs."""


async def test_a_round_counts_from_the_answer_and_from_the_call() -> None:
    side = Side("ours", CountingServer(), 10, [(PromptClients(2.0), 4), (PromptClients(3.0), 6)])
    figures = (await push_once(side, Change(10))).figures(side.streams)
    assert (figures["cpu_us"], figures["push_ms"], figures["wall_ms"], figures["call_ms"]) == (100, 500, 1500, 2000)
    assert figures["received_kb"] == 2 * 4 / 10
    early = Side("ours", CountingServer(), 1, [(PromptClients(1.2), 1)])
    assert (await push_once(early, Change(10))).wall_s == 0.0


async def test_rounds_alternate_and_the_first_are_not_kept() -> None:
    sides = [Side(kind, CountingServer(), 1, [(PromptClients(2.0), 1)]) for kind in ("ours", "go-snapshot")]
    figures: Figures = await alternate(sides, Change(10), rounds=3, warm=2)
    assert [len(figures[kind]["cpu_us"]) for kind in figures] == [3, 3]
    assert [side.server.pushes for side in sides] == [5, 5]


async def test_servers_take_turns_as_long_as_they_have_rounds() -> None:
    taken: list[Kind] = []

    async def run(kind: Kind) -> int:
        taken.append(kind)
        return len(taken)

    found = await take_turns({"ours": 3, "go-snapshot": 1, "go-linear": 2}, run)
    assert taken == ["ours", "go-snapshot", "go-linear", "ours", "go-linear", "ours"]
    assert found == {"ours": [1, 4, 6], "go-snapshot": [2], "go-linear": [3, 5]}


def test_rounds_are_merged_one_value_each() -> None:
    assert merge([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == {"a": [1, 3], "b": [2, 4]}


def run_of(longest_s: float) -> Run:
    return Run({"longest_wait_s": longest_s, "rejected": 0.0}, {"waits_s": [0.5, longest_s]})


@pytest.mark.parametrize(("waits", "shown"), [([7, 9, 8], 8), ([7, 9, 8, 6], 7), ([7], 7)])
def test_the_waits_kept_of_storms_are_those_of_the_storm_with_the_median_longest_wait(
    waits: list[float], shown: float
) -> None:
    assert gather([run_of(longest_s) for longest_s in waits]) == {
        "longest_wait_s": waits,
        "rejected": [0.0] * len(waits),
        "waits_s": [0.5, shown],
    }


async def test_storms_are_kept_round_by_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[Variant, Kind]] = []

    async def run_storm(stage: Stage, variant: Variant, kind: Kind) -> Run:
        taken.append((variant, kind))
        return run_of(len(taken))

    monkeypatch.setattr(storm, "run_storm", run_storm)
    stage = Stage(QUICK.in_rounds(3), Results(), tmp_path / "results.json")
    await storm.storm(stage)
    assert taken[:4] == [("sotw", "ours"), ("sotw", "go-snapshot"), ("sotw", "ours"), ("sotw", "ours")]
    kept = stage.results.cells["d/sotw"]
    assert kept.values("ours", "longest_wait_s") == [1, 3, 4]
    assert kept.values("ours", "waits_s") == [0.5, 3]
    assert kept.values("go-snapshot", "longest_wait_s") == [2]


async def test_idle_streams_are_kept_round_by_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, Kind]] = []

    async def run_idle(stage: Stage, spec: FleetSpec, size: int, kind: Kind) -> dict[str, float]:
        taken.append((size, kind))
        return {"stream_kb": len(taken)}

    monkeypatch.setattr(idle, "run_idle", run_idle)
    stage = Stage(QUICK.in_rounds(2), Results(), tmp_path / "results.json")
    await idle.idle(stage)
    assert taken[:4] == [(10, "ours"), (10, "go-snapshot"), (10, "ours"), (10, "go-snapshot")]
    kept = stage.results.cells["e/delta/10"]
    assert (kept.values("ours", "stream_kb"), kept.values("go-snapshot", "stream_kb")) == ([1, 3], [2, 4])


def test_all_of_it_has_the_rounds_that_the_goals_ask_for() -> None:
    assert min(ALL.rounds, ALL.storm_rounds, ALL.idle_rounds) >= 5
    assert ALL.in_rounds(7) == replace(ALL, rounds=7, storm_rounds=7, idle_rounds=7)


async def test_a_process_that_works_is_waited_for_until_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s, memory_kb = iter([0.0, 1.0, 2.0]), iter([100.0, 5_000.0, 5_000.0, 90_000.0])
    monkeypatch.setattr(process, "cpu_s", lambda pid: next(spent_s, 2.0))
    monkeypatch.setattr(process, "rss_kb", lambda pid: next(memory_kb, 70_000.0))
    monkeypatch.setattr(process, "REST_PAUSE_S", 0.001)
    monkeypatch.setattr(process, "REST_S", 0.01)
    assert await rest(1) == 70_000.0


async def test_a_process_that_never_rests_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = count()
    monkeypatch.setattr(process, "cpu_s", lambda pid: float(next(growing)))
    monkeypatch.setattr(process, "rss_kb", lambda pid: 100.0)
    monkeypatch.setattr(process, "REST_PAUSE_S", 0.001)
    monkeypatch.setattr(process, "REST_TIMEOUT_S", 0.01)
    assert await asyncio.wait_for(rest(1), 30.0) == 100.0


def test_cpu_and_memory_of_a_process_grow() -> None:
    before_s, before_kb = cpu_s(os.getpid()), rss_kb(os.getpid())
    with mmap(-1, 64 << 20) as kept:  # new pages: Python's allocator may have free ones that are resident
        kept.write(b"x" * len(kept))
        assert cpu_s(os.getpid()) > before_s
        assert rss_kb(os.getpid()) > before_kb + len(kept) / 2048


@asynccontextmanager
async def stage_of_two(tmp_path: Path) -> AsyncIterator[tuple[Stage, list[Side[Peer, Fleet]]]]:
    stage = Stage(QUICK.in_rounds(2), Results(), tmp_path / "results.json")
    async with stage.sides(("ours", "broadcaster"), Change(10)) as sides:
        yield stage, sides


@pytest.mark.soak  # `test_a_workload_runs_to_its_end` has one in `make test`
async def test_one_cell_for_real(tmp_path: Path) -> None:
    async with stage_of_two(tmp_path) as (stage, sides):
        await connect_all(sides, clients(20, "sotw"))
        stage.keep("a/sotw/10/all", await alternate(sides, Change(10), stage.rounds, warm=1), streams=20)
    kept = Results.load(tmp_path / "results.json").cells["a/sotw/10/all"]
    for kind in ("ours", "broadcaster"):
        assert len(kept.values(kind, "cpu_us")) == 2
        assert min(kept.values(kind, "cpu_us")) > 0
        assert min(kept.values(kind, "call_ms")) > 0
