"""Requests with the scope ``read`` whose work is far beyond their bytes. The cost of each is in its docstring."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from threading import Thread

from tests.attack.attacks import Attack, Over, Ports
from tests.attack.raw_http import connect
from tests.support import resources as r

SENDERS = 8
SEED = "00000000"  # stands in a body for eight digits that differ from request to request: nothing is known already
REGEXES = 600
LEAVES_EVERY_S = 0.05


def validation(body: bytes, media: str = "application/json") -> bytes:
    """A request that checks a body without pushing it."""
    head = f"POST /api/v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def routes_with(regex: str, routes: int = REGEXES) -> bytes:
    """A snapshot with so many different regular expressions."""
    listed = [
        {"match": {"safe_regex": {"regex": f"{regex}{SEED}{number}"}}, "route": {"cluster": "c"}}
        for number in range(routes)
    ]
    hosts = [{"name": "v", "domains": ["*"], "routes": listed}]
    document = {"resources": [{"@type": r.ROUTE_TYPE, "name": "r", "virtual_hosts": hosts}]}
    return json.dumps(document, separators=(",", ":")).encode()


@cache
def refused_regexes() -> bytes:
    """Each of twenty bytes needs 2,000 instructions: together a second of RE2, which holds the interpreter."""
    return validation(routes_with("(a|b|c){1,500}"))


@cache
def unicode_regexes() -> bytes:
    """Each of seven bytes took 20 ms as Latin-1, and three times as long with another letter."""
    return validation(routes_with(r"(?i)\pL\pN"))


@cache
def compiled_regexes() -> bytes:
    """as large as is compiled: 4 ms each."""
    return validation(routes_with(r"\W{1,500}"))


@cache
def unknown_types() -> bytes:
    """Each has the hint at the type that was probably meant: some 20 ms each."""
    kinds = (f"{r.TYPE}envoy.extensions.filters.http.routerx.v3.Router{SEED}{number}" for number in range(400))
    clusters = [
        {"@type": r.CLUSTER_TYPE, "name": "c", "typed_extension_protocol_options": {"x": {"@type": kind}}}
        for kind in kinds
    ]
    return validation(json.dumps({"resources": clusters}, separators=(",", ":")).encode())


@cache
def expanding_aliases() -> bytes:
    """Some hundred bytes that stand for a megabyte of values, many times."""
    layers = [f"        a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 6)]
    one = (
        f"---\n'@type': {r.CLUSTER_TYPE}\nname: c{SEED}\nmetadata:\n  filter_metadata:\n      m:\n"
        f"        a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n{''.join(layers)}"
    )
    return validation((one * 100).encode(), "application/yaml")


def again_and_again(make: Callable[[], bytes], *, waits: bool = True) -> Attack:
    """The same kind of request on some connections, each as soon as it is answered. Without ``waits`` they leave."""

    def run(ports: Ports, over: Over) -> None:
        request, numbers = make(), count()
        senders = [Thread(target=_send, args=(ports, over, request, numbers, waits)) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()

    return run


def _send(ports: Ports, over: Over, request: bytes, numbers: Iterator[int], waits: bool) -> None:
    while not over.is_set():
        with suppress(OSError), connect(ports.http) as connection:
            _converse(connection, over, request, numbers, waits)
        if not waits:
            over.wait(LEAVES_EVERY_S)  # it is about the work: without a pause it is a flood of connections


def _converse(connection: socket.socket, over: Over, request: bytes, numbers: Iterator[int], waits: bool) -> None:
    connection.settimeout(0.2)
    while not over.is_set():
        connection.sendall(request.replace(SEED.encode(), b"%08d" % next(numbers)))
        if not waits:
            return
        while not over.is_set():
            with suppress(TimeoutError):
                if not connection.recv(1 << 20):
                    return
                break


COSTLY_ATTACKS: Mapping[str, Attack] = {
    "regexes": again_and_again(refused_regexes),
    "unicode-regexes": again_and_again(unicode_regexes),
    "compiled-regexes": again_and_again(compiled_regexes),
    "regexes-of-the-absent": again_and_again(compiled_regexes, waits=False),
    "unknown-types": again_and_again(unknown_types),
    "expanding-aliases": again_and_again(expanding_aliases),
}
