"""A random run of pushes, good and bad, of what people do, cuts and kills: API and Envoys agree on who has what.

Each content has its number in a cluster, a listener, a route configuration and the assignment of a cluster of its own.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rollout_site import BASE, GROUP, RolloutSite, open_site
from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess
from tests.support.process import DEADLINE_S, wait_until

ENVOYS = 4
PLANS = ("1", "50%", "1,50%", "100%")
OPEN = ("running", "paused", "held")
NONE_OPEN = (404, 409)
LONGEST_PAUSE_S = 0.7
ROUND = 4  # steps between two looks
DUMPED = {  # by type: the entries of Envoy's config dump, and the path of the resource in each
    "clusters": ("dynamic_active_clusters", ("cluster",)),
    "listeners": ("dynamic_listeners", ("active_state", "listener")),
    "routes": ("dynamic_route_configs", ("route_config",)),
    "endpoints": ("dynamic_endpoint_configs", ("endpoint_config",)),
}
Tell = Callable[..., list[r.Json]]
Marks = dict[str, dict[str, Any]]  # by type and name: what tells the contents apart


def marks(resources: Mapping[str, Sequence[r.Json]]) -> Marks:
    """What tells the contents apart, of the resources of each type."""
    chosen: dict[str, Callable[[r.Json], Any]] = {
        "clusters": lambda each: each.get("alt_stat_name"),
        "listeners": lambda each: each.get("per_connection_buffer_limit_bytes"),
        "routes": lambda each: each["virtual_hosts"][0]["routes"][0]["match"]["prefix"],
        "endpoints": lambda each: sorted(
            endpoint["endpoint"]["address"]["socket_address"]["port_value"]
            for locality in each.get("endpoints", ())
            for endpoint in locality["lb_endpoints"]
        ),
    }
    return {
        type: {each.get("name") or each["cluster_name"]: mark(each) for each in resources[type]}
        for type, mark in chosen.items()
    }


class RandomRun:
    """Random steps at a site. ``contents`` has the number of the content of each revision.

    ``envoys`` are all Envoys with their node ids: the first one and the last one that waves take have a twin each.
    """

    def __init__(
        self, site: RolloutSite, source: random.Random, twins: Mapping[EnvoyProcess, str], taken_port: int
    ) -> None:
        self.site = site
        self.taken = r.listener("taken", r.rds("mark", site.variant.config_source), taken_port)
        self.bad: tuple[int, list[r.Json]] | None = None  # the last content that Envoys reject, with its number
        self.is_bad = False  # the last push
        self.source = source
        self.envoys = {**{envoy: name for name, envoy in site.envoys.items()}, **twins}
        self.ports = [site.base.port]  # of the endpoints that all have
        self.contents = {site.server.get(f"/groups/{GROUP}")["revision"]: 0}
        self.push("all_at_once")

    def content(self, number: int) -> list[r.Json]:
        """The resources of a content."""
        source, own = self.site.variant.config_source, f"own-{number}"
        listener = r.listener("mark", r.rds("mark", source))
        return [
            *self.site.content(BASE),
            r.eds_cluster(own, source),
            r.cluster_load_assignment(own, number),
            {**listener, "per_connection_buffer_limit_bytes": number},
            r.route_config("mark", r.route(own, prefix=f"/{number}")),
        ]

    def marks_of(self, number: int) -> Marks:
        """What an Envoy with a content has."""
        own = f"own-{number}"
        return {
            "clusters": {BASE: f"{BASE}-{number}", own: None},
            "listeners": {"web": None, "mark": number},
            "routes": {"web": "/", "mark": f"/{number}"},
            "endpoints": {BASE: sorted(self.ports), own: [number]},
        }

    def step(self) -> None:
        """One step, and a pause."""
        steps = [self.push] * 4 + [self.act] * 3 + [self.push_bad, self.retry, self.set_endpoints]
        steps += [self.cut, self.cut, self.kill]
        self.source.choice(steps)()
        time.sleep(self.source.uniform(0, LONGEST_PAUSE_S))

    def push(self, rollout: r.Json | str | None = None) -> None:
        """Push new content: under a plan, under that of the rollout that it supersedes, or to all."""
        self.site.story += 1
        plan = {"waves": self.source.choice(PLANS), "hold_s": self.source.choice([0, 0.5, 60])}
        chosen = rollout or self.source.choice([plan, plan, None, "all_at_once"])
        self._push(self.site.story, self.content(self.site.story), chosen)

    def push_bad(self) -> None:
        """Roll out what Envoys reject."""
        self.site.story += 1
        self.bad = self.site.story, [*self.content(self.site.story), self.taken]
        self.retry()

    def retry(self) -> None:
        """Roll the last bad content out, again if it was taken back."""
        if self.bad is not None:
            self._push(*self.bad, {"waves": self.source.choice(PLANS[:2]), "hold_s": 60}, retry=True)

    def _push(self, number: int, content: list[r.Json], rollout: r.Json | str | None, *, retry: bool = False) -> None:
        pushed = self.site.push(content, rollout, **({"retry": True} if retry else {}))
        assert pushed.status_code == 200, pushed.text
        self.contents[pushed.json()["revision"]] = number
        self.is_bad = retry

    def set_endpoints(self) -> None:
        """Set the endpoints of the cluster that all have by hand: on both lines."""
        both = self.site.base.port, self.site.head.port
        self.ports = list(self.source.choice([both[:1], both]))
        path = f"/api/v1/groups/{GROUP}/endpoints/{BASE}"
        answer = self.site.server.request("PUT", path, json=r.load_assignment(BASE, *self.ports))
        assert answer.is_success, answer.text

    def act(self) -> None:
        """What a person may do."""
        actions = ["pause", "resume", "abort", *([] if self.is_bad else ["promote"])]
        self.site.act(self.source.choice(actions), permitted=NONE_OPEN)

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
        # An Envoy that was cut off for long waits up to 30 s before it connects again.
        wait_until(lambda: not self._differences(), "agreement", 3 * DEADLINE_S, detail=self._differences)

    def _differences(self) -> list[str]:
        """Envoys that do not have what they are to have, or of which the API or a command tells something else."""
        return self._differences_told(self._served) or self._differences_told(self._shown)

    def _differences_told(self, tell: Tell) -> list[str]:
        rollout, nodes = self.site.rollout(), {each["id"]: each for each in tell("nodes")}
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
                for each in self._differences_of(
                    name, self.marks_of(self._content(rollout, line)), tell("config", name)
                )
            ),
        ]

    def _differences_of(self, name: str, wanted: Marks, told: list[r.Json]) -> list[str]:
        by_type = {
            type: [each["resource"] for each in told if each["type"] == type and "resource" in each] for type in DUMPED
        }
        found = {
            **{each.name: self._dumped(each) for each, node in self.envoys.items() if node == name},
            "what is told": marks(by_type),
        }
        states = {each["state"] for each in self.site.server.types(name).values()} - {"not_subscribed"}
        return [
            *(f"{name}: {which} has {has}, not {wanted}" for which, has in found.items() if has != wanted),
            *([f"{name}: the server says {states}"] if states != {"synced"} else []),
        ]

    @staticmethod
    def _dumped(envoy: EnvoyProcess) -> Marks:
        """What an Envoy has, in its own words."""
        resources = dict[str, list[r.Json]]()
        for type, (section, path) in DUMPED.items():
            entries = envoy.config_dump(resource=section, **({"include_eds": ""} if type == "endpoints" else {}))
            found = (reduce(lambda each, name: each.get(name, {}), path, entry) for entry in entries)
            resources[type] = [each for each in found if each]
        return marks(resources)

    def _served(self, kind: str, node: str = "") -> list[r.Json]:
        """The items that the API has."""
        query = {"contents": "true", "limit": "1000"} if node else {}
        path = f"/nodes/{node}/resources" if node else f"/{kind}"
        items: list[r.Json] = self.site.server.get(path, **query)["items"]
        return items

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


@pytest.mark.parametrize("steps", [12, pytest.param(60, marks=pytest.mark.soak)])
@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, pytest.param(Variant.ADS_DELTA, marks=pytest.mark.soak)])
def test_the_api_and_the_envoys_agree(
    tmp_path: Path, running: ExitStack, background: Background, variant: Variant, steps: int, taken_port: int
) -> None:
    site = open_site(tmp_path, running, background, variant, ENVOYS)
    site.start()
    twins: dict[EnvoyProcess, str] = {}
    for name in (site.ranked[0], site.ranked[-1]):
        bootstrap = EnvoyBootstrap(site.proxies[name].port, variant, node_id=name, node_cluster=GROUP)
        twin = running.enter_context(EnvoyProcess(tmp_path, bootstrap, f"{name}-twin")).wait_live()
        twins[twin] = name
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    run = RandomRun(site, random.Random(seed), twins, taken_port)
    for number in range(steps):
        run.step()
        if number % ROUND == ROUND - 1:
            run.look()
            site.act("resume", permitted=NONE_OPEN)
    site.end()
