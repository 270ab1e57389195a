"""The work for a push grows with the resources that it changes, not with their square, also for clients that refuse."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from tests.support.sansio import Client, Server, make_resource
from xds.model.resource import Reference
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, alias_of
from xds.protocol.dialect import Variant

FEW, MANY = 150, 300


def push(server: Server, names: list[str], text: str) -> None:
    """One listener, route, cluster and assignment of each name; they belong together."""
    to = {LISTENER: (ROUTE, "ads"), ROUTE: (CLUSTER, ""), CLUSTER: (ENDPOINT, "ads")}
    server.push_resources(
        make_resource(url, name, text, references=(Reference(to[url][0], name, to[url][1]),) if url in to else ())
        for url in (CLUSTER, ENDPOINT, LISTENER, ROUTE)
        for name in names
    )


def settle(client: Client, refused: str) -> None:
    """Answer all responses: those of the type ``refused`` with a NACK."""
    while client.inbox:
        send, _ = client.inbox[0]
        if send.type_url == refused:
            client.nack(refused)
        else:
            client.ack(send.type_url)


def calls_of_a_push(variant: Variant, size: int, refused: str, is_renamed: bool) -> int:
    """The functions, generators and built-ins that the product enters until a push has settled."""
    server = Server()
    names = [f"a-{number}" for number in range(size)]
    push(server, names, "1")
    client = Client(server, variant)
    for url, wanted in ((CLUSTER, ()), (ENDPOINT, names), (LISTENER, ()), (ROUTE, names)):
        client.subscribe(url, *wanted)
        client.settle()
    count = 0

    def add(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call") and "/xds/" in frame.f_code.co_filename

    newest = [f"b-{number}" for number in range(size)] if is_renamed else names
    sys.setprofile(add)
    try:
        push(server, newest, "2")
        settle(client, refused)
        if is_renamed:
            client.want(ENDPOINT, newest)
            client.want(ROUTE, newest)
            settle(client, refused)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("is_renamed", [False, True], ids=["changed", "renamed"])
@pytest.mark.parametrize("refused", ["", CLUSTER, ENDPOINT, LISTENER, ROUTE], ids=lambda url: alias_of(url) or "none")
def test_a_push_of_twice_the_listeners_takes_twice_the_work(variant: Variant, refused: str, is_renamed: bool) -> None:
    few, many = (calls_of_a_push(variant, size, refused, is_renamed) for size in (FEW, MANY))
    assert many < 2.25 * few, (few, many)
