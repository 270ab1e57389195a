"""Who may be which node: the rules of `xds.control.access` at every door where a node names itself.

A refusal is told to the client, in the log, as an event and in a counter; in audit mode all but the client hear of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic, time

from xds.control.access import Access, Identity
from xds.fleet.events import EventKind, EventLog
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Node
from xds.server.logs import get_logger, shorten
from xds.server.metrics import Metrics
from xds.server.rate import RateLimit

# Who polls, or comes back at once, would fill log and events; the counters have all.
TOLD_PER_S, TOLD_BURST = 5.0, 100.0

_log = get_logger("xds.server.auth")

Authorize = Callable[[Node, str], None]


class NodeDoor:
    """Judges nodes for all doors of a server."""

    def __init__(self, access: Access, events: EventLog, metrics: Metrics) -> None:
        self.access = access
        self._events = events
        self._metrics = metrics
        self._telling = RateLimit(TOLD_PER_S, TOLD_BURST)

    def of(self, identity: Identity, service: str, peer: str) -> Authorize:
        """The judge of one request."""
        return partial(self._judge, identity, service, peer)

    def _judge(self, identity: Identity, service: str, peer: str, node: Node, group: str) -> None:
        self.check(identity, node, group, service, peer)

    def allows(self, identity: Identity, node: Node, group: str) -> bool:
        """May it have what a group has? Nobody is told; in audit mode it may."""
        refusal = self.access.refusal(identity, node, group)
        return refusal is None or not refusal.enforced

    def check(self, identity: Identity, node: Node, group: str, service: str, peer: str) -> None:
        """Raises ``RemoteProtocolError`` (PERMISSION_DENIED). An empty group: none matches the node yet."""
        refusal = self.access.refusal(identity, node, group)
        if refusal is None:
            return
        if refusal.enforced:
            self._metrics.refused["node"] += 1
        else:
            self._metrics.node_audits += 1
        now = monotonic()
        if self._telling.take(now, 0.0) <= 0:
            self._telling.take(now)
            self._tell(identity, node, group, service, peer, refusal.reason, refused=refusal.enforced)
        if refusal.enforced:
            raise RemoteProtocolError(StatusCode.PERMISSION_DENIED, refusal.reason)

    def _tell(
        self, identity: Identity, node: Node, group: str, service: str, peer: str, reason: str, *, refused: bool
    ) -> None:
        who = {"principal": shorten(identity.principal), "service": service, "peer": peer}
        action = "refused" if refused else "audited"
        _log.warning(f"node.{action}", node_id=shorten(node.id), group=shorten(group), error_message=reason, **who)
        self._events.record(
            EventKind.AUTH, action, time(), group=group, node=node.id, message=reason, details=dict(who)
        )
