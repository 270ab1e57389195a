"""The state of a client can be copied by a method: the copy goes on by itself, as the client would have."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

import pytest

from tests.support.sansio import Client, Server
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.protocol.clients import ClientTable
from xds.protocol.dialect import Variant
from xds.protocol.events import Event, Send
from xds.protocol.name_budget import NameBudgets
from xds.protocol.requests import ErrorDetail, Request
from xds.protocol.stream import DiscoveryStream

Sent = tuple[str, tuple[str, ...], tuple[str, ...], str]
CONTENT = {CLUSTER: {"c": "1"}, ENDPOINT: {"c": "1"}, LISTENER: {"l": "1"}, ROUTE: {"r": "1"}}
NEXT = {CLUSTER: {"c": "2", "d": "1"}, ENDPOINT: {"c": "1", "d": "1"}, LISTENER: {"l": "2"}, ROUTE: {"r": "2"}}
NAMED = (ENDPOINT, ROUTE)
NAMES = {ENDPOINT: ("c", "d"), ROUTE: ("r",)}


@pytest.fixture
def client(server: Server, variant: Variant) -> Client:
    """Amid a push: the clusters are in flight, the listener waits for them."""
    server.push(CONTENT)
    client = Client(server, variant)
    for url in CONTENT:
        client.subscribe(url, *NAMES.get(url, ()))
    client.settle()
    server.push(NEXT)
    return client


def copied(client: Client) -> DiscoveryStream:
    """The stream with a copy of the state of its client, as one that leaves a cohort goes on."""
    stream, server = DiscoveryStream.__new__(DiscoveryStream), client.server
    for slot in DiscoveryStream.__slots__:
        setattr(stream, slot, getattr(client.stream, slot))
    assert stream.client_key is not None and stream._client is not None
    stream._client, watches = stream._client.copy()
    stream._clients, stream._budgets = ClientTable(server.cache, server.rules), NameBudgets(1 << 20)
    stream._clients.own(stream.client_key, stream._client)
    stream._offers = copy(stream._offers)
    stream._offers.watches = {url: watches[watch] for url, watch in stream._offers.watches.items()}
    return stream


def answer(client: Client, send: Send, error: str = "") -> Request:
    detail = ErrorDetail(13, error) if error else None
    if client.variant is Variant.DELTA:
        return Request(send.type_url, nonce=send.nonce, error=detail)
    names = frozenset(NAMES.get(send.type_url, ()))
    return Request(send.type_url, names, send.response.version_info, send.nonce, detail)


def sends(events: Iterable[Event]) -> list[Send]:
    return [event for event in events if isinstance(event, Send)]


def go_on(client: Client, stream: DiscoveryStream, inbox: list[Send], error: str = "") -> list[Sent]:
    """Answer all responses on a stream, the first with ``error``; what was sent, in order."""
    told = []
    while inbox:
        send = inbox.pop(0)
        told.append((send.type_url, send.response.names, send.response.removed, send.response.version_info))
        inbox += sends(stream.receive(answer(client, send, error), client.server.now))
        error = ""
    return told


@pytest.mark.parametrize("error", ["", "no good"])
def test_a_copy_behaves_as_its_client(client: Client, error: str) -> None:
    clone = copied(client)
    waiting = [send for send, _ in client.inbox]
    assert waiting, "clusters are in flight"
    told = go_on(client, client.stream, list(waiting), error)
    assert {url for url, *_ in told} == set(NEXT) or error
    assert go_on(client, clone, list(waiting), error) == told
    assert clone.status() == client.stream.status()


def test_changes_of_a_client_do_not_change_its_copy(client: Client) -> None:
    clone = copied(client)
    before, due = clone.status(), clone.deadline()
    assert before == client.stream.status()
    waiting = [send for send, _ in client.inbox]
    go_on(client, client.stream, waiting)
    client.stream.tick(client.server.now + 1000)
    assert (clone.status(), clone.deadline()) == (before, due)
    assert client.stream.status() != before


@pytest.mark.usefixtures("without_twins")
def test_changes_of_a_copy_do_not_change_the_client(client: Client) -> None:
    clone = copied(client)
    before = client.stream.status()
    go_on(client, clone, [send for send, _ in client.inbox], "no good")
    clone.tick(client.server.now + 1000)
    clone.close(client.server.now)
    assert client.stream.status() == before
    assert len(client.server.clients) == 1
    client.settle()
    assert {url: client.texts(url) for url in NEXT} == NEXT
