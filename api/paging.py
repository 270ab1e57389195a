"""Lists in pages: ``limit`` and an opaque ``page_token``, in a stable order (DESIGN 5.2)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query

from api.problem import RequestError

DEFAULT_LIMIT = 1000
LIMIT = 10_000

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


def page(
    limit: Annotated[int, Query(ge=1, le=LIMIT)] = DEFAULT_LIMIT,
    page_token: Annotated[str, Query(max_length=4096)] = "",
) -> Page:
    """The page a request asks for."""
    try:
        return Page(limit, urlsafe_b64decode(page_token.encode("ascii")).decode())
    except (Error, UnicodeError):
        raise RequestError(HTTPStatus.BAD_REQUEST, "page_token is not one of this server's") from None


Paging = Annotated[Page, Depends(page)]
