"""Attacks on the admin API over real sockets: ways around the token, requests read twice, bodies that cost.

Bodies that are not JSON or YAML, too large or too deep are in tests/e2e/test_bad_input.py, pushes that race in
tests/e2e/test_races.py, secrets for readers in tests/admin/test_grants.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.attack.bystander import GROUP
from tests.attack.conftest import Beside, resident
from tests.attack.raw_http import ask, connect, send_until_closed, status
from tests.support import resources as r
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from xds.admin.routing import SCOPE_KEY

MIB = 1 << 20
TOKENS = {
    "root": ["admin"],
    "reader": ["read"],
    "auditor": ["read", "secrets:read"],
    "edge": ["write:group/edge-*"],
    "proxy": ["xds"],
    "keeper": ["backup"],
    "instances": ["register:*"],
}
EVENT_READERS = 150


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with tokens, which are named as what they may do."""
    tokens = [
        {"name": name, "sha256": sha256(name.encode()).hexdigest(), "scopes": scopes} for name, scopes in TOKENS.items()
    ]
    environment = {"XDS_AUTH__TOKENS": json.dumps(tokens)}
    directory = tmp_path_factory.mktemp("guarded")
    with ServerProcess(directory, ["--store", "memory"], environment, token="root") as server:
        server.push(GROUP, [r.static_cluster("served")])
        yield server


def line(method: str, target: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_every_route_with_every_credential(guarded: ServerProcess) -> None:
    """What openapi.json says of a route's scope is what its door asks for."""
    document = guarded.get("/openapi.json")
    tried = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if not path.startswith("/api/") or path.endswith("/events"):
                continue
            target = path.replace("{", "").replace("}", "")
            scope = operation.get(SCOPE_KEY, "read" if method == "get" else "write:group/GROUP")
            for token in ("", "wrong", *TOKENS):
                if token == "root" and method != "get":
                    continue
                header = [f"Authorization: Bearer {token}"] if token else []
                found = ask(guarded.http_port, line(method.upper(), target, *header))
                tried += 1
                if token in {"", "wrong"}:
                    assert found == 401, (method, path, token)
                elif token == "root":
                    assert found not in {401, 403}, (method, path)
                elif scope != "any":  # those ask for the scope of what the body names
                    may = (token, scope) in {("reader", "read"), ("auditor", "read"), ("keeper", "backup")}
                    assert (found == 403) == (not may), (method, path, token, found, scope)
    assert tried > 200
    assert guarded.get("/groups")["items"][0]["group"] == GROUP


@pytest.mark.parametrize(
    "target",
    [
        "/%61pi/v1/groups",
        "//api/v1/groups",
        "///api/v1/groups",
        "/livez/../api/v1/groups",
        "/livez/%2e%2e/api/v1/groups",
        "/livez/..%2fapi/v1/groups",
        "/livez;/../api/v1/groups",
        "/livez;x=/api/v1/groups",
        "/livez%00/api/v1/groups",
        "/livez?/api/v1/groups",
        "/api/v1/groups;.livez",
        "/api/v1/groups?x=/livez",
        "/API/v1/groups",
        "/api//v1/groups",
        "/metrics/../metrics",
        "/metrics?x=/livez",
        "http://localhost/api/v1/groups",
        "http://localhost/livez/../api/v1/groups",
        "*",
    ],
)
def test_no_way_of_writing_a_path_gets_around_the_token(guarded: ServerProcess, target: str) -> None:
    for method in ("GET", "POST", "OPTIONS", "HEAD", "TRACE", "CONNECT"):
        with connect(guarded.http_port) as connection:
            connection.sendall(line(method, target, "Connection: close"))
            received = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert GROUP.encode() not in received.partition(b"\r\n\r\n")[2].replace(b"default_", b""), received
        if received.startswith(b"HTTP/1.1 200"):
            assert target.startswith("/livez?"), received


NAMES = [
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc",
    "%252f",
    "a%00b",
    "a%0ab",
    quote("a\u202eb"),
    "a" * 10_000,
    "%ff",
    "%fe",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
def test_a_name_is_a_plain_name_or_refused(serve_on_disk: ServerProcess, name: str) -> None:
    """It is never a path, and no two of them fall together."""
    server = serve_on_disk
    body = json.dumps({"resources": []}).encode()
    request = line("PUT", f"/api/v1/groups/{name}/snapshot", "Content-Type: application/json", body=body)
    assert ask(server.http_port, request) in {400, 404, 405, 414, 422}
    assert server.get("/groups")["items"] == []
    assert {path.name.partition("-")[0] for path in server.data.iterdir()} <= {"xds.sqlite3", "lock", "acknowledged"}


@pytest.fixture(scope="module")
def serve_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("disk")) as server:
        yield server


BODIES: dict[str, tuple[str, bytes]] = {
    "a million digits": ("json", b'{"resources": [' + b"1" * MIB + b"]}"),
    "NaN": ("json", b'{"resources": [NaN]}'),
    "a key twice": ("json", b'{"resources": [], "resources": [1]}'),
    "a key twice in YAML": ("yaml", b"resources: []\nresources: [1]\n"),
    "a python tag": ("yaml", b"resources: !!python/object/apply:os.system ['true']\n"),
    "a merge bomb": ("yaml", b"a: &a {x: 1}\n" + b"b: {<<: [" + b"*a, " * 20_000 + b"*a]}\n"),
}


@pytest.mark.parametrize(("kind", "body"), BODIES.values(), ids=BODIES)
def test_a_body_that_is_meant_to_cost(victim: ServerProcess, beside: Beside, kind: str, body: bytes) -> None:
    with beside(victim) as bystander:
        answer = victim.request(
            "POST", "/api/v1/validate", content=body, headers={"content-type": f"application/{kind}"}
        )
        assert answer.status_code in {400, 422}, answer.text[:300]
        assert len(answer.content) < MIB
        bystander.served()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["flow maps", "wrong resources"])
def test_a_large_body_that_is_read_off_the_loop(victim: ServerProcess, beside: Beside, kind: str) -> None:
    maps = ("application/yaml", b"resources: [" + b"{a: 1}, " * 262_144 + b"]")
    wrong = json.dumps({"resources": [{"@type": r.CLUSTER_TYPE, "nme": number} for number in range(100_000)]})
    media, body = maps if kind == "flow maps" else ("application/json", wrong.encode())
    with beside(victim, slowest_s=10.0) as bystander:
        with ExitStack() as stack:
            connection = stack.enter_context(connect(victim.http_port))
            head = f"POST /api/v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n"
            connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            bystander.served()
            assert status(connection) == 422
        bystander.served()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
            400,
        ),
        (b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
        (b"Content-Length: -1\r\n\r\n", 400),
        (b"Content-Length: 1e3\r\n\r\n", 400),
        (b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (b" folded: x\r\n\r\n", 400),
        (b"a b: x\r\n\r\n", 400),
    ],
)
def test_a_request_that_two_readers_would_read_otherwise(victim: ServerProcess, head: bytes, expected: int) -> None:
    """A proxy in front could see one request where the server sees two: at most one answer, then the end."""
    with connect(victim.http_port) as connection:
        send_until_closed(connection, [b"POST /api/v1/validate HTTP/1.1\r\nHost: localhost\r\n" + head])
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert received.count(b"HTTP/1.1 ") == 1, received
    assert int(received.split(maxsplit=2)[1]) == expected, received


@pytest.mark.parametrize("given", [b"a\x85b", b"a\x1b[31mb", b"x" * 10_000, b"\x9b31m"])
def test_an_id_that_is_no_plain_text_is_replaced(victim: ServerProcess, given: bytes) -> None:
    with connect(victim.http_port) as connection:
        connection.sendall(
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-ID: " + given + b"\r\n\r\n"
        )
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    if not received.startswith(b"HTTP/1.1 400"):
        shown = next(one for one in received.split(b"\r\n") if one.lower().startswith(b"x-request-id:"))
        assert given not in shown, shown


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ('node.id matches "(a+)+$"', 200),  # RE2: it takes linear time
        ("not " * 20_000 + "node.id == x", 413),
        ("not " * 2_000 + "node.id == x", 422),
        ("(" * 5_000 + "node.id == x" + ")" * 5_000, 422),
    ],
    ids=["a regular expression", "20,000 times not", "2,000 times not", "5,000 brackets"],
)
def test_a_selector_that_is_meant_to_cost(victim: ServerProcess, beside: Beside, selector: str, expected: int) -> None:
    with beside(victim) as bystander:
        body = {"selector": selector}
        answer = victim.request("PUT", "/api/v1/groups/costly", json=body, params={"dry_run": "true"})
        assert answer.status_code == expected, answer.text[:300]
        bystander.served()


def test_a_group_takes_no_nodes_of_others_without_admin(guarded: ServerProcess) -> None:
    """A selector of a team's own group could take the nodes of production."""
    body = b'{"selector": "node.cluster == prod", "priority": 9}'
    for token, expected in (("edge", 403), ("reader", 403), ("root", 200)):
        headers = (f"Authorization: Bearer {token}", "Content-Type: application/json")
        request = line("PUT", "/api/v1/groups/edge-1?dry_run=true", *headers, body=body)
        assert ask(guarded.http_port, request) == expected, token


def test_a_key_of_5_kb_is_refused(victim: ServerProcess) -> None:
    answer = victim.request(
        "PUT",
        "/api/v1/groups/keyed/snapshot",
        json={"resources": []},
        headers={"idempotency-key": "k" * 5_000},
    )
    assert answer.status_code == 422, answer.text[:300]
    assert "keyed" not in [item["group"] for item in victim.get("/groups")["items"]]


def test_event_readers_that_do_not_read(victim: ServerProcess, beside: Beside) -> None:
    before = resident(victim)
    with beside(victim) as bystander, ExitStack() as stack:
        readers = [stack.enter_context(connect(victim.http_port)) for _ in range(EVENT_READERS)]
        for reader in readers:
            reader.sendall(line("GET", "/api/v1/events"))
        answers = [status(reader) for reader in readers]
        assert set(answers) == {200, 503}
        assert answers.count(200) == 100
        for number in range(100):
            victim.push("told", [r.static_cluster("a", 1 + number)], message="m" * 1_000)
        bystander.served()
        assert resident(victim) - before < 40 * MIB
    victim.request("DELETE", "/api/v1/groups/told")
    wait_until(lambda: ask(victim.http_port, line("GET", "/api/v1/events")) == 200, "there is room again")


def test_a_body_beyond_the_limit_is_refused_before_it_is_sent(guarded: ServerProcess, tmp_path: Path) -> None:
    """With its token and without: nobody is made to read 100 MB."""
    for token, expected in (("root", 413), ("wrong", 401)):
        with connect(guarded.http_port) as connection:
            connection.sendall(
                f"PUT /api/v1/groups/edge/snapshot HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {100 * MIB}\r\n\r\n".encode()
            )
            assert status(connection) == expected
