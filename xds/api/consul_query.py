"""What Consul's clients say beside the path: datacenter, namespace, and how long to wait for a change.

A blocking query (``?index=&wait=``) is answered when what it asks for has changed since the index, or after the wait.
An index is a revision of what is read plus one: of config entries, 1 says that there is none yet, and 0 would never
wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic, time
from typing import Protocol

from fastapi import Request

from xds.api.consul_answers import refuse, refuse_waiting
from xds.api.routing import demand, identity_of
from xds.api.services import Services
from xds.catalog.duration import SECOND_NS, parse_duration
from xds.catalog.shared_rules import DEFAULT
from xds.control.tokens import READ
from xds.control.waiting import TooManyWaitersError

DEFAULT_WAIT_S = 300.0
LONGEST_WAIT_S = 600.0
JITTER = 16  # up to one part in so many is added to a wait
INDEX_LIMIT = 2**64
_NAMESPACES = {
    "ns": ("x-consul-namespace", "Namespaces are"),
    "partition": ("x-consul-partition", "Partitions are"),
}


def check_place(request: Request, datacenter: str, others: Collection[str] = ()) -> str:
    """The datacenter that is asked for: ``datacenter``, or one of the ``others``.

    Raises ``RequestError`` for another one, for a namespace or partition that is not here, and for ``stale`` together
    with ``consistent``; by itself, each says nothing to a single server.
    """
    if {"stale", "consistent"} <= request.query_params.keys():
        refuse(HTTPStatus.BAD_REQUEST, "Cannot specify ?stale with ?consistent, conflicting semantics.")
    wanted = request.query_params.get("dc", "")
    if wanted not in ("", datacenter, *others):
        refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"No path to datacenter: {wanted[:80]!r} is not {datacenter!r}")
    for parameter, (header, what) in _NAMESPACES.items():
        value = request.query_params.get(parameter) or request.headers.get(header, "")
        if value not in ("", DEFAULT):
            detail = f'Invalid query parameter: "{parameter}" - {what} a Consul Enterprise feature'
            refuse(HTTPStatus.BAD_REQUEST, f"{detail}; {value[:80]!r} is not {DEFAULT!r}")
    return wanted or datacenter


def check_cas(request: Request) -> int | None:
    """The revision of ``?cas=``; None where there is none. Raises ``RequestError``."""
    text = request.query_params.get("cas", "")
    if not text:
        return None
    if not _is_number(text):
        refuse(HTTPStatus.BAD_REQUEST, f"Invalid cas: {text[:80]!r} is not a ModifyIndex")
    return int(text)


@dataclass(frozen=True, slots=True)
class Blocking:
    """How a query waits: ``index`` is what the client has seen, 0 for one that does not wait."""

    index: int
    wait_s: float

    @classmethod
    def of(cls, request: Request) -> Blocking:
        """Raises ``RequestError``."""
        index = request.query_params.get("index", "")
        if index and not _is_number(index):
            refuse(HTTPStatus.BAD_REQUEST, "Invalid index")
        return cls(int(index or 0), _wait_s(request.query_params.get("wait", "")))

    def is_known(self, revision: int) -> bool:
        """Whether the client may have seen this ``revision`` of all entries, so that waiting means something.

        A larger index is of another store, whose entries are lost: the client must start again.
        """
        return 0 < self.index <= revision + 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text[:21]) < INDEX_LIMIT


def _wait_s(text: str) -> float:
    if not text:
        return DEFAULT_WAIT_S
    try:
        wait_s = parse_duration(text) / SECOND_NS
    except ValueError:
        refuse(HTTPStatus.BAD_REQUEST, "Invalid wait time")
    return min(wait_s, LONGEST_WAIT_S) if wait_s > 0 else DEFAULT_WAIT_S


class Watched(Protocol):
    """What a query waits for. ``revision`` is that of all that can be read, so no client has seen a higher one."""

    @property
    def revision(self) -> int:
        """The highest revision."""

    async def wait(self, after: int, current: Callable[[], int], wait_s: float) -> None:
        """As `EntryPublisher.wait`."""


async def wait_for_change(
    request: Request,
    here: Services,
    revision: Callable[[], int],
    content: Callable[[], object] | None = None,
    watched: Watched | None = None,
) -> int:
    """Wait as a blocking query asks for; at once where it does not. The index of what is there then.

    ``revision`` is that of what is read, ``watched`` that which it is a part of: the config entries by default. With
    ``content``, a revision that leaves it as it was ends no wait. The index never goes back for a client, unless the
    store does. Raises ``RequestError``, and what both raise.
    """
    whole: Watched = watched if watched is not None else here.publisher.entries
    blocking = Blocking.of(request)
    if blocking.is_known(whole.revision) and revision() < blocking.index:
        await _wait(request, here, whole, blocking, revision, content or revision)
        _check_still_admitted(request, here)
    known = blocking.index if blocking.is_known(whole.revision) else 0
    return max(revision() + 1, known)


async def _wait(
    request: Request,
    here: Services,
    whole: Watched,
    blocking: Blocking,
    revision: Callable[[], int],
    content: Callable[[], object],
) -> None:
    wait_s = blocking.wait_s + random.uniform(0, blocking.wait_s / JITTER)  # noqa: S311 - spreads timeouts
    ends = monotonic() + wait_s
    seen, before = blocking.index - 1, content()
    try:
        while (left_s := ends - monotonic()) > 0:
            is_here = await _wait_unless_gone(request, whole, seen, revision, left_s)
            if not is_here or revision() <= seen or content() != before:
                return
            seen = revision()
    except TooManyWaitersError as error:
        refuse_waiting(here, error, "config_entry_waiters" if whole is here.publisher.entries else "service_waiters")


async def _wait_unless_gone(
    request: Request, whole: Watched, seen: int, revision: Callable[[], int], wait_s: float
) -> bool:
    """Wait for a revision above ``seen``. False where the client goes away: it takes no place among those who wait."""
    waiting = asyncio.ensure_future(whole.wait(seen, revision, wait_s))
    gone = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
        return waiting.done()
    finally:
        waiting.cancel()
        gone.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_still_admitted(request: Request, here: Services) -> None:
    """Raises ``RequestError`` where the caller's credential has ended, or been taken back, while it waited."""
    renewed = here.options.accepted().renew(identity_of(request))
    if renewed is None or renewed.is_over(time()):
        refuse(HTTPStatus.FORBIDDEN, "Permission denied: the credential is no longer valid")
    request.state.grant = renewed.grant
    demand(request, READ)
