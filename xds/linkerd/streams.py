"""A stream of the Linkerd API in the asyncio shell: one request in, messages out whenever its answer changes.

While the client does not read, no new answer is computed. When it reads again, it is sent the difference between the
latest answer and the one before. A client that never reads therefore costs the memory of one answer's messages.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

import grpc

from xds.access.authorisation import Identity
from xds.admin.models.copying import copied
from xds.admin.models.nodes import StreamAnswer
from xds.admin.models.values import time_of
from xds.linkerd.core.context_token import NO_TOKEN, node_of
from xds.linkerd.core.conversation import Conversation
from xds.linkerd.core.mesh_state import DestinationClient
from xds.linkerd.destinations import Destinations
from xds.linkerd.methods import LABEL, LinkerdMethod
from xds.linkerd.proto import conduit_destination_pb2 as _of_2018  # noqa: F401 - reflection describes it
from xds.linkerd.settings import DestinationSettings
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.node import Locality, Node
from xds.model.snapshot import Snapshot
from xds.protocol.events import Identified, ViewChanged
from xds.server.discovery import DiscoveryDependencies
from xds.server.flow.admission import AdmissionSlot
from xds.server.logs import address_fields, get_logger, identity_fields, shorten
from xds.server.registry import ClientKey
from xds.server.stream import OK_STATUS, CallContext, Status, StreamHandler, check_size

UNSETTLED_EVERY_S = 0.2  # how often an answer that waits for data is computed again
SKIPPED_LOGGED = 5
VARIANT = "linkerd"
# Metadata of a call that only inspects an answer, as `xds destination get` does: its client is no proxy of the fleet.
INSPECTION = "xds-inspection"
# Linkerd's clients retry after it, as after the end of a stream. INVALID_ARGUMENT and FAILED_PRECONDITION are final.
RETRY_STATUS: Status = (grpc.StatusCode.UNAVAILABLE, "the server ends the stream; ask again")

_log = get_logger("xds.server.destination")


@dataclass(slots=True)
class LinkerdServing:
    """What all Linkerd streams of a server share, in addition to what all streams share."""

    deps: DiscoveryDependencies
    destinations: Destinations
    settings: DestinationSettings
    started_at: float = field(default_factory=monotonic)


class LinkerdHandler(StreamHandler):
    """One stream of the Linkerd API."""

    __slots__ = (
        "_awaits_since", "_conversation", "_epoch", "_group", "_home_group", "_inspects", "_messages_n", "_method",
        "_node", "_notified", "_periodic_due", "_periodic_s", "_sent_at", "_serving", "_snapshot", "_timer", "_warned",
    )  # fmt: skip

    def __init__(
        self,
        serving: LinkerdServing,
        method: LinkerdMethod,
        context: CallContext,
        slot: AdmissionSlot,
        identity: Identity,
    ) -> None:
        super().__init__(serving.deps, context, slot, LABEL, identity)
        self._serving = serving
        self._method = method
        self._conversation: Conversation | None = None
        self._inspects = any(key == INSPECTION for key, _ in context.invocation_metadata() or ())
        self._node: Node | None = None
        self._group = ""
        self._home_group = ""  # the result of ``home`` in ``_epoch`` of the cache
        self._epoch = -1
        self._snapshot: Snapshot | None = None  # of the last group: a node without one keeps what it has
        self._awaits_since: float | None = None  # when the answer began to wait for data; None: it does not wait
        self._messages_n = 0
        self._sent_at = 0.0
        self._notified = self._periodic_due = self._warned = False
        settings = serving.settings
        self._periodic_s = settings.periodic_update_s if method.is_of_2018 else settings.periodic_update_today_s
        self._timer: asyncio.TimerHandle | None = None

    # For the registry and `Destinations`

    @property
    def node(self) -> Node | None:
        return self._node

    @property
    def node_id(self) -> str:
        """The id of the node; empty before the request."""
        return self._node.id if self._node is not None else ""

    @property
    def group(self) -> str:
        return self._group

    @property
    def home(self) -> str:
        """The group that the node belongs to by the current selectors; empty for none."""
        node, cache = self._node, self._serving.deps.cache
        if node is not None and self._epoch != cache.epoch:
            match = cache.match(node)
            self._home_group, self._epoch = match.group if match is not None else "", cache.epoch
        return self._home_group

    @property
    def machine(self) -> str:
        """The machine that the client claims to run on; empty if its zone does not depend on the machine."""
        token = self._conversation.token if self._conversation is not None else NO_TOKEN
        return token.node_name if not token.zone else ""

    @property
    def client_key(self) -> ClientKey | None:
        """None: a Linkerd proxy has no transitions and no lingering resources."""
        return None

    def notify(self) -> None:
        """The answer may have changed."""
        if self._notified:
            self._deps.metrics.coalesced += 1
        else:
            self._notified = True
            self._submit_work()

    def end_lingering(self) -> None:
        """Nothing to do: a Linkerd proxy has no lingering resources."""

    def state(self) -> StreamAnswer:
        """The last answer, as the admin API shows it."""
        assert self._conversation is not None
        answer = self._conversation.answer
        return copied(
            StreamAnswer,
            answer,
            method=f"{self._method.service.rpartition('.')[2]}/{self._method.method}",
            is_known=answer.is_settled,
            endpoints=answer.endpoints_n,
            messages=self._messages_n,
            sent=time_of(self._sent_at) if self._sent_at else None,
        )

    def finish(self, status: Status = RETRY_STATUS) -> None:
        """As `StreamHandler.finish`. By default the client is made to open a new stream."""
        super().finish(status)

    # Lifecycle

    def _on_open(self) -> None:
        self._serving.deps.registry.add(self)
        if not self._inspects:
            principal = self.identity.principal
            self._serving.deps.fleet.stream_opened(self.id, self._peer, LABEL, VARIANT, time(), "", principal)
        self._deps.metrics.streams[VARIANT, LABEL] += 1

    def _on_close(self, lasted_s: float) -> None:
        deps, metrics = self._serving.deps, self._deps.metrics
        self._cancel_timer()
        deps.registry.remove(self)
        self._serving.destinations.forget(self)
        deps.fleet.stream_closed(self.id, time())
        code, message = self._status
        metrics.streams[VARIANT, LABEL] -= 1
        metrics.closed[code.name] += 1
        metrics.stream_seconds.observe(lasted_s)
        status = {"duration_ms": round(lasted_s * 1000), "error_code": code.name, "error_message": message}
        log = _log.info if self._conversation is not None else _log.debug  # as of discovery streams
        log("stream.closed", **self._address(), **status, **self._identity())

    def _log_failure(self) -> None:
        _log.exception("stream.failed", **self._identity())

    # Reading

    async def _receive(self, data: bytes) -> None:
        """Handle the one request. Others are ignored."""
        if self._conversation is None:
            check_size(data, self._deps.options.max_receive_bytes)
            self._begin(data)

    async def end_requests(self) -> None:
        """The stream goes on when the client ends its side."""
        if self._conversation is None and not self._ending:
            self._refuse(RemoteProtocolError(StatusCode.INVALID_ARGUMENT, "a call without a request"))

    def _begin(self, data: bytes) -> None:
        """Start the conversation. Raises ``RemoteProtocolError``: a malformed request, or an unauthorised client."""
        serving = self._serving
        conversation: Conversation = getattr(serving.destinations.conversations, self._method.begin)(data)
        token = conversation.token
        if token.ignored:
            _log.info("destination.token_ignored", error_message=token.ignored, **self._address())
        zone = token.zone or serving.destinations.zone_of(token.node_name)
        self._node = node_of(token, self._peer, Locality(token.region, zone, token.sub_zone))
        self._group = self.home
        self._authorize(self._node, self._group)
        self._conversation = conversation
        self._serving.deps.registry.identify(self)
        self._apply(Identified(self._node, self._group))
        _log.info("stream.opened", **self._address(), **self._identity())
        serving.destinations.follow(self, conversation.services, conversation.address)
        self.notify()

    def _apply(self, event: Identified | ViewChanged) -> None:
        self._serving.deps.fleet.apply_events(self.id, [event], time(), monotonic())

    # Offering

    def _has_work(self) -> bool:
        return self._notified or self._periodic_due

    def _offer(self) -> None:
        """Put the messages that are due into the outbox. Raises ``RemoteProtocolError``."""
        conversation = self._conversation
        if conversation is None:
            return
        messages: list[bytes] = []
        if self._notified:
            self._notified = False
            self._regroup()
            messages = conversation.advance(self._client())
            self._note_awaiting(conversation)
            self._serving.destinations.follow(self, conversation.services, conversation.address)
            self._release_slot()
            self._warn()
        if self._periodic_due and not messages:
            periodic = conversation.periodic()
            messages = [periodic] if periodic is not None else []
        self._periodic_due = False
        self._send(messages)
        if self._method.is_unary and messages:
            self.finish(OK_STATUS)
        else:
            self._set_timer(bool(messages))

    def _send(self, messages: list[bytes]) -> None:
        if not messages:
            return
        metrics = self._deps.metrics
        self._messages_n += len(messages)
        self._sent_at = time()
        self._serving.destinations.messages[self._method.service, self._method.method] += len(messages)
        for body in messages:
            metrics.response_bytes.observe(len(body))
            self._write_body(body)

    def _regroup(self) -> None:
        """Follow the node into another group, if the selectors have changed. Raises ``RemoteProtocolError``."""
        group = self.home
        if group != self._group and self._node is not None:
            self._authorize(self._node, group)
            self._group = group
            self._serving.deps.registry.regroup(self)
            self._apply(ViewChanged(group))
            _log.info("stream.regrouped", **self._identity())

    def _client(self) -> DestinationClient:
        assert self._node is not None
        assert self._conversation is not None
        token = self._conversation.token
        cache, group = self._serving.deps.cache, self._group
        # It is no xDS node: of a rollout it is served what is promoted.
        view = cache.view(group, "", self._node.locality, cache.line(group, None)) if group else None
        if view is not None:
            self._snapshot = view.snapshot
        zone = token.zone or self._serving.destinations.zone_of(token.node_name)
        now = monotonic()
        waits = self._awaits_since is None or now - self._awaits_since < self._serving.settings.settle_s
        starts = now - self._serving.started_at < self._serving.settings.start_s
        return DestinationClient(zone, token.node_name, self._snapshot, waits, starts)

    def _note_awaiting(self, conversation: Conversation) -> None:
        if not conversation.is_awaiting:
            if self._awaits_since is not None:
                self._cancel_timer()  # of the awaited answer
            self._awaits_since = None
        elif self._awaits_since is None:
            self._awaits_since = monotonic()

    def _warn(self) -> None:
        """Configuration that Linkerd's API cannot express is logged once per stream."""
        assert self._conversation is not None
        answer = self._conversation.answer
        if answer.skipped and not self._warned:
            self._warned = True
            skipped = [shorten(each) for each in answer.skipped[:SKIPPED_LOGGED]]
            _log.warning("destination.skipped", skipped=skipped, **self._identity())

    # One timer, for an answer that waits for data or for periodic updates

    def _set_timer(self, has_sent: bool) -> None:
        assert self._conversation is not None
        if self._conversation.is_awaiting:
            self._start_timer(UNSETTLED_EVERY_S)
        elif self._periodic_s and (has_sent or self._timer is None):
            self._start_timer(self._periodic_s)

    def _start_timer(self, delay_s: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        assert self._conversation is not None
        if self._conversation.is_awaiting:
            self._notified = True
        else:
            self._periodic_due = True
        self._submit_work()

    # Fields of log lines

    def _address(self) -> dict[str, str]:
        method = f"{self._method.service}/{self._method.method}"
        return address_fields(LABEL, self._peer, self.identity.principal, method=method)

    def _identity(self) -> dict[str, Any]:
        asked = {"authority": shorten(self._conversation.target)} if self._conversation is not None else {}
        return {**identity_fields(self.id, self._node, self._group), **asked}
