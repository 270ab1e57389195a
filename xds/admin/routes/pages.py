"""The pages for browsers: one shell for the pages about the fleet, and the documentation of the API.

A page holds no data of the server. Its script reads the admin API with the token that the user enters, so pages and
assets are served without credentials. Every asset comes from this server: pages work without any other network.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from xds.admin.problem import RequestError

ASSETS_PREFIX = "/ui/assets/"
SHELL_PAGES = ("nodes", "groups", "load", "services", "events")  # under `/ui/`; router.js has their paths
# Swagger UI, as this package ships it.
_LIBRARY = "fastapi_offline"
_OF_LIBRARY = frozenset({"swagger-ui.css", "swagger-ui-bundle.js"})
_TYPES = {".css": "text/css", ".html": "text/html; charset=utf-8", ".js": "text/javascript"}
_OWN_SOURCES = "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self'; base-uri 'none'"
_NO_FRAMES = "form-action 'none'; frame-ancestors 'none'"
_POLICY = f"{_OWN_SOURCES}; style-src 'self'; {_NO_FRAMES}"
_DOCS_POLICY = f"{_OWN_SOURCES}; style-src 'self' 'unsafe-inline'; {_NO_FRAMES}"  # Swagger UI sets styles in place

router = APIRouter(include_in_schema=False)


def _page(name: str, policy: str) -> Response:
    return _file(name, {"Content-Security-Policy": policy, "X-Frame-Options": "DENY"})


@router.get("/docs")
async def documentation_page() -> Response:
    """The documentation of the admin API."""
    return _page("docs.html", _DOCS_POLICY)


@router.get("/ui")
async def redirect_to_overview() -> Response:
    """``/ui`` leads to the overview."""
    return RedirectResponse("/")


@router.get(ASSETS_PREFIX + "{name:path}")
async def asset(name: str) -> Response:
    """A script or style sheet of the pages. Raises ``RequestError``."""
    if name not in _names():
        raise RequestError(HTTPStatus.NOT_FOUND, f"there is no asset {name[:100]!r}")
    return _file(name, {})


@router.get("/")
@router.get("/ui/{page}")
@router.get("/ui/{page}/{rest:path}")
async def shell(page: str = "", rest: str = "") -> Response:
    """The shell of all other pages. Its script shows the page of the address. Raises ``RequestError``."""
    if page and page not in SHELL_PAGES:
        raise RequestError(HTTPStatus.NOT_FOUND, f"there is no page {page[:100]!r}")
    return _page("shell.html", _POLICY)


def _file(name: str, headers: dict[str, str]) -> Response:
    suffix = name[name.rindex(".") :]
    more = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return Response(_content(name), media_type=_TYPES[suffix], headers={**headers, **more})


@cache
def _names() -> frozenset[str]:
    return _OF_LIBRARY | frozenset(_names_in(_own()))


def _names_in(folder: Traversable, prefix: str = "") -> Iterator[str]:
    """The names of the scripts and style sheets in a folder, and of those in its folders."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _names_in(each, f"{prefix}{each.name}/")
        elif each.name.endswith((".css", ".js")):
            yield prefix + each.name


@cache
def _content(name: str) -> bytes:
    directory = files(_LIBRARY) / "static" if name in _OF_LIBRARY else _own()
    return (directory / name).read_bytes()


def _own() -> Traversable:
    return files("xds.admin") / "assets"
