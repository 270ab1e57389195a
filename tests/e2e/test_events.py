"""The event feed of a running server: live, resumed, and ended by the drain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http import plain_client
from tests.support.process import DEADLINE_S
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess

Json = dict[str, Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as running:
        yield running


def blocks(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Server-sent events as their fields, comments left out."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield fields
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def test_events_come_live_resume_and_end_with_the_server(server: ServerProcess) -> None:
    url = f"http://127.0.0.1:{server.http_port}/api/v1/events"
    with (
        plain_client(timeout=DEADLINE_S) as client,
        client.stream("GET", url, params={"kinds": "push"}) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = blocks(answer.iter_lines())
        server.push("edge", [static_cluster("a", 80)])
        first = next(found)
        server.push("edge", [static_cluster("b", 80)])
        second = next(found)
        assert [json.loads(each["data"])["revision"] for each in (first, second)] == [1, 2]
        with client.stream("GET", url, params={"kinds": "push"}, headers={"last-event-id": first["id"]}) as again:
            assert next(blocks(again.iter_lines())) == second
        assert server.stop() == 0
        assert list(found) == []
    server.start()
    with (
        plain_client(timeout=DEADLINE_S) as client,
        client.stream("GET", url, headers={"last-event-id": second["id"]}) as answer,
    ):
        lagged = next(blocks(answer.iter_lines()))
        assert lagged["event"] == "lagged"
        server.push("edge", [static_cluster("c", 80)])
        assert int(json.loads(lagged["data"])["next"]) > int(second["id"])
