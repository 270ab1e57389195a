"""A watched directory and a loop of ``xds apply``: what was taken back is not tried again by itself.

The Envoys lose no request meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, in_variants
from tests.support.commands import xds
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, wait_body
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream
from xds.rollouts.wave import rank

GROUP = "edge"
NAMES = sorted(("edge-0", "edge-1"), key=lambda name: rank(GROUP, name))
PLAN = {"waves": ["1"], "hold_s": 1}
RPS = 20.0  # of each Envoy
UPDATES = r"lds\.update_(attempt|rejected)$"


class Site:
    """A server that watches a directory, and two Envoys of a group with a plan, with load on each."""

    def __init__(
        self,
        directory: Path,
        running: ExitStack,
        upstream: Callable[[str], Upstream],
        background: Background,
        variant: Variant,
    ) -> None:
        self.variant = variant
        self.file = directory / "watched" / f"{GROUP}.json"
        self.file.parent.mkdir()
        self.ports = {name: upstream(name).port for name in ("base", "head")}
        self.server = running.enter_context(ServerProcess(directory, ["--watch", str(self.file.parent)]))
        self.write(self.content("base"))
        settings = {"rollout": PLAN}
        wait_until(lambda: self.server.request("GET", f"/api/v1/groups/{GROUP}").is_success, "the file is applied")
        assert self.server.request("PUT", f"/api/v1/groups/{GROUP}", json=settings).is_success
        self.envoys = {name: running.enter_context(self.envoy(directory, name)) for name in NAMES}
        self.loads: dict[str, HttpLoad] = {}
        for name, envoy in self.envoys.items():
            port = envoy.wait_listener("web")
            wait_body(port, "base")
            self.loads[name] = HttpLoad(background, port, connections=2, rps=RPS)
            self.loads[name].wait_total(2)

    def envoy(self, directory: Path, name: str) -> EnvoyProcess:
        bootstrap = EnvoyBootstrap(self.server.grpc_port, self.variant, node_id=name, node_cluster=GROUP)
        return EnvoyProcess(directory, bootstrap, name, drain=DRAIN_BY_DEFAULT)

    def content(self, called: str) -> list[r.Json]:
        """What is answered by an upstream of this name."""
        return r.web_resources(called, self.ports[called], source=self.variant.config_source)

    def write(self, resources: list[r.Json]) -> None:
        """Write the watched file."""
        self.file.write_text(json.dumps({"resources": resources}))

    def apply(self, resources: list[r.Json], *options: str) -> int:
        """Apply a file by the command; its exit code."""
        path = self.file.parent.parent / "applied.json"
        path.write_text(json.dumps({"resources": resources}))
        address = {"XDS_ADDR": f"127.0.0.1:{self.server.http_port}"}
        return xds("apply", "-g", GROUP, "-f", path, *options, environment=address).code

    def rollout(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.get(f"/groups/{GROUP}/rollout")
        return found

    def wait_ended(self, state: str, head: int) -> str:
        """Wait for the end of the rollout of a revision; its reason."""

        def ended() -> bool:
            found = self.rollout()
            return found.get("state") == state and found["head"] >= head

        wait_until(ended, f"revision {head} {state}", detail=self.rollout)
        return str(self.rollout()["reason"])

    def updates(self) -> dict[str, dict[str, int]]:
        return {name: envoy.stats(UPDATES) for name, envoy in self.envoys.items()}


@pytest.fixture
def site(
    tmp_path: Path,
    running: ExitStack,
    upstream: Callable[[str], Upstream],
    background: Background,
    variant: Variant,
) -> Site:
    """The site at its base."""
    return Site(tmp_path, running, upstream, background, variant)


@in_variants(Variant.ADS_DELTA, others=(Variant.ADS_SOTW,))
def test_a_watched_file_and_a_loop_of_apply_do_not_try_again(site: Site, taken_port: int) -> None:
    canary, other = NAMES
    good = site.content("head")
    bad = [*good, r.listener("taken", r.rds("web"), taken_port)]
    before = site.updates()
    site.write(bad)
    reason = site.wait_ended("rolled_back", 2)
    assert reason.startswith(f"{canary} rejected it: ")
    site.server.wait_synced(GROUP, canary)
    after = site.updates()
    assert after[other] == before[other]
    assert after[canary]["listener_manager.lds.update_rejected"] == 1

    # The file is written again and again, and a pipeline applies the same: nothing reaches the canary.
    for _ in range(3):
        site.write(bad)
        assert site.apply(bad) == 5
        assert "taken back" in site.server.process.log()
    assert site.updates() == after
    assert site.loads[other].report.bodies["head"] == 0
    (row,) = [each for each in site.server.get("/check")["items"] if each["check"] == "rollouts"]
    assert row["state"] == "warning" and canary in row["detail"], row

    # Asked for, it is tried again; other content is rolled out to all.
    assert site.apply(bad, "--retry") == 0
    wait_until(lambda: site.updates()[canary]["listener_manager.lds.update_rejected"] == 2, "it is tried again")
    site.wait_ended("rolled_back", site.rollout()["head"])
    site.write(good)
    site.wait_ended("promoted", site.rollout()["head"] + 1)
    for load in site.loads.values():
        load.wait_body("head", 10)
    lost = {name: report for name, load in site.loads.items() if (report := load.stop()).failed}
    assert not lost, lost
