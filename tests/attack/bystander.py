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
    """``answers`` grows as long as it is served; ``taken_s`` has how long each took, the connection included."""

    def __init__(self, grpc_port: int, pause_s: float = PAUSE_S, token: str = "") -> None:
        self.answers = 0
        self.taken_s: list[float] = []
        self.failures: list[str] = []
        self._port = grpc_port
        self._pause_s = pause_s
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    @property
    def slowest_s(self) -> float:
        """The longest that it waited."""
        return max(self.taken_s, default=0.0)

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
        while not self._over.wait(self._pause_s):
            began = monotonic()
            try:
                with GrpcStream(self._port, metadata=self._metadata) as stream:
                    names = [each.value for each in stream.send(sotw(CLUSTER, node_id="bystander")).receive().resources]
            except grpc.RpcError as error:
                self.failures.append(str(error))
                return
            assert names
            self.taken_s.append(monotonic() - began)
            self.answers += 1
