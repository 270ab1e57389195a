"""Names that no resource has are bounded over all types and streams of a connection; names of resources are not."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from tests.support.sansio import Client, Server
from xds.model.errors import LimitError
from xds.model.resource_type import CLUSTER, ENDPOINT, ROUTE
from xds.protocol import decode
from xds.protocol.dialect import Variant
from xds.protocol.name_budget import NAME_OVERHEAD, REQUEST_SHARE, NameBudget, NameBudgets
from xds.protocol.requests import StreamLimits

EACH = 10  # characters of a name
ROOM = 100  # names
AT_ONCE = ROOM // REQUEST_SHARE  # names of one request
LIMITS = StreamLimits(unknown_name_bytes=ROOM * (EACH + NAME_OVERHEAD), name_characters=100)


def invented(number: int, at: int = 0) -> Iterator[str]:
    """Names of no resource."""
    return (f"{each:010d}" for each in range(at, at + number))


def server_with(*names: str) -> Server:
    server = Server(limits=LIMITS)
    server.push({ENDPOINT: dict.fromkeys(names or ("a",), "1")})
    return server


def refused(client: Client, type_url: str, *names: str) -> str:
    with pytest.raises(LimitError) as refusal:
        client.subscribe(type_url, *names)
    return refusal.value.limit


def test_limits_names_of_no_resource_over_all_types(variant: Variant) -> None:
    client = Client(server_with(), variant)
    for number in range(5):
        client.subscribe(f"type.googleapis.com/example.T{number}", *invented(ROOM // 5))
    assert refused(client, ENDPOINT, *invented(1)) == "unknown_name_bytes"


def test_limits_names_of_no_resource_over_all_streams_of_a_connection(variant: Variant) -> None:
    """Whatever nodes they name; another connection has its own."""
    server = server_with()
    clients = [Client(server, variant, f"node-{number}") for number in range(5)]
    for client in clients:
        client.subscribe(ENDPOINT, *invented(ROOM // 5))
    late = Client(server, variant)
    assert refused(late, ENDPOINT, *invented(1)) == "unknown_name_bytes"
    Client(server, variant, peer="another").subscribe(ENDPOINT, *invented(AT_ONCE))
    for client in (late, *clients):
        client.disconnect()
    Client(server, variant).subscribe(ENDPOINT, *invented(AT_ONCE))


def test_limits_names_of_no_resource_in_one_request(variant: Variant) -> None:
    """To decode, sort and answer them takes the loop at once."""
    server = server_with()
    client = Client(server, variant)
    client.subscribe(ENDPOINT, "a", *invented(AT_ONCE))
    client.settle()
    client.want(ENDPOINT, {"a", *invented(2 * AT_ONCE)})
    assert refused(Client(server, variant, peer="another"), ENDPOINT, *invented(AT_ONCE + 1)) == "unknown_name_bytes"


def test_limits_long_names_of_no_resource_are_refused_before_they_are_read(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 6 MB held the loop for 18 ms although it was refused in the end."""
    server = Server()
    server.push({ENDPOINT: {"a": "1"}})
    client = Client(server, variant)
    client.subscribe(ENDPOINT, "a")
    client.settle()
    monkeypatch.setattr(decode, "canonical_names", unreadable)
    assert refused(client, ENDPOINT, *(f"{each}{'x' * 400}" for each in range(15_000))) == "unknown_name_bytes"


def unreadable(names: object) -> frozenset[str]:
    raise AssertionError("the names are read")


def test_limits_names_of_retained_revisions_are_not_counted(variant: Variant) -> None:
    """A client that missed a push may name all that it was served."""
    names = [f"{each:010d}" for each in range(2 * ROOM)]
    server = server_with(*names)
    client = Client(server, variant)
    client.subscribe(ENDPOINT, *names)
    client.settle()
    client.disconnect()
    server.push({ENDPOINT: {"a": "1"}})
    client.reconnect()
    client.settle()
    assert client.stream.status()[0].names == set(names)


def test_limits_names_of_no_resource_while_no_group_matches(variant: Variant) -> None:
    client = Client(Server(limits=LIMITS), variant)
    for number in range(5):
        client.subscribe(f"type.googleapis.com/example.T{number}", *invented(ROOM // 5))
    assert refused(client, ENDPOINT, *invented(1)) == "unknown_name_bytes"


def test_limits_names_of_resources_are_not_counted(variant: Variant) -> None:
    names = [f"{each:010d}" for each in range(10 * ROOM)]
    client = Client(server_with(*names, "x" * 200), variant)
    client.subscribe(ENDPOINT, *names, "x" * 200)
    client.subscribe(CLUSTER, *invented(AT_ONCE))
    client.settle()
    assert set(client.types[ENDPOINT].resources) == {*names, "x" * 200}


def test_limits_a_name_of_no_resource_has_a_length(variant: Variant) -> None:
    client = Client(server_with(), variant)
    assert refused(client, ENDPOINT, "x" * 101) == "name_characters"
    assert refused(Client(server_with(), variant), "type.googleapis.com/" + "x" * 81, "a") == "name_characters"
    Client(server_with(), variant).subscribe(ENDPOINT, "x" * 100)


def test_limits_names_that_a_client_shows_count(variant: Variant) -> None:
    """A Delta client may show resources of an earlier stream that no resource has."""
    server = server_with("a")
    client = Client(server, Variant.DELTA)
    client.subscribe(ENDPOINT, "a")
    client.settle()
    client.disconnect()
    client.types[ENDPOINT].versions.update(dict.fromkeys(invented(ROOM + 1), "1"))
    with pytest.raises(LimitError):
        client.reconnect()


def test_limits_dropped_names_make_room(variant: Variant) -> None:
    """A client that looks for other names again and again is never refused."""
    client = Client(server_with(), variant)
    for turn in range(50):
        names = set(invented(ROOM // 4, turn * ROOM))
        client.want(ROUTE, names)
    assert client.stream.status()[0].names == names


class Holder:
    """A stream with names of so many bytes; counts how often it is asked."""

    def __init__(self, cost: int = 0) -> None:
        self.cost = cost
        self.asked = 0

    def unknown_names_cost(self) -> int:
        self.asked += 1
        return self.cost


def spent(budget: NameBudget, holder: Holder, names: Collection[str]) -> bool:
    try:
        budget.spend(holder, names)
    except LimitError:
        return False
    return True


def test_counting_again_is_rare() -> None:
    """A client near the limit must not make each of its requests count all names."""
    budget, holder = NameBudget(ROOM * (EACH + NAME_OVERHEAD)), Holder()
    for number in range(10 * ROOM):
        assert spent(budget, holder, [*invented(1, number)])
    assert holder.asked <= 10
    holder.cost = ROOM * (EACH + NAME_OVERHEAD) // 2
    assert not all(spent(budget, holder, [*invented(1)]) for _ in range(ROOM))


def test_a_budget_lasts_as_long_as_a_stream_that_has_spent_of_it() -> None:
    budgets, first, second, names = NameBudgets(400), Holder(400), Holder(400), ["a" * 30]

    def spend(peer: str, holder: Holder) -> bool:
        try:
            budgets.spend(peer, holder, names)
        except LimitError:
            return False
        return True

    while spend("peer", first):
        pass
    assert not spend("peer", second)
    assert spend("other", second)
    budgets.leave("peer", first)
    assert not spend("peer", second) or not spend("peer", second)
    budgets.leave("peer", second)
    budgets.leave("peer", second)
    assert spend("peer", Holder())
