"""What content that is held back waits for is told with it, whatever the reason (docs/protocol.md#rejections)."""

from __future__ import annotations

import pytest

from tests.spec.by_hand import start
from tests.support.personas import live, spend
from tests.support.sansio import Client, Server
from tests.support.texts import TARGET, Site, joined, push, site
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, alias_of
from xds.protocol.dialect import Variant
from xds.protocol.events import HoldChanged
from xds.snapshots.linger import NamesByType

A = site("a")
GUARDED = joined(site("a", listener="r1 ecds:f"), {ROUTE: {"r1": "a"}, EXTENSION_CONFIG: {"f": "@1"}})
NEW = joined(A, {CLUSTER: {"t": "in:inner"}, LISTENER: {"inner": "to:a internal bad"}, ROUTE: {"r1": "t"}})
UNASSIGNED = joined(site("a", text="static"), {CLUSTER: {"c": "eds:x"}, ENDPOINT: {"x": "bad"}})
# What is pushed first, then; what is held, and what that waits for.
CASES: dict[str, tuple[Site, Site, str, str]] = {
    "listener": (A, joined(A, {LISTENER: {TARGET: "r1 bad"}, ROUTE: {"r1": "a @2"}}), "routes/r1", "listeners/svc"),
    "route": (A, joined(A, {LISTENER: {TARGET: "r2"}, ROUTE: {"r2": "a bad"}}), "listeners/svc", "routes/r2"),
    "new filter": (
        A,
        joined(A, {LISTENER: {TARGET: "r1 ecds:f"}, EXTENSION_CONFIG: {"f": "bad"}}),
        "listeners/svc",
        "extension_configs/f",
    ),
    "changed filter": (
        GUARDED,
        joined(GUARDED, {EXTENSION_CONFIG: {"f": "bad"}, ROUTE: {"r1": "a @2"}}),
        "routes/r1",
        "extension_configs/f",
    ),
    "internal listener": (A, NEW, "routes/r1", "listeners/inner"),
    "assignment": (UNASSIGNED, joined(UNASSIGNED, {CLUSTER: {"a": "eds:x"}}), "clusters/a", "endpoints/x"),
}


def repaired(content: Site) -> Site:
    """The content without what a client rejects."""
    return {url: {name: text.replace("bad", "@9") for name, text in texts.items()} for url, texts in content.items()}


def listed(names: NamesByType) -> set[str]:
    """``{"routes/r1"}``."""
    return {f"{alias_of(url)}/{name}" for url, each in names for name in each}


@pytest.fixture(autouse=True)
def history(server: Server) -> None:
    """The events of all streams are kept, in order."""
    server.history = []


def reasons(server: Server) -> dict[str, set[str]]:
    """What is held now, and what it waits for besides clusters."""
    held = [event.held for _, event in server.history or () if isinstance(event, HoldChanged)]
    return {name: listed(each.waits_for_others) for each in held[-1] for name in listed(each.names)} if held else {}


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("case", CASES)
def test_held_content_is_shown_with_the_rejected_resource(
    server: Server, variant: Variant, split: bool, case: str
) -> None:
    """Nothing is left of it when the rejected resource is repaired, and nothing waits for a cluster."""
    first, second, held, reason = CASES[case]
    source = "api" if split else "ads"
    client = live(server, variant, first, split=split)
    push(server, second, source=source)
    spend(40, client)
    assert reasons(server).get(held) == {reason}
    push(server, repaired(second), source=source)
    spend(40, client)
    assert reasons(server) == {}
    assert not client.lost


def test_a_rejected_listener_is_no_reason_for_content_of_other_trees(server: Server, variant: Variant) -> None:
    """Its routes moved to another listener: no push of them waits, and nothing is said of them."""
    client = live(server, variant, A)
    content = joined(A, {LISTENER: {TARGET: "r2 bad", "web": "r1"}, ROUTE: {"r1": "a @2", "r2": "a"}})
    push(server, content)
    spend(10, client)
    for text in ("a @3", "a @4"):
        push(server, joined(content, {ROUTE: {"r1": text}}))
        spend(10, client)
        assert client.serving()[ROUTE] == {"r1": text}
        assert reasons(server) == {}


def test_suspect_listeners_are_shown_with_the_content_that_they_hold(server: Server, client: Client) -> None:
    """The client rejected the response without a word on which of them is bad."""
    two = joined(A, site("a", name="web", route="r2"))
    push(server, two)
    client.subscribe(ROUTE, "r2")
    start(client)
    push(server, joined(two, {LISTENER: {TARGET: "r1 @2", "web": "r2 @2"}, ROUTE: {"r1": "a @2"}}))
    for _ in range(10):
        while client.pending(LISTENER):
            client.nack(LISTENER, "cannot be read")
        client.settle()
    assert reasons(server)["routes/r1"] == {f"listeners/{TARGET}"}
