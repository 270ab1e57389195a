"""Which engine events people are told, and in which words. ACKs only while somebody reads them."""

from __future__ import annotations

from xds.fleet.event_log import EventLog, Kind
from xds.fleet.state import NackRecord
from xds.fleet.track import StreamTrack
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet
from xds.protocol.linger import Removal

ORPHANED = "no group matches: it keeps what it has and is sent nothing"
GUILTY_TOLD = 10
LINGER_CUT = "more pushes than order.linger_max removed content: the oldest goes while connections may still use it"
WAIT_ENDED = "not ready in time: what waited for it goes out"


def tell_stream(log: EventLog, action: str, stream: StreamTrack, now: float) -> None:
    """A stream of a known node came or went."""
    who = {"principal": stream.principal} if stream.principal else {}
    log.record(
        Kind.STREAM,
        action,
        now,
        group=stream.group,
        node=node_id(stream),
        details={"stream": stream.id, "service": stream.service, "variant": stream.variant, "peer": stream.peer, **who},
    )


def tell_node(log: EventLog, action: str, stream: StreamTrack, now: float) -> None:
    """The first stream of a node came, or its last one went."""
    log.record(Kind.NODE, action, now, group=stream.group, node=node_id(stream))


def tell_moved(log: EventLog, stream: StreamTrack, group: str, now: float) -> None:
    """A node follows another group, or none. Told once per node: its streams move one after the other."""
    node = stream.node
    if node is None or (group == node.group and not node.adrift):
        return
    if group:
        log.record(Kind.NODE, "moved", now, group=group, node=node.node.id, details={"previous": node.group})
    elif not node.adrift:
        log.record(Kind.NODE, "orphaned", now, group=node.group, node=node.node.id, message=ORPHANED)
    node.adrift = not group


def tell_acked(log: EventLog, stream: StreamTrack, taken: ResourceSet, revision: int | None, now: float) -> None:
    """A type was taken; and, once per revision, that the node is in step with all of it."""
    node = stream.node
    if node is None:
        return
    name, alias = node.node.id, alias_of(taken.type.type_url)
    log.record(
        Kind.ACK,
        "acked",
        now,
        group=stream.group,
        node=name,
        type=alias,
        revision=revision,
        details={"version": taken.version_info},
    )
    if revision is not None and revision != node.told_revision and node.settled():
        node.told_revision = revision
        log.record(Kind.ACK, "synced", now, group=stream.group, node=name, revision=revision)


def tell_nack(log: EventLog, action: str, record: NackRecord, now: float) -> None:
    """A NACK record was made, the names that are refused are known, or it is resolved."""
    details: dict[str, str | int] = {"nack": record.id, "version": record.version}
    if record.guilty:
        details["guilty"] = ", ".join(record.guilty[:GUILTY_TOLD])
    log.record(
        Kind.NACK,
        action,
        now,
        group=record.group,
        node=record.node,
        type=record.type,
        message=record.message,
        details=details,
    )


def tell_wait_ended(log: EventLog, stream: StreamTrack, type_url: str, now: float) -> None:
    """Content goes out that waited for a type, clusters mostly (DESIGN 3.2)."""
    alias = alias_of(type_url)
    log.record(Kind.ORDER, "wait_ended", now, group=stream.group, node=node_id(stream), type=alias, message=WAIT_ENDED)


def tell_linger_cut(log: EventLog, stream: StreamTrack, removal: Removal, now: float) -> None:
    """What a push removed goes early from nodes of a group; ``node`` is the first of them."""
    count = sum(map(len, removal.names.values()))
    details: dict[str, str | int] = {"resources": count, "types": ", ".join(sorted(map(alias_of, removal.names)))}
    log.record(
        Kind.ORDER,
        "linger_cut",
        now,
        group=stream.group,
        node=node_id(stream),
        revision=removal.revision,
        message=LINGER_CUT,
        details=details,
    )


def node_id(stream: StreamTrack) -> str:
    return stream.node.node.id if stream.node is not None else ""
