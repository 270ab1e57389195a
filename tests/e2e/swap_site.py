"""A site whose snapshots are swapped: a server, an Envoy as deployed, upstreams, an authoriser, and load on it all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.swap_kinds import Kind, Scene, is_turns
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, wait_body
from tests.support.load import HttpLoad, LoadReport
from tests.support.process import free_port, wait_until
from tests.support.proxy import TcpProxy
from tests.support.resources import CLUSTER_TYPE, Json
from tests.support.server import GROUP, NODE, ServerProcess
from tests.support.upstream import PAUSED_PATH, RETRIED_PATH, Upstream

CONNECTIONS, RPS = 8, 200.0
MARKED_CONNECTIONS, MARKED_RPS = 8, 40.0  # as fast as the retries and pauses let them, but no faster
PAUSE_S = (0.2, 2.0)
WARM_UP_REQUESTS = 100
# Longer than pauses and retries, so that requests from before a swap have looked up their cluster.
AFTERWARDS_S = 2.5


class SwapLoad:
    """Keep-alive load of three kinds:

    plain requests, requests that Envoy retries, and requests that the authoriser holds.

    With ``PER_CONNECTION`` a connection is replaced after this many requests.
    """

    PATHS: tuple[bytes, ...] = (RETRIED_PATH, PAUSED_PATH)
    PER_CONNECTION = 0

    def __init__(self, background: Background, port: int) -> None:
        def start(connections: int, rps: float, path: bytes) -> HttpLoad:
            return HttpLoad(
                background, port, "svc.test", path.decode(), connections, rps=rps, per_connection=self.PER_CONNECTION
            )

        self.plain = start(CONNECTIONS, RPS, b"/")
        self._loads = [self.plain, *(start(MARKED_CONNECTIONS, MARKED_RPS, path) for path in self.PATHS)]

    def reports(self) -> list[LoadReport]:
        """The counts of the three kinds up to now."""
        return [load.report for load in self._loads]

    @property
    def failed(self) -> int:
        """The number of lost requests so far."""
        return sum(report.failed for report in self.reports())

    def stop(self) -> list[LoadReport]:
        """Let the requests in flight end, and return the counts."""
        return [load.stop() for load in self._loads]

    def __enter__(self) -> SwapLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class PlainLoad(SwapLoad):
    """Only plain requests, where an Envoy with a short drain would itself end the others."""

    PATHS = ()


class ReconnectingLoad(SwapLoad):
    """Connections that last only seconds, where Envoy closes connections at the end of a drain."""

    PER_CONNECTION = 20


@dataclass(slots=True)
class SwapSite:
    """The processes that `SwapSites` started. ``turn`` is the turn whose snapshot was pushed last."""

    kind: Kind
    scene: Scene
    server: ServerProcess
    proxy: TcpProxy
    envoy: EnvoyProcess
    load: SwapLoad
    turn: int = 0

    def push(self, extra: Sequence[Json] = ()) -> None:
        """Push the next turn, with ``extra``. This removes the cluster of the previous turn."""
        self.turn += 1
        self.server.push(GROUP, [*self.kind(self.scene, self.turn), *extra])

    def wait_served(self) -> None:
        """Wait until a new connection is answered by this turn's upstream."""
        wait_body(self.scene.port, self.scene.upstream(self.turn).name)

    def swap(self) -> None:
        """Push the next turn, and let the load run for a while once it is served."""
        self.push()
        self.wait_served()
        self.settle()

    @staticmethod
    def settle(seconds: float = AFTERWARDS_S) -> None:
        """Let the load run for a while."""
        time.sleep(seconds)

    def wait_synced(self) -> None:
        """Wait until Envoy has all of the last push."""
        self.server.wait_synced(GROUP, NODE)

    def cut(self) -> None:
        """Cut Envoy's connection to the server, and wait until both have noticed."""
        self.proxy.cut()
        wait_until(lambda: not self.streams(), "the server has lost sight of Envoy")

    def restore(self) -> None:
        """Restore the connection, and wait until Envoy is connected."""
        self.proxy.restore()
        wait_until(self.streams, "Envoy is back")

    def streams(self) -> Sequence[Json]:
        """Envoy's streams in the server's view."""
        streams: Sequence[Json] = self.server.nodes().get(NODE, {}).get("streams", [])
        return streams

    def clusters(self) -> set[str]:
        """The clusters of turns that Envoy has, warm or not."""
        found = self.envoy.cluster_names("active") | self.envoy.cluster_names("warming")
        return set(filter(is_turns, found))

    def pushed_clusters(self) -> set[str]:
        """The clusters of turns in the last push."""
        pushed = self.kind(self.scene, self.turn)
        return {one["name"] for one in pushed if one["@type"] == CLUSTER_TYPE and is_turns(one["name"])}

    def end(self) -> None:
        """Stop the load: no request may be lost."""
        self.load.stop()
        assert self.load.failed == 0, "\n".join(map(str, self.load.reports()))


@dataclass(frozen=True, slots=True)
class SwapSites:
    """Opens sites; everything that it starts ends with ``running``."""

    directory: Path
    background: Background
    running: ExitStack

    def open(
        self,
        kind: Kind,
        variant: Variant,
        drain: Sequence[str] = DRAIN_BY_DEFAULT,
        scene: Scene | None = None,
        load: type[SwapLoad] = SwapLoad,
        **server: Any,
    ) -> SwapSite:
        """A site that serves the first turn of a kind, with load on it. ``server`` is more of `ServerProcess`'s."""
        scene = scene or self.scene(variant)
        started = self.running.enter_context(ServerProcess(self.directory, **server))
        started.push(GROUP, kind(scene, 0))
        proxy = TcpProxy(self.background, started.grpc_port)
        self.running.callback(proxy.close)
        bootstrap = EnvoyBootstrap(proxy.port, variant)
        envoy = self.running.enter_context(EnvoyProcess(self.directory, bootstrap, drain=drain)).wait_live()
        wait_body(scene.port, scene.upstream(0).name)
        started.wait_synced(GROUP, NODE)
        requests = self.running.enter_context(load(self.background, scene.port))
        requests.plain.wait_total(WARM_UP_REQUESTS)
        return SwapSite(kind, scene, started, proxy, envoy, requests)

    def scene(self, variant: Variant, **fields: Any) -> Scene:
        """Two upstreams and a slow authoriser. ``fields`` are further fields of `Scene`."""
        authorizer, a, b = (self.upstream(called) for called in ("authorizer", "a", "b"))
        authorizer.pause_s = PAUSE_S
        return Scene(variant.config_source, free_port(), authorizer, (a, b), **fields)

    def upstream(self, called: str) -> Upstream:
        """An upstream that ends with the rest."""
        started = Upstream(self.background, called)
        self.running.callback(started.close)
        return started
