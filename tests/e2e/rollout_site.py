"""A fleet of Envoys under load whose group is rolled out carefully, and what each of them has seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.commands import FinishedCommand, xds
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, wait_body
from tests.support.load import HttpLoad
from tests.support.process import DEADLINE_S, LOOPBACK, wait_until
from tests.support.proxy import TcpProxy
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream
from xds.model.node import Node
from xds.rollouts.plan import read_plan
from xds.rollouts.rollout import Rollout, decode
from xds.rollouts.wave import rank, waves_of

Json = dict[str, Any]

GROUP = "edge"
CONNECTIONS, RPS = 2, 15.0  # of each Envoy
BASE, HEAD = "base", "head"  # the upstreams, and what they answer
UPDATES = r"update_attempt$"
CLUSTERS_ADDED = "cluster_manager.cluster_added"


@dataclass(slots=True)
class RolloutSite:
    """A server, Envoys of one group with load on each, and two upstreams. ``start`` begins a story anew."""

    server: ServerProcess
    variant: Variant
    base: Upstream
    head: Upstream
    background: Background
    envoys: dict[str, EnvoyProcess] = field(default_factory=dict)
    proxies: dict[str, TcpProxy] = field(default_factory=dict)  # on their way to the server
    ports: dict[str, int] = field(default_factory=dict)
    loads: dict[str, HttpLoad] = field(default_factory=dict)
    story: int = 0  # content that an earlier one took back is not pushed again

    # Life

    def start(self) -> None:
        """Serve the base to all Envoys, restart those that have ended, and put load on all."""
        self.story += 1
        self.push(self.content(BASE), rollout="all_at_once").raise_for_status()
        for name, envoy in self.envoys.items():
            if not envoy.is_started:
                envoy.start().wait_live()
            self.ports[name] = envoy.wait_listener("web")
        for name in self.envoys:
            wait_body(self.ports[name], BASE)
            self.server.wait_synced(GROUP, name)
        self.loads = {
            name: HttpLoad(self.background, port, connections=CONNECTIONS, rps=RPS) for name, port in self.ports.items()
        }
        for load in self.loads.values():
            load.wait_total(CONNECTIONS)

    def end(self, but: Sequence[str] = ()) -> None:
        """Stop the load. No request was lost, but of the Envoys that a test has harmed."""
        reports = {name: load.stop() for name, load in self.loads.items()}
        self.loads = {}
        lost = {name: report for name, report in reports.items() if report.failed and name not in but}
        assert not lost, f"{lost}\n{self.server.process.log_tail()}"

    # Pushes

    def content(self, upstream: str, *ports: int) -> list[Json]:
        """The usual resources; the cluster is named as its upstream, whose port it has if no ports are given."""
        at = ports or ({BASE: self.base, HEAD: self.head}[upstream].port,)
        web = r.web_resources(upstream, *at, source=self.variant.config_source)
        cluster, *others = web
        return [{**cluster, "lrs_server": {"self": {}}, "alt_stat_name": f"{upstream}-{self.story}"}, *others]

    def push(self, resources: Sequence[Json], rollout: Json | str | None = None, **members: Any) -> httpx.Response:
        """Push a snapshot under a plan."""
        body = {"resources": list(resources), **members, **({} if rollout is None else {"rollout": rollout})}
        return self.server.request("PUT", f"/api/v1/groups/{GROUP}/snapshot", json=body)

    def roll_out(self, resources: Sequence[Json], **plan: Any) -> int:
        """Begin a rollout; its revision."""
        answer = self.push(resources, plan)
        assert answer.status_code == 200, answer.text
        revision: int = answer.json()["revision"]
        return revision

    def command(self, *words: str | Path) -> FinishedCommand:
        """Run a command of the server's users."""
        return xds(*words, environment={"XDS_ADDR": f"{LOOPBACK}:{self.server.http_port}"})

    # What is seen

    def rollout(self) -> Json:
        """The rollout of the group."""
        found: Json = self.server.get(f"/groups/{GROUP}/rollout")
        return found

    def stored(self) -> Rollout | None:
        """The stored rollout of the group, after the server was killed."""
        with closing(sqlite3.connect(self.server.data / "xds.sqlite3")) as store:
            rows = list(store.execute("SELECT body FROM doc WHERE kind = 'rollout' AND name = ?", (GROUP,)))
        return decode(GROUP, rows[0][0]) if rows else None

    def inside(self, rollout: Json) -> set[str]:
        """The Envoys in the present wave of a rollout, if all were connected when its waves began."""
        waves = islice(waves_of(read_plan(rollout["plan"]), GROUP, dict.fromkeys(self.envoys, "")), rollout["wave"])
        return {name for _, added in waves for name in added}

    @staticmethod
    def node(name: str) -> Node:
        """An Envoy as a node."""
        return Node(name, GROUP)

    def answering(self, body: str = HEAD) -> set[str]:
        """The Envoys that have answered from an upstream since the start."""
        return {name for name, load in self.loads.items() if load.report.bodies[body]}

    @property
    def ranked(self) -> list[str]:
        """The Envoys in the order in which waves take them."""
        return sorted(self.envoys, key=lambda name: rank(GROUP, name))

    def wait_state(self, state: str, deadline_s: float = DEADLINE_S) -> Json:
        """Wait until the rollout is in a state, and check all the while that only the wave has the head."""

        def reached() -> Json:
            found = self.check_wave()
            return found if found["state"] == state else {}

        return wait_until(
            reached, f"rollout {state}", deadline_s, lambda: (self.rollout(), self.server.process.log_tail())
        )

    def check_wave(self) -> Json:
        """Only Envoys in the wave have answered from the head. The wave is read last, because it only grows."""
        answering, found = self.answering(), self.rollout()
        assert answering <= self.inside(found), found
        return found

    def act(self, action: str, message: str = "", permitted: Sequence[int] = ()) -> None:
        """Pause, resume, promote or abort the rollout. ``permitted`` are statuses of failures that do not matter."""
        body = {"action": action, "message": message}
        answer = self.server.request("POST", f"/api/v1/groups/{GROUP}/rollout", json=body)
        assert answer.is_success or answer.status_code in permitted, answer.text

    def settled_updates(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """`updates`, once nothing of earlier stories is left."""
        self.wait_only_base(names)
        return self.updates(names)

    def wait_only_base(self, names: Iterable[str]) -> None:
        """Wait until these Envoys have let go of what earlier stories left."""
        envoys = [self.envoys[name] for name in names]
        wait_until(
            lambda: all(each.cluster_names() == {BASE} for each in envoys),
            "only the base is left",
            detail=lambda: [each.cluster_names() for each in envoys],
        )

    def updates(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """How many responses each of these Envoys has had, by type."""
        return {name: self.envoys[name].stats(UPDATES) for name in names}

    def clusters_added(self) -> dict[str, int]:
        """How many clusters each Envoy has added since it started."""
        return {name: envoy.stat(CLUSTERS_ADDED) for name, envoy in self.envoys.items()}


def open_site(
    directory: Path,
    running: ExitStack,
    background: Background,
    variant: Variant,
    envoys_n: int,
    *,
    has_usual_delays: bool = False,
) -> RolloutSite:
    """A server and so many Envoys, all started, each behind a proxy; everything ends with ``running``.

    Removals wait for a second, unless they have ``has_usual_delays``.
    """
    server = running.enter_context(ServerProcess(directory, ["--lrs-interval", "1s"]))
    base, head = (Upstream(background, name) for name in (BASE, HEAD))
    running.callback(base.close)
    running.callback(head.close)
    site = RolloutSite(server, variant, base, head, background)
    site.push(site.content(BASE)).raise_for_status()
    if not has_usual_delays:
        soon = {"removal_delay_s": 1, "listener_drain_s": 1}  # no listener with connections is changed
        server.request("PUT", f"/api/v1/groups/{GROUP}", json=soon).raise_for_status()
    for number in range(envoys_n):
        name = f"{GROUP}-{number}"
        site.proxies[name] = TcpProxy(background, server.grpc_port)
        running.callback(site.proxies[name].close)
        port = site.proxies[name].port
        bootstrap = EnvoyBootstrap(port, variant, node_id=name, node_cluster=GROUP, load_reports=True)
        site.envoys[name] = running.enter_context(EnvoyProcess(directory, bootstrap, name, drain=DRAIN_BY_DEFAULT))
    return site
