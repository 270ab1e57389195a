"""A random run of pushes, rollouts, aborts, cuts and kills: the API and the Envoys agree on who has what."""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rollout_site import BASE, GROUP, RolloutSite, open_site
from tests.support.background import Background
from tests.support.bootstrap import Variant
from tests.support.process import wait_until

ENVOYS = 4
PLANS = ("1", "50%", "1,50%", "100%")
OPEN = ("running", "paused", "held")
NONE_OPEN = (404, 409)
LONGEST_PAUSE_S = 0.7
ROUND = 4  # steps between two looks


class RandomRun:
    """Random steps at a site. ``contents`` has the number of the content of each revision."""

    def __init__(self, site: RolloutSite, source: random.Random) -> None:
        self.site = site
        self.source = source
        self.contents = {site.server.get(f"/groups/{GROUP}")["revision"]: site.story}

    def step(self) -> None:
        """One step, and a pause."""
        steps = [self.push] * 4 + [self.act] * 3 + [self.cut] * 2 + [self.kill]
        self.source.choice(steps)()
        time.sleep(self.source.uniform(0, LONGEST_PAUSE_S))

    def push(self) -> None:
        """Push new content: under a plan, under that of the rollout that it supersedes, or to all."""
        self.site.story += 1
        plan = {"waves": self.source.choice(PLANS), "hold_s": self.source.choice([0, 0.5, 60])}
        pushed = self.site.push(self.site.content(BASE), self.source.choice([plan, plan, None, "all_at_once"]))
        assert pushed.status_code == 200, pushed.text
        self.contents[pushed.json()["revision"]] = self.site.story

    def act(self) -> None:
        """What a person may do."""
        self.site.act(self.source.choice(["pause", "resume", "promote", "abort"]), permitted=NONE_OPEN)

    def cut(self) -> None:
        """Cut an Envoy off, or connect it again."""
        proxy = self.site.proxies[self.source.choice(list(self.site.envoys))]
        self.source.choice([proxy.cut, proxy.restore])()

    def kill(self) -> None:
        """Kill the server, and start it again."""
        self.site.server.kill()
        self.site.server.start()

    def look(self) -> None:
        """Let the rollout stand still, and wait until every Envoy has what the server says that it has."""
        self.site.act("pause", permitted=NONE_OPEN)
        for proxy in self.site.proxies.values():
            proxy.restore()
        wait_until(lambda: not self._differences(), "agreement", detail=self._differences)

    def _differences(self) -> list[str]:
        """Envoys that do not have what they are to have, or of which the server does not know it."""
        rollout, nodes = self.site.rollout(), {each["id"]: each for each in self._shown("nodes")}
        away = [name for name in self.site.envoys if not nodes.get(name, {}).get("streams")]
        if away:
            return [f"{name} is away" for name in away]
        lines = {name: nodes[name].get("line", "") for name in self.site.envoys}
        right = {"head", "base"} if rollout.get("state") in OPEN else {""}
        return [
            *(f"{name}: line {line!r}" for name, line in lines.items() if line not in right),
            *(
                each
                for name, line in lines.items()
                for each in self._differences_of(name, self._content(rollout, line))
            ),
        ]

    def _differences_of(self, name: str, content: int) -> list[str]:
        envoy, server = self.site.envoys[name], self.site.server
        wanted = {BASE: f"{BASE}-{content}"}
        dump = envoy.config_dump(resource="dynamic_active_clusters")
        had = {each["cluster"]["name"]: each["cluster"]["alt_stat_name"] for each in dump}
        listed = {
            each["name"]: each["version"] for each in server.get(f"/nodes/{name}/resources", type="clusters")["items"]
        }
        shown = self._shown("config", name, "clusters")
        told = {each["name"]: each["resource"]["alt_stat_name"] for each in shown}
        states = {each["state"] for each in server.types(name).values()} - {"not_subscribed"}
        return [
            *([f"{name}: has {had}, not {wanted}"] if had != wanted else []),
            *([f"{name}: `xds config` tells {told}, not {wanted}"] if told != wanted else []),
            *(
                [f"{name}: the API lists {listed}"]
                if listed != {each["name"]: each["version"] for each in shown}
                else []
            ),
            *([f"{name}: the server says {states}"] if states != {"synced"} else []),
        ]

    def _shown(self, *words: str) -> list[dict[str, Any]]:
        """The items that a command lists."""
        shown = self.site.command(*words, "-o", "jsonl")
        assert shown.code == 0, shown.err
        return [json.loads(line) for line in shown.out.splitlines()]

    def _content(self, rollout: dict[str, object], line: str) -> int:
        """The number of the content of a line."""
        items = self.site.server.get(f"/groups/{GROUP}/revisions")["items"]
        origins = {each["revision"]: each.get("content_of") or each["revision"] for each in items}
        revision = rollout["base"] if line == "base" else items[0]["revision"]
        while revision not in self.contents:
            revision = origins[revision]
        return self.contents[revision]


@pytest.mark.parametrize("steps", [12, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, pytest.param(Variant.ADS_DELTA, marks=pytest.mark.soak)])
def test_the_api_and_the_envoys_agree(
    tmp_path: Path, running: ExitStack, background: Background, variant: Variant, steps: int
) -> None:
    site = open_site(tmp_path, running, background, variant, ENVOYS)
    site.start()
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    run = RandomRun(site, random.Random(seed))
    for number in range(steps):
        run.step()
        if number % ROUND == ROUND - 1:
            run.look()
            site.act("resume", permitted=NONE_OPEN)
    site.end()
