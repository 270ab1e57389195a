"""Starts `tests.store.process` and reads what it prints."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.store.contract import WAIT_S

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def process(verb: str, place: Path | str) -> AsyncIterator[Process]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.process", verb, str(place), cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def line(child: Process) -> str:
    assert child.stdout is not None
    async with asyncio.timeout(WAIT_S):
        return (await child.stdout.readline()).decode().strip()
