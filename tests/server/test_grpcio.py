"""Everything specific to grpcio is in one package; its copies of large bodies do not block the event loop."""

from __future__ import annotations

import ast
import asyncio
from itertools import pairwise
from pathlib import Path

import xds
from xds.server.flow.limits import FlowLimits
from xds.server.grpcio import COPY_S_PER_BYTE, CopyBudget

ROOT = Path(xds.__file__).parent
PACKAGE = "xds.server.grpcio"


def imported(path: Path) -> set[str]:
    text = path.read_text()
    nodes = ast.walk(ast.parse(text)) if PACKAGE in text else ()
    return {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_one_module_knows_of_the_second_transport() -> None:
    importers = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(name.startswith(PACKAGE) for name in imported(path))
    }
    assert importers == {"server/transport.py"}


async def test_copies_of_large_bodies_leave_iterations_to_others() -> None:
    flow = FlowLimits()
    budget, size = CopyBudget(flow), round(flow.share_s / COPY_S_PER_BYTE)
    copied: list[int] = []

    async def copy() -> None:
        await budget.spend(size)
        copied.append(size)

    copying = [asyncio.create_task(copy()) for _ in range(10)]
    seen = [0]
    while len(copied) < len(copying):
        await asyncio.sleep(0)
        seen.append(len(copied))
    assert max(later - earlier for earlier, later in pairwise(seen)) == 1


async def test_small_bodies_do_not_wait() -> None:
    flow = FlowLimits()
    budget = CopyBudget(flow)
    for _ in range(10_000):
        copying = budget.spend(flow.small_write_bytes)
        try:
            copying.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waits")
