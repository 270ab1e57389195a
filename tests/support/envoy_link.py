"""One stream of a simulated Envoy: when it sends requests, and which part of a response takes effect."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.sansio import Client, Held, Response, names_of
from tests.support.texts import BAD, MALFORMED, Text, assignment_of, parse
from xds.model.resource_type import CLUSTER, resource_type
from xds.proto import wire_pb2
from xds.protocol.dialect import Variant
from xds.protocol.events import Event


@dataclass
class Version:
    """A version of a cluster or a listener, and what it waits for."""

    name: str
    text: str
    serial: int
    since: float
    waits: set[tuple[str, str]] = field(default_factory=set)
    endpoints: str = ""
    checked_at: float = 0.0  # when the first health checks have finished
    is_incomplete: bool = False  # went live incomplete, because a resource was rejected: not the server's fault

    @property
    def parsed(self) -> Text:
        return parse(self.text)

    @property
    def assignment(self) -> str:
        return assignment_of(self.name, self.text)

    @property
    def inner(self) -> tuple[str, ...]:
        """The internal listeners that its endpoints name, in its own text or in its assignment."""
        return self.parsed.inner or parse(self.endpoints).inner


class AppliedPart(NamedTuple):
    """The part of a response that takes effect, and the error about the rest."""

    resources: Mapping[str, str]
    removed: Iterable[str] = ()
    error: str = ""


class Link(Client):
    """One stream of an Envoy. While it is ``slow``, its requests wait in ``outbox``."""

    def __init__(self, *args: Any, serial: int = 0, slow: bool = False, **fields: Any) -> None:
        self.serial = serial  # split: the version of the cluster whose assignment this stream is for
        self.slow = slow
        self.is_up = False
        self.outbox: deque[bytes] = deque()
        self.expiries: dict[tuple[str, str], float] = {}
        self.asked: set[tuple[str, str]] = set()  # requested types and names; tests clear it
        super().__init__(*args, **fields)

    def connect(self) -> None:
        super().connect()
        self.is_up = True

    def disconnect(self) -> None:
        super().disconnect()
        self.outbox.clear()
        self.is_up = False

    def raw(self, data: bytes) -> list[Event]:
        if self.slow:
            self.outbox.append(data)
            return []
        return super().raw(data)

    def deliver(self) -> bool:
        """Let the oldest request arrive; False when there is none."""
        if self.outbox:
            super().raw(self.outbox.popleft())
            return True
        return False

    def begin_anew(self) -> None:
        """Start a new stream; nothing is sent yet."""
        self.disconnect()
        self.connect()
        for held in self.types.values():
            held.nonce, held.nonces, held.explicit = "", set(), False

    def resume(self, url: str, error: str = "") -> None:
        """Send the first request of a type on a new stream."""
        self.asked.update((url, name) for name in self.types[url].names)
        if error and self.variant is Variant.SOTW:
            self._sotw(url, self.types[url], error)
        else:
            self._resume(url, self.types[url])

    def watch(self, url: str, names: set[str], say: bool = True) -> None:
        """Make these names the subscription, by a request now or with the next one."""
        self.asked.update((url, name) for name in names)
        if say and self.is_up:
            self.want(url, names)
        else:
            held = self.types.setdefault(url, Held())
            held.names = set(names)
            self._keep_wanted(held)

    def apply(self, message: Response, refuses: Container[str] = ()) -> AppliedPart:
        """Apply a response as Envoy does. ``refuses``: bodies that are rejected besides the bad ones."""
        held, given = self.types[message.type_url], texts_of(message)
        error = self._unreadable(held, message, given)
        if error:
            return AppliedPart({}, error=error)
        if not held.wildcard:  # nothing else subscribes to it
            given = {name: text for name, text in given.items() if name in held.names}
        bad = [name for name, text in given.items() if BAD in parse(text).flags or f"{name}={text}" in refuses]
        if bad:
            return self._apply_good(held, message, given, bad)
        removed = _removed_names(held, message)
        self.hold(message)
        self._restart_ttls(message)
        return AppliedPart(given, removed)

    def _unreadable(self, held: Held, message: Response, given: Mapping[str, str]) -> str:
        """Why a response is rejected before its resources are applied."""
        if any(MALFORMED in parse(text).flags for text in given.values()):
            return "Proto constraint validation failed"
        if isinstance(message, wire_pb2.DeltaDiscoveryResponse):
            beats = (each for each in message.resources if not each.HasField("resource"))
            if any(held.versions.get(each.name) != each.version for each in beats):
                return "type URL  embedded in an individual Any does not match the message-wide type URL"
        return ""

    def _apply_good(self, held: Held, message: Response, given: Mapping[str, str], bad: list[str]) -> AppliedPart:
        """Use the good resources, but not the version: a new stream shows none of them."""
        removed: set[str] = set()
        if resource_type(message.type_url).full_state:
            good = {name: text for name, text in given.items() if name not in bad}
            removed = _removed_names(held, message)
            kind = "cluster" if message.type_url == CLUSTER else "listener"
            error = f"Error adding/updating {kind}(s) " + ", ".join(f"{name}: wrong" for name in bad)
        else:
            names = list(given)
            good = {name: given[name] for name in names[: names.index(bad[0])]}
            error = "malformed IP address: not-an-ip. Consider setting resolver_name"
        held.resources.update((name, f"{name}={text}".encode()) for name, text in good.items())
        for name in removed:
            held.resources.pop(name, None)
        return AppliedPart(good, removed, error)

    def _restart_ttls(self, message: Response) -> None:
        """Delta: TTLs restart or end."""
        if isinstance(message, wire_pb2.DiscoveryResponse):
            return
        for name in (*message.removed_resources, *(each.name for each in message.resources)):
            self.expiries.pop((message.type_url, name), None)
        for each in message.resources:
            if each.HasField("ttl"):
                ttl_s = each.ttl.seconds + each.ttl.nanos / 1e9
                self.expiries[message.type_url, each.name] = self.server.now + ttl_s


def texts_of(message: Response) -> dict[str, str]:
    """The resources in a response: name to text. An empty assignment has an empty text."""
    if isinstance(message, wire_pb2.DiscoveryResponse):
        bodies = dict(zip(names_of(message), (each.value for each in message.resources), strict=True))
    else:
        bodies = {each.name: each.resource.value for each in message.resources if each.HasField("resource")}
    return {name: "" if body[:1] == b"\n" else body.decode().rpartition("=")[2] for name, body in bodies.items()}


def _removed_names(held: Held, message: Response) -> set[str]:
    """The names that a response removes."""
    if isinstance(message, wire_pb2.DeltaDiscoveryResponse):
        return set(message.removed_resources)
    return set(held.resources) - set(names_of(message)) if resource_type(message.type_url).full_state else set()
