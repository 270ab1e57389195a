"""A push costs each stream the same, whether or not somebody has a page open: calls of functions are counted.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

import xds
from tests.browser.devtools import BrowserPage
from tests.browser.simulated import FollowingNode
from tests.browser.world import identity
from tests.support import resources as r
from tests.support.background import Background

pytestmark = pytest.mark.browser

STREAMS_N = 20
GROUP = "edge"
QUIET_S = 1.5  # all have ACKed by then, and the page has been read again
PUSHES_N = 3
PREFIX = f"{Path(xds.__file__).parent}/"


class CountedServer:
    """A server on a loop of its own; what its loop calls is counted by function."""

    def __init__(self, running: ExitStack) -> None:
        self._background = running.enter_context(Background())
        self._server = xds.Server(grpc="127.0.0.1:0", http="127.0.0.1:0")
        self._background.run(self._server.__aenter__())
        running.callback(lambda: self._background.run(self._server.__aexit__(None, None, None)))
        self._counted: Counter[str] = Counter()
        self.grpc_port = int(str(self._server.grpc_address).rpartition(":")[2])
        self.url = str(self._server.http_url)
        self.pushes = 0

    def push(self) -> None:
        """Another version of a cluster for all nodes."""
        self.pushes += 1
        body = {"resources": [r.static_cluster("c", connect_timeout=f"{self.pushes}s")]}
        httpx.put(f"{self.url}/api/v1/groups/{GROUP}/snapshot", json=body, trust_env=False).raise_for_status()

    def count(self, pushes_n: int) -> Counter[str]:
        """The calls of each function by pushes, all that follows included; the least of several rounds."""
        rounds = []
        for _ in range(PUSHES_N):
            self._counted = Counter()
            self._background.run(self._profile(self._note))
            for _ in range(pushes_n):
                self.push()
            time.sleep(QUIET_S)
            self._background.run(self._profile(None))
            rounds.append(self._counted)
        least = rounds[0]
        for each in rounds[1:]:
            least = least & each
        return least

    async def _profile(self, note: Any) -> None:
        sys.setprofile(note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PREFIX):
            self._counted[f"{file.removeprefix(PREFIX)} {frame.f_code.co_qualname}"] += 1


def added(calls: Counter[str], to: Counter[str], others: Counter[str]) -> dict[str, int]:
    """Functions that are called once more for each stream, and that nothing else calls."""
    more = calls - to
    return {name: number for name, number in more.items() if number >= STREAMS_N and not others[name]}


def test_an_open_page_adds_no_call_per_stream_to_a_push(tmp_path: Path, running: ExitStack) -> None:
    server = CountedServer(running)
    server.push()
    for number in range(STREAMS_N):
        running.enter_context(FollowingNode(server.grpc_port, identity(f"edge-{number}", GROUP)))
    time.sleep(QUIET_S)
    alone = server.count(1)
    page = running.enter_context(BrowserPage(f"{server.url}/ui/nodes", tmp_path))
    page.wait_for(f"{STREAMS_N} synced")
    page.wait_for("live", "#live")
    reading = server.count(0)
    for _ in range(5):
        page.evaluate("document.getElementById('live').click()")  # pause, and read again
        reading |= server.count(0)
    watched = server.count(1)
    page.wait_for(f"{STREAMS_N} synced")
    assert added(alone, Counter(), reading), "the count has found nothing"
    assert added(watched, alone, reading) == {}

    with httpx.stream("GET", f"{server.url}/api/v1/events?kinds=ack", trust_env=False, timeout=60) as events:
        assert events.status_code == 200
        asked = server.count(1)
    assert added(asked, alone, reading), "who asks for ACKs adds calls, and the count sees it"
