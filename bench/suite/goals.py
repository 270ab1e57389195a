"""The goals, as data, and whether the results meet them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from bench.suite.results import Cell, Results

OURS: Final = "ours"
SNAPSHOT: Final = "go-snapshot"
LINEAR: Final = "go-linear"
BROADCASTER: Final = "broadcaster"
Statistic = Literal["median", "worst"]
# How a smaller run is told of, by condition.
SHORT = {"streams": "with {:,} streams", "later_s": "after {:g} s"}

WHY_ANSWERED: Final = """\
go-control-plane answers a push after it has built all responses and passed them to the writers of the streams, which
is most of its work. Our server answers when the push is durable, and notifies the streams then. In some cells the last
ACK of go-control-plane comes before its own answer; these cells are not counted, because nothing is left to compare.
Our server could meet this goal by answering later, but users would gain nothing. The next two rows are a fair
comparison."""
WHY_ACCEPTED: Final = """\
A Python process serves its streams on one core, so our wall time is our CPU time. go-control-plane uses both cores,
which the load generator needs too. With 1,000 clusters our server takes a small part of its time. With ten clusters,
where little work is done per stream, the transport decides: bare `grpc.aio`, which has no protocol and sends prepared
bytes, is only a little faster than go-control-plane (rows of the broadcaster in (a)), and nearly half of our own time
is sockets and the event loop. In most of these
cells our server is a little faster, in the others a little slower. Which cells these are differs from run to run."""
WHY_CALL: Final = """\
As above. In addition our time includes the HTTP request, its validation and its commit (the difference of our two
columns), while `SetSnapshot` is a function call. With 100 streams these parts decide: from our
answer to the last ACK takes less time than from their call."""

WHY_STEP: Final = """\
In a profile of the server, a fifth is the write of the socket, and no other function has more than 6 %: the rest is
spread over the shell, HTTP/2, the look-up of the cohort, the state of the fleet and the metrics. 4 to 5 us of some 24
are a thousandth of the push itself. Runs of one day differ: 0.36 to 0.44 in SotW, 0.29 to 0.36 in Delta where all
change. The share was larger while the machine was slow."""
WHY_STEPS: Final = """\
Sockets, Python code and the push itself, as for 10 clusters in SotW. Each further type is one more step."""
WHY_FEW: Final = """\
The push itself takes 4 to 5 ms of CPU, whatever the number of streams: more than half of all. Repeated at once it takes
1.9 ms, and twice as much after a pause, when the caches of the processor have other content. Of the 1.9 ms (`xds serve`
without sockets, in us): middleware and routing 130; parameters and dependencies of the framework 290; reading and
checking the body 190; locks, the plan of the change and its reviews 220; the store 600, of which 170 are SQLite's
statements and 100 the way to its thread and back; the next snapshot 90; serving it, with the removal log, 140; the
answer 120. No function has more than a few percent."""
WHY_LARGE: Final = """\
The push of 1,000 clusters takes 31 us for each of 1,000 streams, and the kernel copies 76 kB to each of them. Of the
31 ms, 11 are reading and checking the body in a thread (10 us for a resource), 5 what the store keeps and the reviews,
8 the store (5 of them SQLite's rows: a blob, an entry and a past entry for each resource), 2 the next snapshot and its
frames, and 3 serving it, with the removal log."""
WHY_NODE: Final = """\
Without a node a push and an ACK take 0.43 of the CPU in the same run; the rest are reads and copies of the 61 kB of
each ACK. The frame that extends the window of the stream is written for every fourth of them only, but not for clients
without a credential."""
WHY_MEMORY: Final = """\
A stream has the state of the engine, HTTP/2 and the transport (3 kB), and its state in the fleet."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Our figure in every cell that matches, at most ``bound`` times the peer's; without a peer, at most ``bound``.

    ``base`` names another cell to compare with, instead of the same one, and ``peer_figure`` another figure of the
    peer's. ``asks`` are conditions of the cell without
    which the verdict is but a hint. ``statistic`` says what of our rounds is judged: the worst where a single one is
    enough to miss the goal. ``why`` is what the page says of it as long as it is missed.
    """

    workload: str
    what: str
    cells: str
    figure: str
    bound: float
    peer: str = ""
    base: str = ""
    peer_figure: str = ""
    below: bool = False
    unit: str = ""
    asks: tuple[tuple[str, float], ...] = ()
    statistic: Statistic = "median"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The worst of the cells; ``value`` is None when none was measured. ``low`` and ``high``: over the rounds.

    ``cells`` counts those that were judged, ``misses`` those of them in which the goal is missed.
    """

    goal: Goal
    value: float | None = None
    low: float = 0.0
    high: float = 0.0
    cell: str = ""
    ours: float = 0.0
    theirs: float | None = None
    short: str = ""
    cells: int = 0
    misses: int = 0

    @property
    def met(self) -> bool:
        """False as well where nothing was measured."""
        if self.value is None:
            return False
        return self.value < self.goal.bound if self.goal.below else self.value <= self.goal.bound

    @property
    def is_missed(self) -> bool:
        """False as well where nothing was measured."""
        return self.value is not None and not self.met

    @property
    def word(self) -> str:
        """What the table says."""
        if self.value is None:
            return "not measured"
        said = "met" if self.met else "**missed**"
        return f"{said} ({self.short})" if self.short else said


def judge(goal: Goal, results: Results) -> Verdict:
    """The cell in which the goal is furthest from being met."""
    verdicts = list(_judge_cells(goal, results))
    if not verdicts:
        return Verdict(goal)
    worst = max(verdicts, key=lambda verdict: verdict.value or 0.0)
    return replace(worst, cells=len(verdicts), misses=sum(verdict.is_missed for verdict in verdicts))


def judge_all(results: Results) -> list[Verdict]:
    """All goals, in the order of the issue."""
    return [judge(goal, results) for goal in GOALS]


def _judge_cells(goal: Goal, results: Results) -> Iterator[Verdict]:
    for cell in results.matching(goal.cells):
        base = results.cells.get(goal.base) if goal.base else cell
        judged = cell.worst if goal.statistic == "worst" else cell.median
        ours = judged(OURS, goal.figure)
        if base is None or ours is None:
            continue
        short = _short(goal, cell)
        if not goal.peer:
            values = cell.values(OURS, goal.figure)
            yield Verdict(goal, ours, min(values), max(values), cell.key, ours, None, short)
        elif theirs := base.median(goal.peer, goal.peer_figure or goal.figure):
            low, high = _spread(cell.values(OURS, goal.figure), base.values(goal.peer, goal.peer_figure or goal.figure))
            yield Verdict(goal, ours / theirs, low, high, cell.key, ours, theirs, short)


def _spread(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest ratio of rounds that followed each other."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=False) if other]
    return (min(ratios), max(ratios)) if ratios else (0.0, 0.0)


def _short(goal: Goal, cell: Cell) -> str:
    """In which conditions the cell falls short of what the goal asks."""
    missing = [name for name, least in goal.asks if cell.conditions.get(name, 0) < least]
    return ", ".join(SHORT[name].format(cell.conditions.get(name, 0)) for name in missing)


def _cpu(what: str, cells: str, bound: float, peer: str = SNAPSHOT, why: str = "") -> Goal:
    return Goal("CPU per push + ACK", what, cells, "cpu_us", bound, peer, unit="us", why=why)


def _memory(clusters: int, bound: float) -> Goal:
    what = f"{clusters:,} clusters"
    return Goal("memory per idle stream in step", what, f"e/*/{clusters}", "stream_kb", bound, SNAPSHOT, unit="kB")


def _growth(variant: str, clusters: int) -> Goal:
    what = f"10,000 streams over 1,000, {_named(variant)}, {clusters:,} clusters"
    change = "all" if variant == "sotw" else "one"
    cells = [f"f/{variant}/{clusters}/{change}/{streams}" for streams in (10_000, 1_000)]
    return Goal("growth", what, cells[0], "cpu_us", 1.3, OURS, base=cells[1], unit="us")


def _storm(what: str, figure: str, bound: float, unit: str, statistic: Statistic = "median", **asks: float) -> Goal:
    asked = (("streams", 5_000.0), *asks.items())
    return Goal("storm of 5,000 clients", what, "d/*", figure, bound, unit=unit, asks=asked, statistic=statistic)


def _wall(what: str, figure: str, peer_figure: str, why: str) -> Goal:
    return Goal(
        "wall time", what, "[abf]*", figure, 1.0, SNAPSHOT, peer_figure=peer_figure, below=True, unit="ms", why=why
    )


def _named(variant: str) -> str:
    return "SotW" if variant == "sotw" else "Delta"


GOALS: tuple[Goal, ...] = (
    _cpu("10 clusters, SotW, of the snapshot cache", "a/sotw/10/*", 0.35, why=WHY_STEP),
    _cpu("10 clusters, Delta, of the snapshot cache", "a/delta/10/*", 0.3, why=WHY_STEPS),
    _cpu("two types in order, SotW, of the snapshot cache", "types/sotw", 0.35, why=WHY_STEPS),
    _cpu("two types in order, Delta, of the snapshot cache", "types/delta", 0.3, why=WHY_STEPS),
    _cpu("five types in order, SotW, of the snapshot cache", "five/sotw", 0.35, why=WHY_STEPS),
    _cpu("five types in order, Delta, of the snapshot cache", "five/delta", 0.3, why=WHY_STEPS),
    _cpu("10 clusters with 100 streams, of the snapshot cache", "f/*/10/*/100", 1.0, why=WHY_FEW),
    _cpu("10 clusters, SotW, of the bare broadcaster", "a/sotw/10/*", 1.35, BROADCASTER),
    _cpu("10 clusters, Delta, of the bare broadcaster", "a/delta/10/*", 1.35, BROADCASTER),
    _cpu("all of 1,000 clusters, SotW, of the snapshot cache", "a/sotw/1000/all", 0.035, why=WHY_LARGE),
    _cpu("all of 1,000 clusters, Delta, of the snapshot cache", "a/delta/1000/all", 0.035),
    _cpu("all of 1,000 clusters, SotW, of the linear cache", "a/sotw/1000/all", 0.25, LINEAR),
    _cpu("all of 1,000 clusters, Delta, of the linear cache", "a/delta/1000/all", 0.25, LINEAR),
    _cpu("one of 1,000 clusters, Delta", "a/delta/1000/one", 0.4),
    _cpu("one of 10,000 clusters, Delta", "a/delta/10000/one", 0.03),
    _cpu("a 61 KB node in every ACK", "node/*", 0.15, why=WHY_NODE),
    _wall("from the answer to a push to last ACK", "wall_ms", "wall_ms", WHY_ANSWERED),
    _wall("from accepted push to last ACK: ours from its answer, theirs from `SetSnapshot`", "wall_ms", "call_ms",
          WHY_ACCEPTED),
    _wall("from the call to last ACK: ours from the HTTP request, theirs from `SetSnapshot`", "call_ms", "call_ms",
          WHY_CALL),
    Goal("memory per idle stream in step", "any number of clusters", "e/*", "stream_kb", 6.5, unit="kB",
         why=WHY_MEMORY),
    _memory(10, 0.95),
    _memory(1_000, 0.16),
    _memory(10_000, 0.03),
    *(Goal("memory per idle stream in step", f"the same at 10 and at 10,000 clusters, {_named(variant)}",
           f"e/{variant}/10000", "stream_kb", 1.1, OURS, base=f"e/{variant}/10", unit="kB")
      for variant in ("sotw", "delta")),
    *(_growth(variant, clusters) for clusters in (10, 1_000) for variant in ("sotw", "delta")),
    _storm("rejected, in the worst round", "rejected", 0, "", "worst"),
    _storm("longest wait for the first answer", "longest_wait_s", 10, "s"),
    _storm("longest that an established stream waits for a push", "longest_gap_s", 1, "s"),
    _storm("peak memory over the steady state", "peak_ratio", 3, ""),
    _storm("memory a minute later over the steady state", "later_ratio", 1.3, "", later_s=60),
)  # fmt: skip
