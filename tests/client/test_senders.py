"""What senders promise: a contract that all pass; and one about connections, for the two that have some."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from tests.client.conftest import Driven, LocalClient, opened
from tests.support.features import FEATURE_ROOMS
from tests.support.http_peer import Peer, serving
from tests.support.process import LOOPBACK, wait_until
from xds.client import Client, InvalidInputError, ServerBusyError, UnexpectedAnswerError, UnreachableServerError

GROUP = {"group": "g", "revision": 3}


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    for name in ("XDS_ADDR", "XDS_TOKEN", "XDS_TOKEN_FILE", "http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving() as found:
        found.answers(200, GROUP)
        yield found


@pytest.fixture(params=["blocking", "asynchronous", "within the program"])
def asking(request: pytest.FixtureRequest, peer: Peer) -> Iterator[Any]:
    """A client of each kind, which asks the peer."""
    if request.param == "within the program":
        with asyncio.Runner() as runner:
            yield Driven(LocalClient(peer.application), runner.run)
        return
    with opened(request.param, peer.url) as client:
        yield client


def test_requests_share_a_connection(kind: str, peer: Peer) -> None:
    with opened(kind, peer.url) as client:
        assert [client.group("g").revision for _ in range(3)] == [3] * 3
    assert len(set(peer.peers)) == 1


def test_a_write_does_not_meet_a_connection_that_the_server_has_closed(kind: str, peer: Peer) -> None:
    peer.answers(200, GROUP, is_last=True)
    with opened(kind, peer.url) as client:
        for _ in range(2):
            assert client.delete_group("g").revision == 3
            time.sleep(0.05)
    assert len(set(peer.peers)) == len(peer.asked) == 2


@pytest.mark.parametrize(("options", "asked"), [({}, 1), ({"idempotency_key": "k"}, 2)])
def test_only_repeatable_requests_are_sent_again(kind: str, peer: Peer, options: dict[str, Any], asked: int) -> None:
    answers = iter([None])
    peer.plan = lambda path: (200, next(answers, GROUP), False)
    with opened(kind, peer.url) as client:
        if asked == 1:
            with pytest.raises(UnreachableServerError, match="cannot reach"):
                client.delete_group("g", **options)
        else:
            assert client.delete_group("g", **options).revision == 3
    assert len(peer.asked) == asked


def test_a_read_is_sent_again_once(kind: str, peer: Peer) -> None:
    peer.answers(200, None)
    with opened(kind, peer.url) as client, pytest.raises(UnreachableServerError):
        client.group("g")
    assert len(peer.asked) == 2


def test_a_server_that_does_not_answer_in_time(kind: str, peer: Peer) -> None:
    def late(path: str) -> tuple[int, object, bool]:
        time.sleep(0.5)
        return 200, GROUP, False

    peer.plan = late
    with opened(kind, peer.url, timeout_s=0.1) as client:
        with pytest.raises(UnreachableServerError, match="did not answer in time"):
            client.group("g")
        assert len(peer.asked) == 1, "it is not asked again"
        assert client.apply("g", [], wait_s=5).revision == 3, "the wait of the server is added"


def test_lists_go_over_pages(asking: Any, peer: Peer) -> None:
    items = [{"group": name} for name in "abc"]
    pages = {"": {"items": items[:2], "next_page_token": "a b"}, "?page_token=a+b": {"items": items[2:]}}
    peer.plan = lambda path: (200, pages[path.removeprefix("/api/v1/groups")], False)
    assert [each.group for each in asking.groups()] == ["a", "b", "c"]


def test_compressed_answers_are_read(kind: str, peer: Peer) -> None:
    peer.answers(200, gzip.compress(json.dumps(GROUP).encode()))
    with opened(kind, peer.url) as client:
        assert client.group("g").revision == 3
    assert "gzip" in peer.asked[0][1]["Accept-Encoding"]


def test_a_call_asks_for_the_same_whoever_sends_it(asking: Any, peer: Peer) -> None:
    asking.put("a/b", "clusters", "ü", {"@type": "t"}, message="é", if_match=3, idempotency_key="k")
    path, headers = peer.asked[0]
    assert path == "/api/v1/groups/a%2Fb/resources/clusters/%C3%BC?message=%C3%A9"
    assert (headers["If-Match"], headers["Idempotency-Key"], headers["Content-Type"]) == ("r3", "k", "application/json")
    assert (headers["Accept"], headers["Content-Length"]) == ("application/json", str(len('{"@type": "t"}')))


def test_events_are_read_while_they_arrive(asking: Any, peer: Peer) -> None:
    text = "in JSON\x85these\u2028end\u2029no line"
    push = f'{{"kind":"push","id":"7","time":"2026-01-01T00:00:00Z","message":"{text}"}}'
    peer.answers(200, f'\n{push}\n\n{{"kind":"nack","id":"8"}}\n'.encode())
    feed = asking.events(after="6", reconnects=False)
    assert [(each.kind, each.id, each.message) for each in feed] == [("push", "7", text), ("nack", "8", "")]
    assert ("last-event-id", "6") in {(name.lower(), value) for name, value in peer.asked[0][1].items()}
    peer.answers(503, {"detail": "draining"})
    with pytest.raises(ServerBusyError, match="draining"):
        next(asking.events())


def test_answers_of_another_server_are_recognised(asking: Any, peer: Peer) -> None:
    for status, body in ((200, b"<html>"), (302, b""), (200, b"[]"), (404, b"nothing")):
        peer.answers(status, body)
        with pytest.raises(UnexpectedAnswerError, match="not the admin API of an xDS server"):
            asking.group("g")
    peer.answers(503, {"detail": "starting"})
    with pytest.raises(ServerBusyError, match="starting"):
        asking.group("g")
    peer.answers(200, {"group": 3})
    with pytest.raises(UnexpectedAnswerError, match="cannot be read"):
        asking.group("g")


def test_a_body_that_is_refused_before_its_end(url: str) -> None:
    """asyncio drops the answer when the server closes the connection."""
    names = [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a" * 1000}] * 100_000
    with Client(url) as client, pytest.raises(InvalidInputError, match="larger than") as caught:
        client.apply("large", names)
    assert caught.value.status == 413


def test_a_server_below_a_path_and_behind_a_password(kind: str, peer: Peer) -> None:
    with opened(kind, peer.url.replace("://", "://me:s%40me@") + "/team/") as client:
        client.group("a/b")
    path, headers = peer.asked[0]
    assert path == "/team/api/v1/groups/a%2Fb"
    assert headers["Authorization"] == "Basic " + b64encode(b"me:s@me").decode()


def test_the_proxy_of_the_environment(kind: str, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every HTTP proxy is asked: http with the whole URL, https by a tunnel."""
    monkeypatch.setenv("http_proxy", peer.url.replace("://", "://me:secret@"))
    monkeypatch.setenv("https_proxy", peer.url)
    monkeypatch.setenv("no_proxy", "")
    with opened(kind, "http://xds.example:18080") as client:
        assert client.group("g").revision == 3
    path, headers = peer.asked[0]
    assert (path, headers["Host"]) == ("http://xds.example:18080/api/v1/groups/g", "xds.example:18080")
    assert headers["Proxy-Authorization"] == "Basic " + b64encode(b"me:secret").decode()
    peer.answers(403, b"")
    with opened(kind, "https://xds.example") as client, pytest.raises(UnreachableServerError, match="403"):
        client.group("g")
    assert peer.asked[1][0] == "xds.example:443"
    monkeypatch.setenv("no_proxy", LOOPBACK)
    peer.answers(200, GROUP)
    with opened(kind, peer.url) as client:
        assert client.group("g").revision == 3
    assert peer.asked[2][0] == "/api/v1/groups/g"


def test_a_blocking_client_serves_several_threads(peer: Peer) -> None:
    found: list[int] = []
    with Client(peer.url) as client:
        threads = [Thread(target=lambda: found.extend(client.group("g").revision for _ in range(20))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [3] * 100
    wait_until(lambda: len(set(peer.peers)) <= 5, "connections that are used again")


def test_a_proxy_of_another_kind_is_refused(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(ValueError, match="not an HTTP proxy"):
        Client(peer.url)


def test_the_library_imports_httpx_and_nothing_of_the_server() -> None:
    """The blocking client not even httpx."""
    code = (
        "import sys, xds.client\n"
        f"features = {set(FEATURE_ROOMS)}\n"
        "tables = {f'{each}.{name}' for each in ('xds.admin', *features) for name in ('calls', 'operations')}\n"
        "known = {'xds.version', 'xds.admin', *features, *tables}\n"
        "rooms = ('xds.client', 'xds.calls', 'xds.admin.models', *(f'{each}.models' for each in features))\n"
        "found = {each for each in sys.modules.keys() - known if each.startswith('xds.')}\n"
        "assert all(each.startswith(rooms) for each in found), found\n"
        "assert 'httpx' not in sys.modules\n"
        "xds.client.AsyncClient\n"
        "heavy = {'fastapi', 'grpc', 'structlog', 'google', 'yaml'} & sys.modules.keys()\n"
        "assert 'httpx' in sys.modules and not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
