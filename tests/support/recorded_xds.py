"""An xDS server that sends what another one sent: recorded first responses, by method and type."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc

from tests.support.grpc_stream import ADS, DELTA, SOTW
from tests.support.process import LOOPBACK
from xds.proto import wire_pb2

STREAMS = 8


class RecordedXds:
    """``sent``: serialized responses in base64, by method and type. They are sent whenever other names are asked for;
    Delta ones with the wanted resources alone."""

    def __init__(self, port: int, sent: Mapping[str, Mapping[str, str]]) -> None:
        self._sent = sent
        self._server = grpc.server(ThreadPoolExecutor(STREAMS), options=[("grpc.so_reuseport", 0)])
        service = ADS.strip("/")
        methods = {SOTW: self._stream, DELTA: self._delta}
        handlers = {
            method.removeprefix(ADS): grpc.stream_stream_rpc_method_handler(answer)
            for method, answer in methods.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        assert self._server.add_insecure_port(f"{LOOPBACK}:{port}") == port

    def _stream(self, requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
        asked: dict[str, list[str]] = {}
        for data in requests:
            request = wire_pb2.DiscoveryRequest.FromString(data)
            names = sorted(request.resource_names)
            if asked.get(request.type_url) != names:
                asked[request.type_url] = names
                yield base64.b64decode(self._sent[SOTW][request.type_url])

    def _delta(self, requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
        begun: set[str] = set()
        for data in requests:
            request = wire_pb2.DeltaDiscoveryRequest.FromString(data)
            names = set(request.resource_names_subscribe)
            if names or request.type_url not in begun:
                begun.add(request.type_url)
                response = base64.b64decode(self._sent[DELTA][request.type_url])
                yield _only(wire_pb2.DeltaDiscoveryResponse.FromString(response), names - {"*"})

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.stop(0).wait()


def _only(response: wire_pb2.DeltaDiscoveryResponse, names: set[str]) -> bytes:
    """The response with these resources; without names all of it."""
    kept = [each for each in response.resources if not names or each.name in names]
    del response.resources[:]
    response.resources.extend(kept)
    return response.SerializeToString()
