"""Who is let in below `/internal/`, where the secret goes, and what a server answers for another one."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cluster.conftest import HOST, SECRET, Site
from tests.support.pki import CertificateAuthority
from tests.support.resources import static_cluster
from xds.access.tokens import Grant, Tokens
from xds.admin import server_door
from xds.admin.dependencies import ApiOptions
from xds.admin.gathering import CALLER_HEADER
from xds.admin.other_servers import Asked
from xds.admin.server_door import BODY_BYTES
from xds.calls import async_sender
from xds.cluster import fan_out
from xds.cluster.fan_out import FanOut, Trust
from xds.store.member_register import Member

EVERYTHING = urlsafe_b64encode(json.dumps({"name": "", "scopes": ["admin"], "peer": None}).encode()).decode()
PLAIN = Trust()
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ADMITTED = {"Authorization": f"Bearer {SECRET}", CALLER_HEADER: EVERYTHING}
INTERNAL_PATHS = (
    "/nodes",
    "/nodes/n1",
    "/nacks",
    "/events",
    "/check",
    "/load",
    "/nodes/standings",
    "/groups/g/rollout",
)
TOKENS = Tokens(
    (sha256(name.encode()).hexdigest(), Grant(name, frozenset({scope})))
    for name, scope in (("root", "admin"), ("reader", "read"), ("edge", "write:group/edge"), ("other", "write:group/x"))
)


@asynccontextmanager
async def listening(
    answer: Callable[[bytes], bytes], context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers each request as it is told; its URL, and the requests that it got."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        got.append(head)
        writer.write(answer(head))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with server:
        yield f"http{'s' if context is not None else ''}://{HOST}:{server.sockets[0].getsockname()[1]}", got


@asynccontextmanager
async def asking(*rows: Member, trust: Trust = PLAIN) -> AsyncIterator[FanOut]:
    made = FanOut(lambda: Member("a", "http://127.0.0.1:1"), lambda: rows, lambda: SECRET, trust)
    yield made
    await made.close()


@pytest.fixture
async def guarded() -> AsyncIterator[Site]:
    """Two servers with tokens."""
    made = Site(ApiOptions(tokens=TOKENS))
    for name in ("a", "b"):
        await made.add(name)
    yield made
    await made.close()


async def test_only_the_secret_of_the_cluster_opens_the_door(guarded: Site) -> None:
    for path in INTERNAL_PATHS:
        for method in ("GET", "POST", "DELETE"):
            for bearer in ("", "root", "reader", SECRET[:-1], f"{SECRET}x"):
                headers = {"Authorization": f"Bearer {bearer}", CALLER_HEADER: EVERYTHING} if bearer else {}
                answer = await guarded["a"].client.request(method, f"/internal/v1{path}", headers=headers)
                assert answer.status_code == 401, (method, path, bearer, answer.text)
    assert (await guarded["a"].client.get("/internal/v1/nodes", headers=ADMITTED)).status_code == 200


async def test_only_what_servers_ask_each_other_is_behind_the_door(site: Site) -> None:
    await site.put("edge", static_cluster("a"))
    for method, path in (
        ("GET", "/groups"),
        ("GET", "/groups/edge/snapshot"),
        ("PUT", "/groups/edge/snapshot"),
        ("DELETE", "/groups/edge"),
        ("GET", "/backup"),
        ("GET", "/audit"),
        ("GET", "/openapi.json"),
        ("POST", "/nodes"),
    ):
        answer = await site["a"].client.request(method, f"/internal/v1{path}", headers=ADMITTED)
        assert answer.status_code in {404, 405}, (method, path, answer.status_code)
    paths = (await site.get("a", "/openapi.json"))["paths"]
    assert paths and not [path for path in paths if "internal" in path]


async def test_a_path_of_servers_is_no_path_of_the_api(site: Site) -> None:
    """The marks of a request from a server are of no use without the secret."""
    answer = await site["a"].client.post("/api/v1/nodes/standings", json={"ids": []}, headers=ADMITTED)
    assert answer.status_code in {404, 405}


async def test_one_server_alone_has_no_door(site: Site) -> None:
    site.accepted.clear()
    assert (await site["a"].client.get("/internal/v1/nodes", headers=ADMITTED)).status_code == 401


async def test_a_request_without_a_caller_is_refused(site: Site) -> None:
    for header in ("", "e30=", "???", urlsafe_b64encode(b'{"name": 1, "scopes": 2, "peer": 3}').decode()):
        headers = {**ADMITTED, CALLER_HEADER: header}
        assert (await site["a"].client.get("/internal/v1/nodes", headers=headers)).status_code == 400


async def test_a_body_has_a_limit(site: Site) -> None:
    body = {"ids": ["x" * BODY_BYTES]}
    answer = await site["a"].client.post("/internal/v1/nodes/standings", json=body, headers=ADMITTED)
    assert answer.status_code == 413


async def test_a_request_has_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its body never comes."""
    monkeypatch.setattr(server_door, "ANSWER_S", 0.2)
    reader, writer = await asyncio.open_connection(HOST, urlsplit(site.rows[0].url).port)
    fields = {**ADMITTED, "Host": HOST, "Content-Type": "application/json", "Content-Length": "10"}
    lines = ["POST /internal/v1/nodes/standings HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    assert b" 500 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()


async def test_a_server_with_a_wrong_secret_is_not_asked_in_vain(site: Site) -> None:
    """Its view is partial and says so; nothing of the other one is told to it."""
    site.connect("a", "n1")
    site.secrets["b"] = "another secret"
    assert (await site.get("b", "/nodes"))["partial"] == ["a"]
    assert [node["id"] for node in (await site.get("a", "/nodes"))["items"]] == ["n1"]


async def test_the_secret_is_exchanged_while_servers_ask(site: Site) -> None:
    """First all accept both, then each shows the new one, then none accepts the old one."""
    site.accepted.append("new")
    assert "partial" not in await site.get("a", "/nodes")
    site.secrets["a"] = "new"
    for server in ("a", "b"):
        assert "partial" not in await site.get(server, "/nodes")
    site.secrets["b"] = "new"
    site.accepted.remove(SECRET)
    for server in ("a", "b"):
        assert "partial" not in await site.get(server, "/nodes")
    site.secrets["b"] = SECRET
    assert (await site.get("b", "/nodes"))["partial"] == ["a"]


async def test_a_caller_may_do_at_another_server_what_he_may_do_here(guarded: Site) -> None:
    guarded.connect("b", "n1", "edge")

    async def asked(method: str, path: str, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return (await guarded["a"].client.request(method, f"/api/v1{path}", headers=headers)).status_code

    assert [await asked("POST", "/nodes/n1/release", token) for token in ("edge", "other", "reader", "root")] == [
        *(200, 403, 403, 200)
    ]
    assert [await asked("DELETE", "/nodes/n1", token) for token in ("edge", "reader", "no token")] == [403, 403, 401]
    assert [await asked("GET", "/nodes/n1", token) for token in ("edge", "reader")] == [403, 200]
    assert await asked("GET", "/nodes/n1/resources?show_secrets=true", "reader") == 403


async def test_a_caller_may_send_headers_in_any_bytes(site: Site) -> None:
    site.connect("b", "n1")
    headers = {b"Accept": b"application/json, text/\xe9", b"X-Request-ID": "é".encode()}
    answer = await site["a"].client.get("/api/v1/nodes", headers=list(headers.items()))
    assert answer.status_code == 200, answer.text
    assert [node["id"] for node in answer.json()["items"]] == ["n1"] and "partial" not in answer.json()


async def test_the_secret_follows_no_redirect() -> None:
    async with listening(lambda head: EMPTY) as (target, got):
        redirect = f"HTTP/1.1 307 Moved\r\nLocation: {target}/internal/v1/nodes\r\nContent-Length: 0\r\n\r\n".encode()
        async with listening(lambda head: redirect) as (url, asked), asking(Member("b", url)) as others:
            answers = await others.ask(Asked("GET", "/nodes"))
    assert len(asked) == 1 and not got
    assert answers.received["b"].status == 307


@pytest.mark.parametrize("host", ["10.255.255.1", "xds.example", "[2001:db8::1]"])
async def test_the_secret_goes_beyond_this_machine_only_with_tls(host: str) -> None:
    async with asking(Member("b", f"http://{host}:1")) as others:
        begun = asyncio.get_running_loop().time()
        assert (await others.ask(Asked("GET", "/nodes"))).silent == ("b",)
        assert asyncio.get_running_loop().time() - begun < 0.5  # it was not tried
    assert Trust().refusal(f"http://{host}:1") and Trust().refusal("ftp://127.0.0.1")
    assert not Trust(allows_plain=True).refusal(f"http://{host}:1")
    for url in ("https://10.1.1.1", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"):
        assert not Trust().refusal(url)


async def test_no_proxy_of_the_environment_gets_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(lambda head: EMPTY) as (proxy, got), listening(lambda head: EMPTY) as (url, asked):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.setenv("XDS_TOKEN", "a token")
        async with asking(Member("b", url)) as others:
            assert (await others.ask(Asked("GET", "/nodes"))).received["b"].status == 200
    assert not got and b"a token" not in asked[0] and SECRET.encode() in asked[0]


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_huge_answer_is_not_read(monkeypatch: pytest.MonkeyPatch, is_announced: bool) -> None:
    monkeypatch.setattr(fan_out, "ANSWER_BYTES", 100_000)
    length = b"Content-Length: 100000000\r\n" if is_announced else b""
    body = b'{"items": [' + b" " * 200_000
    async with (
        listening(lambda head: b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + body) as (url, _),
        asking(Member("b", url)) as others,
    ):
        assert (await others.ask(Asked("GET", "/nodes"))).silent == ("b",)


async def test_a_line_that_does_not_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_sender, "LINE_BYTES", 100_000)
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 300_000
    async with listening(lambda head: endless) as (url, _), asking(Member("b", url)) as others:
        async with others.begun("b", Asked("GET", "/events"), 5.0) as answer:
            assert answer is not None
            async for line in answer.lines():
                raise AssertionError(line)
        assert others.unanswered_n == 1


async def test_a_long_answer_is_waited_for_while_the_server_lives() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/alive" not in head:
            await asyncio.sleep(1.5)
        writer.write(EMPTY)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    async with server, asking(Member("b", url)) as others:
        assert (await others.ask(Asked("GET", "/nodes"))).received["b"].status == 200


async def test_an_answer_that_does_not_end_is_waited_for_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server shows that it lives, and a little more of the answer again and again."""
    monkeypatch.setattr(fan_out, "LONGEST_S", 1.5)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(EMPTY if b"/alive" in head else b"HTTP/1.1 200 OK\r\n\r\n{")
        with suppress(ConnectionError):
            while b"/alive" not in head:
                await asyncio.sleep(0.1)
                writer.write(b" ")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    async with server, asking(Member("b", url)) as others:
        begun = asyncio.get_running_loop().time()
        assert (await others.ask(Asked("GET", "/nodes"))).silent == ("b",)
        assert 1.4 < asyncio.get_running_loop().time() - begun < 8


async def test_a_server_that_shows_no_life_is_waited_for_a_second(silent: str) -> None:
    async with asking(Member("b", silent)) as others:
        begun = asyncio.get_running_loop().time()
        assert (await others.ask(Asked("GET", "/nodes"))).silent == ("b",)
        assert 0.9 < asyncio.get_running_loop().time() - begun < 5
        assert others.unanswered_n == 1


DEEP = b"HTTP/1.1 200 OK\r\n\r\n" + b'{"items": ' + b"[" * 100_000


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]", b"nonsense\r\n\r\n", b"", DEEP])
async def test_an_answer_that_is_none_counts_as_silence(site: Site, answer: bytes) -> None:
    async with listening(lambda head: answer) as (url, _):
        site.rows.append(Member("c", url))
        assert (await site.get("a", "/nodes"))["partial"] == ["c"]


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_server_is_verified_by_the_authority_of_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    """The environment of the server names no authority for it."""
    (tmp_path / "other").mkdir()
    ours, others_ca = CertificateAuthority(tmp_path), CertificateAuthority(tmp_path / "other")
    monkeypatch.setenv("XDS_CACERT", str(ours.path))
    context = ours.issue("b").server_context()
    trust = Trust(ca=(ours if is_trusted else others_ca).path)
    async with listening(lambda head: EMPTY, context) as (url, got), asking(Member("b", url), trust=trust) as others:
        answers = await others.ask(Asked("GET", "/nodes"))
    assert answers.silent == (() if is_trusted else ("b",))
    assert bool(got) is is_trusted


async def test_a_server_shows_its_certificate_where_one_is_wanted(tmp_path: Path) -> None:
    ours = CertificateAuthority(tmp_path)
    context, own = ours.issue("b").server_context(), ours.issue("a")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ours.path)
    for trust, silent in ((Trust(ours.path, own.path, own.key_path), ()), (Trust(ours.path), ("b",))):
        async with listening(lambda head: EMPTY, context) as (url, _), asking(Member("b", url), trust=trust) as others:
            assert (await others.ask(Asked("GET", "/nodes"))).silent == silent


async def test_another_authority_is_trusted_from_when_its_file_is_there(tmp_path: Path) -> None:
    old, new = CertificateAuthority(tmp_path), CertificateAuthority(tmp_path, "new")
    trust = Trust(ca=old.path)
    context = new.issue("b").server_context()
    async with listening(lambda head: EMPTY, context) as (url, _), asking(Member("b", url), trust=trust) as others:
        assert (await others.ask(Asked("GET", "/nodes"))).silent == ("b",)
        old.path.write_text(old.pem + new.pem)
        os.utime(old.path, (1, 1))
        assert (await others.ask(Asked("GET", "/nodes"))).silent == ()
