"""Traffic assignment with real clients: a server, two Envoys in two zones under load, and the result of every request.

    python -m bench.assignment_live [--out docs/load-assignment] [--phase-s 30]

The near zone gets more load than its capacity, then less again, then its endpoints are killed. Each row is one phase:
how many requests of the near zone stayed there, how many the policy wanted to stay, how many were lost, and after how
many intervals Envoy had the split that the policy wants. ``--out`` writes the numbers to ``live.json`` and draws them
to ``live.png`` (needs matplotlib: bench/requirements.txt). All times of the policy are a fifth of the defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

Json = dict[str, Any]

GROUP, CLUSTER = "test", "web"
NEAR, FAR = "near", "far"
CAPACITY_RPS = 120.0
LOW_RPS, HIGH_RPS, FAR_RPS = 60.0, 200.0, 30.0
INTERVAL_S = 2.0
POLICY: Json = {
    "capacity": {"rates": [{"per_locality_rps": CAPACITY_RPS}]},
    "interval_s": INTERVAL_S,
    "dwell_s": 3 * INTERVAL_S,
    "stale_after_s": 3 * INTERVAL_S,
    "fallback_after_s": 30 * INTERVAL_S,
}
PREVIOUS_PRIORITIES = "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig"
SAMPLE_S = 0.5
RATE_S = 2.0  # what a drawn rate is averaged over
CLOSE = 0.05  # a share within this distance of the wanted one counts as reached


@dataclass
class Phase:
    """``begin`` starts the phase; ``stays`` is the share of the near zone's requests that ought to stay there."""

    name: str
    begin: Callable[[], None]
    stays: float


@dataclass
class Run:
    """What was sampled: seconds, answers by zone and failures of the near zone since the start, decided shares."""

    at: list[float] = field(default_factory=list)
    answered: list[dict[str, int]] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    decided: list[dict[str, float]] = field(default_factory=list)
    phases: list[tuple[str, float, float]] = field(default_factory=list)  # name, beginning, share that ought to stay


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--phase-s", type=float, default=30.0)
    given = parser.parse_args()
    with TemporaryDirectory() as directory, ExitStack() as stack:
        run = _run(Path(directory), stack, given.phase_s)
    rows = _rows(run)
    print(f"interval {INTERVAL_S:g} s, capacity {CAPACITY_RPS:g} requests/s, load {LOW_RPS:g} and {HIGH_RPS:g}")
    print(f"{'phase':<10}{'requests':>10}{'stayed':>9}{'wanted':>9}{'lost':>6}{'intervals':>11}")
    for row in rows:
        stayed, wanted, intervals = f"{row['stayed']:.1%}", f"{row['wanted']:.1%}", f"{row['intervals']:.1f}"
        print(f"{row['phase']:<10}{row['requests']:>10}{stayed:>9}{wanted:>9}{row['lost']:>6}{intervals:>11}")
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        numbers = {"policy": POLICY, "rows": rows, "samples": vars(run)}
        (given.out / "live.json").write_text(f"{json.dumps(numbers)}\n")
        draw(run, given.out / "live.png")


def _run(directory: Path, stack: ExitStack, phase_s: float) -> Run:
    background = stack.enter_context(Background())
    upstreams = {zone: [_upstream(stack, background, zone) for _ in range(2)] for zone in (NEAR, FAR)}
    server = stack.enter_context(ServerProcess(directory, ["--store", "memory", "--lrs-interval", "1s"], forked=False))
    server.push(GROUP, _resources({zone: [each.port for each in members] for zone, members in upstreams.items()}))
    loads = {}
    for zone, rps in ((NEAR, LOW_RPS), (FAR, FAR_RPS)):
        fields: Json = {"locality": {"region": "r", "zone": zone}, "load_reports": True}
        bootstrap = EnvoyBootstrap(server.grpc_port, Variant.ADS_DELTA, node_id=f"envoy-{zone}", **fields)
        port = stack.enter_context(EnvoyProcess(directory, bootstrap, f"envoy-{zone}")).wait_listener("web")
        loads[zone] = stack.enter_context(HttpLoad(background, port, rps=rps, connections=16))
    near = loads[NEAR]
    server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/{CLUSTER}", json=POLICY)
    wait_until(lambda: _decided(server).get(NEAR, 0.0) > 1 - CLOSE, "the near zone keeps its own")

    def load(rps: float) -> Callable[[], None]:
        return lambda: setattr(near, "rps", rps)

    def kill() -> None:
        for each in upstreams[NEAR]:
            each.close()

    phases = (
        Phase("low", load(LOW_RPS), 1.0),
        Phase("high", load(HIGH_RPS), CAPACITY_RPS / HIGH_RPS),
        Phase("low-again", load(LOW_RPS), 1.0),
        Phase("killed", kill, 0.0),
    )
    return _sample(server, near, phases, phase_s)


def _sample(server: ServerProcess, near: HttpLoad, phases: Sequence[Phase], phase_s: float) -> Run:
    run, started = Run(), time.monotonic()
    for phase in phases:
        begun = time.monotonic()
        run.phases.append((phase.name, begun - started, phase.stays))
        phase.begin()
        while time.monotonic() - begun < phase_s:
            run.at.append(time.monotonic() - started)
            run.answered.append(dict(near.report.bodies))
            run.failed.append(near.report.failed)
            run.decided.append(_decided(server))
            time.sleep(SAMPLE_S)
    return run


def _upstream(stack: ExitStack, background: Background, zone: str) -> Upstream:
    made = Upstream(background, zone)
    stack.callback(made.close)
    return made


def _resources(zones: Mapping[str, Sequence[int]]) -> list[Json]:
    # Half of the endpoints may die: the others are to serve all (panic threshold 0), and who got no answer tries again,
    # in the next priority, with more retries at once than the three that are the default.
    balancing = {"locality_weighted_lb_config": {}, "healthy_panic_threshold": {"value": 0}}
    elsewhere = {"@type": r.TYPE + PREVIOUS_PRIORITIES, "update_frequency": 1}
    retries = {
        "retry_on": "connect-failure,reset,refused-stream",
        "num_retries": 3,
        "retry_priority": {"name": "envoy.retry_priorities.previous_priorities", "typed_config": elsewhere},
    }
    return [
        r.eds_cluster(
            CLUSTER,
            common_lb_config=balancing,
            lrs_server={"self": {}},
            circuit_breakers={"thresholds": [{"max_retries": 100}]},
            **r.http_health_check(),
        ),
        r.zoned_load_assignment(CLUSTER, zones),
        r.listener("web", r.rds("web")),
        r.route_config("web", r.route(CLUSTER, retry_policy=retries)),
    ]


def _decided(server: ServerProcess) -> dict[str, float]:
    """The shares of the near zone's requests, by zone."""
    item = server.get(f"/groups/{GROUP}/assignments/{CLUSTER}")
    own = next((one for one in item["sources"] if one["source"]["zone"] == NEAR), None)
    return {one["locality"]["zone"]: one["share"] for one in own["allotments"] if one["share"]} if own else {}


def _rows(run: Run) -> list[Json]:
    """What each phase came to. ``intervals``: until the share was as wanted for good.

    That is the decided share; when endpoints are killed, the one that is answered: proxies see it before the server.
    """
    ends = [at for _, at, _ in run.phases[1:]] + [run.at[-1] + SAMPLE_S]
    rows = []
    for (name, begun, stays), end in zip(run.phases, ends, strict=True):
        inside = [index for index, at in enumerate(run.at) if begun <= at < end]
        first, last = inside[0], inside[-1]
        answered = Counter(run.answered[last]) - Counter(run.answered[first])
        late = Counter(run.answered[last]) - Counter(run.answered[(first + last) // 2])
        shares = _answered(run) if not stays else [one.get(NEAR, 0.0) for one in run.decided]
        off = max((index for index in inside if abs(shares[index] - stays) > CLOSE), default=first - 1)
        rows.append(
            {
                "phase": name,
                "requests": answered.total(),
                "stayed": late[NEAR] / late.total() if late else 0.0,
                "wanted": stays,
                "lost": run.failed[last] - run.failed[first],
                "intervals": max(run.at[min(off + 1, last)] - begun, 0.0) / INTERVAL_S if off >= first else 0.0,
            }
        )
    return rows


def _answered(run: Run) -> list[float]:
    """The part of the near zone's requests that was answered there, over the seconds before each sample."""
    back = round(RATE_S / SAMPLE_S)
    found = []
    for index in range(len(run.at)):
        new = Counter(run.answered[index]) - Counter(run.answered[max(index - back, 0)])
        found.append(new[NEAR] / new.total() if new else 1.0)
    return found


def draw(run: Run, path: Path) -> None:
    """Requests a second of the near zone by who answered, and the share that was decided."""
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    figure, (rates, shares) = pyplot.subplots(2, 1, figsize=(9.0, 5.2), layout="constrained", sharex=True)
    back = round(RATE_S / SAMPLE_S)
    at = run.at[back:]
    rows = [[_rate(run, index, zone, back) for index in range(back, len(run.at))] for zone in (NEAR, FAR)]
    rates.stackplot(at, rows, labels=["answered near", "answered far"], colors=["#1b6ca8", "#c8553d"])
    rates.axhline(CAPACITY_RPS, color="black", linewidth=0.8, linestyle="--", label="capacity of a zone")
    rates.set_ylabel("requests/s of the near zone")
    rates.legend(loc="upper left", frameon=False)
    shares.step(
        run.at, [100 * one.get(NEAR, 0.0) for one in run.decided], where="post", color="#1b6ca8", label="decided"
    )
    shares.plot(run.at, [100 * one for one in _answered(run)], color="#e2a76f", linewidth=1.1, label="answered near")
    shares.legend(loc="lower left", bbox_to_anchor=(0.0, 0.15), frameon=False)
    shares.set_ylabel("share that stays, %")
    shares.set_ylim(-5, 105)
    shares.set_xlabel(f"seconds (an interval of the policy is {INTERVAL_S:g} s)")
    for axis in (rates, shares):
        axis.grid(alpha=0.3)
        for name, begun, stays in run.phases:
            axis.axvline(begun, color="black", linewidth=0.6, alpha=0.4)
            if axis is shares:
                end = begun + (run.at[-1] / len(run.phases))
                axis.hlines(100 * stays, begun, end, color="black", linewidth=0.8, linestyle="--")
                axis.text(begun + 0.5, 8, name, fontsize=8)
    figure.suptitle(f"Two zones, two Envoys: {run.failed[-1]} of {sum(run.answered[-1].values())} requests lost")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _rate(run: Run, index: int, zone: str, back: int) -> float:
    count = run.answered[index].get(zone, 0) - run.answered[index - back].get(zone, 0)
    return count / (run.at[index] - run.at[index - back])


if __name__ == "__main__":
    main()
