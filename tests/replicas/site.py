"""Three servers on one database, Envoys that may choose any of them, and keep-alive load on each Envoy."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.e2e.swap_kinds import Kind, Scene
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, wait_body
from tests.support.load import HttpLoad
from tests.support.postgres import USER, PostgresServer
from tests.support.process import LOOPBACK, wait_until
from tests.support.proxy import TcpProxy
from tests.support.resources import ADS, INTERNAL_LISTENERS
from tests.support.server import GROUP, Json, ServerProcess
from tests.support.upstream import Upstream

SERVERS = 3
CONNECTIONS, RPS = 2, 10.0  # of each Envoy
LISTENER = "web"
WARM_UP_REQUESTS = 20
PUSH_DEADLINE_S = 60.0
BUSY = (502, 503, 504)  # the server may not reach the database now
SYNCED_S = 90.0
VERSIONS = ("cluster_manager.cds.version_text", "listener_manager.lds.version_text")


@dataclass(slots=True)
class Replica:
    """One server, with links that a test can cut: that of its proxies, and that to the database."""

    server: ServerProcess
    proxies: TcpProxy
    database: TcpProxy

    @property
    def name(self) -> str:
        """Its name among the servers."""
        return f"{LOOPBACK}:{self.server.http_port}"

    def stop_running(self) -> None:
        """SIGSTOP."""
        os.kill(self.server.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.server.process.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Let it drain and end, and start it again."""
        self.server.stop()
        self.server.start()


@dataclass(slots=True)
class ReplicaSite:
    """What `ReplicaSites` started. ``turn`` is the turn whose snapshot was pushed last."""

    kind: Kind
    scene: Scene
    database: PostgresServer
    replicas: Sequence[Replica]
    rng: random.Random
    envoys: list[EnvoyProcess] = field(default_factory=list)
    loads: list[HttpLoad] = field(default_factory=list)
    turn: int = 0
    acknowledged: list[int] = field(default_factory=list)  # the revisions

    def push(self) -> None:
        """Push the next turn at any server that takes it; a push id makes each attempt the same push."""
        self.turn += 1
        body = {"resources": self.kind(self.scene, self.turn)}
        key = f"turn-{self.turn}-{self.rng.getrandbits(64):x}"

        def taken() -> bool:
            server = self.rng.choice(self.replicas).server
            answer = server.request(
                "PUT",
                f"/api/v1/groups/{GROUP}/snapshot",
                json=body,
                headers={"idempotency-key": key},
                timeout=5.0,
            )
            assert answer.is_success or answer.status_code in BUSY, f"{answer.status_code} {answer.text}"
            if answer.is_success:
                self.acknowledged.append(answer.json()["revision"])
            return answer.is_success

        wait_until(taken, f"push {self.turn}", PUSH_DEADLINE_S, every_s=0.1)

    def push_for(self, seconds: float, pause_s: float = 0.5) -> None:
        """Push again and again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.push()
            time.sleep(pause_s)

    def port(self, envoy: EnvoyProcess) -> int:
        """The port of the listener of an Envoy."""
        return self.scene.port or envoy.wait_listener(LISTENER)

    def failures(self) -> list[str]:
        """What the load lost, by Envoy."""
        named = zip(self.envoys, self.loads, strict=True)
        return [f"{envoy.name}: {load.report}" for envoy, load in named if load.report.failed]

    def wait_newest(self) -> None:
        """Wait until each Envoy serves the newest turn, and shows the versions that each server has.

        A server that another one pushed at, or that was stopped, may have them a moment later.
        """
        for envoy in self.envoys:
            wait_body(self.port(envoy), self.scene.upstream(self.turn).name)
        for replica in self.replicas:
            behind = partial(self._behind, replica)
            wait_until(
                partial(_is_empty, behind), f"all Envoys at the newest of {replica.name}", SYNCED_S, detail=behind
            )

    def _behind(self, replica: Replica) -> list[tuple[str, tuple[str, ...]]]:
        """The Envoys that show other versions. A set from which something lingers has a suffix of its own."""
        pushed = replica.server.versions(GROUP)
        expected = (_label(pushed["clusters"]), _label(pushed["listeners"]))
        shown = [(envoy.name, tuple(envoy.text(name) for name in VERSIONS)) for envoy in self.envoys]
        return [each for each in shown if tuple(map(_label, each[1])) != expected]

    def wait_view(self) -> list[Json]:
        """Wait until each server shows all nodes connected, in one complete view; the nodes."""
        expected = {envoy.name for envoy in self.envoys}

        def views() -> list[Json]:
            answers: list[Json] = [replica.server.get("/nodes") for replica in self.replicas]
            connected = [{node["id"] for node in answer["items"] if node["streams"]} for answer in answers]
            whole = all(ids == expected for ids in connected) and not any(answer.get("partial") for answer in answers)
            return answers[0]["items"] if whole else []

        return wait_until(views, "one complete view", SYNCED_S)

    def holder(self, envoy: EnvoyProcess) -> Replica | None:
        """The server that holds the stream of an Envoy."""
        node = self.replicas[0].server.nodes().get(envoy.name, {})
        held = node.get("server") if node.get("streams") else None
        return next((each for each in self.replicas if each.name == held), None)

    @staticmethod
    def settle(seconds: float) -> None:
        """Let the load run for a while."""
        time.sleep(seconds)

    def end(self) -> None:
        """Stop the load: no request may be lost."""
        for load in self.loads:
            load.stop()
        assert not self.failures(), "\n".join(self.failures())


def _is_empty(what: Callable[[], Sequence[object]]) -> bool:
    return not what()


def _label(version: str) -> str:
    return version.partition("+")[0]


@dataclass(frozen=True, slots=True)
class ReplicaSites:
    """Opens sites; everything that it starts ends with ``running``."""

    directory: Path
    background: Background
    running: ExitStack

    def open(
        self,
        kind: Kind,
        variants: Sequence[Variant],
        rng: random.Random,
        standby: Callable[[PostgresServer], PostgresServer] | None = None,
        port: int = 0,
    ) -> ReplicaSite:
        """A site that serves the first turn of a kind to an Envoy of each of the variants, all on ADS.

        With ``standby``, which makes one of the database, both are in the URL of the servers. ``port`` is that of the
        listeners; 0: each Envoy takes a free one.
        """
        database = self.running.enter_context(PostgresServer())
        other = None if standby is None else standby(database)
        replicas = [self._replica(name, database, other) for name in "abc"[:SERVERS]]
        authorizer, a, b = (self._upstream(called) for called in ("authorizer", "a", "b"))
        scene = Scene(ADS, port, authorizer, (a, b))
        replicas[0].server.push(GROUP, kind(scene, 0))
        site = ReplicaSite(kind, scene, database, replicas, rng)
        for number, variant in enumerate(variants):
            site.envoys.append(self._envoy(number, variant, replicas, rng))
        for envoy in site.envoys:
            envoy.wait_live()
            served = site.port(envoy)
            wait_body(served, scene.upstream(0).name)
            load = HttpLoad(self.background, served, connections=CONNECTIONS, rps=RPS)
            self.running.callback(load.stop)
            site.loads.append(load)
        for load in site.loads:
            load.wait_total(WARM_UP_REQUESTS)
        return site

    def _replica(self, name: str, database: PostgresServer, standby: PostgresServer | None) -> Replica:
        directory = self.directory / name
        directory.mkdir()
        link = self._proxy(database.port)
        hosts = [f"{LOOPBACK}:{link.port}", *([f"{LOOPBACK}:{standby.port}"] if standby is not None else [])]
        url = f"postgresql://{USER}@{','.join(hosts)}/{USER}"
        server = ServerProcess(directory, ["--store", url], advertised=True)
        self.running.enter_context(server)
        return Replica(server, self._proxy(server.grpc_port), link)

    def _envoy(self, number: int, variant: Variant, replicas: Sequence[Replica], rng: random.Random) -> EnvoyProcess:
        first, *others = rng.sample([replica.proxies.port for replica in replicas], len(replicas))
        bootstrap = EnvoyBootstrap(
            first,
            variant,
            node_id=f"envoy-{number}",
            node_cluster=GROUP,
            other_xds_ports=tuple(others),
            load_reports=True,  # by a stream that may be at another server
            changes=INTERNAL_LISTENERS,
        )
        envoy = EnvoyProcess(self.directory, bootstrap, name=f"envoy-{number}", drain=DRAIN_BY_DEFAULT)
        return self.running.enter_context(envoy)

    def _proxy(self, port: int) -> TcpProxy:
        proxy = TcpProxy(self.background, port)
        self.running.callback(proxy.close)
        return proxy

    def _upstream(self, called: str) -> Upstream:
        started = Upstream(self.background, called)
        self.running.callback(started.close)
        return started
