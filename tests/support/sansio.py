"""A strict xDS client without sockets: it exchanges real bytes with a ``DiscoveryStream`` in memory.

It checks every response as real clients do (type, names, nonces), and keeps what it holds as they do, so that a test
can compare that with the snapshot. ``Server`` holds the engine's shared parts and pushes snapshots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.support.stored import read_back
from xds.filter.filter import compile_filter
from xds.model.node import Locality
from xds.model.resource import Reference, Resource, content_version
from xds.model.resource_type import CLUSTER, ENDPOINT, resource_type
from xds.model.snapshot import Snapshot, build_snapshot
from xds.proto import wire_pb2
from xds.protocol.clients import ClientTable
from xds.protocol.cohort import Cohorts, CohortStream
from xds.protocol.decode import RequestDecoder
from xds.protocol.delta import DELTA
from xds.protocol.dialect import Dialect, Variant
from xds.protocol.events import Event, Send, TransitionAdvanced
from xds.protocol.name_budget import NameBudgets
from xds.protocol.requests import StreamLimits
from xds.protocol.sotw import SOTW
from xds.protocol.stream import DiscoveryStream
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.lines import GroupSplit
from xds.snapshots.membership import Rule
from xds.snapshots.order import OrderRules
from xds.snapshots.overlay import Overlay, Override

LabelOf = Callable[[int, bytes], str]
DIALECTS: Mapping[Variant, Dialect] = {Variant.SOTW: SOTW, Variant.DELTA: DELTA}
DEADLINES_AT_MOST = 1000  # within one advance of the clock
Content = Mapping[str, Mapping[str, str]]  # type URL -> name -> text


def make_resource(
    type_url: str,
    name: str,
    text: str,
    *,
    aliases: tuple[str, ...] = (),
    ttl_s: float | None = None,
    references: tuple[Reference, ...] | None = None,
) -> Resource:
    """A resource whose body is ``name=text``; a cluster refers to the assignment of its own name."""
    body = f"{name}={text}".encode()
    if references is None:
        references = (Reference(ENDPOINT, name, "ads"),) if type_url == CLUSTER else ()
    return Resource(type_url, name, body, content_version(body, aliases, ttl_s), aliases, ttl_s, references)


class Server:
    """The engine's shared parts, and a clock that tests move."""

    stream_type: type[CohortStream] = CohortStream  # `TwinStream` to compare it with one that shares nothing

    def __init__(self, *, ordered: bool = True, limits: StreamLimits = StreamLimits()) -> None:
        self.rules = OrderRules(ordered=ordered)
        self.limits = limits
        self.decoder = RequestDecoder()
        self.budgets = NameBudgets(limits.unknown_name_bytes)
        self.now = 0.0
        self.streams: list[Client] = []
        self.history: list[tuple[Client, Event]] | None = None  # the events of all streams, if a test wants them
        self.pushed: dict[str, list[tuple[Snapshot, str]]] = {}  # by group, with the handling of NACKs
        self.pushed_s: dict[Snapshot, float] = {}
        self.splits: dict[str, GroupSplit] = {}  # by group: the rollouts
        self.dropped: dict[str, int] = {}  # the last revisions of groups that were deleted
        self._starts = 0
        self._start()

    def _start(self) -> None:
        self.cache = SnapshotCache("test", nonce_prefix="n" * (self._starts + 1), rules=self.rules)
        self.clients = ClientTable(self.cache, self.rules)
        self.cohorts = Cohorts()

    def restart(self) -> None:
        """Start a new process, which knows what was pushed but no client. All streams must have ended."""
        assert not self.streams, "streams outlive no process"
        self._starts += 1
        self._start()
        for pushed in self.pushed.values():
            kept = [snapshot for snapshot, _ in pushed[-self.rules.linger_max :]]
            *earlier, newest = zip((self.pushed_s[each] for each in kept), read_back(kept), strict=True)
            split = self.splits.get(newest[1].group)
            if split is not None and split.base is not None:
                split = self.splits[newest[1].group] = replace(split, base=read_back([split.base])[0])
            on_nack = pushed[-1][1]
            self.cache.set(newest[1], earlier, on_nack, now_s=newest[0], split=split, is_stored=True)

    def push(
        self, content: Content, group: str = "default", label: str = "", on_nack: str = "hold", wake: bool = True
    ) -> Snapshot:
        """Publish a snapshot of texts. ``wake=False``: the streams are not notified yet."""
        resources = [make_resource(url, name, text) for url, texts in content.items() for name, text in texts.items()]
        return self.push_resources(resources, group, label, types=content, on_nack=on_nack, wake=wake)

    def push_resources(
        self,
        resources: Iterable[Resource],
        group: str = "default",
        label: str = "",
        types: Iterable[str] = (),
        on_nack: str = "hold",
        wake: bool = True,
        label_of: LabelOf = lambda revision, _: str(revision),
    ) -> Snapshot:
        """Publish a snapshot of resources. A type keeps its version_info while its content is unchanged.

        ``label_of``: makes the label of types that a push without label changes.
        """
        before = self.cache.pushed(group)
        revision = (before.revision if before is not None else self.dropped.get(group, 0)) + 1
        snapshot = self.next_snapshot(before, list(resources), group, revision, label, types, label_of)
        self.cache.set(snapshot, on_nack=on_nack, now_s=self.now, split=self.splits.get(group))
        self.pushed.setdefault(group, []).append((snapshot, on_nack))
        self.pushed_s[snapshot] = self.now
        if wake:
            self.wake()
        return snapshot

    def next_snapshot(
        self,
        before: Snapshot | None,
        resources: list[Resource],
        group: str = "default",
        revision: int = 1,
        label: str = "",
        types: Iterable[str] = (),
        label_of: LabelOf = lambda revision, _: str(revision),
    ) -> Snapshot:
        """A snapshot that follows ``before``; other arguments as in `push_resources`."""
        urls = {*types, *(r.type_url for r in resources), *(before.sets if before is not None else ())}
        draft = build_snapshot(group, revision, resources, dict.fromkeys(urls, ""))
        versions = {url: label or label_of(revision, draft.get(url).digest) for url in urls}
        for url in urls:
            old = before.sets.get(url) if before is not None else None
            if old is not None and old.digest == draft.get(url).digest:
                versions[url] = old.version_info
        return build_snapshot(group, revision, resources, versions, before)

    def lay_over(self, zones: Mapping[str, Mapping[str, str]], group: str = "default", wake: bool = True) -> None:
        """Overlay assignments of these names in these zones: their texts get a suffix."""
        overlays = {Locality(zone=zone): self.overlay(suffixes) for zone, suffixes in zones.items()}
        self.cache.overlay(group, overlays)
        if wake:
            self.wake()

    def observe(
        self, texts: Mapping[str, str], gone: Iterable[str] = (), group: str = "default", wake: bool = True
    ) -> bool:
        """Lay assignments with these texts over the group's snapshot, and remove those ``gone``."""
        put = {name: make_resource(ENDPOINT, name, text) for name, text in texts.items()}
        changed = self.cache.observe(group, put, tuple(gone))
        if wake:
            self.wake()
        return changed

    def overlay(self, suffixes: Mapping[str, str]) -> Overlay:
        """An overlay that adds a suffix to the texts of these assignments."""
        stand_ins = {name: Override(partial(_with, suffix=suffix)) for name, suffix in suffixes.items()}
        return Overlay(ENDPOINT, stand_ins)

    def select(self, *rules: tuple[str, str], **priorities: int) -> None:
        """Replace the selectors by these (group, selector) pairs."""
        compiled = [Rule(group, compile_filter(text), priorities.get(group, 0)) for group, text in rules]
        self.cache.configure(compiled, {})
        self.wake()

    def roll(self, split: GroupSplit | None, group: str = "default", wake: bool = True) -> None:
        """The rollout of the group takes a step without a push, or has ended."""
        self.note_split(split, group)
        self.cache.split(group, split, self.now)
        if wake:
            self.wake()

    def note_split(self, split: GroupSplit | None, group: str = "default") -> None:
        """The next push, or start, is of this rollout."""
        if split is not None:
            self.splits[group] = split
        else:
            self.splits.pop(group, None)

    def drop(self, group: str = "default") -> None:
        """Delete the group. Its revisions go on when it is pushed again."""
        if (before := self.cache.pushed(group)) is not None:
            self.dropped[group] = before.revision
        self.cache.drop(group)
        self.pushed.pop(group, None)
        self.wake()

    def wake(self) -> None:
        """Do what the server does after a push: offer every stream its view."""
        for client in list(self.streams):
            client.wake()

    def timed(self) -> Iterable[Client]:
        """The streams for which the time of this server passes."""
        return self.streams

    def elapse(self, seconds: float) -> None:
        """Advance the clock and handle every deadline on the way."""
        end = self.now + seconds
        for _ in range(DEADLINES_AT_MOST):
            due = [
                (at, client) for client in self.timed() if (at := client.stream.deadline()) is not None and at <= end
            ]
            if not due:
                self.now = end
                return
            self.now = max(self.now, min(at for at, _ in due))
            for at, client in due:
                if at <= self.now:
                    client.take(client.stream.tick(self.now))
        raise AssertionError("something is always due")


@dataclass
class Held:
    """The resources of a type that the client holds, and the state of its subscription."""

    wildcard: bool = False
    names: set[str] = field(default_factory=set)
    resources: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # Delta: resource versions
    version_info: str = ""
    nonce: str = ""
    missing: set[str] = field(default_factory=set)
    nonces: set[str] = field(default_factory=set)
    explicit: bool = False  # a name was given on this stream, so an empty list means nothing from now on


def _with(pushed: Resource, suffix: str) -> Resource:
    body = pushed.body + suffix.encode()
    return replace(pushed, body=body, version=content_version(body))


Response = wire_pb2.DiscoveryResponse | wire_pb2.DeltaDiscoveryResponse


class Client:
    """One stream of a client. ``inbox`` holds responses that it has not handled."""

    def __init__(
        self,
        server: Server,
        variant: Variant,
        node_id: str = "node",
        *,
        cluster: str = "",
        peer: str = "peer",
        type_url: str = "",
        metadata: Mapping[str, Any] | None = None,
        zone: str = "",
        user_agent: str = "",
    ) -> None:
        self.server = server
        self.variant = variant
        node = wire_pb2.Node(id=node_id, cluster=cluster, user_agent_name=user_agent)
        node.locality.zone, node.locality.sub_zone = zone.partition("/")[::2]
        node.metadata.update(dict(metadata or {}))
        self.node = node.SerializeToString()
        self.peer = peer
        self.type_url = type_url
        sotw = variant is Variant.SOTW
        self._request_class = wire_pb2.DiscoveryRequest if sotw else wire_pb2.DeltaDiscoveryRequest
        self._response_class = wire_pb2.DiscoveryResponse if sotw else wire_pb2.DeltaDiscoveryResponse
        self.types: dict[str, Held] = {}
        self.inbox: deque[tuple[Send, Response]] = deque()
        self.events: list[Event] = []
        self.connect()

    # -- connection ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Open a stream; nothing is sent yet."""
        self.stream: DiscoveryStream = self.server.stream_type(
            cohorts=self.server.cohorts,
            cache=self.server.cache,
            clients=self.server.clients,
            dialect=DIALECTS[self.variant],
            peer=self.peer,
            type_url=self.type_url,
            limits=self.server.limits,
            budgets=self.server.budgets,
        )
        self._node_sent = False
        self.server.streams.append(self)

    def disconnect(self) -> None:
        """The stream ends. Responses that were not handled are lost."""
        if self in self.server.streams:
            self.server.streams.remove(self)
        if self.stream.close(self.server.now):
            self._wake_others()
        self.inbox.clear()

    def reconnect(self, urls: Iterable[str] = ()) -> None:
        """Open a new stream that shows what is held, as Envoy does: all types at once, without waiting for answers.

        ``urls`` gives the order; the default is that of Envoy on ADS.
        """
        self.disconnect()
        self.connect()
        for held in self.types.values():
            held.nonce, held.nonces, held.explicit = "", set(), False
        for url in urls or sorted(self.types, key=lambda url: resource_type(url).rank):
            self._resume(url, self.types[url])

    def _resume(self, url: str, held: Held) -> None:
        if self.variant is Variant.SOTW:
            self._sotw(url, held)
            return
        subscribe = sorted(held.names) + (["*"] if held.wildcard and held.names else [])
        if subscribe or held.wildcard:
            self._delta(url, subscribe=subscribe, initial=held.versions)

    # -- what tests do ------------------------------------------------------------------------------------------

    def subscribe(self, url: str, *names: str) -> None:
        """Subscribe to names; without names to everything (a legacy wildcard, as the first request of the type)."""
        held = self.types.setdefault(url, Held())
        held.wildcard = held.wildcard or not names or "*" in names
        held.names |= set(names) - {"*"}
        if self.variant is Variant.SOTW:
            self._sotw(url, held)
        else:
            self._delta(url, subscribe=names)

    def unsubscribe(self, url: str, *names: str) -> None:
        """Unsubscribe from names, and drop the held resources."""
        held = self.types[url]
        held.names -= set(names)
        if "*" in names:
            held.wildcard = False
        for name in names:
            if not held.wildcard:
                held.resources.pop(name, None)
                held.versions.pop(name, None)
            held.missing.discard(name)
        if self.variant is Variant.SOTW:
            self._sotw(url, held)
        else:
            self._delta(url, unsubscribe=names)

    def want(self, url: str, names: Iterable[str]) -> None:
        """Make these names the subscription, in one request with the nonce of the last handled response."""
        held = self.types.setdefault(url, Held())
        before, held.names = held.names, set(names)
        if self.variant is Variant.SOTW:
            self._sotw(url, held)
        else:
            self._delta(url, subscribe=sorted(held.names - before), unsubscribe=sorted(before - held.names))
        self._keep_wanted(held)

    def ack(self, url: str = "") -> Send:
        """Take the oldest response (of a type) and ACK it."""
        send, _ = self._accept(url)
        return send

    def ack_sotw(self, url: str = "") -> wire_pb2.DiscoveryResponse:
        """As `ack`; returns the decoded response."""
        _, message = self._accept(url)
        assert isinstance(message, wire_pb2.DiscoveryResponse)
        return message

    def ack_delta(self, url: str = "") -> wire_pb2.DeltaDiscoveryResponse:
        """As `ack`; returns the decoded response."""
        _, message = self._accept(url)
        assert isinstance(message, wire_pb2.DeltaDiscoveryResponse)
        return message

    def _accept(self, url: str) -> tuple[Send, Response]:
        send, message = self.read(url)
        self.hold(message)
        self.reply(send)
        return send, message

    def nack(self, url: str = "", message: str = "refused") -> Send:
        """NACK the oldest response (of a type)."""
        send, _ = self.read(url)
        self.reply(send, error=message)
        return send

    def read(self, url: str = "") -> tuple[Send, Response]:
        """Handle the oldest response (of a type) without a reply."""
        for position, (send, message) in enumerate(self.inbox):
            if not url or send.type_url == url:
                del self.inbox[position]
                return send, message
        raise AssertionError(f"no response to answer: {url}")

    def hold(self, message: Response) -> None:
        """Apply a response as clients do."""
        self._hold(message.type_url, message)

    def reply(self, send: Send, error: str = "") -> None:
        """ACK a response, or NACK it."""
        held = self.types[send.type_url]
        if self.variant is Variant.SOTW:
            held.nonce = send.nonce
            self._sotw(send.type_url, held, error)
        else:
            self._delta(send.type_url, nonce=send.nonce, error=error)

    def request(self, **fields: Any) -> list[Event]:
        """Send a request with these fields, whatever the client sent before."""
        message = self._request_class(**fields)
        if not message.node and not self._node_sent:
            message.node = self.node
        self._node_sent = True
        return self.raw(message.SerializeToString())

    def settle(self) -> list[Send]:
        """ACK everything until no response is left; returns the responses."""
        sends: list[Send] = []
        for _ in range(10_000):
            if not self.inbox:
                return sends
            sends.append(self.ack())
        raise AssertionError("the server never stops sending")

    def pending(self, url: str = "") -> list[Send]:
        """Responses (of a type) that are not handled yet."""
        return [send for send, _ in self.inbox if not url or send.type_url == url]

    def texts(self, url: str) -> dict[str, str]:
        """The held resources of a type: name to text."""
        held = self.types.get(url, Held())
        return {name: body.decode().rpartition("=")[2] for name, body in held.resources.items()}

    def repeat(self, url: str) -> None:
        """SotW: repeat the last request of the type."""
        self._sotw(url, self.types[url])

    def parse(self, body: bytes) -> Response:
        """A response of the client's variant."""
        message = self._response_class()
        message.ParseFromString(body)
        return message

    def raw(self, data: bytes) -> list[Event]:
        """Send bytes as they are."""
        decode = DIALECTS[self.variant].decoder(self.server.decoder)
        return self.take(self.stream.receive(decode(data, self.stream.check_count), self.server.now))

    def wake(self) -> None:
        """Notify the stream after a push."""
        if self.stream.node is not None:
            self.take(self.stream.offer(self.stream.resolve(), self.server.now))

    # -- inside -------------------------------------------------------------------------------------------------

    def _sotw(self, url: str, held: Held, error: str = "") -> None:
        held.explicit = held.explicit or bool(held.names)
        names = sorted(held.names) + (["*"] if held.wildcard and held.explicit else [])
        message = wire_pb2.DiscoveryRequest(
            version_info=held.version_info, resource_names=names, type_url=url, response_nonce=held.nonce
        )
        if error:
            message.error_detail.code, message.error_detail.message = 13, error
        self._send(message)

    def _delta(
        self,
        url: str,
        subscribe: Iterable[str] = (),
        unsubscribe: Iterable[str] = (),
        initial: Mapping[str, str] | None = None,
        nonce: str = "",
        error: str = "",
    ) -> None:
        message = wire_pb2.DeltaDiscoveryRequest(
            type_url=url,
            resource_names_subscribe=list(subscribe),
            resource_names_unsubscribe=list(unsubscribe),
            initial_resource_versions=dict(initial or {}),
            response_nonce=nonce,
        )
        if error:
            message.error_detail.code, message.error_detail.message = 13, error
        self._send(message)

    def _send(self, message: wire_pb2.DiscoveryRequest | wire_pb2.DeltaDiscoveryRequest) -> None:
        if not self._node_sent:
            message.node, self._node_sent = self.node, True
        self.raw(message.SerializeToString())

    def take(self, events: list[Event]) -> list[Event]:
        """Apply events as the server does."""
        self.events += events
        if self.server.history is not None:
            self.server.history += ((self, event) for event in events)
        for event in events:
            if isinstance(event, Send):
                message = self.parse(event.body)
                self._check(event, message)
                self.inbox.append((event, message))
        for event in events:
            if isinstance(event, TransitionAdvanced):
                self._wake_others()
        return events

    def _wake_others(self) -> None:
        """Notify the client's other streams."""
        for other in list(self.server.streams):
            if other is not self and other.stream.client_key == self.stream.client_key:
                other.wake()

    def _check(self, send: Send, message: Response) -> None:
        held = self.types.setdefault(message.type_url, Held())
        assert message.type_url == send.type_url, "type_url must be set"
        assert message.nonce == send.nonce, "the event names the nonce on the wire"
        assert message.nonce and message.nonce not in held.nonces, f"nonce {message.nonce!r} used twice"
        held.nonces.add(message.nonce)
        names = list(names_of(message))
        assert len(names) == len(set(names)), f"a name twice in one response: {names}"
        if isinstance(message, wire_pb2.DiscoveryResponse):
            assert all(resource.type_url == message.type_url for resource in message.resources)
        else:
            assert not set(names) & set(message.removed_resources), "a name both given and removed"

    def _hold(self, url: str, message: Response) -> None:
        held = self.types[url]
        if isinstance(message, wire_pb2.DiscoveryResponse):
            given = {_name(resource.value): resource.value for resource in message.resources}
            if resource_type(url).full_state:
                held.resources = given
            else:
                held.resources.update(given)
        else:
            self._hold_delta(held, message)
        held.version_info = message.version_info if isinstance(message, wire_pb2.DiscoveryResponse) else ""
        self._keep_wanted(held)

    def _keep_wanted(self, held: Held) -> None:
        if not held.wildcard:
            wanted = held.names
            held.resources = {n: b for n, b in held.resources.items() if n in wanted}
            held.versions = {n: v for n, v in held.versions.items() if n in wanted}

    def _hold_delta(self, held: Held, message: wire_pb2.DeltaDiscoveryResponse) -> None:
        for resource in message.resources:
            if resource.HasField("resource"):
                held.resources[resource.name] = resource.resource.value
                held.versions[resource.name] = resource.version
                held.missing.discard(resource.name)
            elif resource.name not in held.resources:
                held.missing.add(resource.name)
        for name in message.removed_resources:
            held.resources.pop(name, None)
            held.versions.pop(name, None)
            held.missing.add(name)


def names_of(message: Response) -> Iterable[str]:
    """Names of the resources in a response, placeholders included."""
    if isinstance(message, wire_pb2.DiscoveryResponse):
        return (_name(resource.value) for resource in message.resources)
    return (resource.name for resource in message.resources)


def _name(body: bytes) -> str:
    if body[:1] == b"\n":  # a placeholder ClusterLoadAssignment
        return body[2:].decode()
    return body.decode().rpartition("=")[0]
