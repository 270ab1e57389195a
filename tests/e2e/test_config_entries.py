"""Config entries of a real server: kill -9 loses no acknowledged write, tears no transaction; backups restore them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.support import resources as r
from tests.support.commands import address, xds
from tests.support.http import plain_client
from tests.support.process import DEADLINE_S, LOOPBACK, wait_until
from tests.support.server import ServerProcess
from xds.consul.quantities import parse_duration
from xds.mesh.entry_records import LINE
from xds.store.base import Delta, Entry, blob_id
from xds.store.engines import SQLITE_FILE
from xds.store.sqlite.engine import SqliteStore

Json = dict[str, Any]

GROUP = "edge"
ROUNDS = 2
LEAST = 10
ENTRIES: list[Json] = [
    {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}},
    {"Kind": "service-resolver", "Name": "web", "Subsets": {"v1": {}, "v2": {}}},
    {"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 100, "ServiceSubset": "v1"}]},
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as started:
        yield started


def put(server: ServerProcess, kind: str, name: str, entry: Json, **headers: str) -> Json:
    path = f"/api/v1/config-entries/{kind}/{name}"
    answer = server.request("PUT", path, json=entry, headers=headers)
    assert answer.is_success, answer.text
    found: Json = answer.json()
    return found


def write(server: ServerProcess, *entries: Json, **headers: str) -> Json:
    answer = server.request("POST", "/api/v1/config-entries", json=entries, headers=headers)
    assert answer.is_success, answer.text
    found: Json = answer.json()
    return found


def picture(server: ServerProcess) -> Json:
    """All of the config entries, as the API tells it."""
    lines = server.get("/config-entries/revisions")["items"]
    contents = {line["revision"]: server.get(f"/config-entries/revisions/{line['revision']}") for line in lines}
    chain = server.get("/discovery-chains/web")
    return {"entries": server.get("/config-entries"), "history": lines, "contents": contents, "chain": chain}


def timeout_s(server: ServerProcess) -> int:
    entry = server.get("/config-entries/service-resolver/web")["entry"]
    return parse_duration(str(entry.get("ConnectTimeout", "0s"))) // 1_000_000_000


def cluster_number(server: ServerProcess) -> int:
    (cluster,) = server.get(f"/groups/{GROUP}/snapshot")["resources"]
    return int(cluster["alt_stat_name"].removeprefix("push-"))


def transaction(number: int) -> Json:
    """A change of a group and of an entry: both carry the number."""
    resolver = {**ENTRIES[1], "ConnectTimeout": f"{number}s"}
    cluster = r.static_cluster("c", 1_000, alt_stat_name=f"push-{number}")
    group = {"group": GROUP, "snapshot": {"resources": [cluster]}}
    return {"changes": [group], "config_entries": {"put": [resolver]}}


@pytest.mark.parametrize("end", [ServerProcess.stop, ServerProcess.kill], ids=["sigterm", "kill"])
def test_acknowledged_writes_survive_the_end_of_the_process(
    server: ServerProcess, end: Callable[[ServerProcess], object]
) -> None:
    write(server, *ENTRIES)
    put(server, "service-resolver", "web", {**ENTRIES[1], "ConnectTimeout": "9s"}, **{"idempotency-key": "k"})
    assert server.request("DELETE", "/api/v1/config-entries/service-splitter/web").is_success
    assert server.request("POST", "/api/v1/config-entries/rollback", json={"to": 1}).is_success
    before = picture(server)
    end(server)
    server.start()
    assert picture(server) == before
    again = put(server, "service-resolver", "web", {**ENTRIES[1], "ConnectTimeout": "9s"}, **{"idempotency-key": "k"})
    assert (again["revision"], picture(server)) == (2, before)
    assert write(server, {"Kind": "service-resolver", "Name": "new"})["revision"] == before["entries"]["revision"] + 1


class Transactions:
    """Transactions one after the other in a thread, until the server is gone; each carries a number."""

    def __init__(self, server: ServerProcess, first: int) -> None:
        self.acknowledged = first - 1
        self.tried = first - 1
        self._url = f"http://{LOOPBACK}:{server.http_port}/api/v1/transactions"
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_end(self) -> None:
        """Wait until the server is gone."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with plain_client(timeout=DEADLINE_S) as client:
            while True:
                self.tried += 1
                try:
                    answer = client.post(self._url, json=transaction(self.tried))
                except httpx.TransportError:
                    return
                assert answer.status_code in (200, 503), answer.text
                if answer.status_code == 200:
                    self.acknowledged = self.tried


@pytest.mark.parametrize("end", [ServerProcess.stop, ServerProcess.kill], ids=["sigterm", "kill"])
def test_the_end_of_the_process_tears_no_transaction(
    server: ServerProcess, end: Callable[[ServerProcess], object]
) -> None:
    write(server, *ENTRIES)
    first = 1
    for _ in range(ROUNDS):
        transactions = Transactions(server, first)
        wait_until(lambda: transactions.acknowledged >= first + LEAST, "transactions acknowledged")  # noqa: B023
        end(server)
        transactions.wait_end()
        server.start()
        held = cluster_number(server)
        assert timeout_s(server) == held
        assert held in {transactions.acknowledged, transactions.tried}
        first = transactions.tried + 1


def test_a_backup_restores_config_entries_with_the_same_revisions(server: ServerProcess, tmp_path: Path) -> None:
    write(server, *ENTRIES)
    put(server, "service-resolver", "web", {**ENTRIES[1], "ConnectTimeout": "9s"})
    before, archive = picture(server), tmp_path / "xds.tar"
    assert xds("backup", archive, environment=address(server.http_port)).code == 0
    other_directory = tmp_path / "other"
    other_directory.mkdir()
    with ServerProcess(other_directory) as other:
        assert xds("restore", archive, environment=address(other.http_port)).code == 0
        assert picture(other) == before
        other.kill()
        other.start()
        assert picture(other) == before
        assert put(other, "service-resolver", "web", ENTRIES[1])["revision"] == 3


def test_a_copied_store_has_config_entries(server: ServerProcess, tmp_path: Path) -> None:
    write(server, *ENTRIES)
    before = picture(server)
    server.stop()
    assert xds("store", "copy", server.data, tmp_path / "copy").code == 0
    server.data.rename(tmp_path / "before")
    (tmp_path / "copy").rename(server.data)
    server.start()
    after = picture(server)
    assert (after["entries"], after["chain"]) == (before["entries"], before["chain"])


def test_a_store_with_broken_entries_starts_and_says_which(server: ServerProcess) -> None:
    write(server, *ENTRIES)
    chain = server.get("/discovery-chains/web")
    server.stop()
    asyncio.run(break_entries(server.data / SQLITE_FILE))
    server.start()
    assert server.get("/discovery-chains/web") == chain
    log = server.process.log_tail()
    assert '"config_entry.unreadable"' in log
    assert '"odd"' in log
    assert '"chain.broken"' in log
    assert '"loop"' in log
    answer = server.request("GET", "/api/v1/discovery-chains/loop")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "circular_redirect")
    put(server, "service-resolver", "loop", {})
    assert server.get("/discovery-chains/loop")["Chain"]["Default"] is True


async def break_entries(file: Path) -> None:
    """Entries as another release, with other rules, might have left them."""
    bodies = {
        "odd": b"{}",
        "loop": b'{"CreateIndex":1,"Kind":"service-resolver","ModifyIndex":1,"Name":"loop","Redirect":{"Service":"x"}}',
        "x": b'{"CreateIndex":1,"Kind":"service-resolver","ModifyIndex":1,"Name":"x","Redirect":{"Service":"loop"}}',
    }
    lines = tuple(Entry("service-resolver", name, blob_id(body)) for name, body in bodies.items())
    store = SqliteStore(file)
    await store.open()
    await store.commit(LINE, Delta(lines, (), {blob_id(body): body for body in bodies.values()}), push_id="p")
    await store.close()
