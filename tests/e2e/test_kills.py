"""kill -9 during pushes of all kinds: no acknowledged push is lost, none is applied in part, every retry is safe.

Each push has its name as Idempotency-Key and as message, so that the history shows which of them were applied.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tests.support import resources as r
from tests.support.http import plain_client
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess

Json = dict[str, Any]

ROUNDS = 2
SOAK_ROUNDS = 50
PUSHES_PER_ROUND = 30  # of a writer, at most, before the kill
SET_SIZE = 6
REQUEST_TIMEOUT_S = 20.0
WRITERS = {"w1": ("a1", "a2", "a3"), "w2": ("b1", "b2", "b3")}
# More revisions than two rounds make keep their content; what is older is collected all the time.
SETTINGS = {
    "XDS_STORE__COLLECT_EVERY_S": "0.05",
    "XDS_STORE__KEEP_REVISIONS": str(4 * PUSHES_PER_ROUND),
    "XDS_STORE__KEEP_DAYS": "0",
}


@dataclass(frozen=True)
class Request:
    """One push: its request, and the groups that it changes."""

    name: str
    method: str
    path: str
    groups: tuple[str, ...]
    body: Json | None = None

    @property
    def is_of_settings(self) -> bool:
        """Whether it changes a group's settings, which have no history."""
        return self.path == f"/groups/{self.groups[0]}" and self.body is not None

    def send(self, client: httpx.Client) -> httpx.Response:
        query = {"author": "writer", "allow_empty": "true"}
        if not self.is_of_settings:
            query["message"] = self.name
        key = {"idempotency-key": self.name}
        return client.request(self.method, f"/api/v1{self.path}", params=query, json=self.body, headers=key)


@dataclass(slots=True)
class Writer:
    """Sends random pushes to its own groups, one after the other, until the server is gone."""

    name: str
    groups: tuple[str, ...]
    source: random.Random
    count: int = 0
    priorities: dict[str, set[int]] = field(default_factory=dict)  # what each group's may be
    acknowledged: dict[str, tuple[Request, Json]] = field(default_factory=dict)
    last: Request | None = None
    unexpected: list[str] = field(default_factory=list)
    ended: Event = field(default_factory=Event)

    def start(self, port: int) -> None:
        self.acknowledged.clear()
        self.last = None
        self.ended.clear()
        Thread(target=self._run, args=(port,), daemon=True).start()

    def wait(self, least: int) -> None:
        """Wait until so many pushes are acknowledged."""
        wait_until(lambda: len(self.acknowledged) >= least, f"{least} pushes", detail=lambda: self.unexpected)

    def _run(self, port: int) -> None:
        with client_of(port) as client:
            while self._send(client, self._next()):
                pass
        self.ended.set()

    def _send(self, client: httpx.Client, request: Request) -> bool:
        self.last = request
        try:
            answer = request.send(client)
        except httpx.TransportError:
            return False
        if answer.status_code == 200:
            self.acknowledged[request.name] = (request, answer.json())
            if request.is_of_settings and request.body is not None:
                self.priorities[request.groups[0]] = {request.body["priority"]}
        elif answer.status_code not in (404, 410):  # a resource, group or revision that is not there
            self.unexpected.append(f"{request}: {answer.status_code} {answer.text}")
        return True

    def _next(self) -> Request:
        self.count += 1
        name, group = f"{self.name}-{self.count}", self.source.choice(self.groups)
        kinds = [self._whole, self._single, self._gone, self._back, self._both, self._settings, self._dropped]
        (kind,) = self.source.choices(kinds, [4, 8, 2, 3, 6, 2, 1])
        return kind(name, group)

    def _whole(self, name: str, group: str) -> Request:
        return Request(name, "PUT", f"/groups/{group}/snapshot", (group,), {"resources": stamped(name)})

    def _single(self, name: str, group: str) -> Request:
        cluster = self.source.choice(stamped(name))
        return Request(name, "PUT", f"/groups/{group}/resources/clusters/{cluster['name']}", (group,), cluster)

    def _gone(self, name: str, group: str) -> Request:
        return Request(
            name, "DELETE", f"/groups/{group}/resources/clusters/c{self.source.randrange(SET_SIZE)}", (group,)
        )

    def _back(self, name: str, group: str) -> Request:
        known = [answer["revision"] for _, answer in self.acknowledged.values() if answer.get("group") == group]
        to = self.source.choice(known or [1])
        return Request(name, "POST", f"/groups/{group}/rollback", (group,), {"to": to})

    def _both(self, name: str, _: str) -> Request:
        groups = tuple(self.source.sample(self.groups, 2))
        changes: list[Json] = [
            {"group": groups[0], "snapshot": {"resources": stamped(name)}},
            {"group": groups[1], "put": stamped(name)[:2]},
        ]
        return Request(name, "POST", "/transactions", groups, {"changes": changes})

    def _settings(self, name: str, group: str) -> Request:
        self.priorities.setdefault(group, {0}).add(self.count)
        return Request(name, "PUT", f"/groups/{group}", (group,), {"priority": self.count})

    def _dropped(self, name: str, group: str) -> Request:
        self.priorities.setdefault(group, {0}).add(0)  # a deleted group's settings go with it
        return Request(name, "DELETE", f"/groups/{group}", (group,))


def stamped(name: str) -> list[Json]:
    """Clusters with the name of the push, so that a partial push would be visible."""
    return [r.static_cluster(f"c{index}", 1_000, alt_stat_name=name) for index in range(SET_SIZE)]


def client_of(port: int) -> httpx.Client:
    return plain_client(base_url=f"http://{LOOPBACK}:{port}", timeout=REQUEST_TIMEOUT_S)


def history(client: httpx.Client, group: str) -> list[Json]:
    """All lines of a group's history, the newest first; none for a group that never was."""
    lines: list[Json] = []
    query: dict[str, str] = {}
    while True:
        page = client.get(f"/api/v1/groups/{group}/revisions", params=query).json()
        lines += page.get("items", [])
        if "next_page_token" not in page:
            return lines
        query = {"page_token": page["next_page_token"]}


def check(client: httpx.Client, writer: Writer) -> None:
    assert writer.unexpected == []
    lines = {group: {line["message"]: line for line in history(client, group)} for group in writer.groups}
    for request, answer in writer.acknowledged.values():
        for each in results(answer):
            check_acknowledged(client, request, each, lines[each["group"]])
    check_last(client, writer, lines)
    for group in writer.groups:
        check_history(history(client, group))


def results(answer: Json) -> list[Json]:
    """The results of a push that made revisions; one that deletes a group's settings only makes none."""
    found = answer.get("results", [answer])
    return [each for each in found if "changes" in each and each["changed"] and each["revision"]]


def check_acknowledged(client: httpx.Client, request: Request, result: Json, lines: dict[str, Json]) -> None:
    """The push is in the history as acknowledged, with its whole content. A retry returns the same answer."""
    line = lines[request.name]
    assert (line["revision"], line["author"]) == (result["revision"], "writer")
    if line["deleted"]:
        return
    held = client.get(f"/api/v1/groups/{result['group']}/revisions/{result['revision']}")
    if held.status_code == 410:  # a deleted group keeps nothing for even a day here
        assert any(each["deleted"] and each["revision"] > result["revision"] for each in lines.values())
        return
    assert held.status_code == 200, held.text
    assert [held.json()[key] for key in ("etag", "versions")] == [result[key] for key in ("etag", "versions")]


def check_last(client: httpx.Client, writer: Writer, lines: dict[str, dict[str, Json]]) -> None:
    """The push in progress was applied completely or not at all, and its retry works like a first attempt."""
    last = writer.last
    assert last is not None
    if last.path == "/transactions":
        assert len({last.name in lines[group] for group in last.groups}) == 1
    answers = [last.send(client) for _ in range(2)]
    codes = {answer.status_code for answer in answers}
    assert codes <= {200, 404, 410}, [answer.text for answer in answers]
    if codes == {200}:
        first, second = (answer.json() for answer in answers)
        assert [_identity(each) for each in results(first)] == [_identity(each) for each in results(second)]


def check_history(lines: list[Json]) -> None:
    """No revision is missing, and no push was made twice."""
    assert [line["revision"] for line in lines] == list(range(len(lines), 0, -1))
    assert [name for name, times in Counter(line["message"] for line in lines).items() if times > 1] == []


def check_settings(client: httpx.Client, writer: Writer) -> None:
    for group in writer.groups:
        found = client.get(f"/api/v1/groups/{group}")
        if found.status_code == 200:
            assert found.json()["priority"] in writer.priorities.get(group, {0})


def _identity(answer: Json) -> tuple[Any, ...]:
    return answer["group"], answer["revision"], answer["etag"], answer["versions"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path, environment=SETTINGS) as server:
        yield server


@pytest.mark.parametrize(
    "rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_kills_amid_pushes_of_all_kinds(server: ServerProcess, rounds: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    writers = [Writer(name, groups, random.Random(source.random())) for name, groups in WRITERS.items()]
    collected = 0.0
    for _ in range(rounds):
        for writer in writers:
            writer.start(server.http_port)
            least = source.randint(1, PUSHES_PER_ROUND)
            writer.wait(least)
        collected += server.metrics().get("xds_server_store_collected_revisions_total", 0)
        server.kill()
        for writer in writers:
            wait_until(writer.ended.is_set, "the writer has seen the end")
        server.start()
        with client_of(server.http_port) as client:
            for writer in writers:
                check(client, writer)
                check_settings(client, writer)
    assert collected > 0 or rounds < SOAK_ROUNDS, "collections were meant to go on meanwhile"
