"""What other servers answer to a request, to be merged with what this server knows.

A route that shows observed state asks them for its own path, below ``INTERNAL_PREFIX`` in place of that of the API
(`xds.admin.server_door`), so that they answer with the same route. A request that comes from another server is answered
with what this server itself knows. The caller was authenticated at the server that he asked; his scopes come with the
request, so that he may do nothing at another server that he may not do here.
"""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from time import time
from typing import Any

import structlog
from fastapi import Request
from fastapi.responses import Response
from starlette.types import Scope

from xds.access.authorisation import Identity
from xds.access.caller import SERVER
from xds.access.tokens import Grant
from xds.admin.answers import page_token
from xds.admin.dependencies import Dependencies
from xds.admin.merged_pages import is_cut
from xds.admin.operations import PREFIX
from xds.admin.other_servers import Answers, Asked
from xds.admin.problem import RETRY_AFTER_S, RequestError, request_id
from xds.admin.routing import FORM_ERRORS, HAS_GATHERED, IS_WITHOUT_OTHERS, identity_of
from xds.fleet.node_state import NodeState
from xds.fleet.state import NodeStanding
from xds.model.errors import NotFoundError
from xds.tasks.threads import run_sized

Json = dict[str, Any]

CALLER_HEADER = "xds-caller"
OF_SERVER = "is_of_server"  # an item of the state of a request that comes from another server
STANDINGS_PATH = "/nodes/standings"  # of an internal route
COMMAND_WITHIN_S = 30.0  # for what one server is asked alone
HOLDER_WITHIN_S = 1.0
_RELAYED_HEADERS = ("content-type", "www-authenticate", "retry-after", "etag")
# Answers of a server that has nothing to add, such as about a cluster that no client has reported to it.
_NOTHING_KNOWN = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})

_log = structlog.get_logger(logger_name="xds.admin.gathering")


@dataclass(frozen=True, slots=True)
class Gathered:
    """The documents of the other servers, as they were read, by their names. ``partial``: those that did not answer.

    ``is_alone``: nobody was asked, because there are no others, or because one of them asks.
    """

    documents: Mapping[str, Any] = field(default_factory=dict)
    partial: tuple[str, ...] = ()
    is_alone: bool = False

    @property
    def marks(self) -> Json:
        """What an answer says of the servers that are missing in it."""
        return marks(self.partial)


ALONE = Gathered(is_alone=True)


def marks(partial: tuple[str, ...]) -> Json:
    """What an answer says of the servers that are missing in it."""
    return {"partial": sorted(partial)} if partial else {}


def is_of_server(scope: Scope) -> bool:
    """Whether another server asks."""
    return bool(scope.get("state", {}).get(OF_SERVER, False))


def asks_others(deps: Dependencies, request: Request) -> bool:
    """Whether there are other servers whose answers belong to this one."""
    return not is_of_server(request.scope) and bool(deps.others.names())


def own_name(deps: Dependencies, request: Request) -> str:
    """The name of this server in answers; empty where there is only one."""
    return deps.others.me if is_of_server(request.scope) or deps.others.names() else ""


def asked(
    request: Request, path: str = "", query: str | None = None, method: str = "GET", body: object = None
) -> Asked:
    """A request to others on behalf of this one's caller; by default for the same path and with the same query."""
    below = path or request.scope["path"].removeprefix(PREFIX)
    wanted = request.url.query if query is None else query
    headers = {"Accept": request.headers.get("accept", "application/json"), "X-Request-ID": request_id(request)}
    target = f"{below}?{wanted}" if wanted else below
    return Asked(method, target, {**headers, CALLER_HEADER: _caller(request)}, body)


def server_asked(method: str, path: str, body: object = None) -> Asked:
    """A request that a server makes for itself; it opens internal routes alone."""
    caller: Json = {"name": SERVER, "scopes": [], "peer": None}
    return Asked(method, path, {"Accept": "application/json", CALLER_HEADER: _encoded(caller)}, body)


async def gather(
    deps: Dependencies,
    request: Request,
    path: str = "",
    query: str | None = None,
    method: str = "GET",
    body: object = None,
    read: Callable[[Json], Any] | None = None,
) -> Gathered:
    """Ask the others, as `asked`. A server that fails, or whose document cannot be ``read``, counts as silent.

    Without ``read`` the caller reads them, and a GET is answered without them if he cannot (`AnsweringRoute`).
    """
    if not asks_others(deps, request):
        return ALONE
    if getattr(request.state, IS_WITHOUT_OTHERS, False):
        return Gathered(partial=tuple(sorted(deps.others.names())))
    gathered = await gathered_of(await deps.others.ask(asked(request, path, query, method, body)), read)
    setattr(request.state, HAS_GATHERED, True)
    return gathered


async def gathered_of(answers: Answers, read: Callable[[Json], Any] | None = None) -> Gathered:
    """The documents in answers. Long ones are read in a thread."""
    documents: dict[str, Any] = {}
    silent = list(answers.silent)
    for name, answer in answers.received.items():
        document = await run_sized(answer.document, bytes=len(answer.body)) if answer.is_success else None
        try:
            if document is not None:
                documents[name] = document if read is None else read(document)
                continue
        except FORM_ERRORS as error:
            _log.warning("server.unreadable", server=name, error_message=repr(error))
            silent.append(name)
            continue
        if answer.status not in _NOTHING_KNOWN:
            silent.append(name)
            _log.warning("server.failed_to_answer", server=name, status=answer.status)
    return Gathered(documents, tuple(sorted(silent)))


async def merged_page(
    pages: Sequence[Json], limit: int, merge: Callable[[Sequence[Json]], list[Json]], place: Callable[[Json], str]
) -> Json:
    """Pages of servers as one; ``place`` is what the next page begins behind."""
    merged = await asyncio.to_thread(merge, pages)
    page: Json = {"items": merged[:limit]}
    if is_cut(pages, merged, limit):
        page["next_page_token"] = page_token(place(page["items"][-1]))
    return page


async def relay(deps: Dependencies, request: Request, name: str, partial: tuple[str, ...] = ()) -> Response:
    """The answer of another server to this request. Raises ``RequestError`` (503) if it does not answer."""
    answer = await deps.others.ask_one(name, asked(request, method=request.method), COMMAND_WITHIN_S)
    if answer is None:
        raise silent_error("the server that has the node did not answer", (name,))
    document = answer.document() or {}
    if not answer.is_success:
        request.state.refusal = str(document.get("detail", ""))
    headers = {key: answer.headers[key] for key in _RELAYED_HEADERS if key in answer.headers}
    body = json.dumps({**document, **marks(partial)}).encode() if partial and answer.is_success else answer.body
    return Response(body, answer.status, headers)


async def answer_of_lease_holder(deps: Dependencies, request: Request) -> Response | None:
    """The answer of the server that holds the lease.

    None: this server answers, because it holds the lease, or because that one does not answer or does not know more.
    """
    holder = deps.members().holder
    if is_of_server(request.scope) or holder == deps.others.me or holder not in deps.others.names():
        return None
    answer = await deps.others.ask_one(holder, asked(request), HOLDER_WITHIN_S)
    if answer is None or not answer.is_success:
        return None
    headers = {key: answer.headers[key] for key in _RELAYED_HEADERS if key in answer.headers}
    return Response(answer.body, answer.status, headers)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Who answers for a node: ``relayed`` is the answer of another server; None: this server answers.

    ``partial`` are servers that did not answer, and may have the node.
    """

    relayed: Response | None = None
    partial: tuple[str, ...] = ()


async def answer_of_holder(
    deps: Dependencies, request: Request, id: str, node: NodeState | None, *, needs_stream: bool = False
) -> NodeAnswer:
    """Let the server answer that has the streams of a node, or knew it last. ``node`` is what this one knows of it.

    Raises ``RequestError`` (503) if no server that answers knows the node (with ``needs_stream``: has a stream of it),
    and another one does not answer.
    """
    if (node is not None and node.streams) or not asks_others(deps, request):
        return NodeAnswer()
    gathered = await gather_standings(deps, request, [id])
    known = {name: nodes[id] for name, nodes in gathered.documents.items() if id in nodes}
    best = max(known, key=lambda name: known[name], default="")
    if best and known[best].has_streams:
        return NodeAnswer(await relay(deps, request, best))
    if gathered.partial and (needs_stream or (node is None and not best)):
        raise unknown_node(id, gathered.partial)
    if best and known[best] > standings(deps, (id,)).get(id, ()):
        return NodeAnswer(await relay(deps, request, best, gathered.partial))
    return NodeAnswer(partial=gathered.partial)


async def gather_standings(deps: Dependencies, request: Request, ids: Sequence[str]) -> Gathered:
    """Those nodes that the others know; a ``NodeStanding`` by node for each server."""
    return await gather(deps, request, STANDINGS_PATH, "", "POST", {"ids": ids}, _read_standings)


def _read_standings(document: Json) -> dict[str, NodeStanding]:
    return {id: NodeStanding(*standing) for id, standing in document["nodes"].items()}


def standings(deps: Dependencies, ids: Iterable[str]) -> dict[str, NodeStanding]:
    """Those nodes that this server knows."""
    now = time()
    return {id: standing for id in ids if (standing := deps.fleet.standing(id, now)) is not None}


def _caller(request: Request) -> str:
    """Who asks, as the value of a header that `xds.admin.server_door` reads."""
    identity, client = identity_of(request), request.client
    grant = identity.grant
    document = {
        "name": grant.name,
        "scopes": sorted(grant.scopes),
        "peer": [client.host, client.port] if client is not None else None,
    }
    return _encoded(document)


def _encoded(caller: Json) -> str:
    return urlsafe_b64encode(json.dumps(caller).encode()).decode()


def caller_of(header: str) -> tuple[Identity, tuple[str, int] | None]:
    """The caller in a header that `_caller` has made, and the address that he asks from. Raises ``ValueError``."""
    try:
        document = json.loads(urlsafe_b64decode(header.encode()))
        grant = Grant(str(document["name"]), frozenset(map(str, document["scopes"])))
        peer = document["peer"]
        return Identity(grant), (str(peer[0]), int(peer[1])) if peer is not None else None
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a caller: {error!r}") from None


def unknown_node(id: str, silent: tuple[str, ...] = ()) -> Exception:
    """The error about a node that no server which answered knows."""
    if silent:
        return silent_error(f"no server that answered has node {id!r}", silent)
    return NotFoundError(f"no node {id!r} is connected or was connected recently")


def silent_error(detail: str, silent: tuple[str, ...]) -> RequestError:
    """The error of a request that needs servers which did not answer."""
    names = ", ".join(sorted(silent))
    retry = {"Retry-After": str(RETRY_AFTER_S)}
    return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"{detail} (silent: {names})", retry, marks(silent))
