"""The gRPC door: who may open a stream, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn

import grpc

from xds.control.phase import Phase
from xds.control.tokens import HEADER, XDS, Tokens
from xds.server.metrics import Metrics

_HEALTH = "/grpc.health.v1.Health/"
_DISCOVERY = "/envoy."


class Gate:
    """A server interceptor.

    * The server answers no discovery call before the stored state is loaded (rule 9: "never answer an empty LDS/CDS
      because state is not loaded yet. Refuse streams (UNAVAILABLE)"), nor while it drains.
    * Callers without an accepted bearer token are refused, but for health checks; what Envoy's services offer needs
      the scope ``xds``.
    """

    def __init__(self, tokens: Tokens, metrics: Metrics) -> None:
        self.phase = Phase.STARTING
        self._tokens = tokens
        self._metrics = metrics

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        """gRPC asks for the handler of each call."""
        refusal = self._refusal(call.method, call.invocation_metadata)
        if refusal is None:
            return await continuation(call)
        reason, code, message = refusal
        self._metrics.refused[reason] += 1
        return _abort_with(code, message)

    def late_refusal(self) -> tuple[grpc.StatusCode, str] | None:
        """Of a stream that was let in and waited since: the server may drain by now."""
        if self.phase is Phase.READY:
            return None
        return (grpc.StatusCode.UNAVAILABLE, f"the server is {self.phase.value}")

    def _refusal(self, method: str, metadata: Iterable[tuple[str, str]]) -> tuple[str, grpc.StatusCode, str] | None:
        if method.startswith(_HEALTH):
            return None
        grant = self._tokens.admit(_authorization(metadata))
        if grant is None:
            return ("unauthenticated", grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is required")
        if method.startswith(_DISCOVERY) and not grant.allows(XDS):
            return ("forbidden", grpc.StatusCode.PERMISSION_DENIED, f"the token lacks the scope {XDS}")
        if method.startswith(_DISCOVERY) and self.phase is not Phase.READY:
            return (self.phase.value, grpc.StatusCode.UNAVAILABLE, f"the server is {self.phase.value}")
        return None


# A virtual base class: grpc asks for an instance of its own, and ships no types to derive from.
grpc.aio.ServerInterceptor.register(Gate)


def _authorization(metadata: Iterable[tuple[str, str]]) -> str:
    return next((value for key, value in metadata if key == HEADER and isinstance(value, str)), "")


def _abort_with(code: grpc.StatusCode, message: str) -> Any:
    async def abort(_requests: Any, context: Any) -> NoReturn:
        await context.abort(code, message)
        raise AssertionError("abort returned")

    return grpc.stream_stream_rpc_method_handler(abort)
