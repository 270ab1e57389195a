"""Concurrent clients at a real server: with If-Match one wins, with one Idempotency-Key there is one push."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import httpx

from tests.support import resources as r
from tests.support.http import plain_client
from tests.support.process import LOOPBACK
from tests.support.server import ServerProcess

GROUP = "test"
CLIENTS = 6
ROUNDS = 5
TIMEOUT_S = 20.0


def race(server: ServerProcess, send: Callable[[httpx.Client, int], httpx.Response]) -> list[httpx.Response]:
    """What ``send(client, number)`` brings to clients of their own that start together."""
    start = Barrier(CLIENTS)

    def run(number: int) -> httpx.Response:
        url = f"http://{LOOPBACK}:{server.http_port}/api/v1/groups/{GROUP}/"
        with plain_client(base_url=url, timeout=TIMEOUT_S) as client:
            client.get("revisions")  # connected before the start
            start.wait(TIMEOUT_S)
            return send(client, number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(run, range(CLIENTS)))


def body(name: str) -> dict[str, object]:
    return {"resources": [r.static_cluster(name, 1_000)]}


def put_if_match(etag: str, turn: int, client: httpx.Client, number: int) -> httpx.Response:
    return client.put("snapshot", json=body(f"c{turn}-{number}"), headers={"if-match": f'"{etag}"'})


def test_one_of_concurrent_writers_with_if_match_succeeds(server: ServerProcess) -> None:
    etag = server.push(GROUP, [r.static_cluster("a", 1_000)])["etag"]
    for turn in range(ROUNDS):
        answers = race(server, partial(put_if_match, etag, turn))
        assert sorted(answer.status_code for answer in answers) == [200] + [412] * (CLIENTS - 1)
        (winner,) = [answer.json() for answer in answers if answer.status_code == 200]
        held = server.get(f"/groups/{GROUP}/snapshot")
        assert (held["revision"], held["etag"]) == (turn + 2, winner["etag"])
        etag = winner["etag"]


def test_one_key_from_many_clients_at_once_is_one_push(server: ServerProcess) -> None:
    server.push(GROUP, [r.static_cluster("a", 1_000)])
    key = {"idempotency-key": "k"}
    answers = race(server, lambda client, _: client.put("snapshot", json=body("b"), headers=key))
    assert {(answer.status_code, answer.text) for answer in answers} == {(200, answers[0].text)}
    assert server.get(f"/groups/{GROUP}")["revision"] == 2
    server.kill()
    server.start()
    answers = race(server, lambda client, number: client.put("snapshot", json=body("bc"[number % 2]), headers=key))
    assert [answer.status_code for answer in answers] == [200, 422] * (CLIENTS // 2)
    assert server.get(f"/groups/{GROUP}")["revision"] == 2
