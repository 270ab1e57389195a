"""Every acknowledged push survives SIGTERM and kill -9, complete and with the same versions."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.envoy import EnvoyProcess
from tests.support.http import plain_client
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, REPOSITORY, child_environment, free_port, wait_until
from tests.support.server import SERVE, ServerProcess
from tests.support.server_forks import serve_to_end
from tests.support.upstream import Upstream

Json = dict[str, Any]
Connect = Callable[..., EnvoyProcess]
StartUpstream = Callable[[str], Upstream]

GROUP = "test"
NODE = "envoy-1"
SET_SIZE = 8
ROUNDS = 2
SOAK_ROUNDS = 40
PUSHES_PER_ROUND = 25  # at most, before the end of a round
RETRIED = 5
LOAD_RPS = 300  # what is left of the machine is for the server that starts
REQUEST_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60
# Counters that move when Envoy builds or drops something; cluster_updated does with each change of endpoints.
REBUILDS = r"^(cluster_manager\.cluster_|listener_manager\.listener_)(added|modified|removed)"

ends = pytest.mark.parametrize("end", [ServerProcess.stop, ServerProcess.kill], ids=["sigterm", "kill"])


def numbered(number: int) -> list[Json]:
    """The content of push ``number``: each resource has the number, so a partial push would be visible."""
    return [r.static_cluster(f"c{index}", 1_000, alt_stat_name=f"push-{number}") for index in range(SET_SIZE)]


@dataclass(slots=True)
class Pushes:
    """Pushes in a thread, one after the other, until the server is gone; the answers of acknowledged ones."""

    url: str
    content: Callable[[int], list[Json]]
    first: int
    answers: dict[int, Json] = field(default_factory=dict)
    tried: int = 0
    refused: list[str] = field(default_factory=list)
    _ended: Event = field(default_factory=Event)

    def start(self) -> Pushes:
        """Start pushing."""
        Thread(target=self._run, daemon=True).start()
        return self

    def wait_acknowledged(self, least: int) -> None:
        """Wait until so many are acknowledged."""
        wait_until(lambda: len(self.answers) >= least, f"{least} pushes acknowledged", detail=lambda: self.refused)

    def wait_end(self) -> None:
        """Wait until the server is gone."""
        wait_until(self._ended.is_set, "the pushes have come to their end")

    def _run(self) -> None:
        with plain_client(timeout=REQUEST_TIMEOUT_S) as client:
            number = self.first
            while self._push(client, number):
                number += 1
        self._ended.set()

    def _push(self, client: httpx.Client, number: int) -> bool:
        self.tried = number
        try:
            answer = push(client, self.url, number, self.content(number))
        except httpx.TransportError:
            return False
        if answer.status_code == 200:
            self.answers[number] = answer.json()
            return True
        self.refused.append(answer.text)
        return False


def push(client: httpx.Client, url: str, number: int, content: list[Json]) -> httpx.Response:
    """Push ``number`` with its Idempotency-Key and its label."""
    body = {"resources": content, "version": f"label-{number}"}
    return client.put(url, json=body, headers={"idempotency-key": f"push-{number}"})


def start_pushes(server: ServerProcess, first: int, content: Callable[[int], list[Json]] = numbered) -> Pushes:
    """Pushes to the group from number ``first`` on."""
    return Pushes(f"http://{LOOPBACK}:{server.http_port}/api/v1/groups/{GROUP}/snapshot", content, first).start()


def check_all_there(server: ServerProcess, pushes: Pushes) -> None:
    """The last acknowledged push, or the one in progress, is complete; the history has all earlier ones."""
    held = server.get(f"/groups/{GROUP}/snapshot")
    last = max(pushes.answers)
    numbers = {item["alt_stat_name"] for item in held["resources"]}
    assert len(numbers) == 1 and len(held["resources"]) == SET_SIZE
    assert numbers <= {f"push-{last}", f"push-{pushes.tried}"}
    if numbers == {f"push-{last}"}:
        assert _identity(held) == _identity(pushes.answers[last])
    for number in list(pushes.answers)[-RETRIED:]:
        found = server.get(f"/groups/{GROUP}/revisions/{pushes.answers[number]['revision']}")
        assert _identity(found) == _identity(pushes.answers[number])


def check_retries(server: ServerProcess, pushes: Pushes, content: Callable[[int], list[Json]] = numbered) -> None:
    """The key of an acknowledged push returns its first answer and changes nothing.

    That of the one in progress works.
    """
    with plain_client(timeout=REQUEST_TIMEOUT_S) as client:
        for number in list(pushes.answers)[-RETRIED:]:
            before = server.get(f"/groups/{GROUP}/snapshot")
            assert push(client, pushes.url, number, content(number)).json() == pushes.answers[number]
            assert server.get(f"/groups/{GROUP}/snapshot") == before
        first = push(client, pushes.url, pushes.tried, content(pushes.tried))
        again = push(client, pushes.url, pushes.tried, content(pushes.tried))
        assert (first.status_code, again.json()) == (200, first.json())
        assert _identity(server.get(f"/groups/{GROUP}/snapshot")) == _identity(first.json())


def _identity(answer: Json) -> tuple[Any, ...]:
    return answer["revision"], answer["etag"], answer["versions"]


def _rounds(server: ServerProcess, end: Callable[[ServerProcess], object], rounds: int) -> None:
    first = 1
    for _ in range(rounds):
        pushes = start_pushes(server, first)
        pushes.wait_acknowledged(random.randint(1, PUSHES_PER_ROUND))
        end(server)
        pushes.wait_end()
        server.start()
        check_all_there(server, pushes)
        check_retries(server, pushes)
        first = pushes.tried + 1


@ends
def test_a_stream_of_pushes_cut_off(server: ServerProcess, end: Callable[[ServerProcess], object]) -> None:
    _rounds(server, end, ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(900)
@ends
def test_a_stream_of_pushes_cut_off_often(server: ServerProcess, end: Callable[[ServerProcess], object]) -> None:
    _rounds(server, end, SOAK_ROUNDS)


def _envoy_rounds(
    server: ServerProcess, envoy: EnvoyProcess, content: Callable[[int], list[Json]], load: HttpLoad, rounds: int
) -> None:
    built, first = envoy.stats(REBUILDS), 1
    for _ in range(rounds):
        pushes = start_pushes(server, first, content)
        pushes.wait_acknowledged(random.randint(1, PUSHES_PER_ROUND))
        server.kill()
        pushes.wait_end()
        load.wait_total(100)
        server.start()
        check_retries(server, pushes, content)
        server.wait_synced(GROUP, NODE)
        load.wait_body("ab"[pushes.tried % 2], 50)
        assert envoy.stats(REBUILDS) == built
        first = pushes.tried + 1


@pytest.fixture
def alternating(upstream: StartUpstream) -> Callable[[int], list[Json]]:
    """The web resources, with endpoints that alternate between two upstreams."""
    ports = [upstream(name).port for name in "ab"]
    return lambda number: r.web_resources("c1", ports[number % 2])


@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
@pytest.mark.parametrize(
    "rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
def test_kills_amid_pushes_disturb_no_envoy(
    server: ServerProcess,
    connect: Connect,
    alternating: Callable[[int], list[Json]],
    background: Background,
    running: ExitStack,
    variant: Variant,
    rounds: int,
) -> None:
    server.push(GROUP, alternating(0))
    envoy = connect(variant).wait_live()
    load = running.enter_context(HttpLoad(background, envoy.wait_listener("web"), rps=LOAD_RPS))
    load.wait_body("a", 50)
    _envoy_rounds(server, envoy, alternating, load, rounds)
    report = load.stop()
    assert (report.failed, report.samples) == (0, [])


# Refusals to start


def _serve(data: Path, directory: Path) -> tuple[int, str]:
    """Run ``xds serve`` on a data directory that it must refuse; exit code and what it wrote."""
    return serve_to_end(directory, "--data", data, *_ports())


def _ports() -> list[str]:
    return ["--grpc", f"{LOOPBACK}:{free_port()}", "--http", f"{LOOPBACK}:{free_port()}"]


def _serve_without_privileges(data: Path) -> tuple[int, str]:
    """As `_serve`. Root may write whatever the mode says, unless it has no capabilities."""
    prefix = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*prefix, *SERVE, "--data", str(data), *_ports()],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        env=child_environment(),
        cwd=REPOSITORY,
        check=False,
    )
    return done.returncode, done.stderr


def _check_refused(refused: tuple[int, str], *words: str) -> None:
    code, message = refused
    assert code == 1
    assert "Traceback" not in message
    last = message.strip().splitlines()[-1]
    assert "cannot serve" in last
    for word in words:
        assert word in last


def test_a_second_server_is_refused(server: ServerProcess, tmp_path: Path) -> None:
    server.push(GROUP, numbered(1))
    _check_refused(_serve(server.data, tmp_path), str(server.data), "in use by another process")
    assert server.push(GROUP, numbered(2))["revision"] == 2


def test_a_data_directory_that_cannot_be_written(server: ServerProcess) -> None:
    answer = server.push(GROUP, numbered(1))
    server.stop()
    files = [path for path in server.data.iterdir() if path.is_file()]
    for path, mode in [*((file, 0o400) for file in files), (server.data, 0o500)]:
        path.chmod(mode)
    _check_refused(_serve_without_privileges(server.data), str(server.data), "Permission denied")
    for path in (server.data, *files):
        path.chmod(0o700 if path.is_dir() else 0o600)
    server.start()
    assert _identity(server.get(f"/groups/{GROUP}/snapshot")) == _identity(answer)


def test_a_place_where_no_directory_can_be(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    _check_refused(_serve_without_privileges(locked / "data"), str(locked), "Permission denied")
    file = tmp_path / "file"
    file.touch()
    _check_refused(_serve(file, tmp_path), str(file))
