"""Who a client is: the address and the certificate of its connection, and which node it may be.

Node authorisation is checked wherever a node names itself (gRPC streams, Fetch, REST). The rules are those of
`xds.access.authorisation`. A refusal is sent to the client and recorded (`xds.server.refusals`). In audit mode the
client is accepted, and what would be a refusal is only logged, recorded as an event and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic, time
from typing import Any

from xds.access.authorisation import Access, Identity
from xds.access.certificate import Certificate, read_der
from xds.fleet.event_log import EventKind, EventLog
from xds.fleet.refused_streams import RefusalReason
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Node
from xds.server.counters import Metrics
from xds.server.flow.limits import RateLimit
from xds.server.logs import get_logger, shorten
from xds.server.refusals import REPORTED_BURST, REPORTED_PER_S, RefusalRecorder

_MAPPED = "::ffff:"  # an IPv4 client on a socket for both versions

_log = get_logger("xds.server.auth")

Authorize = Callable[[Node, str], None]
"""Raises ``RemoteProtocolError`` if the client of a request may not be this node or follow this group."""


def peer_name(address: Any) -> str:
    """The address as gRPC writes it, ``ipv4:10.0.0.1:4711``; empty for a connection that does not use IP."""
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    host, port = address[:2]
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    if host.startswith(_MAPPED):
        return f"ipv4:{host.removeprefix(_MAPPED)}:{port}"
    return f"ipv6:[{host}]:{port}"


def peer_certificate(tls: Any) -> Certificate | None:
    """The client certificate of a TLS connection, verified by OpenSSL; None without TLS or without a certificate.

    ``tls`` is an ``SSLObject``. A certificate that cannot be read has no names and so no rights.
    """
    data = tls.getpeercert(binary_form=True) if tls is not None else None
    if not data:
        return None
    try:
        return read_der(data)
    except ValueError:
        return Certificate()


class NodeAuthorizer:
    """Authorises the nodes of one server."""

    def __init__(self, access: Access, events: EventLog, metrics: Metrics, refusals: RefusalRecorder) -> None:
        self.access = access
        self._events = events
        self._metrics = metrics
        self.refusals = refusals
        self._reports = RateLimit(REPORTED_PER_S, REPORTED_BURST)

    def for_request(self, identity: Identity, service: str, peer: str) -> Authorize:
        """The check for one request."""
        return partial(self._check_request, identity, service, peer)

    def _check_request(self, identity: Identity, service: str, peer: str, node: Node, group: str) -> None:
        self.check(identity, node, group, service, peer)

    def allows(self, identity: Identity, node: Node, group: str) -> bool:
        """Whether the client may be sent the content of a group; True in audit mode. Reports no refusal."""
        refusal = self.access.refusal(identity, node, group)
        return refusal is None or not refusal.enforced

    def check(self, identity: Identity, node: Node, group: str, service: str, peer: str) -> None:
        """Raises ``RemoteProtocolError`` (PERMISSION_DENIED). ``group`` is empty while none matches the node."""
        refusal = self.access.refusal(identity, node, group)
        if refusal is None:
            return
        if refusal.enforced:
            who = {"service": service, "principal": identity.principal, "node": node.id, "group": group}
            self.refusals.record(RefusalReason.NODE, refusal.reason, peer, **who)
            raise RemoteProtocolError(StatusCode.PERMISSION_DENIED, refusal.reason)
        self._metrics.node_audits += 1
        now = monotonic()
        if self._reports.reserve(now, 0.0) <= 0:
            self._reports.reserve(now)
            self._report_audited(identity, node, group, service, peer, refusal.reason)

    def _report_audited(self, identity: Identity, node: Node, group: str, service: str, peer: str, reason: str) -> None:
        client = {"principal": shorten(identity.principal), "service": service, "peer": peer}
        _log.warning("node.audited", node_id=shorten(node.id), group=shorten(group), error_message=reason, **client)
        self._events.record(
            EventKind.AUTH, "audited", time(), group=group, node=node.id, message=reason, details=dict(client)
        )
