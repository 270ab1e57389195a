"""A secret that a listener of a live client newly names, and that comes a moment after the listener.

Envoy drops what it has of a secret that is reported as removed, and the warming listener replaces the one that serves.
"""

from __future__ import annotations

import pytest

from tests.spec.by_hand import ORDER_TIMEOUT_S, start, told, wait, with_listener
from tests.support.sansio import Client, Server
from tests.support.texts import joined, push, site
from xds.model.resource_type import SECRET

A = site("a")
SECURE = with_listener(A, "r1 sds:s")
REMOVED = [("secrets", (), ("s",))]


@pytest.fixture
def warming(server: Server, delta: Client) -> Client:
    """A live client whose listener warms for a secret that does not exist."""
    push(server, A)
    start(delta)
    push(server, SECURE)
    delta.settle()
    delta.subscribe(SECRET, "s")
    return delta


def test_a_secret_that_a_listener_newly_names_is_waited_for(server: Server, warming: Client) -> None:
    server.elapse(1)
    assert not told(warming)
    push(server, joined(SECURE, {SECRET: {"s": "@1"}}))
    assert told(warming) == [("secrets", ("s",), ())]
    wait(server, 2 * ORDER_TIMEOUT_S, warming)
    assert warming.texts(SECRET) == {"s": "@1"}


def test_a_secret_that_never_comes_is_told_after_the_order_timeout(server: Server, warming: Client) -> None:
    server.elapse(ORDER_TIMEOUT_S - 1)
    assert not told(warming)
    server.elapse(2)
    assert told(warming) == REMOVED


def test_a_secret_is_told_when_no_listener_names_it_any_more(server: Server, warming: Client) -> None:
    """A client may still ask for it."""
    push(server, A)
    told_names = [send.response.removed for send in warming.settle()]
    assert told_names.count(("s",)) == 1


def test_a_client_that_starts_is_told_at_once(server: Server, delta: Client) -> None:
    """It goes live only when it knows of each secret that its listeners name."""
    push(server, SECURE)
    start(delta)
    delta.subscribe(SECRET, "s")
    assert told(delta) == REMOVED


def test_a_secret_that_no_new_listener_names_is_told_at_once(server: Server, warming: Client) -> None:
    warming.subscribe(SECRET, "other")
    assert told(warming) == [("secrets", (), ("other",))]
