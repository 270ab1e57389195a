"""The good client beside an attack: new connections with a CDS request each, one after the other."""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Self

import grpc

from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.process import wait_until
from xds.model.resource_type import CLUSTER

GROUP = "default"
PAUSE_S = 0.1
MORE = 2  # answers that count as being served: the first may have begun before


class Bystander:
    """``answers`` grows as long as it is served."""

    def __init__(self, grpc_port: int) -> None:
        self.answers = 0
        self.failures: list[str] = []
        self.slowest_s = 0.0
        self._port = grpc_port
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def served(self) -> None:
        """Wait until it is answered on connections that begin now."""
        enough = self.answers + MORE
        wait_until(lambda: self.answers >= enough or self.failures, "the good client is served")
        assert not self.failures

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            began = monotonic()
            try:
                with GrpcStream(self._port) as stream:
                    names = [each.value for each in stream.send(sotw(CLUSTER, node_id="bystander")).receive().resources]
            except grpc.RpcError as error:
                self.failures.append(str(error))
                return
            assert names
            self.slowest_s = max(self.slowest_s, monotonic() - began)
            self.answers += 1
