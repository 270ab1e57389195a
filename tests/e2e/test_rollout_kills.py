"""kill -9 of the server at every step of careful rollouts: only the wave has the head, and each ends."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.e2e.rollout_site import BASE, GROUP, HEAD, RolloutSite, open_site
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.envoy import wait_body
from tests.support.process import wait_until

ENVOYS = 6
PUSH_S = 0.1  # a push takes less
STEP_S = 1.5  # a wave takes as long
PLAN = {"waves": "1,50%", "hold_s": 1, "timeout_s": 60, "max_errors": 1}


@pytest.fixture(params=[Variant.ADS_DELTA, pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak)])
def site(tmp_path: Path, running: ExitStack, background: Background, request: pytest.FixtureRequest) -> RolloutSite:
    """Some Envoys, not yet under load."""
    return open_site(tmp_path, running, background, request.param, ENVOYS)


def kill(site: RolloutSite, added: dict[str, int]) -> None:
    """Kill the server, see that nobody outside of the stored wave had anything of the head, and start it again."""
    site.server.kill()
    stored = site.stored()
    outside = (
        {name for name in site.envoys if not stored.in_wave(site.node(name))}
        if stored is not None
        else set(site.envoys)
    )
    if stored is None or stored.state != "promoted":
        assert not site.answering() & outside, stored
        now = site.clusters_added()
        assert {name: now[name] for name in outside} == {name: added[name] for name in outside}, stored
    site.server.start()
    if stored is not None:  # that of an earlier story, if the push was not stored
        revision = site.server.get(f"/groups/{GROUP}")["revision"]
        least = stored.head + (stored.state == "rolled_back")
        assert revision == least if stored.is_open else revision >= least, stored


def push_and_kill(site: RolloutSite, content: list[r.Json], added: dict[str, int], after_s: float) -> None:
    """Kill the server in the middle of the push that begins a rollout, and push again."""

    def push() -> None:
        with suppress(ConnectionError):
            site.push(content, PLAN)

    pushing = Thread(target=push)
    pushing.start()
    time.sleep(after_s)
    kill(site, added)
    pushing.join()
    again = site.push(content, PLAN)  # 409: it has been taken back already
    assert again.status_code in (200, 409), again.text


@pytest.mark.parametrize("kills", [3, pytest.param(24, marks=pytest.mark.soak)])
def test_kills_at_every_step(site: RolloutSite, kills: int, taken_port: int) -> None:
    source = random.Random()
    left, is_bad = kills, False
    while left:
        is_bad = not is_bad
        site.start()
        added = site.clusters_added()
        bad = [r.listener("taken", r.rds("web", site.variant.config_source), taken_port)] if is_bad else []
        push_and_kill(site, [*site.content(HEAD), *bad], added, source.uniform(0, PUSH_S))
        left -= 1
        while left and site.rollout()["state"] == "running":
            time.sleep(source.uniform(0, STEP_S))
            kill(site, added)
            left -= 1
        body = BASE if is_bad else HEAD
        wait_until(lambda: site.rollout()["state"] != "running", "the end", detail=site.rollout)
        assert site.rollout()["state"] == ("rolled_back" if is_bad else "promoted"), site.rollout()
        for name, port in site.ports.items():
            wait_body(port, body)
            site.server.wait_synced(GROUP, name)
        site.end()
