"""The workload with real Envoys: (h)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.fanout import Server, running_server
from bench.pushes import GROUP, assignment, cluster, connected
from bench.suite.goals import OURS
from bench.suite.measure import WARM_ROUNDS
from bench.suite.process import cpu_s, quiet
from bench.suite.stage import Stage
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess

TIMEOUT_S = 120.0
VARIANTS = {"sotw": Variant.ADS_SOTW, "delta": Variant.ADS_DELTA}
Json = dict[str, Any]


async def real_envoys(stage: Stage) -> None:
    """Twenty real Envoys (one worker thread each) on the same two cores, with EDS clusters and their assignments.

    A push of one assignment, and a push of one more cluster with its assignment, from the request until the last Envoy
    has ACKed all of it (``Prefer: wait``). Most of the time is Envoy's own. Only our server.
    """
    for size in stage.scale.envoy_clusters:
        for variant in VARIANTS:
            await _envoys(stage, variant, size)


async def _envoys(stage: Stage, variant: str, size: int) -> None:
    count = stage.scale.envoys
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        async with httpx.AsyncClient(base_url=server.http, timeout=TIMEOUT_S) as client:
            resources = [cluster(index) for index in range(size)] + [assignment(index, 0) for index in range(size)]
            answer = await client.put(f"{GROUP}/snapshot", json={"resources": resources})
            answer.raise_for_status()
            port = int(server.grpc.rpartition(":")[2])
            with _running(Path(folder), VARIANTS[variant], port, count):
                await connected(client, count)
                found = await _rounds(client, server, size, count, stage.rounds)
    for change, figures in found.items():
        key = f"h/{variant}/{size}/{change}"
        stage.keep(key, {OURS: figures}, variant=variant, clusters=size, changed=change, streams=count)


async def _rounds(
    client: httpx.AsyncClient, server: Server, size: int, count: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {"endpoint": {}, "cluster": {}}
    for number in range(WARM_ROUNDS + rounds):
        added = size + number
        changes = {
            "endpoint": [assignment(0, number + 1)],
            "cluster": [cluster(added), assignment(added, 0)],
        }
        for change, resources in changes.items():
            figures = await _push(client, server, resources, count)
            for name, value in figures.items() if number >= WARM_ROUNDS else ():
                found[change].setdefault(name, []).append(value)
    return found


async def _push(client: httpx.AsyncClient, server: Server, resources: Sequence[Json], count: int) -> dict[str, float]:
    before_s, began = cpu_s(server.pid), time.monotonic()
    change = {"changes": [{"group": "default", "put": list(resources)}]}
    answer = await client.post("/api/v1/transactions", json=change, headers={"Prefer": "wait=60"})
    took_s = time.monotonic() - began
    # 202: not everybody had it in time.
    assert answer.status_code == httpx.codes.OK, f"{answer.status_code} {answer.text[:1000]}"
    return {"call_ms": took_s * 1e3, "cpu_us": (await quiet(lambda: cpu_s(server.pid)) - before_s) / count * 1e6}


@contextmanager
def _running(folder: Path, variant: Variant, port: int, count: int) -> Iterator[None]:
    with ExitStack() as running:
        for number in range(count):
            bootstrap = EnvoyBootstrap(port, variant, node_id=f"envoy-{number}")
            running.enter_context(EnvoyProcess(folder, bootstrap, name=f"envoy-{number}"))
        yield
