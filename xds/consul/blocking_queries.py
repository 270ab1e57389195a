"""Blocking queries of Consul's API (``?index=&wait=``): answered after a change of the data or the wait.

An index is the revision of the data plus one. Index 1 of config entries means that there are none yet. Index 0 does
not wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic, time
from typing import NoReturn, Protocol

from fastapi import Request

from xds.access.tokens import READ
from xds.admin.dependencies import Dependencies
from xds.admin.problem import RETRY_AFTER_S, RequestError
from xds.admin.routing import demand, identity_of
from xds.consul.http import is_number, refuse
from xds.consul.quantities import SECOND_NS, parse_duration
from xds.tasks.waiting import TooManyWaitersError

DEFAULT_WAIT_S = 300.0
LONGEST_WAIT_S = 600.0
JITTER = 16  # up to one part in this many is added to a wait


def refuse_waiting(deps: Dependencies, error: TooManyWaitersError, limit: str) -> NoReturn:
    """Refuse a blocking query, because the limit with the name ``limit`` is reached."""
    deps.limit_hits[limit] += 1
    raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, str(error), {"Retry-After": str(RETRY_AFTER_S)})


@dataclass(frozen=True, slots=True)
class Blocking:
    """The parameters of a blocking query. ``index`` is the one that the client has seen; 0: the query does not wait."""

    index: int
    wait_s: float

    @classmethod
    def of(cls, request: Request) -> Blocking:
        """The parameters of a request. Raises ``RequestError``."""
        index = request.query_params.get("index", "")
        if index and not is_number(index):
            refuse(HTTPStatus.BAD_REQUEST, "Invalid index")
        return cls(int(index or 0), _wait_s(request.query_params.get("wait", "")))

    def is_known(self, revision: int) -> bool:
        """Whether the client may wait for a ``revision`` after its index.

        A larger index belongs to another store, whose data is lost. The client has to start again.
        """
        return 0 < self.index <= revision + 1


def _wait_s(text: str) -> float:
    if not text:
        return DEFAULT_WAIT_S
    try:
        wait_s = parse_duration(text) / SECOND_NS
    except ValueError:
        refuse(HTTPStatus.BAD_REQUEST, "Invalid wait time")
    return min(wait_s, LONGEST_WAIT_S) if wait_s > 0 else DEFAULT_WAIT_S


class Watched(Protocol):
    """The data that a query waits for a change of, as a whole. No client has seen a higher ``revision``."""

    @property
    def limit_name(self) -> str:
        """The name of the limit on the callers that wait."""

    @property
    def revision(self) -> int:
        """The highest revision."""

    async def wait(self, after: int, current: Callable[[], int], wait_s: float) -> None:
        """Return when ``current()`` is above ``after``, or after ``wait_s``. Raises ``TooManyWaitersError``."""


async def wait_for_change(
    request: Request,
    deps: Dependencies,
    watched: Watched,
    revision: Callable[[], int],
    content: Callable[[], object] | None = None,
) -> int:
    """Wait for a change if the request is a blocking query. Returns the index of the data after the wait.

    ``revision`` is the revision of the requested data, ``watched`` the whole that it is a part of. With ``content``,
    the wait continues after a revision that did not change the content. The index decreases for a client only if the
    revision of the store did. Raises ``RequestError``, and what ``revision`` and ``content`` raise.
    """
    blocking = Blocking.of(request)
    if blocking.is_known(watched.revision) and revision() < blocking.index:
        await _wait(request, deps, watched, blocking, revision, content or revision)
        _check_still_admitted(request, deps)
    known = blocking.index if blocking.is_known(watched.revision) else 0
    return max(revision() + 1, known)


async def _wait(
    request: Request,
    deps: Dependencies,
    whole: Watched,
    blocking: Blocking,
    revision: Callable[[], int],
    content: Callable[[], object],
) -> None:
    wait_s = blocking.wait_s + random.uniform(0, blocking.wait_s / JITTER)  # noqa: S311 - spreads timeouts
    ends = monotonic() + wait_s
    seen, old_content = blocking.index - 1, content()
    try:
        while (left_s := ends - monotonic()) > 0:
            is_connected = await _wait_while_connected(request, whole, seen, revision, left_s)
            if not is_connected or revision() <= seen or content() != old_content:
                return
            seen = revision()
    except TooManyWaitersError as error:
        refuse_waiting(deps, error, whole.limit_name)


async def _wait_while_connected(
    request: Request, whole: Watched, seen: int, revision: Callable[[], int], wait_s: float
) -> bool:
    """Wait for a revision above ``seen``. False if the client disconnects, which frees its place among the waiters."""
    waiting = asyncio.ensure_future(whole.wait(seen, revision, wait_s))
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({waiting, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
        return waiting.done()
    finally:
        waiting.cancel()
        disconnected.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_still_admitted(request: Request, deps: Dependencies) -> None:
    """Raises ``RequestError`` if the credential of the caller has expired or was revoked during the wait."""
    renewed = deps.options.accepted().renew(identity_of(request))
    if renewed is None or renewed.is_over(time()):
        refuse(HTTPStatus.FORBIDDEN, "Permission denied: the credential is no longer valid")
    request.state.grant = renewed.grant
    demand(request, READ)
