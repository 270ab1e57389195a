"""2.8 REST, as far as the engine answers it; the rest is the HTTP door's."""

from __future__ import annotations

import pytest

from tests.support.sansio import Server
from xds.model.node import Node
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER
from xds.protocol.requests import Request
from xds.protocol.sotw import Fetched, fetch
from xds.snapshots.cache import View


def view(server: Server) -> View:
    """The view of a node."""
    found = server.cache.resolve(Node("node"))
    assert found is not None
    return found


def ask(server: Server, url: str, *names: str, version_info: str = "") -> Fetched:
    """One poll."""
    return fetch(view(server), Request(url, frozenset(names), version_info))


@pytest.mark.parametrize(("url", "names"), [(CLUSTER, ()), (CLUSTER, ("a",)), (ENDPOINT, ("a", "missing"))])
def test_rule_75_a_client_at_the_current_version_is_answered_304(
    server: Server, url: str, names: tuple[str, ...]
) -> None:
    """Rule 75: the answer is 304, never 200 with the same content."""
    server.push({url: {"a": "1", "b": "1"}})
    first = ask(server, url, *names)
    assert first.modified
    assert not ask(server, url, *names, version_info=first.version_info).modified
    server.push({url: {"a": "2", "b": "1"}})
    assert ask(server, url, *names, version_info=first.version_info).modified


def test_rule_76_one_more_name_is_never_not_modified(server: Server) -> None:
    """Rule 76: "The version of a REST response depends on the requested names"."""
    server.push({ENDPOINT: {"a": "1", "b": "1"}})
    first = ask(server, ENDPOINT, "a")
    second = ask(server, ENDPOINT, "a", "b", version_info=first.version_info)
    assert second.modified
    assert [resource.name for resource in second.resources] == ["a", "b"]


def test_rule_76_the_version_names_push_and_content(server: Server) -> None:
    """The version of a REST answer ends in 8 hex digits of the hash of the served set.

    See docs/internals/design.md#overlays.
    """
    server.push({CLUSTER: {"a": "1"}}, label="v1")
    label, _, digest = ask(server, CLUSTER).version_info.partition("+")
    assert label == "v1"
    assert len(bytes.fromhex(digest)) == 4


def test_rule_77_a_type_without_resources_is_an_empty_answer(server: Server) -> None:
    """Rule 77: the answer is 200 with an empty list."""
    server.push({CLUSTER: {"a": "1"}})
    assert ask(server, LISTENER).resources == ()
