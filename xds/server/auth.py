"""Authentication and authorisation of gRPC calls: which clients may call which services, when, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from time import time
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote
from zlib import crc32

import grpc

from xds.access.authorisation import ANONYMOUS, Access, Identity, missing_credential
from xds.access.certificate import Certificate
from xds.access.tokens import HEADER, READ, XDS
from xds.fleet.refused_streams import RefusalReason
from xds.server.counters import Metrics
from xds.server.refusals import RefusalRecorder
from xds.server.stream import CallContext, Status, StreamHandler
from xds.tasks.lifecycle import Phase

HEALTH = "/grpc.health.v1.Health/"  # the only service that needs no credential
_ENVOY = "/envoy."
_STATUS = "/envoy.service.status."
_REFLECTION = "/grpc.reflection."

EXPIRED: Status = (grpc.StatusCode.UNAUTHENTICATED, "the client certificate has expired")
EXPIRY_CHECK_S = 1.0
STATUS_READ_S = 0.5  # for clients to read the final status before their connection is closed


class AuthRefusal(NamedTuple):
    """Why a call is refused: the reason, the client's status, and what operators read (by default the same)."""

    reason: RefusalReason
    code: grpc.StatusCode
    message: str
    detail: str = ""


class CallHead(Protocol):
    """The head of a call."""

    @property
    def method(self) -> str:
        """The full name of the method."""

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the client; None without one."""

    def invocation_metadata(self) -> Any:
        """The metadata of the request, as pairs."""


class AuthInterceptor:
    """Checks every call. It is a server interceptor; handlers of discovery call `authenticate` themselves.

    * Discovery and load reporting are refused before the stored state is loaded (UNAVAILABLE; rule 9: "A client is
      never sent an empty response because the state is not loaded"), and while the server drains.
    * Health checks need no credential. Envoy's services and those that are added need the scope ``xds``, reflection
      needs it or ``read`` (it lists the services), everything else needs ``read``: client status, and channelz above
      all (it lists addresses of clients).
    * ``wants_certificates``: the port asks for client certificates, so no client is accepted without a credential.
    """

    def __init__(
        self, access: Access, metrics: Metrics, refusals: RefusalRecorder, *, wants_certificates: bool = False
    ) -> None:
        self.phase = Phase.STARTING
        self._access = access
        self._metrics = metrics
        self._refusals = refusals
        self._wants_certificates = wants_certificates
        self._of_proxies: tuple[str, ...] = (_ENVOY,)  # what the methods begin with that proxies call

    def add(self, services: Iterable[str]) -> None:
        """Add services for proxies. Their handlers call `authenticate` themselves."""
        self._of_proxies += tuple(f"/{service}/" for service in services)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        """As `grpc.aio.ServerInterceptor.intercept_service`: the handler of a call, behind the check of its scopes."""
        handler, method = await continuation(call), call.method
        if handler is None:
            return self._unknown(method)
        if method.startswith((HEALTH, *self._of_proxies)):
            return handler
        scopes = self._scopes(method)

        async def check(context: CallContext) -> None:
            await self._check(context, scopes, method)

        return _guarded(handler, check)

    def _scopes(self, method: str) -> tuple[str, ...]:
        """The scopes of a method that needs a credential; one of them is enough."""
        if method.startswith(_REFLECTION):
            return XDS, READ
        return (XDS,) if method.startswith(self._of_proxies) and not method.startswith(_STATUS) else (READ,)

    def _unknown(self, method: str) -> Any:
        """The handler of a method that this server does not have: the call is refused, and recorded."""

        async def refuse(_requests: Any, context: CallContext) -> None:
            self._refusals.record(RefusalReason.PROTOCOL, "unknown method", _peer(context), service=method)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

        return grpc.stream_stream_rpc_method_handler(refuse)

    async def authenticate(self, context: CallContext, service: str) -> Identity:
        """The identity of a client of discovery or load reporting. Aborts the call if the client is refused.

        ``service`` is the short name of the service (``ADS``), as in `authenticate_reader`.
        """
        identity = await self._check(context, (XDS,), service)
        if self.phase is not Phase.READY:
            self._metrics.refused[self.phase.value] += 1
            await context.abort(*self._unavailable())
        return identity

    async def authenticate_reader(self, context: CallContext, service: str) -> None:
        """Admit a client that reads the state of the fleet: the scope ``read``. Aborts the call of any other client."""
        await self._check(context, (READ,), service)

    def admits(self, call: CallHead) -> bool:
        """Whether a call has the credential that its method needs; False where none is needed. Counts no refusal."""
        if call.method.startswith(HEALTH):
            return False
        identity = self._identify(call, _authorization(call.invocation_metadata()))
        return self._refusal(identity, self._scopes(call.method)) is None

    def unavailable(self) -> Status | None:
        """The status for a stream that is admitted after the drain has begun; None while the server is ready."""
        return None if self.phase is Phase.READY else self._unavailable()

    def recheck(self, identity: Identity) -> tuple[Identity, AuthRefusal | None]:
        """The renewed identity of an open stream; and why the current rules refuse it, or None if they do not."""
        renewed = self._access.renew(identity)
        return renewed or identity, self._refusal(renewed, (XDS,))

    def _unavailable(self) -> Status:
        return grpc.StatusCode.UNAVAILABLE, f"the server is {self.phase.value}"

    def record(self, refusal: AuthRefusal, peer: str, service: str, identity: Identity) -> None:
        """Record a refused call, or an open stream that the rules refuse now."""
        message = refusal.detail or refusal.message
        self._refusals.record(refusal.reason, message, peer, service=service, principal=identity.principal)

    async def _check(self, context: CallContext, scopes: tuple[str, ...], service: str) -> Identity:
        authorization = _authorization(context.invocation_metadata())
        identity = self._identify(context, authorization)
        refusal = self._refusal(identity, scopes, authorization)
        if refusal is not None:
            self.record(refusal, _peer(context), service, identity or ANONYMOUS)
            await context.abort(refusal.code, refusal.message)
        return identity or ANONYMOUS

    def _identify(self, call: CallHead | CallContext, authorization: str) -> Identity | None:
        return self._access.admit(authorization, call.certificate, wants_certificate=self._wants_certificates)

    def _refusal(
        self, identity: Identity | None, scopes: tuple[str, ...], authorization: str = ""
    ) -> AuthRefusal | None:
        if identity is None:
            needed = "a client certificate or a valid" if self._wants_certificates else "a valid"
            message = f"{needed} bearer token is required"
            detail = missing_credential(authorization)
            return AuthRefusal(RefusalReason.UNAUTHENTICATED, grpc.StatusCode.UNAUTHENTICATED, message, detail)
        if identity.is_over(time()):
            return AuthRefusal(RefusalReason.UNAUTHENTICATED, *EXPIRED)
        if not any(map(identity.grant.allows, scopes)):
            credential = "the token" if identity.credential else "the certificate"
            message = f"{credential} lacks the scope {' or '.join(scopes)}"
            return AuthRefusal(RefusalReason.FORBIDDEN, grpc.StatusCode.PERMISSION_DENIED, message)
        return None


# A virtual base class: grpc asks for an instance of its own, and ships no types to derive from.
grpc.aio.ServerInterceptor.register(AuthInterceptor)


def _peer(context: CallContext) -> str:
    return unquote(context.peer())


def _authorization(metadata: Iterable[tuple[str, str]] | None) -> str:
    return next((value for key, value in metadata or () if key == HEADER and isinstance(value, str)), "")


def _guarded(handler: Any, check: Callable[[Any], Awaitable[None]]) -> Any:
    """The same handler, which calls ``check`` first. gRPC's own services have coroutines and generators."""
    requests = "stream" if handler.request_streaming else "unary"
    responses = "stream" if handler.response_streaming else "unary"
    behaviour = getattr(handler, f"{requests}_{responses}")

    async def respond(request: Any, context: Any) -> Any:
        await check(context)
        result = behaviour(request, context)
        return await result if isinstance(result, Awaitable) else result

    async def respond_many(request: Any, context: Any) -> Any:
        await check(context)
        async for response in behaviour(request, context):
            yield response

    make = getattr(grpc, f"{requests}_{responses}_rpc_method_handler")
    guarded = respond_many if handler.response_streaming else respond
    return make(guarded, handler.request_deserializer, handler.response_serializer)


async def expire(
    streams: Collection[StreamHandler],
    spread_s: float,
    disconnect: Callable[[Collection[str]], Awaitable[None]],
) -> None:
    """End streams whose client certificate has expired, spread over ``spread_s``, and close their connections.

    A connection may outlive its certificate by years, and a client shows a renewed certificate on a new connection
    only. The ends are spread because a fleet often gets its certificates within one hour. Runs until cancelled.
    """
    while True:
        await asyncio.sleep(EXPIRY_CHECK_S)
        now = time()
        expired = [stream for stream in list(streams) if stream.identity.is_over(now)]
        due = [stream for stream in expired if stream.identity.is_over(now - _delay_s(stream.peer, spread_s))]
        for stream in due:
            stream.finish(EXPIRED)
        if due:
            await asyncio.sleep(STATUS_READ_S)
            await disconnect({stream.peer for stream in due})


def _delay_s(peer: str, spread_s: float) -> float:
    """How long after the expiry a stream ends; the same for all streams of a connection."""
    return spread_s * (crc32(peer.encode()) / 2**32)
