"""REST xDS: ``POST /v3/discovery:<type>``, proto3 JSON both ways (rules 74-77).

Routes for the HTTP port, behind its door (tokens, readiness). 200 with a DiscoveryResponse, 304 when the client names
the version of what it asks for, 404 without a body while no group matches its node, 400 for what cannot be read.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from xds.codec.node import as_object, decode_node, field_of, text_of
from xds.codec.render import render_resource
from xds.control.access import ANONYMOUS
from xds.model.errors import LimitError, RemoteProtocolError, StatusCode
from xds.model.name import canonical_name
from xds.model.node import Node
from xds.model.resource import Resource
from xds.protocol.cache import SnapshotCache
from xds.protocol.events import SotwRequest
from xds.protocol.fetch import Fetched
from xds.protocol.limits import NODE_BYTES, Limits, check_node_bytes
from xds.server import limits
from xds.server.metrics import Metrics
from xds.server.node_door import Authorize, NodeDoor
from xds.server.options import MIB
from xds.server.services import REST_PATHS
from xds.server.unary import answer

JSON = "application/json"
BODY_LIMIT = 8 * MIB
RENDERED_LIMIT = 64 * MIB

Json = dict[str, Any]
# Possessive: a list that does not end is given up at once.
_NAMES = re.compile(rb'"resource_?[nN]ames"\s*+:\s*+\[(?:\s*+"(?:[^"\\]|\\.)*+"\s*+,?+)*+\s*+\]')
_STATUS = {
    StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    StatusCode.RESOURCE_EXHAUSTED: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}


def rest_routes(
    cache: SnapshotCache, metrics: Metrics, door: NodeDoor, stream_limits: Limits = Limits()
) -> list[Route]:
    """One route per resource type. ``door`` judges who may be which node."""
    polls = RestDiscovery(cache, metrics, door, stream_limits)
    return [
        Route(f"/v3/discovery:{word}", polls.endpoint(type_url), methods=["POST"], name=f"discovery_{word}")
        for word, type_url in REST_PATHS.items()
    ]


class RestDiscovery:
    """Answers polls. The JSON of a resource is made once."""

    def __init__(self, cache: SnapshotCache, metrics: Metrics, door: NodeDoor, stream_limits: Limits) -> None:
        self._cache = cache
        self._door = door
        self._metrics = metrics
        self._limits = stream_limits
        self._rendered = RenderedJson(RENDERED_LIMIT)

    def endpoint(self, type_url: str) -> Callable[[Request], Any]:
        async def poll(request: Request) -> Response:
            if not _is_json(request):
                return _problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {JSON}")
            try:
                return self._answer(type_url, await _body(request), self._authorize(request))
            except RemoteProtocolError as error:
                limits.count(error, self._metrics)
                return _refusal(error)

        return poll

    def _authorize(self, request: Request) -> Authorize:
        identity = getattr(request.state, "identity", ANONYMOUS)
        peer = f"{request.client.host}:{request.client.port}" if request.client is not None else ""
        return self._door.of(identity, "REST", peer)

    def _answer(self, type_url: str, body: bytes, authorize: Authorize) -> Response:
        node, request = decode_request(body, self._limits.node_bytes)
        self._metrics.type(type_url).kinds["poll"] += 1
        # The path decides, not the body (rule 74).
        found = answer(self._cache, self._limits, node, request, type_url, authorize)
        if not found.modified:
            return Response(status_code=HTTPStatus.NOT_MODIFIED)
        content = self._encode(found)
        counters = self._metrics.type(type_url)
        counters.responses += 1
        counters.resources += len(found.resources)
        self._metrics.response_bytes.observe(len(content))
        return Response(content, media_type=JSON)

    def _encode(self, found: Fetched) -> bytes:
        head = {"version_info": found.version_info, "type_url": found.type_url, "nonce": found.version_info}
        resources = ",".join(map(self._rendered.of, found.resources))
        return f'{json.dumps(head)[:-1]},"resources":[{resources}]}}'.encode()


class RenderedJson:
    """JSON text of resources by type and content version; the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._held = 0
        self._limit = limit

    @property
    def size(self) -> int:
        """Characters held."""
        return self._held

    def of(self, resource: Resource) -> str:
        key = (resource.type_url, resource.version)
        text = self._texts.get(key)
        if text is not None:
            self._texts.move_to_end(key)
            return text
        # The bare message: a TTL is told to Delta clients only (rule 73), and aliases mean nothing here.
        bare = replace(resource, ttl_s=None, aliases=())
        text = json.dumps(render_resource(bare), separators=(",", ":"))
        self._texts[key] = text
        self._held += len(text)
        while self._held > self._limit and len(self._texts) > 1:
            self._held -= len(self._texts.popitem(last=False)[1])
        return text


def decode_request(body: bytes, node_bytes: int = NODE_BYTES) -> tuple[Node, SotwRequest]:
    """A DiscoveryRequest in proto3 JSON, snake_case or camelCase. Raises ``RemoteProtocolError`` for anything else."""
    if len(body) > node_bytes:
        check_node_bytes(_bytes_besides_names(body), node_bytes)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"the body is not JSON: {error}") from error
    try:
        return _decoded(as_object(document, "the request"))
    except ValueError as error:
        raise _malformed(str(error)) from error


def _bytes_besides_names(body: bytes) -> int:
    """How long a body is but for its list of names. Without reading it: half a million members take half a second."""
    return len(body) - max((found.end() - found.start() for found in _NAMES.finditer(body)), default=0)


def _decoded(fields: Json) -> tuple[Node, SotwRequest]:
    names = field_of(fields, "resource_names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("resource_names must be a list of strings")
    request = SotwRequest(
        type_url="",
        names=frozenset(map(canonical_name, names)),
        version_info=text_of(fields, "version_info"),
        nonce=text_of(fields, "response_nonce"),
    )
    return decode_node(as_object(field_of(fields, "node", {}), "node")), request


def _malformed(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(StatusCode.INVALID_ARGUMENT, message)


async def _body(request: Request) -> bytes:
    """The body, as long as it keeps within the limit."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_LIMIT:
            raise LimitError("receive_bytes", f"the body is larger than {BODY_LIMIT} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _is_json(request: Request) -> bool:
    """Every proxy says so; a page cannot without asking whether it may (CORS)."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON


def _refusal(error: RemoteProtocolError) -> Response:
    status = _STATUS.get(error.code, HTTPStatus.BAD_REQUEST)
    if status is HTTPStatus.NOT_FOUND:
        return Response(status_code=status)  # rule 77: "Prefer 404 with no body for no snapshot"
    return _problem(status, error.message)


def _problem(status: HTTPStatus, detail: str) -> Response:
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    return JSONResponse(problem, status, media_type="application/problem+json")
