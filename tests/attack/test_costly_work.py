"""Requests with the scope ``read`` whose work is far beyond their bytes: the streams of others go on beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from bench.suite.process import cpu_s
from tests.attack.attacks import MIB, Ports
from tests.attack.conftest import Beside, resident
from tests.attack.costly_work import COSTLY_ATTACKS, compiled_regexes, routes_with, unknown_types, validation
from tests.attack.raw_http import ask, connect
from tests.support.process import wait_until
from tests.support.server import ServerProcess

EVERY_TIME = ("regexes", "unicode-regexes")
ANSWERS = 5  # times two of the good client amid an attack
IDLE_S, IDLE_CPU_S = 0.5, 0.2


@pytest.mark.parametrize(
    "name", [name if name in EVERY_TIME else pytest.param(name, marks=pytest.mark.soak) for name in COSTLY_ATTACKS]
)
def test_costly_bodies_do_not_stop_other_clients(victim: ServerProcess, beside: Beside, name: str) -> None:
    """Each stopped all streams for seconds to minutes, or would have without a bound on its work."""
    before, over = resident(victim), Event()
    with beside(victim, slowest_s=3.0) as bystander, ThreadPoolExecutor(1) as attackers:
        attacking = attackers.submit(COSTLY_ATTACKS[name], Ports(victim.grpc_port, victim.http_port), over)
        try:
            for _ in range(ANSWERS):
                bystander.served()
            assert resident(victim) - before < 250 * MIB
        finally:
            over.set()
    attacking.result()


@pytest.mark.parametrize("make", [compiled_regexes, unknown_types])
def test_work_ends_when_its_caller_has_left(victim: ServerProcess, make: Callable[[], bytes]) -> None:
    """Its threads went on for seconds, and those of all callers that had left before."""
    for _ in range(8):
        with connect(victim.http_port) as connection:
            connection.sendall(make())
    wait_until(lambda: _spent_s(victim) < IDLE_CPU_S, "the server is idle", 3.0)


def _spent_s(server: ServerProcess) -> float:
    before = cpu_s(server.process.pid)
    time.sleep(IDLE_S)
    return cpu_s(server.process.pid) - before


def test_a_caller_with_much_work_leaves_room_for_others(serve: Callable[..., ServerProcess]) -> None:
    """Eight connections of one token that ask for seconds of work each, and a push of another token beside them."""
    server = serve()
    with ThreadPoolExecutor(8) as senders:
        waiting = [senders.submit(ask, server.http_port, compiled_regexes()) for _ in range(8)]
        assert ask(server.http_port, validation(routes_with("/plain/[a-z]+", 1))) == 200
        assert [sent.result() for sent in waiting] == [200] * 8
