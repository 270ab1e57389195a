"""The client of the admin API: what answers mean, credentials, connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_peer import Peer, serving
from xds.calls import fleet, groups
from xds.calls.call import ApiCall
from xds.cli.arguments import parse_address
from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    for name in ("XDS_ADDR", "XDS_TOKEN", "XDS_TOKEN_FILE", "http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving() as found:
        yield found


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Exit.USAGE),
        (401, Exit.AUTH),
        (403, Exit.AUTH),
        (404, Exit.NOT_FOUND),
        (409, Exit.CONFLICT),
        (410, Exit.NOT_FOUND),
        (412, Exit.CONFLICT),
        (413, Exit.INVALID),
        (415, Exit.INVALID),
        (422, Exit.INVALID),
        (428, Exit.CONFLICT),
        (429, Exit.UNREACHABLE),
        (500, Exit.UNREACHABLE),
        (503, Exit.UNREACHABLE),
        (507, Exit.UNREACHABLE),
    ],
)
def test_exit_codes_of_http_statuses(peer: Peer, status: int, code: Exit) -> None:
    peer.answers(status, {"detail": "because"})
    with pytest.raises(CommandError, match="because") as caught:
        Client(peer.url).run(groups.configure_group("edge"))
    assert caught.value.code is code


CALLS: dict[str, ApiCall[Any]] = {
    "GET": groups.groups(),
    "PUT": groups.configure_group("edge"),
    "DELETE": groups.delete_group("edge"),
}


@pytest.mark.parametrize(
    "method, source, code",
    [
        ("PUT", "f:1:2", Exit.INVALID),
        ("PUT", "query", Exit.USAGE),
        ("DELETE", "", Exit.INVALID),
        ("GET", "", Exit.USAGE),
    ],
)
def test_a_wrong_argument_is_a_usage_error(peer: Peer, method: str, source: str, code: Exit) -> None:
    peer.answers(422, {"detail": "1", "errors": [{"source": source, "detail": "because"}]})
    with pytest.raises(CommandError, match="because") as caught:
        Client(peer.url).run(CALLS[method])
    assert caught.value.code is code


def test_findings_are_reported_with_place_and_hint(peer: Peer) -> None:
    error = {"source": "f:1:2", "resource": "clusters/a", "pointer": "/nmae", "detail": "no", "hint": "did you mean"}
    peer.answers(422, {"detail": "1", "errors": [error, {"detail": "plain"}]})
    with pytest.raises(CommandError) as caught:
        Client(peer.url).run(groups.groups())
    assert str(caught.value) == "f:1:2 clusters/a /nmae: no (did you mean)\nplain"


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"[]"), (200, b"\xff"), (404, b"<html>"), (501, b"<html>")]
)
def test_answers_of_another_server_are_recognised(peer: Peer, status: int, body: bytes) -> None:
    peer.answers(status, body)
    with pytest.raises(CommandError, match="not the admin API of an xDS server") as caught:
        Client(peer.url).run(groups.groups())
    assert caught.value.code is Exit.UNREACHABLE


def test_a_url_is_no_address() -> None:
    with pytest.raises(CommandError, match="not HOST:PORT: 'http://127"):
        parse_address("http://127.0.0.1:18000")


def test_pages_are_one_list(peer: Peer) -> None:
    items = [{"id": name} for name in "abc"]
    pages = {"": {"items": items[:2], "next_page_token": "a b"}, "?page_token=a+b": {"items": items[2:]}}
    peer.plan = lambda path: (200, pages[path.removeprefix("/api/v1/nodes")], False)
    assert list(Client(peer.url).items(fleet.nodes())) == items


def test_sources_of_the_token(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("flag", "variable")]
    for file in files:
        file.write_text(f"{file.name}\n")

    def sent(file: Path | None = None) -> str:
        Client(peer.url, file).run(groups.groups())
        return peer.asked[-1][1].get("Authorization", "")

    assert sent() == ""
    monkeypatch.setenv("XDS_TOKEN_FILE", str(files[1]))
    assert sent() == "Bearer variable"
    monkeypatch.setenv("XDS_TOKEN", "plain")
    assert sent() == "Bearer plain"
    assert sent(files[0]) == "Bearer flag"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"two\nlines"])
def test_files_that_are_no_token(peer: Peer, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(CommandError, match="not a token"):
        Client(peer.url, file)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "http://host/?a=b"])
def test_an_invalid_url_is_wrong_usage(url: str) -> None:
    with pytest.raises(CommandError) as caught:
        Client(url)
    assert caught.value.code is Exit.USAGE
