"""Where the CPU of a push goes: samples of the server's stacks, native frames included, by part of the program."""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from bench.load.spec import Variant
from bench.suite.goals import BROADCASTER, OURS
from bench.suite.measure import Change, alternate, push_once
from bench.suite.pushes import clients
from bench.suite.stage import Side, Stage, reconnect

STREAMS = 1_000
SITUATIONS: tuple[tuple[Variant, Change], ...] = (
    ("sotw", Change(10)),
    ("delta", Change(10)),
    ("delta", Change(1_000, changed="one")),
)
SAMPLES_PER_S = 100  # looking at native frames holds up the process for a millisecond or more
PROFILED_PUSHES = 15
START_TIMEOUT_S = STOP_TIMEOUT_S = 30.0
LOOKING = b"Sampling process"  # py-spy's words when it has begun

# A thread that waits for work is at rest, whatever the kernel says of it.
WAITING = "SimpleQueue_get"

# A sample belongs to the innermost of its frames that is named here: what the C library or the interpreter do, they do
# for whoever called them.
PARTS: Mapping[str, tuple[str, ...]] = {
    "grpc_us": ("xds/wire/http2/", "xds/server/grpc/", "UVStream", "UVTCP", "uv__read", "uv__stream", "hpack/", "grpc"),
    "loop_us": ("uvloop", "asyncio/"),
    "engine_us": ("xds/protocol/", "xds/model/", "xds/proto/"),
    "observed_us": ("xds/fleet/", "xds/server/metrics/", "xds/server/observer.py", "xds/control/progress.py"),
    "shell_us": ("xds/server/",),
    "push_us": ("(api/", "xds/control/", "xds/codec/", "xds/store/", "fastapi/", "starlette/", "uvicorn/"),
}
REST = "rest_us"


async def profiled(stage: Stage) -> None:
    """CPU of a push and its ACK per stream, by part of our server, and that of bare gRPC.

    Our server's CPU is measured as in (a). Then its stacks are sampled 100 times a second during pushes, and the CPU
    is divided in proportion to the samples. *Transport*: HTTP/2, calls, reading and writing sockets. *Event loop*: the
    rest of uvloop, and asyncio's tasks. *Engine*: ``xds/protocol``. *Streams*: queues and tasks of ``xds/server``.
    *Observers*: metrics and the fleet view. *The push*: the admin call with validation and snapshot, divided by the
    streams. *Rest*: the interpreter. *Bare gRPC* is what bare ``grpc.aio`` takes to send the same bytes and to discard
    the answers.
    """
    for variant, change in SITUATIONS[: stage.scale.profiled]:
        async with stage.sides((OURS, BROADCASTER), change) as sides:
            await reconnect(sides, clients(STREAMS, variant))
            measured = await alternate(sides, change, stage.rounds)
            ours, transport = (statistics.median(measured[kind]["cpu_us"]) for kind in (OURS, BROADCASTER))
            shares = await _shares(sides[0], change)
        figures = {"cpu_us": [ours], "transport_us": [transport]}
        figures.update({part: [ours * share] for part, share in shares.items()})
        key = f"profile/{variant}/{change.clusters}/{change.changed}"
        conditions = {"clusters": change.clusters, "changed": change.changed, "streams": STREAMS}
        stage.keep(key, {OURS: figures}, variant=variant, **conditions)


def divide(samples: Iterable[str]) -> dict[str, float]:
    """Each part's share of py-spy's raw output: ``outer;...;inner count``, a stack a line."""
    counts: Counter[str] = Counter()
    for line in samples:
        stack, _, count = line.rstrip().rpartition(" ")
        if stack and WAITING not in stack:
            counts[_part(stack.split(";"))] += int(count)
    total = max(1, counts.total())
    return {part: counts[part] / total for part in (*PARTS, REST)}


def _part(frames: list[str]) -> str:
    for frame in reversed(frames):
        for part, places in PARTS.items():
            if any(place in frame for place in places):
                return part
    return REST


async def _shares(side: Side, change: Change) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "stacks.txt"
        async with recording(side.server.pid, raw):
            for _ in range(PROFILED_PUSHES):
                await push_once(side, change)
        return divide(raw.read_text().splitlines())


@asynccontextmanager
async def recording(pid: int, raw: Path) -> AsyncIterator[None]:
    """py-spy looks at a process meanwhile. Raises ``RuntimeError`` where it is missing, or may not.

    The block begins when it does look: a signal before that would end it without a word.
    """
    arguments = ["record", "--native", "--nolineno", "--full-filenames", "--format", "raw"]
    arguments += ["--rate", str(SAMPLES_PER_S), "--output", str(raw), "--pid", str(pid)]
    program = str(Path(sys.executable).with_name("py-spy"))
    if not Path(program).exists():
        raise RuntimeError(f"py-spy is missing: {sys.executable} -m pip install -r bench/requirements.txt")
    spy = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        await _looking(spy)
        yield
    finally:
        if spy.returncode is None:
            spy.send_signal(signal.SIGINT)  # write what there is
        _, told = await asyncio.wait_for(spy.communicate(), STOP_TIMEOUT_S)
    if spy.returncode or not raw.exists():
        raise _failed(spy.returncode, told)


async def _looking(spy: asyncio.subprocess.Process) -> None:
    """Wait until py-spy samples. Raises ``RuntimeError`` when it ends instead, or is not ready in time."""
    assert spy.stdout is not None and spy.stderr is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            async for line in spy.stdout:
                if LOOKING in line:
                    return
            raise _failed(await spy.wait(), await spy.stderr.read())
    except TimeoutError:
        raise RuntimeError(f"py-spy did not begin to sample in {START_TIMEOUT_S:g} s") from None


def _failed(code: int | None, told: bytes) -> RuntimeError:
    return RuntimeError(f"py-spy ended with {code}: {told.decode(errors='replace')[-1000:]}")
