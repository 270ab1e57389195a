"""Attacks that go on for as long as they like: the good client beside them is answered, and memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest

from tests.attack.attacks import (
    ATTACKS,
    HEAVY,
    MIB,
    Attack,
    Ports,
    deaf,
    heavy_resources,
    load_reports,
    nacks,
    one_byte_windows,
)
from tests.attack.bystander import Bystander
from tests.attack.conftest import Beside, resident
from tests.support.process import wait_until
from tests.support.server import ServerProcess

Serve = Callable[..., ServerProcess]
ANSWERS = 10  # of the good client amid an attack
MESSAGE_CHARS = 64 * 1024  # what is kept of the message of a NACK
LOG_CHARS = 2_000


@contextmanager
def attacked(server: ServerProcess, bystander: Bystander, attack: Attack) -> Iterator[None]:
    """While the body runs; the good client is answered amid it, and the attack does its worst until then."""
    over = Event()
    with ThreadPoolExecutor(1) as attackers:
        attacking = attackers.submit(attack, Ports(server.grpc_port, server.http_port), over)
        try:
            for _ in range(ANSWERS):
                bystander.served()
            yield
            assert not attacking.done(), attacking.exception()
        finally:
            over.set()
    attacking.result()


@pytest.fixture
def heavy(serve: Serve) -> ServerProcess:
    """A server with a group of 6 MB."""
    server = serve()
    server.push(HEAVY, heavy_resources())
    return server


@pytest.mark.parametrize("clients", [40, pytest.param(200, marks=pytest.mark.soak)])
def test_clients_that_never_read(heavy: ServerProcess, beside: Beside, clients: int) -> None:
    """They share the bytes that are written to none of them."""
    before = resident(heavy)
    with beside(heavy, slowest_s=10.0) as bystander, attacked(heavy, bystander, deaf(clients)):
        wait_until(
            lambda: (
                sum(node["id"].startswith("deaf-") for node in heavy.get("/nodes", limit="1000")["items"]) == clients
            ),
            "all have asked",
        )
        for _ in range(5):
            heavy.push(HEAVY, heavy_resources()[1:])
            heavy.push(HEAVY, heavy_resources())
        bystander.served()
        # Without sharing the first answers alone would be 240 MB, or 1.2 GB.
        assert resident(heavy) - before < 120 * MIB


@pytest.mark.parametrize("clients", [20, pytest.param(100, marks=pytest.mark.soak)])
def test_windows_of_one_byte(heavy: ServerProcess, beside: Beside, clients: int) -> None:
    before = resident(heavy)
    with beside(heavy, slowest_s=10.0) as bystander, attacked(heavy, bystander, one_byte_windows(clients)):
        assert resident(heavy) - before < 120 * MIB


def test_twenty_nacks_of_6_mb(serve: Serve, beside: Beside) -> None:
    server = serve()
    before = resident(server)
    over = Event()
    with beside(server, slowest_s=10.0) as bystander:
        with ThreadPoolExecutor(1) as attackers:
            attacking = attackers.submit(nacks(6 * MIB, 20), Ports(server.grpc_port, server.http_port), over)
            bystander.served()
            assert not attacking.done()
            attacking.result()
        bystander.served()
    records = server.nacks()
    assert len(records) == 20
    assert all(0 < len(record["message"]) <= MESSAGE_CHARS for record in records)
    told = [line for line in server.process.log().splitlines() if "nnnnnnnn" in line]
    assert len(told) >= 20
    assert all(line.count("n") < LOG_CHARS + 500 for line in told)
    assert resident(server) - before < 80 * MIB


@pytest.mark.soak
@pytest.mark.parametrize("clusters", [20_000, 100_000])
def test_reports_of_invented_clusters(serve: Serve, beside: Beside, clusters: int) -> None:
    """What is kept of them is bounded, and so are the series of metrics that they make."""
    server = serve()
    before = resident(server)
    with beside(server, slowest_s=10.0) as bystander, attacked(server, bystander, load_reports(clusters)):
        wait_until(lambda: server.metrics().get("xds_server_lrs_reports_total", 0) >= 2, "reports were read")
    lines = [name for name in server.metrics() if "invented-" in name]
    assert len(lines) < 10_000
    assert resident(server) - before < 320 * MIB  # some 240 MiB, however long it goes on


@pytest.mark.soak
@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_of_the_bench(heavy: ServerProcess, beside: Beside, name: str) -> None:
    before = resident(heavy)
    with beside(heavy, slowest_s=15.0) as bystander, attacked(heavy, bystander, ATTACKS[name]):
        pass
    assert resident(heavy) - before < 600 * MIB
