"""Lists in pages: ``limit`` and an opaque ``page_token``, in a stable order (DESIGN 5.2)."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from api.answers import answer_json
from api.problem import RequestError

DEFAULT_LIMIT = 1000
LIMIT = 10_000
ITEMS_AT_ONCE = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """``after`` is the key of the last item of the page before; empty for the first page."""

    limit: int
    after: str

    def of(self, items: Iterable[T], key: Callable[[T], str], render: Callable[[T], Any]) -> dict[str, Any]:
        """The answer: the page's items of a list that begins behind ``after``, and the token of the next page."""
        found = list(islice(items, self.limit + 1))
        answer: dict[str, Any] = {"items": [render(item) for item in found[: self.limit]]}
        if len(found) > self.limit:
            answer["next_page_token"] = urlsafe_b64encode(key(found[self.limit - 1]).encode()).decode()
        return answer

    async def answer(
        self,
        request: Request,
        items: Iterable[T],
        key: Callable[[T], str],
        render: Callable[[T], Any],
        wanted: Callable[[T], bool] = lambda item: True,
        beside: Mapping[str, Any] | None = None,
    ) -> Response:
        """As ``of`` for those ``wanted``, as a response; the streams are let in between the items.

        ``beside``: further fields of the answer.
        """
        rendered: list[Any] = []
        last = ""
        for seen, item in enumerate(items, start=1):
            if seen % ITEMS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not wanted(item):
                continue
            if len(rendered) == self.limit:
                token = urlsafe_b64encode(last.encode()).decode()
                return await answer_json(request, {"items": rendered, "next_page_token": token, **(beside or {})})
            rendered.append(render(item))
            last = key(item)
        return await answer_json(request, {"items": rendered, **(beside or {})})


async def page(
    limit: Annotated[int, Query(ge=1, le=LIMIT)] = DEFAULT_LIMIT,
    page_token: Annotated[str, Query(max_length=4096)] = "",
) -> Page:
    """The page a request asks for."""
    try:
        return Page(limit, urlsafe_b64decode(page_token.encode("ascii")).decode())
    except (Error, UnicodeError):
        raise RequestError(HTTPStatus.BAD_REQUEST, "page_token is not one of this server's") from None


Paging = Annotated[Page, Depends(page)]
