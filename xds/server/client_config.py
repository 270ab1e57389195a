"""What the status service tells of a node: ``ClientConfig`` messages, encoded part by part.

A part is one type of one stream. Nodes that are in step share it, so a fleet costs little more than its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from xds.codec import schema
from xds.codec.redaction import redact_message
from xds.fleet.node_records import Holding
from xds.fleet.state import NodeState, Sync, TypeState
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet
from xds.protocol.subscription import Interest

PARTS_KEPT = 1_000

_CONFIG = "envoy.service.status.v3.ClientConfig"
_NODE = "envoy.config.core.v3.Node"
# envoy.service.status.v3.ConfigStatus, and envoy.admin.v3.ClientResourceStatus
SYNCED, NOT_SENT, STALE, ERROR = 1, 2, 3, 4
REQUESTED, DOES_NOT_EXIST, ACKED, NACKED = 1, 2, 3, 4

_NO_STATE = TypeState("", "", Sync.PENDING)


@dataclass(frozen=True, slots=True)
class StatusPart:
    """One type of one stream of a node: what it wants, was sent and has ACKed, and how it is (in whole seconds)."""

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
        """About how many resources it tells of."""
        return len(self.interest.names) + (len(self.sent.resources) if self.sent is not None else 0)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for parts with the same bytes."""
        sets = (each.id if each is not None else 0 for each in (self.sent, self.acked))
        return (self.type_url, self.interest, *sets, self.error, self.guilty, self.rejected_version, self.since_s)


def parts_of(holdings: list[Holding], state: NodeState) -> Iterator[StatusPart]:
    """The parts of a node."""
    types: Mapping[str, TypeState] = {each.type: each for each in state.types}
    for held in holdings:
        found = types.get(held.type, _NO_STATE)
        is_refused = found.state is Sync.NACKED and held.state == Sync.NACKED
        yield StatusPart(
            held.type_url,
            held.interest,
            held.sent,
            held.acked,
            found.error if is_refused else "",
            frozenset(found.guilty) if is_refused else frozenset(),
            found.version_sent if is_refused else "",
            int(found.since),
        )


def encode_node(node: Node) -> bytes:
    """A ``ClientConfig`` with the node alone. Parts are appended to it: protobuf merges them."""
    config: Any = schema.require(_CONFIG)()
    told = config.node
    told.id, told.cluster = node.id, node.cluster
    told.user_agent_name = node.user_agent_name
    told.locality.region, told.locality.zone, told.locality.sub_zone = (
        node.locality.region,
        node.locality.zone,
        node.locality.sub_zone,
    )
    told.metadata.update(dict(node.metadata))
    return bytes(config.SerializeToString())


def encode_part(part: StatusPart, contents: bool) -> bytes:
    """The resources of a part as ``generic_xds_configs`` of a ``ClientConfig``. Secret values are redacted."""
    config: Any = schema.require(_CONFIG)()
    for name in _names(part):
        _add(config.generic_xds_configs.add(), part, name, contents)
    return bytes(config.SerializeToString())


def _names(part: StatusPart) -> list[str]:
    """Everything that the client wants or has, by name."""
    found: set[str] = set()
    for held in (part.sent, part.acked):
        if held is not None:
            found.update(part.interest.select(held))
    if part.sent is not None:
        found.update(part.interest.missing(part.sent))
    else:
        found.update(part.interest.names)
    return sorted(found)


def _add(told: Any, part: StatusPart, name: str, contents: bool) -> None:
    sent, acked = _find(part.sent, name), _find(part.acked, name)
    told.type_url, told.name = part.type_url, name
    told.last_updated.FromSeconds(part.since_s)
    told.config_status, told.client_status = _status(part, name, sent, acked)
    shown = acked if acked is not None else sent
    if acked is not None and part.acked is not None:
        told.version_info = part.acked.version_info
    elif shown is not None and part.sent is not None:
        told.version_info = part.sent.version_info
    if told.config_status == ERROR:
        told.error_state.details = part.error
        told.error_state.version_info = part.rejected_version
        told.error_state.last_update_attempt.FromSeconds(part.since_s)
    if contents and shown is not None:
        told.xds_config.type_url = shown.type_url
        told.xds_config.value = redact_message(shown.type_url, shown.body)


def _status(part: StatusPart, name: str, sent: Resource | None, acked: Resource | None) -> tuple[int, int]:
    """The status as the server sees it, and as the client does."""
    if sent is None and acked is None:
        return NOT_SENT, DOES_NOT_EXIST if part.sent is not None else REQUESTED
    if sent is not None and acked is not None and sent.version == acked.version:
        return SYNCED, ACKED
    if part.error and (name in part.guilty or not part.guilty):
        return ERROR, NACKED
    return STALE, ACKED if acked is not None else REQUESTED


def _find(held: ResourceSet | None, name: str) -> Resource | None:
    return held.resources.get(name) if held is not None else None
