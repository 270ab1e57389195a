"""``envoy.service.status.v3.ClientStatusDiscoveryService``: the status of all connected nodes, from the fleet.

Callers need the scope ``read``, as for the same state in the admin API. The size of a response is bounded, and one
response is made at a time. A ``ClientConfig`` message is encoded in parts, one for each type of each stream. Nodes in
the same state share encoded parts, so that a large fleet takes little CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from xds.codec import schema
from xds.codec.effort import check_effort
from xds.codec.node_matcher import read_node_matchers
from xds.codec.redaction import redact_message
from xds.fleet.fleet import Fleet
from xds.fleet.node_records import Holding
from xds.fleet.node_state import NodeState
from xds.fleet.state import Sync, TypeState
from xds.model.errors import LimitError, ValidationError
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet
from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits
from xds.server.stream import CALL_ERRORS, CallContext
from xds.snapshots.interest import Interest
from xds.snapshots.memo import Memo
from xds.tasks.threads import run_for_caller, run_sized
from xds.wire.fields import encode_varint

STATUS_SERVICE = "envoy.service.status.v3.ClientStatusDiscoveryService"
STATUS_LABEL = "CSDS"
REQUEST_BYTES = 1 << 20
RESPONSE_BYTES = 64 << 20
PARTS_KEPT = 1_000

_REQUEST = "envoy.service.status.v3.ClientStatusRequest"
_CONFIG_TAG = b"\x0a"  # field 1 of ClientStatusResponse, with a length
_CONFIG = "envoy.service.status.v3.ClientConfig"
# envoy.service.status.v3.ConfigStatus, and envoy.admin.v3.ClientResourceStatus
SYNCED, NOT_SENT, STALE, ERROR = 1, 2, 3, 4
REQUESTED, DOES_NOT_EXIST, ACKED, NACKED = 1, 2, 3, 4

_NO_STATE = TypeState("", "", Sync.PENDING)


@dataclass(frozen=True, slots=True)
class StatusPart:
    """One type of one stream of a node: the subscription, the sets that were sent and ACKed, and the rejection.

    ``since_s`` is when the node entered its state of the type, in whole seconds of the epoch.
    """

    type_url: str
    interest: Interest
    sent: ResourceSet | None
    acked: ResourceSet | None
    error: str
    guilty: frozenset[str]
    rejected_version: str
    since_s: int

    @property
    def size(self) -> int:
        """About how many resources the part describes."""
        return len(self.interest.names) + (len(self.sent.resources) if self.sent is not None else 0)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for parts with the same bytes."""
        sets = (each.id if each is not None else 0 for each in (self.sent, self.acked))
        return (self.type_url, self.interest, *sets, self.error, self.guilty, self.rejected_version, self.since_s)


def parts_of(holdings: list[Holding], state: NodeState) -> Iterator[StatusPart]:
    """The parts of a node."""
    types: Mapping[str, TypeState] = {each.type: each for each in state.types}
    for holding in holdings:
        type_state = types.get(holding.type, _NO_STATE)
        is_rejected = type_state.state is Sync.NACKED and holding.state == Sync.NACKED
        yield StatusPart(
            holding.type_url,
            holding.interest,
            holding.sent,
            holding.acked,
            type_state.error if is_rejected else "",
            frozenset(type_state.guilty) if is_rejected else frozenset(),
            type_state.version_sent if is_rejected else "",
            int(type_state.since),
        )


def encode_node(node: Node) -> bytes:
    """A ``ClientConfig`` with the node alone. Parts are appended to it: protobuf merges them."""
    config: Any = schema.require(_CONFIG)()
    message = config.node
    message.id, message.cluster = node.id, node.cluster
    message.user_agent_name = node.user_agent_name
    message.locality.region, message.locality.zone, message.locality.sub_zone = (
        node.locality.region,
        node.locality.zone,
        node.locality.sub_zone,
    )
    message.metadata.update(dict(node.metadata))
    return bytes(config.SerializeToString())


def encode_part(part: StatusPart, contents: bool) -> bytes:
    """The resources of a part as ``generic_xds_configs`` of a ``ClientConfig``. Secret values are redacted."""
    config: Any = schema.require(_CONFIG)()
    for name in _names(part):
        _add(config.generic_xds_configs.add(), part, name, contents)
    return bytes(config.SerializeToString())


def _names(part: StatusPart) -> list[str]:
    """The names that the client subscribes to or has."""
    names: set[str] = set()
    for resources in (part.sent, part.acked):
        if resources is not None:
            names.update(part.interest.select(resources))
    if part.sent is not None:
        names.update(part.interest.missing(part.sent))
    else:
        names.update(part.interest.names)
    return sorted(names)


def _add(config: Any, part: StatusPart, name: str, contents: bool) -> None:
    """Fill a ``GenericXdsConfig`` with one resource of a part."""
    sent, acked = _find(part.sent, name), _find(part.acked, name)
    config.type_url, config.name = part.type_url, name
    config.last_updated.FromSeconds(part.since_s)
    config.config_status, config.client_status = _status(part, name, sent, acked)
    shown = acked if acked is not None else sent
    if acked is not None and part.acked is not None:
        config.version_info = part.acked.version_info
    elif shown is not None and part.sent is not None:
        config.version_info = part.sent.version_info
    if config.config_status == ERROR:
        config.error_state.details = part.error
        config.error_state.version_info = part.rejected_version
        config.error_state.last_update_attempt.FromSeconds(part.since_s)
    if contents and shown is not None:
        config.xds_config.type_url = shown.type_url
        config.xds_config.value = redact_message(shown.type_url, shown.body)


def _status(part: StatusPart, name: str, sent: Resource | None, acked: Resource | None) -> tuple[int, int]:
    """The ``ConfigStatus`` (of the server) and the ``ClientResourceStatus`` (of the client) of a resource."""
    if sent is None and acked is None:
        return NOT_SENT, DOES_NOT_EXIST if part.sent is not None else REQUESTED
    if sent is not None and acked is not None and sent.version == acked.version:
        return SYNCED, ACKED
    if part.error and (name in part.guilty or not part.guilty):
        return ERROR, NACKED
    return STALE, ACKED if acked is not None else REQUESTED


def _find(resource_set: ResourceSet | None, name: str) -> Resource | None:
    return resource_set.resources.get(name) if resource_set is not None else None


class ClientStatusService:
    """The service. ``check`` aborts a call whose caller may not read; ``count_limit`` counts exceeded limits."""

    def __init__(
        self,
        fleet: Fleet,
        check: Callable[[CallContext, str], Awaitable[object]],
        count_limit: Callable[[LimitError], None],
        response_bytes: int = RESPONSE_BYTES,
        flow: FlowLimits = DEFAULT_FLOW,
    ) -> None:
        self._count_limit = count_limit
        self._fleet = fleet
        self._check = check
        self._response_bytes = response_bytes
        self._nodes_at_once = flow.status_nodes_at_once
        self._one_at_a_time = asyncio.Lock()

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
        await self._check(context, STATUS_LABEL)
        return await self._answer(data, context)

    async def _stream(self, _requests: Any, context: Any) -> None:
        """One response for each request. The caller is checked each time: tokens are revoked, certificates expire."""
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                await self._check(context, STATUS_LABEL)
                await context.write(await self._answer(data, context))
        except grpc.aio.AbortError:
            raise
        except CALL_ERRORS:  # the client is gone
            return

    async def _answer(self, data: bytes, context: Any) -> bytes:
        try:
            async with self._one_at_a_time:
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
        connected = sorted(self._fleet.connected())
        identities = [(node_id, node) for node_id in connected if (node := self._fleet.identity(node_id)) is not None]
        wanted = await run_for_caller(_select, request.node_matchers, identities)
        builder = _ResponseBuilder(not request.exclude_resource_contents, self._response_bytes)
        for number, (node_id, node) in enumerate(wanted, 1):
            state = self._fleet.node(node_id)
            if state is not None:
                await builder.add(encode_node(node), list(parts_of(self._fleet.holdings(node_id), state)))
            if number % self._nodes_at_once == 0:
                await asyncio.sleep(0)
        return builder.response()


def _select(matchers: Iterable[Any], nodes: Iterable[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """The nodes that a matcher matches. Raises ``ValidationError``."""
    matches = read_node_matchers(matchers)
    return [pair for pair in nodes if _is_match(matches, pair[1])]


def _is_match(matches: Callable[[Node], bool], node: Node) -> bool:
    check_effort()
    return matches(node)


class _ResponseBuilder:
    """Builds one response. Large parts are encoded in a thread, which is safe: their sets are immutable."""

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
            hint = "ask for fewer nodes (node_matchers)"
            hint += ", or without contents (exclude_resource_contents)" if self._contents else ""
            detail = f"the status of {self._nodes_n} nodes is above {self._limit} bytes: {hint}"
            raise LimitError("client_status_bytes", detail)
        self._pieces += [_CONFIG_TAG, encode_varint(length), *pieces]

    def response(self) -> bytes:
        return b"".join(self._pieces)

    async def _part(self, part: StatusPart) -> bytes:
        encoded = self._encoded.find(part.key)
        if encoded is None:
            encoded = await run_sized(encode_part, part, self._contents, resources=part.size)
            self._encoded.put(part.key, encoded)
        return encoded
