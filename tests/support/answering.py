"""Clients under load: which upstreams answer them, which endpoints they have, and which requests they lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.envoy import EnvoyProcess
from tests.support.grpc_client import GrpcClient
from tests.support.load import HttpLoad
from tests.support.process import wait_until

SAMPLE = 60
PATIENCE_S = 30.0


class GrpcCalls:
    """Calls to a target one after the other, in a thread. Every call that does not end ``OK`` is lost."""

    def __init__(self, client: GrpcClient, target: str) -> None:
        self.bodies: Counter[str] = Counter()
        self.lost: list[str] = []
        self._client = client
        self._target = target
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stopped.wait(0.01):
            outcome = self._client.call(self._target)
            if outcome.status == "OK":
                self.bodies[outcome.body] += 1
            else:
                self.lost.append(f"{outcome.status} {outcome.details}")

    @contextmanager
    def running(self) -> Iterator[GrpcCalls]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            self._thread.join()


@dataclass
class Clients:
    """Envoys with their load, and perhaps a gRPC client."""

    envoys: list[EnvoyProcess] = field(init=False, default_factory=list)
    loads: list[HttpLoad] = field(init=False, default_factory=list)
    calls: GrpcCalls | None = field(init=False, default=None)

    def splits(self) -> list[dict[str, int]]:
        """For each client, how many of its next requests each upstream answers, sampled at the same time."""
        answers = [load.report.bodies for load in self.loads]
        if self.calls is not None:
            answers.append(self.calls.bodies)
        before = [Counter(bodies) for bodies in answers]

        def is_sampled() -> bool:
            made = (bodies.total() - earlier.total() for bodies, earlier in zip(answers, before, strict=True))
            return all(number >= SAMPLE for number in made) or bool(self.lost())

        wait_until(is_sampled, f"{SAMPLE} answers to each client", detail=lambda: answers)
        return [dict(bodies - earlier) for bodies, earlier in zip(answers, before, strict=True)]

    def lost(self) -> list[str]:
        """The lost requests of all clients; of each load the first few."""
        samples = [sample for load in self.loads for sample in load.report.samples]
        return [*samples, *(self.calls.lost if self.calls is not None else [])]

    def wait_answered_by(self, *names: str) -> None:
        """Wait until exactly these upstreams answer each client."""

        def is_answered() -> bool:
            self.check()
            return all(set(split) == set(names) for split in self.splits())

        wait_until(is_answered, f"answers by {names}", PATIENCE_S, detail=self.splits)

    def wait_endpoints(self, cluster: str, ports: Collection[int]) -> None:
        """Wait until the Envoys have exactly these endpoints, draining and unhealthy ones included."""

        def found() -> list[set[int]]:
            return [envoy.endpoint_ports(cluster) for envoy in self.envoys]

        wait_until(lambda: found() == [set(ports)] * len(self.envoys), f"ports {ports}", PATIENCE_S, detail=found)

    def check(self) -> None:
        """Fail if a request was lost."""
        assert self.lost() == []
