"""The pages for browsers: a start page, the documentation of the API, and the nodes, live.

A page holds no data of the server. Its script reads the admin API with the token that the user enters, so pages and
assets are served without credentials. Every asset comes from this server: pages work without any other network.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from xds.admin.problem import RequestError

ASSETS_PREFIX = "/ui/assets/"
PAGES = {"/": "start.html", "/docs": "docs.html", "/ui/nodes": "nodes.html"}
# Swagger UI, as this package ships it.
_LIBRARY = "fastapi_offline"
_OF_LIBRARY = frozenset({"swagger-ui.css", "swagger-ui-bundle.js"})
_TYPES = {".css": "text/css", ".html": "text/html; charset=utf-8", ".js": "text/javascript"}
_OWN_SOURCES = "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self'; base-uri 'none'"
_NO_FRAMES = "form-action 'none'; frame-ancestors 'none'"
_POLICY = f"{_OWN_SOURCES}; style-src 'self'; {_NO_FRAMES}"
_DOCS_POLICY = f"{_OWN_SOURCES}; style-src 'self' 'unsafe-inline'; {_NO_FRAMES}"  # Swagger UI sets styles in place

router = APIRouter(include_in_schema=False)


def _page(path: str) -> Response:
    policy = _DOCS_POLICY if path == "/docs" else _POLICY
    return _file(PAGES[path], {"Content-Security-Policy": policy, "X-Frame-Options": "DENY"})


@router.get("/")
async def start_page() -> Response:
    """The start page: the version of the server, and links."""
    return _page("/")


@router.get("/docs")
async def documentation_page() -> Response:
    """The documentation of the admin API."""
    return _page("/docs")


@router.get("/ui")
async def redirect_to_nodes() -> Response:
    """``/ui`` leads to its only page."""
    return RedirectResponse("/ui/nodes")


@router.get("/ui/nodes")
async def nodes_page() -> Response:
    """Nodes by resource types, live."""
    return _page("/ui/nodes")


@router.get(ASSETS_PREFIX + "{name}")
async def asset(name: str) -> Response:
    """A script or style sheet of the pages. Raises ``RequestError``."""
    if name not in _names() or name.endswith(".html"):
        raise RequestError(HTTPStatus.NOT_FOUND, f"there is no asset {name[:100]!r}")
    return _file(name, {})


def _file(name: str, headers: dict[str, str]) -> Response:
    suffix = name[name.rindex(".") :]
    more = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return Response(_content(name), media_type=_TYPES[suffix], headers={**headers, **more})


@cache
def _names() -> frozenset[str]:
    return _OF_LIBRARY | {each.name for each in _own().iterdir()}


@cache
def _content(name: str) -> bytes:
    directory = files(_LIBRARY) / "static" if name in _OF_LIBRARY else _own()
    return (directory / name).read_bytes()


def _own() -> Traversable:
    return files("xds.admin") / "assets"
