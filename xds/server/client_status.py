"""``envoy.service.status.v3.ClientStatusDiscoveryService``: the status of all connected nodes, from the fleet.

It needs the scope ``read``, as the same state has in the admin API. A response is bounded, and one is made at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from xds.codec import schema
from xds.codec.node_matcher import read_node_matchers
from xds.control.threads import run_sized
from xds.fleet.fleet import Fleet
from xds.model.errors import LimitError, ValidationError
from xds.protocol.memo import Memo
from xds.server.client_config import PARTS_KEPT, StatusPart, encode_node, encode_part, parts_of
from xds.server.stream import CALL_ERRORS, CallContext

STATUS_SERVICE = "envoy.service.status.v3.ClientStatusDiscoveryService"
REQUEST_BYTES = 1 << 20
RESPONSE_BYTES = 64 << 20
NODES_AT_ONCE = 50

_REQUEST = "envoy.service.status.v3.ClientStatusRequest"
_CONFIG_TAG = b"\x0a"  # field 1 of ClientStatusResponse, with a length


class ClientStatusService:
    """Both methods. ``check`` admits the caller of a call, or aborts it; ``count_limit`` counts limits that are hit."""

    def __init__(
        self,
        fleet: Fleet,
        check: Callable[[CallContext], Awaitable[object]],
        count_limit: Callable[[LimitError], None],
        response_bytes: int = RESPONSE_BYTES,
    ) -> None:
        self._count_limit = count_limit
        self._fleet = fleet
        self._check = check
        self._response_bytes = response_bytes
        self._line = asyncio.Lock()

    def handlers(self) -> Any:
        """The handlers for a gRPC server."""
        return grpc.method_handlers_generic_handler(
            STATUS_SERVICE,
            {
                "FetchClientStatus": grpc.unary_unary_rpc_method_handler(self._fetch),
                "StreamClientStatus": grpc.stream_stream_rpc_method_handler(self._stream),
            },
        )

    async def _fetch(self, data: bytes, context: Any) -> bytes:
        await self._check(context)
        return await self._answer(data, context)

    async def _stream(self, _requests: Any, context: Any) -> None:
        """One response for each request. The caller is checked each time: tokens are revoked, certificates expire."""
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                await self._check(context)
                await context.write(await self._answer(data, context))
        except grpc.aio.AbortError:
            raise
        except CALL_ERRORS:  # the client is gone
            return

    async def _answer(self, data: bytes, context: Any) -> bytes:
        try:
            async with self._line:
                return await self.status(data)
        except ValidationError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.violations[0].detail)
        except LimitError as error:
            self._count_limit(error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a ClientStatusRequest")
        raise AssertionError("abort returned")

    async def status(self, data: bytes) -> bytes:
        """The response to a request. Raises ``ValidationError``, ``LimitError``, ``DecodeError``."""
        if len(data) > REQUEST_BYTES:
            raise LimitError("receive_bytes", f"a request of {len(data)} bytes; at most {REQUEST_BYTES} are accepted")
        request: Any = schema.require(_REQUEST).FromString(data)
        wanted = read_node_matchers(request.node_matchers)
        building = _Building(not request.exclude_resource_contents, self._response_bytes)
        for number, node_id in enumerate(sorted(self._fleet.connected()), 1):
            node = self._fleet.identity(node_id)
            state = self._fleet.node(node_id) if node is not None and wanted(node) else None  # it is costly
            if node is not None and state is not None:
                await building.add(encode_node(node), list(parts_of(self._fleet.holdings(node_id), state)))
            if number % NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return building.response()


class _Building:
    """A response that is being built. Large parts are encoded in a thread: their sets do not change."""

    def __init__(self, contents: bool, limit_bytes: int) -> None:
        self._contents = contents
        self._limit = limit_bytes
        self._encoded: Memo[tuple[object, ...], bytes] = Memo(PARTS_KEPT)
        self._pieces: list[bytes] = []
        self._size = 0
        self._nodes_n = 0

    async def add(self, node: bytes, parts: list[StatusPart]) -> None:
        pieces = [node, *[await self._part(part) for part in parts]]
        length = sum(map(len, pieces))
        self._nodes_n += 1
        self._size += length
        if self._size > self._limit:
            ways = "ask for fewer nodes (node_matchers)"
            ways += ", or without contents (exclude_resource_contents)" if self._contents else ""
            detail = f"the status of {self._nodes_n} nodes is above {self._limit} bytes: {ways}"
            raise LimitError("client_status_bytes", detail)
        self._pieces += [_CONFIG_TAG, _varint(length), *pieces]

    def response(self) -> bytes:
        return b"".join(self._pieces)

    async def _part(self, part: StatusPart) -> bytes:
        found = self._encoded.find(part.key)
        if found is None:
            found = await run_sized(encode_part, part, self._contents, resources=part.size)
            self._encoded.put(part.key, found)
        return found


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
