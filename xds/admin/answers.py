"""Answers as JSON or YAML, and lists as pages (``limit``, opaque ``page_token``) in a stable order.

Lists by name are in natural order: ``c2`` before ``c10``. Large answers are encoded and compressed in a thread.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from base64 import b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.codec.text import to_yaml
from xds.model.natural_order import natural_key

JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"
COMPRESSED_BYTES = 8 * 1024
STALLED_S = 60.0
PIECES_ON_LOOP = 20
_LEVEL = 5
_LISTS = ("items", "resources", "localities", "reporters", "endpoints")


class StreamedAnswer(StreamingResponse):
    """An answer in pieces, which ends if its reader receives nothing for ``STALLED_S``."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            """Send within the time limit."""
            await asyncio.wait_for(send(message), STALLED_S)

        await super().__call__(scope, receive, send_in_time)


def answer_model(
    model: object, headers: Mapping[str, str] | None = None, status: HTTPStatus = HTTPStatus.OK
) -> JSONResponse:
    """A small model as JSON."""
    return JSONResponse(document_of(model), status, dict(headers or {}))


async def answer_json(
    request: Request,
    document: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    media_type: str = JSON_TYPE,
) -> Response:
    """A document as JSON, compressed if it is large and the client accepts that."""
    pieces = sum(len(document[name]) for name in _LISTS if isinstance(document.get(name), list))
    data = encode_json(document) if pieces <= PIECES_ON_LOOP else await asyncio.to_thread(encode_json, document)
    return await _answer(request, data, media_type, headers)


async def answer_yaml(
    request: Request, document: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    """A document as YAML, keys in their given order."""
    return await _answer(request, await asyncio.to_thread(_encode_yaml, document), YAML_TYPE, headers)


def encode_json(document: Mapping[str, Any]) -> bytes:
    """A document as JSON. Lists are encoded item by item, so that other threads get their turn."""
    members = (f"{_dump(key)}:{_encode_member(key, value)}" for key, value in document.items())
    return f"{{{','.join(members)}}}".encode()


def is_not_modified(request: Request, etag: str) -> bool:
    """True if the client has the version with this etag (RFC 9110: weak comparison)."""
    given = request.headers.get("if-none-match", "")
    tags = (tag.strip().removeprefix("W/").strip('"') for tag in given.split(","))
    return given.strip() == "*" or etag in tags


def etag_header(etag: str) -> dict[str, str]:
    """The headers that carry an etag."""
    return {"ETag": f'"{etag}"'}


def answer_not_modified(etag: str) -> Response:
    """304: the client has this version."""
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=etag_header(etag))


async def _answer(request: Request, data: bytes, media_type: str, headers: Mapping[str, str] | None) -> Response:
    sent_headers = dict(headers or {})
    if len(data) > COMPRESSED_BYTES and _accepts_gzip(request):
        data = await asyncio.to_thread(gzip.compress, data, _LEVEL)
        sent_headers["Content-Encoding"] = "gzip"
    return Response(data, headers=sent_headers, media_type=media_type)


def _accepts_gzip(request: Request) -> bool:
    accepted = request.headers.get("accept-encoding", "").lower().replace(" ", "")
    return any(each == "gzip" or (each.startswith("gzip;") and each != "gzip;q=0") for each in accepted.split(","))


def _encode_member(key: str, value: Any) -> str:
    return f"[{','.join(map(_dump, value))}]" if key in _LISTS and isinstance(value, list) else _dump(value)


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _encode_yaml(document: Mapping[str, Any]) -> bytes:
    return to_yaml(document).encode()


DEFAULT_LIMIT = 1000
LIMIT = 10_000
ITEMS_AT_ONCE = 50
SORTED_ON_LOOP = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list. ``after`` is the key of the last item of the previous page; empty for the first page."""

    limit: int
    after: str

    def items_after(self, items: Iterable[T], key: Callable[[T], str] = str) -> list[T]:
        """The items that follow ``after``, in natural order of their keys."""
        start = natural_key(self.after) if self.after else ""
        ordered = sorted(((natural_key(key(item)), item) for item in items), key=lambda pair: pair[0])
        return [item for place, item in ordered if place > start]

    async def find_items_after(self, items: Iterable[T], key: Callable[[T], str] = str) -> list[T]:
        """As ``items_after``; a long list is sorted in a thread."""
        ordered = list(items)
        if len(ordered) <= SORTED_ON_LOOP:
            return self.items_after(ordered, key)
        return await asyncio.to_thread(self.items_after, ordered, key)

    def render(self, items: Iterable[T], key: Callable[[T], str], render: Callable[[T], Any]) -> dict[str, Any]:
        """The answer: the items that follow ``after``, up to the limit, and the token of the next page."""
        page = list(islice(items, self.limit + 1))
        answer: dict[str, Any] = {"items": [render(item) for item in page[: self.limit]]}
        if len(page) > self.limit:
            answer["next_page_token"] = page_token(key(page[self.limit - 1]))
        return answer

    async def answer(
        self,
        request: Request,
        items: Iterable[T],
        key: Callable[[T], str],
        render: Callable[[T], Any],
        wanted: Callable[[T], bool] = lambda item: True,
        extra: Mapping[str, Any] | None = None,
    ) -> Response:
        """As ``document``, as a response. ``extra``: further fields of the answer."""
        found = await self.document(items, key, render, wanted)
        return await answer_json(request, {**found, **(extra or {})})

    async def document(
        self,
        items: Iterable[T],
        key: Callable[[T], str],
        render: Callable[[T], Any],
        wanted: Callable[[T], bool] = lambda item: True,
    ) -> dict[str, Any]:
        """As ``render`` for the ``wanted`` items. Streams are served between batches of items."""
        rendered: list[Any] = []
        last = ""
        for count, item in enumerate(items, start=1):
            if count % ITEMS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not wanted(item):
                continue
            if len(rendered) == self.limit:
                return {"items": rendered, "next_page_token": page_token(last)}
            made = render(item)
            rendered.append(made if isinstance(made, dict) else document_of(made))
            last = key(item)
        return {"items": rendered}


def page_token(key: str) -> str:
    """The token of the page behind the item with this key."""
    return urlsafe_b64encode(key.encode()).decode()


async def page(
    limit: Annotated[int, Query(ge=1, le=LIMIT, description="The largest number of items on the page")] = DEFAULT_LIMIT,
    page_token: Annotated[
        str, Query(max_length=4096, description="`next_page_token` of the page before; empty for the first page")
    ] = "",
) -> Page:
    """The page that a request asks for. Raises ``RequestError`` for a token of another server."""
    try:
        return Page(limit, b64decode(page_token.encode("ascii"), altchars=b"-_", validate=True).decode())
    except (Error, UnicodeError):
        raise RequestError(HTTPStatus.BAD_REQUEST, "page_token is not one that this server returned") from None


Paging = Annotated[Page, Depends(page)]
