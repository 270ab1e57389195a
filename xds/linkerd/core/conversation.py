"""One stream of a Linkerd proxy: its request, the last answer, and the messages that are due now.

Nothing queues here: each time, the difference between the sent and the present state is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from xds.linkerd.core.authority import Authority, ProtocolGeneration, invalid, read_authority
from xds.linkerd.core.context_token import NO_TOKEN, ContextToken, read_token
from xds.linkerd.core.endpoint import DestinationState
from xds.linkerd.core.inbound_policy import encode_inbound
from xds.linkerd.core.mesh_state import DestinationClient
from xds.linkerd.core.outbound_policy import encode_outbound
from xds.linkerd.core.profile import encode_profile
from xds.linkerd.core.resolver import DestinationResolver, ProfileAnswer, StateAnswer
from xds.linkerd.core.update_messages import SharedMessages, heartbeat
from xds.linkerd.proto import conduit_common_pb2, destination_pb2, inbound_pb2, net_pb2, outbound_pb2
from xds.model.errors import RemoteProtocolError, StatusCode

_SCHEME_2018 = "k8s"
_PORT_MAX = 65_535
M = TypeVar("M", bound=Message)

_NO_SERVICES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AnswerStatus:
    """The last answer on a stream, for operators. ``endpoints_n`` is None if its answers have no endpoints.

    ``source`` is the origin of the answer. ``skipped`` lists parts that Linkerd's API cannot express, with reasons.
    """

    authority: str
    source: str = ""
    exists: bool = True
    endpoints_n: int | None = None
    skipped: tuple[str, ...] = ()
    is_settled: bool = True


class Conversation(ABC):
    """One stream. Its answer depends on ``services``, ``address`` and the group of the client.

    ``target`` is the requested authority, or the inbound port. ``is_awaiting``: the answer is not known yet, so that
    ``advance`` must be called again.
    """

    def __init__(self, target: str, token: ContextToken) -> None:
        self.target = target
        self.token = token
        self.services = _NO_SERVICES
        self.address = ""
        self.answer = AnswerStatus(target, is_settled=False)
        self.is_awaiting = True

    @abstractmethod
    def advance(self, client: DestinationClient) -> list[bytes]:
        """The messages that are due now. Raises ``RemoteProtocolError``, which ends the stream."""

    def periodic(self) -> bytes | None:
        """A message without changes; None before the first message, and for methods that have no such message."""
        return None


class EndpointConversation(Conversation):
    """``Destination.Get`` of either generation."""

    def __init__(
        self,
        resolver: DestinationResolver,
        messages: SharedMessages,
        authority: Authority,
        generation: ProtocolGeneration,
        token: ContextToken = NO_TOKEN,
    ) -> None:
        super().__init__(str(authority), token)
        self.services = frozenset(reading.service for reading in authority.candidates)
        self._resolver = resolver
        self._messages = messages
        self._authority = authority
        self._generation = generation
        self._sent: DestinationState | None = None

    def advance(self, client: DestinationClient) -> list[bytes]:
        client = replace(client, has_answer=self._sent is not None)
        answer = self._resolver.state(self._authority, client, self._generation)
        self.services = answer.services
        self.is_awaiting = answer.state is None
        if answer.state is None:
            return []
        self.answer = self._status(answer, answer.state)
        sent, self._sent = self._sent, answer.state
        return self._messages.between(sent, answer.state, self._generation)

    def periodic(self) -> bytes | None:
        if self._sent is None:
            return None
        return heartbeat(not self._sent.endpoints, self._sent.exists)

    def _status(self, answer: StateAnswer, state: DestinationState) -> AnswerStatus:
        return AnswerStatus(self.target, answer.source, state.exists, len(state.endpoints), answer.skipped)


class ProfileConversation(Conversation):
    """``Destination.GetProfile``. Each message is the whole profile.

    FAILED_PRECONDITION is final for a proxy, and two services may share an address for a moment. A proxy that has a
    profile gets no error then and keeps the profile.
    """

    _IGNORED_CODES: frozenset[StatusCode] = frozenset({StatusCode.FAILED_PRECONDITION})

    def __init__(self, resolver: DestinationResolver, authority: Authority, token: ContextToken = NO_TOKEN) -> None:
        super().__init__(str(authority), token)
        self._resolver = resolver
        self._authority = authority
        self._sent = b""

    def advance(self, client: DestinationClient) -> list[bytes]:
        try:
            return self._advance(replace(client, has_answer=bool(self._sent)))
        except RemoteProtocolError as error:
            if not self._sent or error.code not in self._IGNORED_CODES:
                raise
            self.answer = replace(self.answer, source="nothing", exists=False, skipped=(error.message,))
            self.is_awaiting = False
            return []

    def _advance(self, client: DestinationClient) -> list[bytes]:
        answer = self._resolver.profile(self._authority, client)
        self._set_status(answer)
        return self._if_changed(encode_profile(answer.profile))

    def _set_status(self, answer: ProfileAnswer) -> None:
        self.is_awaiting = False
        self.services, self.address = answer.services, answer.address
        self.answer = AnswerStatus(self.target, answer.source, answer.source != "nothing", skipped=answer.skipped)

    def _if_changed(self, body: bytes) -> list[bytes]:
        if self.answer.is_settled and body == self._sent:
            return []
        self._sent = body
        return [body]


class OutboundConversation(ProfileConversation):
    """``OutboundPolicies.Watch`` and ``Get``.

    NOT_FOUND is final for a proxy: it does not request the policy again while it has connections to the address. So
    the error is sent only when all sources were read, and never to a proxy that has a policy, which it then keeps.
    """

    _IGNORED_CODES = frozenset({StatusCode.FAILED_PRECONDITION, StatusCode.NOT_FOUND})

    def _advance(self, client: DestinationClient) -> list[bytes]:
        resolved = self._resolver.outbound(self._authority, client)
        self.is_awaiting = resolved is None
        if resolved is None:
            return []
        policy, answer = resolved
        self._set_status(answer)
        return self._if_changed(encode_outbound(policy))


class InboundConversation(Conversation):
    """``InboundServerPolicies.WatchPort`` and ``GetPort``. All workloads get the same answer, which never changes."""

    def __init__(self, resolver: DestinationResolver, port: int, token: ContextToken) -> None:
        super().__init__(f"inbound port {port}", token)
        self._rules = resolver.rules
        self._port = port

    def advance(self, client: DestinationClient) -> list[bytes]:
        if self.answer.is_settled:
            return []
        self.answer = AnswerStatus(self.target, "settings")
        self.is_awaiting = False
        return [encode_inbound(self._rules.inbound, self._port in self._rules.mesh.opaque_ports)]


class Conversations:
    """Creates conversations from the bytes of requests.

    All methods raise ``RemoteProtocolError`` (INVALID_ARGUMENT) for a malformed request. Unknown fields are ignored.
    """

    def __init__(self, resolver: DestinationResolver) -> None:
        self._resolver = resolver
        self._messages = SharedMessages()

    def get(self, data: bytes) -> Conversation:
        """Today's ``Destination.Get``. Its scheme is ignored."""
        request = _parsed(destination_pb2.GetDestination(), data)
        authority = read_authority(request.path, self._resolver.rules.naming)
        if authority.address is not None:
            raise invalid(f"{authority}: endpoints are found by name, not by address")
        token = read_token(request.context_token)
        return EndpointConversation(self._resolver, self._messages, authority, ProtocolGeneration.LINKERD, token)

    def get_2018(self, data: bytes) -> Conversation:
        """``Destination.Get`` of 2018. The scheme is ``k8s``, and there is no context token."""
        request = _parsed(conduit_common_pb2.Destination(), data)
        if request.scheme.lower() != _SCHEME_2018:
            raise invalid(f"the scheme is {request.scheme!r:.80}, not {_SCHEME_2018!r}")
        authority = read_authority(request.path, self._resolver.rules.naming, ProtocolGeneration.CONDUIT)
        return EndpointConversation(self._resolver, self._messages, authority, ProtocolGeneration.CONDUIT)

    def profile(self, data: bytes) -> Conversation:
        """``Destination.GetProfile``."""
        request = _parsed(destination_pb2.GetDestination(), data)
        authority = read_authority(request.path, self._resolver.rules.naming)
        return ProfileConversation(self._resolver, authority, read_token(request.context_token))

    def outbound(self, data: bytes) -> Conversation:
        """``OutboundPolicies.Watch`` and ``Get``. The source workload is a claim in the form of a token."""
        request = _parsed(outbound_pb2.TrafficSpec(), data)
        kind = request.WhichOneof("target")
        if kind is None:
            raise invalid("a traffic spec without an address or an authority")
        path = request.authority if kind == "authority" else address_path(request.addr)
        authority = read_authority(path, self._resolver.rules.naming)
        return OutboundConversation(self._resolver, authority, workload_token(request.source_workload))

    def inbound(self, data: bytes) -> Conversation:
        """``InboundServerPolicies.WatchPort`` and ``GetPort``."""
        request = _parsed(inbound_pb2.PortSpec(), data)
        if not 0 < request.port <= _PORT_MAX:
            raise invalid(f"port {request.port} is not in 1..{_PORT_MAX}")
        return InboundConversation(self._resolver, request.port, workload_token(request.workload))


def workload_token(text: str) -> ContextToken:
    """A workload as a token: JSON, or ``NAMESPACE:POD`` as earlier proxies write it."""
    namespace, colon, pod = text.strip().partition(":")
    if colon and not text.lstrip().startswith("{"):
        return ContextToken(namespace=namespace[:255], pod=pod[:255])
    return read_token(text)


def address_path(address: net_pb2.TcpAddress) -> str:
    """An address of the API as a path. Raises ``RemoteProtocolError`` for one without an IP address."""
    kind = address.ip.WhichOneof("ip")
    if kind is None:
        raise invalid("an address without an IP address")
    if kind == "ipv4":
        return f"{IPv4Address(address.ip.ipv4)}:{address.port}"
    return f"[{IPv6Address(address.ip.ipv6.first << 64 | address.ip.ipv6.last)}]:{address.port}"


def _parsed(message: M, data: bytes) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(StatusCode.INVALID_ARGUMENT, f"the request cannot be read: {error}") from None
    return message
