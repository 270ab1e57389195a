"""Linkerd's clients: streams of the Destination API over a real gRPC connection, and how proxies fold their messages.

`ProxyOfToday` and `ProxyOf2018` are models of the two real clients: linkerd2-proxy (``proxy-api-resolve``), and
conduit's proxy of April 2018 (``control/discovery.rs``).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from tests.support.grpc_stream import CHANNEL_OPTIONS
from tests.support.linkerd_policy import check_metadata
from tests.support.process import LOOPBACK
from xds.linkerd.proto import conduit_common_pb2 as common
from xds.linkerd.proto import conduit_destination_pb2 as conduit
from xds.linkerd.proto import destination_pb2 as today
from xds.linkerd.proto import inbound_pb2 as inbound
from xds.linkerd.proto import net_pb2 as net
from xds.linkerd.proto import outbound_pb2 as outbound

DEADLINE_S = 20.0
QUIET_S = 0.4
TODAY = "/io.linkerd.proxy.destination.Destination/"
CONDUIT = "/conduit.proxy.destination.Destination/"
OUTBOUND = "/io.linkerd.proxy.outbound.OutboundPolicies/"
INBOUND = "/io.linkerd.proxy.inbound.InboundServerPolicies/"


class LinkerdStream:
    """One call. Its messages are read in a thread, as bytes and as ``kind``; if ``paused``, from `resume` on."""

    def __init__(self, channel: Any, method: str, request: Message, kind: type[Any], paused: bool = False) -> None:
        self.kind = kind
        self.bodies: list[bytes] = []
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._call = channel.unary_stream(method)(request.SerializeToString())
        self._thread = threading.Thread(target=self._read, daemon=True)
        if not paused:
            self.resume()

    def resume(self) -> None:
        """Begin to read."""
        self._thread.start()

    def _read(self) -> None:
        try:
            for body in self._call:
                self._queue.put(body)
        except grpc.RpcError:
            pass
        self._queue.put(None)

    def raw(self, deadline_s: float = DEADLINE_S) -> bytes:
        """The bytes of the next message."""
        try:
            body = self._queue.get(timeout=deadline_s)
        except Empty:
            raise AssertionError("no message came") from None
        assert body is not None, f"the stream ended: {self._call.code()} {self._call.details()}"
        self.bodies.append(body)
        return body

    def next(self, deadline_s: float = DEADLINE_S) -> Any:
        """The next message; a policy must be one that a proxy accepts."""
        found = self.kind.FromString(self.raw(deadline_s))
        if isinstance(found, outbound.OutboundPolicy):
            check_metadata(found)
        return found

    def is_quiet(self, for_s: float = QUIET_S) -> bool:
        """Whether the stream has no message and no end for a while."""
        try:
            body = self._queue.get(timeout=for_s)
        except Empty:
            return True
        raise AssertionError(f"there came {self.kind.FromString(body) if body is not None else 'the end'}")

    def ended(self) -> tuple[grpc.StatusCode, str]:
        """The final status; fails if a message comes before it."""
        body = self._queue.get(timeout=DEADLINE_S)
        assert body is None, self.kind.FromString(body)
        return self._call.code(), self._call.details()

    def status(self) -> grpc.StatusCode:
        """The final status; messages before it are ignored."""
        while self._queue.get(timeout=DEADLINE_S) is not None:
            pass
        code: grpc.StatusCode = self._call.code()
        return code

    def cancel(self) -> None:
        """End it."""
        self._call.cancel()
        if self._thread.is_alive():
            self._thread.join(DEADLINE_S)


class LinkerdClient:
    """One connection. ``options`` are arguments of the channel, without ``grpc.``."""

    def __init__(self, port: int, **options: int) -> None:
        given = [*CHANNEL_OPTIONS, *((f"grpc.{name}", value) for name, value in options.items())]
        self.channel = grpc.insecure_channel(f"{LOOPBACK}:{port}", given)
        self._streams: list[LinkerdStream] = []

    def get(self, path: str, token: str = "", scheme: str = "", paused: bool = False) -> LinkerdStream:
        """Today's ``Get``."""
        return self._open(TODAY + "Get", _destination(path, token, scheme), today.Update, paused)

    def get_2018(self, path: str, scheme: str = "k8s") -> LinkerdStream:
        """``Get`` of 2018."""
        return self._open(CONDUIT + "Get", common.Destination(scheme=scheme, path=path), conduit.Update)

    def profile(self, path: str, token: str = "") -> LinkerdStream:
        """``GetProfile``."""
        return self._open(TODAY + "GetProfile", _destination(path, token), today.DestinationProfile)

    def watch(self, address: str = "", port: int = 0, authority: str = "") -> LinkerdStream:
        """``OutboundPolicies.Watch``."""
        return self._open(OUTBOUND + "Watch", traffic(address, port, authority), outbound.OutboundPolicy)

    def watch_port(self, port: int) -> LinkerdStream:
        """``InboundServerPolicies.WatchPort``."""
        return self._open(INBOUND + "WatchPort", inbound.PortSpec(workload="ns:pod", port=port), inbound.Server)

    def unary(self, method: str, request: Message, kind: type[Any]) -> Any:
        """A call with one answer."""
        body = self.channel.unary_unary(method)(request.SerializeToString(), timeout=DEADLINE_S)
        return kind.FromString(body)

    def _open(self, method: str, request: Message, kind: type[Any], paused: bool = False) -> LinkerdStream:
        stream = LinkerdStream(self.channel, method, request, kind, paused)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        """End all streams and the connection."""
        for stream in self._streams:
            stream.cancel()
        self.channel.close()


def _destination(path: str, token: str = "", scheme: str = "") -> today.GetDestination:
    return today.GetDestination(scheme=scheme, path=path, context_token=token)


def traffic(address: str = "", port: int = 0, authority: str = "") -> outbound.TrafficSpec:
    """The request of ``OutboundPolicies``."""
    if authority:
        return outbound.TrafficSpec(source_workload="ns:pod", authority=authority)
    number = int(ip_address(address))
    if ":" in address:
        ip = net.IPAddress(ipv6=net.IPv6(first=number >> 64, last=number & (2**64 - 1)))
    else:
        ip = net.IPAddress(ipv4=number)
    return outbound.TrafficSpec(source_workload="ns:pod", addr=net.TcpAddress(ip=ip, port=port))


def without_policy(profile: today.DestinationProfile) -> str:
    """What a linkerd2-proxy in ingress mode does with a profile and no policy (``outbound/src/ingress.rs``)."""
    if profile.HasField("endpoint"):
        return f"forward {place_of(profile.endpoint.addr)}"
    return f"balance {profile.fully_qualified_name}" if profile.fully_qualified_name else "reject"


def place_of(address: Any) -> str:
    """``10.0.0.1:80`` for an address of either generation."""
    if address.ip.WhichOneof("ip") == "ipv4":
        return f"{ip_address(address.ip.ipv4)}:{address.port}"
    number = address.ip.ipv6.first << 64 | address.ip.ipv6.last
    return f"[{ip_address(number)}]:{address.port}"


def added(update: Any) -> dict[str, Any]:
    """The endpoints of an ``add`` by place; another update is a failure."""
    assert update.WhichOneof("update") == "add", update
    return {place_of(one.addr): one for one in update.add.addrs}


def removed(update: Any) -> set[str]:
    """The places of a ``remove``."""
    assert update.WhichOneof("update") == "remove", update
    return {place_of(one) for one in update.remove.addrs}


def no_endpoints(update: Any) -> bool:
    """The ``exists`` of a ``no_endpoints``."""
    assert update.WhichOneof("update") == "no_endpoints", update
    return bool(update.no_endpoints.exists)


@dataclass
class ProxyOfToday:
    """linkerd2-proxy: the first ``add`` of a stream replaces, an initial ``remove`` is dropped, empty sets are ignored.

    ``violations`` is what its debug build asserts.
    """

    endpoints: dict[str, bytes] = field(default_factory=dict)
    exists: bool | None = None
    violations: list[str] = field(default_factory=list)
    _is_initial: bool = True

    def reconnect(self) -> None:
        """The stream is a new one; the endpoints stay until its first message."""
        self._is_initial = True

    def take(self, update: Any) -> None:
        """Fold a message."""
        match update.WhichOneof("update"):
            case "add" if update.add.addrs:
                new = {place_of(one.addr): one.SerializeToString(deterministic=True) for one in update.add.addrs}
                self.endpoints = new if self._is_initial else {**self.endpoints, **new}
                self.exists = True
                self._is_initial = False
            case "remove" if update.remove.addrs:
                if self._is_initial:
                    self.violations.append("a remove came first")
                    return
                for one in update.remove.addrs:
                    self.endpoints.pop(place_of(one), None)
            case "no_endpoints":
                self.endpoints, self.exists = {}, update.no_endpoints.exists
                self._is_initial = False
            case None:
                self.violations.append("an empty message")


@dataclass
class ProxyOf2018:
    """conduit's proxy: after a reconnect the next ``add`` replaces, and a ``remove`` clears everything."""

    endpoints: set[str] = field(default_factory=set)
    exists: bool | None = None
    _resets: bool = False

    def reconnect(self) -> None:
        """The stream is a new one; the endpoints stay until its first message."""
        self._resets = True

    def take(self, update: Any) -> None:
        """Fold a message."""
        resets, self._resets = self._resets, False
        match update.WhichOneof("update"):
            case "add":
                new = {place_of(one.addr) for one in update.add.addrs}
                self.endpoints = new if resets else self.endpoints | new
                self.exists = True
            case "remove":
                gone = {place_of(one) for one in update.remove.addrs}
                self.endpoints = set() if resets else self.endpoints - gone
                self.exists = True
            case "no_endpoints":
                self.endpoints, self.exists = set(), update.no_endpoints.exists


def refuses(stream: LinkerdStream, code: grpc.StatusCode) -> str:
    """Check that a stream ends with this status and without a message; the text of the status."""
    found, details = stream.ended()
    if found is not code:
        pytest.fail(f"{found.name}: {details}")
    return details
