"""The pages for browsers: no data in them, no other network, no credentials needed for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import urljoin

import pytest

import xds.admin
from tests.admin.conftest import Api
from xds.access.tokens import READ, XDS, Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.admin.middleware import PAGE_PATHS
from xds.admin.routes.pages import SHELL_PAGES
from xds.fleet.event_log import FREQUENT, ON_DEMAND, EventKind

PAGES = (
    "/",
    "/docs",
    *(f"/ui/{name}" for name in SHELL_PAGES),
    "/ui/nodes/a%2Fb",
    "/ui/nodes/a%0Ab",
    "/ui/groups/edge/diff",
)
ASSETS = Path(xds.admin.__file__).parent / "assets"
OWN = sorted(each for each in ASSETS.rglob("*.*") if each.parent.name != "vendor")  # what we wrote
LINE_LENGTH = 120
SCRIPT_LINES = 2_500  # of all pages: more is another framework
_REFERENCE = re.compile(r"""(?:src|href)="([^"]+)"|from "([^"]+)"|url\(([^)]+)\)""")


def references(text: str) -> Iterator[str]:
    """What a page, a script or a style sheet refers to."""
    return (next(filter(None, found.groups())) for found in _REFERENCE.finditer(text))


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_and_all_that_it_needs_come_from_this_server(api: Api, path: str) -> None:
    page = await api.client.get(path)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    waiting = [each for each in references(page.text) if each.startswith("/ui/assets/")]
    assert waiting
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        asset = await api.client.get(name)
        assert asset.status_code == 200, name
        assert asset.headers["x-content-type-options"] == "nosniff"
        if "swagger" not in name:
            waiting += [urljoin(name, each) for each in references(asset.text) if each.startswith(".")]


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_no_asset_refers_to_another_server(file: Path) -> None:
    text = file.read_text()
    assert all(each.startswith(("/", "./", "../")) or each == "data:," for each in references(text)), file
    assert "http://" not in text
    assert "https://" not in text


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_runs_no_script_but_its_own_and_is_in_no_frame(api: Api, path: str) -> None:
    page = await api.client.get(path)
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"<script(?![^>]*\ssrc=)", page.text)
    assert not re.search(r"\son\w+=", page.text)


def test_scripts_stay_few_and_can_be_read() -> None:
    lines = [line for each in OWN if each.suffix == ".js" for line in each.read_text().splitlines()]
    assert len(lines) <= SCRIPT_LINES
    assert [line for line in lines if len(line) > LINE_LENGTH] == []


def test_the_page_of_events_knows_all_kinds() -> None:
    script = (ASSETS / "pages" / "events.js").read_text()
    changes, others = re.findall(r'const (?:CHANGES|ALL) = ["`](?:\$\{CHANGES\},)?([\w,]+)["`];', script)
    assert set(changes.split(",")) == set(EventKind) - FREQUENT
    assert set(others.split(",")) == FREQUENT - ON_DEMAND


def test_scripts_write_text_never_html() -> None:
    """Nodes choose their own names and messages."""
    for script in ASSETS.rglob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script.read_text())


@pytest.mark.parametrize(
    "name", ["pages.py", "shell.html", "..%2F..%2Fapp.py", "redoc.standalone.js", "vendor/README.md", "pages", "none"]
)
async def test_only_assets_are_served(api: Api, name: str) -> None:
    assert (await api.client.get(f"/ui/assets/{name}")).status_code == 404


def guarded(api: Api, scope: str = READ, *, wants_certificates: bool = False) -> Api:
    """The same application behind a token."""
    tokens = Tokens([(sha256(b"secret").hexdigest(), Grant("on-call", frozenset({scope})))])
    return Api(api.plane, ApiOptions(tokens=tokens, wants_certificates=wants_certificates))


@pytest.mark.parametrize("path", ["/ui/none", "/ui/none/a", "/nodes"])
async def test_there_is_no_other_page(api: Api, path: str) -> None:
    assert (await api.client.get(path)).status_code == 404


async def test_pages_need_no_token_and_their_data_does(api: Api) -> None:
    client = guarded(api).client
    for path in (*PAGES, "/ui/assets/router.js"):
        assert (await client.get(path)).status_code == 200, path
    for path in ("/api/v1/nodes", "/api/v1/openapi.json", "/metrics", "/ui2", "/uix/y"):
        assert (await client.get(path)).status_code == 401, path


async def test_a_token_that_lacks_read_is_asked_for_again_and_a_foreign_page_is_not(api: Api) -> None:
    """The scripts ask for a token where an answer has this header."""
    for client, credential in ((guarded(api), {}), (guarded(api, XDS), {"authorization": "Bearer secret"})):
        for path in ("nodes", "events"):
            refused = await client.client.get(f"/api/v1/{path}", headers=credential)
            assert refused.status_code == (403 if credential else 401)
            assert refused.headers["www-authenticate"].startswith("Bearer")
    foreign = await api.client.delete("/api/v1/groups/edge", headers={"sec-fetch-site": "cross-site"})
    assert foreign.status_code == 403
    assert "www-authenticate" not in foreign.headers


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_what_its_scripts_use(api: Api, path: str) -> None:
    page = (await api.client.get(path)).text
    wanted = re.findall(r'getElementById\("([\w-]+)"\)', (ASSETS / "admin_api.js").read_text())
    assert {"sign-in", "sign-out", "token", "problem"} == set(wanted)
    assert all(f'id="{name}"' in page for name in wanted)


async def test_a_server_that_requires_certificates_serves_no_page_without_one(api: Api) -> None:
    client = guarded(api, wants_certificates=True).client
    for path in (*PAGES, "/ui/assets/router.js"):
        assert (await client.get(path)).status_code == 401, path


def test_every_page_is_open() -> None:
    assert all(path in PAGE_PATHS or path.startswith("/ui/") for path in PAGES)


def test_the_server_has_the_pages_of_the_script() -> None:
    router = (ASSETS / "router.js").read_text()
    of_script = set(re.findall(r'\["/ui/([a-z]+)[/"]', router))
    assert of_script == set(SHELL_PAGES)
