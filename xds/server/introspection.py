"""The standard gRPC services: health and reflection. Each transport adds its own channelz."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.descriptor_pool import Default, DescriptorPool
from grpc_channelz.v1 import channelz_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

_REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


class Introspection:
    """Health and reflection of one server. Health is NOT_SERVING before ``serving`` and from ``draining`` on."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = ("", *services)
        self._health = health.aio.HealthServicer()

    def register(self, transport: Any, pool: DescriptorPool) -> None:
        """Add the services. ``pool`` describes Envoy's services and messages to reflection clients."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, transport)
        names = [*self._services[1:], health.SERVICE_NAME, reflection.SERVICE_NAME, _REFLECTION_V1, _CHANNELZ]
        servicer = reflection.aio.ReflectionServicer(names, pool=DescriptorPools(pool))
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, transport)
        transport.add_generic_rpc_handlers((_reflection_v1(servicer),))

    async def starting(self) -> None:
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def serving(self) -> None:
        await self._set(health_pb2.HealthCheckResponse.SERVING)

    async def draining(self) -> None:
        """NOT_SERVING from now on."""
        await self._health.enter_graceful_shutdown()

    async def _set(self, status: Any) -> None:
        for service in self._services:
            await self._health.set(service, status)


_CHANNELZ = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name


class DescriptorPools:
    """The private descriptor pool with Envoy's API, then the default one with gRPC's own services."""

    def __init__(self, private: DescriptorPool) -> None:
        self._pools = (private, Default())

    def FindFileByName(self, name: str) -> Any:  # noqa: N802 - the name that the servicer calls
        return self._first("FindFileByName", name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        return self._first("FindFileContainingSymbol", symbol)

    def FindMessageTypeByName(self, name: str) -> Any:  # noqa: N802
        return self._first("FindMessageTypeByName", name)

    def FindExtensionByNumber(self, message: Any, number: int) -> Any:  # noqa: N802
        return self._first("FindExtensionByNumber", message, number)

    def FindAllExtensions(self, message: Any) -> Any:  # noqa: N802
        return self._first("FindAllExtensions", message)

    def _first(self, method: str, *arguments: Any) -> Any:
        for pool in self._pools:
            with suppress(KeyError):
                return getattr(pool, method)(*arguments)
        raise KeyError(arguments[-1])


def _reflection_v1(servicer: Any) -> Any:
    """The service under its v1 name; the messages of v1 and v1alpha are the same on the wire."""
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(_REFLECTION_V1, {"ServerReflectionInfo": method})
