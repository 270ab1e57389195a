"""A client may name everything that it is served: only names without a resource count against the limits."""

from __future__ import annotations

from time import thread_time

import pytest

from tests.support.sansio import Client, Server
from xds.model.errors import LimitError, RemoteProtocolError
from xds.model.resource_type import CLUSTER, ENDPOINT, ROUTE
from xds.proto import wire_pb2
from xds.protocol.dialect import Variant
from xds.protocol.requests import StreamLimits

OLD = [f"old-{number}" for number in range(30)]
NEW = [f"new-{number}" for number in range(30)]
NONE = [f"none-{number}" for number in range(11)]
REMOVED_S = 20.0
FEW = 4_000
MANY = 20_000
MOST_TIMES_THE_WORK = 12  # of five times the names; it is 25 where each name is looked up in a list of all


def of(names: list[str]) -> dict[str, dict[str, str]]:
    """A cluster and an assignment for each name."""
    return {CLUSTER: dict.fromkeys(names, "1"), ENDPOINT: dict.fromkeys(names, "1")}


@pytest.fixture
def server() -> Server:
    server = Server(limits=StreamLimits(names_per_request=10, names_per_subscription=25))
    server.push(of(OLD))
    return server


@pytest.mark.parametrize("type_url", ["", ENDPOINT], ids=["ads", "eds"])
def test_a_client_may_request_all_that_it_is_served(server: Server, variant: Variant, type_url: str) -> None:
    """In the first request of a stream, too."""
    client = Client(server, variant, type_url=type_url)
    client.subscribe(ENDPOINT, *OLD)
    client.settle()
    assert client.texts(ENDPOINT) == dict.fromkeys(OLD, "1")
    client.reconnect()
    client.settle()
    client.disconnect()
    server.restart()
    client.reconnect()
    client.settle()
    assert client.texts(ENDPOINT) == dict.fromkeys(OLD, "1")


def test_a_client_may_request_removed_names_beside_new_ones(server: Server, variant: Variant) -> None:
    """It learns of the removal of clusters later than of the new ones, and restates all names meanwhile (SotW)."""
    client = Client(server, variant)
    client.subscribe(CLUSTER)
    client.subscribe(ENDPOINT, *OLD)
    client.settle()
    server.push(of(NEW))
    client.want(ENDPOINT, (*OLD, *NEW))
    client.settle()
    server.elapse(REMOVED_S)
    if client.variant is Variant.SOTW:
        client.repeat(ENDPOINT)  # before it has read that the clusters are removed
    client.settle()
    client.want(ENDPOINT, NEW)
    client.settle()
    assert client.texts(ENDPOINT) == dict.fromkeys(NEW, "1")


def test_a_client_that_missed_the_push_may_request_its_earlier_names(server: Server, variant: Variant) -> None:
    client = Client(server, variant)
    client.subscribe(ENDPOINT, *OLD)
    client.settle()
    client.disconnect()
    server.push(of(NEW))
    client.reconnect()
    client.settle()
    client.want(ENDPOINT, NEW)
    client.settle()
    assert client.texts(ENDPOINT) == dict.fromkeys(NEW, "1")


def test_names_without_a_resource_are_limited_beside_all_others(server: Server, variant: Variant) -> None:
    """In one request, and in the subscription."""
    client = Client(server, variant)
    with pytest.raises(RemoteProtocolError):
        client.subscribe(ENDPOINT, *OLD, *NONE)
    client = Client(server, variant)
    client.subscribe(ENDPOINT, *OLD)
    client.settle()
    for start in (0, 10):
        client.want(ENDPOINT, (*OLD, *(f"none-{number}" for number in range(start + 10))))
    with pytest.raises(RemoteProtocolError):
        client.want(ENDPOINT, (*OLD, *(f"none-{number}" for number in range(26))))


@pytest.mark.parametrize("type_url", [CLUSTER, ENDPOINT, ROUTE])
def test_the_work_for_names_without_a_resource_grows_with_their_number(variant: Variant, type_url: str) -> None:
    few_s, many_s = (min(answer_time_s(variant, type_url, count) for _ in range(3)) for count in (FEW, MANY))
    assert many_s < few_s * MOST_TIMES_THE_WORK


def answer_time_s(variant: Variant, type_url: str, count: int) -> float:
    """CPU seconds from a request for so many names without a resource to its answer."""
    server = Server()
    server.push(of(OLD))
    client = Client(server, variant)
    began_s = thread_time()
    client.subscribe(type_url, *(f"none-{number}" for number in range(count)))
    return thread_time() - began_s


def test_names_are_counted_before_they_are_read(server: Server, variant: Variant) -> None:
    """Hundreds of thousands of strings hold the loop for a second, even if all are equal."""
    client = Client(server, variant)
    client.subscribe(ENDPOINT, *OLD)
    client.settle()
    client.raw(repeating(variant, OLD, 1))
    with pytest.raises(LimitError) as refusal:
        client.raw(repeating(variant, OLD, 10))
    assert refusal.value.limit == "names_per_request"


def test_the_names_that_a_client_is_served_are_counted_in_bytes(variant: Variant) -> None:
    names = ["😀" * 200 + str(number) for number in range(200)]
    server = Server(limits=StreamLimits(unknown_name_bytes=64 << 10))
    server.push(of(names))
    client = Client(server, variant)
    client.subscribe(ENDPOINT, *names)
    client.settle()
    assert client.texts(ENDPOINT) == dict.fromkeys(names, "1")


def test_the_text_of_a_nack_is_no_name(variant: Variant) -> None:
    """In bytes, too."""
    server = Server(limits=StreamLimits(unknown_name_bytes=64 << 10))
    server.push(of(OLD))
    client = Client(server, variant)
    client.subscribe(ENDPOINT, *OLD)
    client.nack(ENDPOINT, "é" * (64 << 10))
    assert [status.state for status in client.stream.status()] == ["nacked"]


def repeating(variant: Variant, names: list[str], times: int) -> bytes:
    """A request for assignments that has each name so many times."""
    if variant is Variant.SOTW:
        return wire_pb2.DiscoveryRequest(type_url=ENDPOINT, resource_names=names * times).SerializeToString()
    request = wire_pb2.DeltaDiscoveryRequest(type_url=ENDPOINT, resource_names_subscribe=names * times)
    return request.SerializeToString()
