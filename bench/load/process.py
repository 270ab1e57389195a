"""The parent's end of a worker process: JSON lines to it and from it."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.load.spec import Ack

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 60.0  # to a command that only tells what is
READ_BYTES = 1 << 20
ENDED = "a worker of the fleet has ended"

Json = dict[str, Any]


class FleetError(Exception):
    """A worker failed or ended, or what was waited for did not come in time."""


class WorkerProcess:
    """A worker process. Commands may be asked from the loop, or at once, which holds it until the answer is there."""

    def __init__(self, told: asyncio.Event) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._rest = b""
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._answers: dict[int, Json | None] = {}
        self._told = told
        self._marks = 0
        self.ack = Ack(0, 0.0, 0.0)
        self.has_ended = False
        os.set_blocking(self._output.fileno(), False)
        asyncio.get_running_loop().add_reader(self._output.fileno(), self._read)

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """User and system time of the process so far."""
        return time.clock_gettime((~self.pid << 3) | 2)

    async def ask(self, command: str, **arguments: object) -> Json:
        """A command's answer. Raises ``FleetError``."""
        number = self._post(command, arguments)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            return _checked(await future)
        finally:
            self._waiting.pop(number, None)

    def ask_now(self, command: str, **arguments: object) -> Json:
        """A command's answer, without giving way to anything else. Raises ``FleetError``."""
        number = self._post(command, arguments)
        self._answers[number] = None
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        try:
            while (answer := self._answers[number]) is None:
                if self.has_ended:
                    raise FleetError(ENDED)
                if not select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    raise FleetError(f"a worker of the fleet did not answer {command!r} in {ANSWER_TIMEOUT_S:g} s")
                self._read()
        finally:
            del self._answers[number]
        return _checked(answer)

    def mark(self, record: bool) -> None:
        """Count anew: what the worker counted before is not told any more."""
        self._marks += 1
        self.ack = Ack(0, 0.0, 0.0)
        self.ask_now("mark", record=record)

    async def stop(self) -> None:
        """End the process."""
        self._end()
        with suppress(BrokenPipeError):
            self._input.close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        self._output.close()

    def _post(self, command: str, arguments: Json) -> int:
        if self.has_ended:
            raise FleetError(ENDED)
        self._asked += 1
        line = json.dumps({"id": self._asked, "do": command, **arguments})
        self._input.write(line.encode() + b"\n")
        self._input.flush()
        return self._asked

    def _read(self) -> None:
        try:
            data = os.read(self._output.fileno(), READ_BYTES)
        except BlockingIOError:
            return  # the loop saw what `ask_now` has read since
        if not data:
            self._end()
            return
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._take(json.loads(line))

    def _take(self, answer: Json) -> None:
        number = answer.get("id")
        if number is None:
            if answer["mark"] == self._marks:
                self.ack = Ack(answer["acks"], answer["first_at"], answer["last_at"])
                self._told.set()
        elif number in self._answers:
            self._answers[number] = answer
        elif (future := self._waiting.get(number)) is not None and not future.done():
            future.set_result(answer)

    def _end(self) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        asyncio.get_running_loop().remove_reader(self._output.fileno())
        self._told.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_result({"error": ENDED})


def _checked(answer: Json) -> Json:
    if "error" in answer:
        raise FleetError(answer["error"])
    return answer
