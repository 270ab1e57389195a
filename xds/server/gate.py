"""The gRPC door: who may open a stream, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from time import time
from typing import Any, NamedTuple

import grpc

from xds.control.access import ANONYMOUS, Access, Identity
from xds.control.certificate import Certificate, read_pem
from xds.control.lifecycle import Phase
from xds.control.tokens import HEADER, READ, XDS
from xds.server.metrics import Metrics

_HEALTH = "/grpc.health.v1.Health/"
_DISCOVERY = "/envoy."
_REFLECTION = "/grpc.reflection."
_CERTIFICATES_KEPT = 10_000  # of grpcio's, which gives each call its text anew


class Turned(NamedTuple):
    """Who is not let in: the counter's reason, and what the client is told."""

    reason: str
    code: grpc.StatusCode
    message: str


class Gate:
    """Who may come in, by method. A server interceptor for what is no discovery; discovery asks `enter` itself.

    * The server answers no discovery call before the stored state is loaded (rule 9: "never answer an empty LDS/CDS
      because state is not loaded yet. Refuse streams (UNAVAILABLE)"), nor while it drains.
    * Health is open. What Envoy's services offer needs the scope ``xds``, reflection that or ``read`` (it tells which
      services there are), all else, channelz above all, ``read`` (it lists the addresses of clients).
    * ``wants_certificates``: the port asks for client certificates, so that nobody comes in without a credential.
    """

    def __init__(self, access: Access, metrics: Metrics, *, wants_certificates: bool = False) -> None:
        self.phase = Phase.STARTING
        self._access = access
        self._metrics = metrics
        self._wants_certificates = wants_certificates

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        """gRPC asks for the handler of each call."""
        handler = await continuation(call)
        if handler is None or call.method.startswith((_HEALTH, _DISCOVERY)):
            return handler
        scopes = (XDS, READ) if call.method.startswith(_REFLECTION) else (READ,)

        async def check(context: Any) -> None:
            await self._enter(context, scopes)

        return _guarded(handler, check)

    async def enter(self, context: Any) -> Identity:
        """Who opens a stream of discovery or of load reports. Aborts the call of whoever may not."""
        identity = await self._enter(context, (XDS,))
        if self.phase is not Phase.READY:
            await self._turn_away(context, Turned(self.phase.value, *self._late()))
        return identity

    def late_refusal(self) -> tuple[grpc.StatusCode, str] | None:
        """Of a stream that was let in and waited since: the server may drain by now."""
        return None if self.phase is Phase.READY else self._late()

    def refusal_now(self, identity: Identity) -> tuple[Identity, Turned | None]:
        """A connection that was let in, under the rules of now."""
        renewed = self._access.renew(identity)
        return renewed or identity, self._judge(renewed, (XDS,))

    def _late(self) -> tuple[grpc.StatusCode, str]:
        return grpc.StatusCode.UNAVAILABLE, f"the server is {self.phase.value}"

    async def _enter(self, context: Any, scopes: tuple[str, ...]) -> Identity:
        authorization = _authorization(context.invocation_metadata())
        certificate = certificate_of(context)
        found = self._access.admit(authorization, certificate, wants_certificate=self._wants_certificates)
        turned = self._judge(found, scopes)
        if turned is not None:
            await self._turn_away(context, turned)
        return found or ANONYMOUS

    def _judge(self, identity: Identity | None, scopes: tuple[str, ...]) -> Turned | None:
        if identity is None:
            what = "a client certificate or a valid" if self._wants_certificates else "a valid"
            return Turned("unauthenticated", grpc.StatusCode.UNAUTHENTICATED, f"{what} bearer token is required")
        if identity.is_over(time()):
            return Turned("unauthenticated", *OVER)
        if not any(map(identity.grant.allows, scopes)):
            whose = "the token" if identity.credential else "the certificate"
            message = f"{whose} lacks the scope {' or '.join(scopes)}"
            return Turned("forbidden", grpc.StatusCode.PERMISSION_DENIED, message)
        return None

    async def _turn_away(self, context: Any, turned: Turned) -> None:
        self._metrics.refused[turned.reason] += 1
        await context.abort(turned.code, turned.message)


# A virtual base class: grpc asks for an instance of its own, and ships no types to derive from.
grpc.aio.ServerInterceptor.register(Gate)

OVER = (grpc.StatusCode.UNAUTHENTICATED, "the client certificate has expired")


def certificate_of(context: Any) -> Certificate | None:
    """The verified certificate of a call's client, on either transport."""
    if hasattr(context, "certificate"):
        found: Certificate | None = context.certificate
        return found
    shown = context.auth_context().get("x509_pem_cert") or ()
    return _read(shown[0]) if shown else None


@lru_cache(_CERTIFICATES_KEPT)
def _read(pem: bytes) -> Certificate:
    try:
        return read_pem(pem.decode("ascii"))
    except ValueError:
        return Certificate()


def _authorization(metadata: Iterable[tuple[str, str]] | None) -> str:
    return next((value for key, value in metadata or () if key == HEADER and isinstance(value, str)), "")


def _guarded(handler: Any, check: Callable[[Any], Awaitable[None]]) -> Any:
    """The same handler behind a check of its context, of either kind that gRPC's own services have."""
    takes = "stream" if handler.request_streaming else "unary"
    gives = "stream" if handler.response_streaming else "unary"
    behaviour = getattr(handler, f"{takes}_{gives}")

    async def answer(request: Any, context: Any) -> Any:
        await check(context)
        found = behaviour(request, context)
        return await found if isinstance(found, Awaitable) else found

    async def answers(request: Any, context: Any) -> Any:
        await check(context)
        async for each in behaviour(request, context):
            yield each

    made = getattr(grpc, f"{takes}_{gives}_rpc_method_handler")
    guarded = answers if handler.response_streaming else answer
    return made(guarded, handler.request_deserializer, handler.response_serializer)
