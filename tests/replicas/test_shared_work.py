"""Server processes on one PostgreSQL share instances that register, and what one of them decides for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.replicas.test_holder import TAKES_OVER_S, all_know, split
from tests.support.postgres import PostgresServer
from tests.support.process import wait_until
from tests.support.server import ServerProcess

pytestmark = pytest.mark.soak

TTL_S = 3


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with PostgresServer(["fsync = off"]) as running:
        yield running


@pytest.fixture
def servers(database: PostgresServer, tmp_path: Path) -> Iterator[list[ServerProcess]]:
    url = database.make_database()
    with ExitStack() as running:
        made = []
        for name in "abc":
            (tmp_path / name).mkdir()
            made.append(running.enter_context(ServerProcess(tmp_path / name, ["--store", url])))
        wait_until(lambda: all_know(*made), "all know each other", TAKES_OVER_S)
        yield made


def health(server: ServerProcess) -> str:
    answer = server.request("GET", "/api/v1/registrations/web-1")
    return str(answer.json()["health"]) if answer.status_code == 200 else ""


def test_an_instance_registers_at_one_server_and_is_heard_of_at_another(servers: list[ServerProcess]) -> None:
    body: dict[str, Any] = {"Name": "web", "Address": "10.0.0.1", "Port": 80, "Check": {"TTL": f"{TTL_S}s"}}
    holder, (second, third) = split(servers)
    answer = second.request("PUT", "/api/v1/registrations/web-1", json=body)
    assert answer.is_success, answer.text
    wait_until(lambda: all(health(each) for each in servers), "all have it")

    def beat(server: ServerProcess) -> None:
        answer = server.request("PUT", "/v1/agent/check/pass/service:web-1")
        assert answer.is_success, answer.text

    beat(third)
    wait_until(lambda: all(health(each) == "passing" for each in servers), "it passes everywhere")
    ends_s = time.monotonic() + 4 * TTL_S
    while time.monotonic() < ends_s:  # the holder hears nothing itself
        beat(third)
        assert {health(each) for each in servers} == {"passing"}
        time.sleep(0.5)
    wait_until(lambda: all(health(each) == "critical" for each in servers), "it is critical everywhere", 10 * TTL_S)
    beat(second)
    wait_until(lambda: all(health(each) == "passing" for each in servers), "it passes again")
    holder.kill()
    wait_until(lambda: all(health(each) == "critical" for each in (second, third)), "the next holder judges", 60.0)
