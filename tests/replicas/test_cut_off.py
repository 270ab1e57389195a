"""A server as an operator runs it, whose database goes away: proxies under load do not notice, nor does a restart."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e import release_state
from tests.e2e import swap_kinds as kinds
from tests.e2e.swap_site import SwapSites
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.postgres import PostgresServer
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import GROUP, ServerProcess
from tests.support.server_forks import ForkedServer
from xds.store.copy.copier import OBSERVED_EVERY_S

pytestmark = pytest.mark.soak

AWAY_S = 60.0
COPIED_S = 3.0  # the copy is written at most once a second


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with PostgresServer(["fsync = off"]) as running:
        yield running


def on(database: PostgresServer) -> dict[str, str]:
    return {"XDS_STORE__KIND": "postgres", "XDS_STORE__URL": database.make_database()}


def is_cut_off(server: ServerProcess) -> bool:
    return "has not answered since" in server.request("GET", "/readyz").json()["detail"]


def check_cut_off(server: ServerProcess, source: str) -> None:
    """What an operator sees, and what a push gets."""
    ready = server.request("GET", "/readyz")
    assert ready.status_code == 200 and ready.json()["status"] == "ready"
    assert source in ready.json()["detail"]
    row = next(each for each in server.get("/check")["items"] if each["check"] == "store")
    assert row["state"] == "failed" and "has not answered since" in row["detail"]
    assert "xds_server_store_cut_off 1.0" in server.request("GET", "/metrics").text
    began_s = time.monotonic()
    refused = server.request("PUT", "/api/v1/groups/other/snapshot", json={"resources": []})
    assert refused.status_code == 503 and int(refused.headers["Retry-After"]) > 0, refused.text
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
def test_a_fleet_does_not_notice_that_the_database_is_away(
    variant: Variant, database: PostgresServer, tmp_path: Path, background: Background, running: ExitStack
) -> None:
    site = SwapSites(tmp_path, background, running).open(kinds.routes_move, variant, environment=on(database))
    site.swap()
    time.sleep(COPIED_S)
    database.kill()
    began_s = time.monotonic()
    wait_until(lambda: is_cut_off(site.server), "the server tells that it is cut off")
    check_cut_off(site.server, "the state that it had")
    versions = site.server.get(f"/groups/{GROUP}")["versions"]
    site.server.kill()
    site.server.start()
    check_cut_off(site.server, "of the copy")
    assert site.server.get(f"/groups/{GROUP}")["versions"] == versions
    wait_until(site.streams, "Envoy is back")
    site.wait_synced()
    site.settle(max(0.0, AWAY_S - (time.monotonic() - began_s)))
    database.start()
    wait_until(lambda: not is_cut_off(site.server), "the server uses its database again")
    site.swap()
    site.swap()
    site.wait_synced()
    site.end()


@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
def test_an_envoy_with_newer_configuration_is_not_taken_back(
    variant: Variant, database: PostgresServer, tmp_path: Path, background: Background, running: ExitStack
) -> None:
    site = SwapSites(tmp_path, background, running).open(kinds.routes_move, variant, environment=on(database))
    server, copy = site.server, site.server.data / "copy.sqlite3"
    time.sleep(COPIED_S)
    server.stop()
    older = copy.read_bytes()  # as of another server that was cut off before the next push
    server.start()
    wait_until(site.streams, "Envoy is back")
    site.swap()
    site.wait_synced()
    database.kill()
    server.kill()
    for path in server.data.glob("copy.sqlite3*"):
        path.unlink()
    copy.write_bytes(older)
    server.start()
    check_cut_off(server, "of the copy")

    def refused() -> bool:
        return "newer configuration" in server.request("GET", "/api/v1/streams/refused").text

    wait_until(refused, "Envoy is turned away")
    site.settle()
    assert not site.streams()
    database.start()
    wait_until(site.streams, "Envoy is served again")
    site.swap()
    site.wait_synced()
    site.end()


def test_a_hanging_database_stops_pushes_and_nothing_else(
    database: PostgresServer, tmp_path: Path, background: Background, running: ExitStack
) -> None:
    site = SwapSites(tmp_path, background, running).open(kinds.routes_move, Variant.ADS_DELTA, environment=on(database))
    database.freeze()
    wait_until(lambda: is_cut_off(site.server), "the server tells that it is cut off")
    check_cut_off(site.server, "the state that it had")
    database.thaw()
    wait_until(lambda: not is_cut_off(site.server), "the server uses its database again")
    site.swap()
    site.wait_synced()
    site.end()


def test_everything_that_a_server_holds_is_served_from_the_copy(
    database: PostgresServer, tmp_path: Path, running: ExitStack
) -> None:
    config = Path(release_state.__file__).parent / "earlier_releases" / "3582321c" / "xds.yaml"
    server = running.enter_context(
        ServerProcess(tmp_path, ["--config", str(config)], on(database), token=release_state.TOKEN)
    )
    release_state.fill(server)
    served, shown = release_state.served(server), release_state.picture(server)
    time.sleep(OBSERVED_EVERY_S + COPIED_S)
    server.kill()
    database.kill()
    server.start()
    assert is_cut_off(server)
    assert release_state.served(server) == served
    # The copy has no audit list; and which NACKs are its own, a server knows by its number, from the database.
    copied = {path: answer for path, answer in shown.items() if path not in ("/audit", "/nacks")}
    assert not [*release_state.lost(copied, release_state.picture(server))]
    assert server.get("/audit")["items"] == []
    assert '"store.failed"' not in server.process.log()
    database.start()
    wait_until(lambda: not is_cut_off(server), "the server uses its database again")
    assert release_state.served(server) == served
    wait_until(lambda: not [*release_state.lost(shown, release_state.picture(server))], "everything is there again")


def test_a_server_without_a_copy_waits_for_its_database(
    database: PostgresServer, tmp_path: Path, running: ExitStack
) -> None:
    environment = on(database)
    database.kill()
    grpc, http = free_port(), free_port()
    ports = ["--grpc", f"{LOOPBACK}:{grpc}", "--http", f"{LOOPBACK}:{http}", "--data", str(tmp_path / "data")]
    child = ForkedServer("waiting", ["serve", *ports], tmp_path, environment)
    running.callback(child.kill)

    def answer() -> bool:
        return "cannot be used" in _get(http, "/readyz")

    wait_until(answer, "the server says that it waits")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, grpc))
    assert child.stop() == 0  # by SIGTERM
    child = ForkedServer("waiting-2", ["serve", *ports], tmp_path, environment)
    running.callback(child.kill)
    wait_until(answer, "the server says that it waits")
    database.start()
    wait_until(lambda: '"ready"' in _get(http, "/readyz"), "the server is ready")
    socket.create_connection((LOOPBACK, grpc)).close()


def _get(port: int, path: str) -> str:
    with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        parts = list(iter(lambda: connection.recv(1 << 16), b""))
    return b"".join(parts).decode()
