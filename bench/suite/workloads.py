"""The workloads, by letter. The docstring of each says what it measures; the report prints it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bench.suite import envoys, idle, pushes, rate, storm
from bench.suite.stage import Stage


@dataclass(frozen=True, slots=True)
class Workload:
    """``columns`` are the figures of the report's table, with what stands above them.

    ``in_rounds``: a figure has one value a round. Where it has not, its value is made of all that was measured.
    """

    title: str
    run: Callable[[Stage], Awaitable[None]]
    columns: Mapping[str, str]
    in_rounds: bool = True

    @property
    def text(self) -> str:
        """What it measures."""
        return inspect.cleandoc(self.run.__doc__ or "").replace("``", "`")


CPU = {"cpu_us": "CPU per push + ACK, us"}
PUSH = {**CPU, "wall_ms": "answer to last ACK, ms", "call_ms": "call to last ACK, ms"}
GENERATOR = {"generator_us": "generator's CPU per ACK, us", "received_kb": "received per stream, kB"}
STORM = {
    "rejected": "rejected",
    "longest_wait_s": "longest wait, s",
    "longest_gap_s": "established wait, s",
    "connect_us": "CPU a stream, us",
    "steady_mb": "steady, MB",
    "peak_ratio": "peak / steady",
    "later_ratio": "later / steady",
}

WORKLOADS: Mapping[str, Workload] = {
    "a": Workload("All changed, one changed", pushes.fan_out, {**PUSH, "alone_us": "without streams, us", **GENERATOR}),
    "node": Workload("A 61 KB node in every ACK", pushes.large_node, {**PUSH, **GENERATOR}),
    "types": Workload("Two types on each stream", pushes.types_in_order, {**PUSH, **GENERATOR}),
    "five": Workload("Five types on each stream", pushes.five_types, {**PUSH, **GENERATOR}),
    "b": Workload("One assignment of many, by name", pushes.assignments, {**PUSH, **GENERATOR}),
    "c": Workload(
        "A hundred changes a second",
        rate.steady,
        {
            "p50": "p50, ms",
            "p99": "p99, ms",
            "never_acked": "never ACKed",
            "pushes_per_s": "pushes a second",
            "acks_per_push": "ACKs per push and stream",
            "cpu_cores": "cores",
        },
        in_rounds=False,
    ),
    "d": Workload("Reconnect storm", storm.storm, STORM),
    "e": Workload(
        "Idle streams",
        idle.idle,
        {
            "stream_kb": "memory a stream, kB",
            "pushed_kb": "after a push, kB",
            "total_mb": "the process, MB",
            "idle_cpu_percent": "idle CPU, % of a core",
        },
    ),
    "f": Workload("Growth", pushes.growth, {**PUSH, **GENERATOR}),
    "h": Workload("Real Envoys", envoys.real_envoys, {"call_ms": "call to last ACK, ms", "cpu_us": "CPU a proxy, us"}),
    "i": Workload("TLS against plaintext", pushes.encrypted, {**PUSH, **GENERATOR}),
}
