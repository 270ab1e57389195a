"""Envoys in two groups, what happens to them at random, and what the server's views say otherwise than they."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.commands import address, xds
from tests.support.envoy import EnvoyProcess
from tests.support.process import wait_until
from tests.support.server import Json, ServerProcess

GREEN, BLUE = "green", "blue"  # by the cluster of the nodes, and by a selector
NODES = ("e1", "e2", "e3")
CLUSTERS = ("c1", "c2", "c3", "c4")
BAD = "bad"
WORST = ("nacked", "orphaned", "pending", "synced", "not_subscribed")


class RandomFleet:
    """A server with two groups, Envoys that move between them, and what is done to both at random."""

    def __init__(self, directory: Path, server: ServerProcess, running: ExitStack, rng: random.Random) -> None:
        self.server = server
        self.rng = rng
        self.moves: Counter[str] = Counter()
        self.blue: set[str] = set()
        for group in (GREEN, BLUE):
            self.push(group)
        server.remove_soon(GREEN)
        self.select(set())
        self.envoys = {node: self._started(directory, running, node) for node in NODES}

    def _started(self, directory: Path, running: ExitStack, node: str) -> EnvoyProcess:
        bootstrap = EnvoyBootstrap(self.server.grpc_port, Variant.ADS_SOTW, node_id=node, node_cluster=GREEN)
        return running.enter_context(EnvoyProcess(directory, bootstrap, node))

    def push(self, group: str, is_good: bool = True, rollout: Json | str = "all_at_once") -> None:
        """Some of the clusters, each with a random setting; a push that is not good has one that Envoy rejects."""
        chosen = [name for name in CLUSTERS if self.rng.random() < 0.7] or [CLUSTERS[0]]
        pushed = [r.static_cluster(name, 80, connect_timeout=f"{self.rng.randint(1, 9999)}s") for name in chosen]
        bad = [] if is_good else [r.refused_cluster(BAD)]
        body = {"resources": [*pushed, *bad], "rollout": rollout}
        answer = self.server.request("PUT", f"/api/v1/groups/{group}/snapshot", json=body)
        assert answer.is_success, answer.text

    def select(self, blue: set[str]) -> None:
        """Move nodes: these are in one group, all others in the other one."""
        self.moves.update(blue ^ self.blue)
        self.blue = blue
        selector = " or ".join(f"node.id == {node}" for node in sorted(blue)) or "node.id == nobody"
        answer = self.server.request("PUT", f"/api/v1/groups/{BLUE}", json={"selector": selector, "removal_delay_s": 1})
        assert answer.is_success, answer.text

    def step(self) -> str:
        """One thing that happens; its name."""
        group, node = self.rng.choice((GREEN, BLUE)), self.rng.choice(NODES)
        match self.rng.choice(("good", "good", "bad", "careful", "careful", "back", "move", "restart", "cut")):
            case "bad":
                self.push(group, is_good=False)
                return f"bad push to {group}"
            case "careful":
                is_good = self.rng.random() < 0.5
                self.push(group, is_good, {"waves": "1", "hold_s": 1})
                return f"careful {'push' if is_good else 'bad push'} to {group}"
            case "back":
                self.server.request("POST", f"/api/v1/groups/{group}/rollback", json={"to": 1})
                return f"roll-back of {group}"
            case "move":
                self.select(self.blue ^ {node})
                return f"move of {node}"
            case "restart":
                self.envoys[node].restart()
                return f"restart of {node}"
            case "cut":
                self.server.request("DELETE", f"/api/v1/nodes/{node}")
                return f"cut of {node}"
            case _:
                self.push(group)
                return f"push to {group}"

    def run(self, steps_n: int, differences: Callable[[], list[str]]) -> None:
        """Take steps; after each four of them wait until nothing differs."""
        done: list[str] = []
        for number in range(steps_n):
            done.append(self.step())
            if number % 4 == 3:
                wait_until(lambda: not differences(), str(done), detail=lambda: "\n".join(differences()))

    def differences(self) -> list[str]:
        """What does not agree; nothing once all is quiet."""
        items = {node: self.server.get(f"/nodes/{node}") for node in NODES}
        found = [text for node, item in items.items() for text in self._of_node(node, item)]
        page = self.server.get("/nodes", order="trouble", counts="true")
        ranks = [min(_state(item), 3) for item in page["items"]]
        if ranks != sorted(ranks) or {item["id"]: item for item in page["items"]} != items:
            found.append(f"the list: {page['items']}")
        states = Counter(WORST[_state(item)] for item in items.values())
        if Counter(page["counts"]["by_state"]) != states or page["counts"]["connected"] != len(NODES):
            found.append(f"counts {page['counts']}, not {states}")
        printed = xds("nodes", "-o", "json", environment=address(self.server.http_port)).json()["items"]
        if {item["id"]: item for item in printed} != items:
            found.append(f"xds nodes: {printed}")
        return found

    def dumped(self, node: str) -> dict[str, str]:
        """The setting of each cluster that an Envoy runs, by its own word."""
        sections = self.envoys[node].config_dump()
        (dump,) = (each for each in sections if each["@type"].endswith("ClustersConfigDump"))
        # Not by its version_info: Envoy keeps that of the last response that changed something.
        clusters = [each["cluster"] for each in dump.get("dynamic_active_clusters", ())]
        return {each["name"]: each["connect_timeout"] for each in clusters}

    def _of_node(self, node: str, item: Json) -> Iterator[str]:
        """One node: the API against Envoy, and its timeline against its groups and NACKs."""
        group = BLUE if node in self.blue else GREEN
        clusters = item["types"].get("clusters", {"state": "missing"})
        if item["group"] != group or not item["connected"] or clusters["state"] not in ("synced", "nacked"):
            yield f"{node} in {item['group']}, not {group}: {clusters['state']}"
            return
        held = self.server.get(f"/nodes/{node}/resources", type="clusters", contents="true")["items"]
        shown = {each["name"]: each["resource"]["connect_timeout"] for each in held}
        if shown != self.dumped(node):
            yield f"{node} has {self.dumped(node)}, not {shown}"
        yield from self._timeline(node, item, clusters["state"])

    def _timeline(self, node: str, item: Json, state: str) -> Iterator[str]:
        group = item["group"]
        timeline = self.server.get(f"/nodes/{node}/timeline", limit="1000")
        items: list[Json] = timeline["items"]
        nacks = self.server.nacks(node=node)
        told = {each["nack"] for each in items if each["kind"] == "nacked"}
        if told != {nack["id"] for nack in nacks}:
            yield f"{node}: NACKs {told}"
        is_open = any(nack["state"] == "open" for nack in nacks)
        resolved = {each["nack"] for each in items if each["kind"] == "resolved"}
        if is_open != (state == "nacked") or resolved != {nack["id"] for nack in nacks if nack["state"] == "resolved"}:
            yield f"{node}: is {state}, NACKs {nacks}"
        lines = [each["line"] for each in items if each["kind"] == "line"]
        if item.get("line") == "head" and lines[:1] != ["head"]:
            yield f"{node}: is in a wave, lines {lines}"
        moves = [each for each in items if each["kind"] == "moved"]
        if moves and moves[0]["group"] != group:
            yield f"{node}: moved last to {moves[0]['group']}"
        if len(moves) > self.moves[node]:
            yield f"{node}: moved {len(moves)} times, not {self.moves[node]}"
        if items[-1]["kind"] != "connected" and not timeline["truncated"]:
            yield f"{node}: begins with {items[-1]}"
        since = moves[0]["time"] if moves else ""
        revision = self.server.get(f"/groups/{group}")["revision"]
        newest = next((each for each in items if each["kind"] in ("sent", "pushed", "connected")), None)
        if newest is not None and newest["time"] > since and newest["revision"] != revision:
            yield f"{node}: {newest}, but {group} is at {revision}"


def _state(item: dict[str, Any]) -> int:
    return min((WORST.index(type["state"]) for type in item["types"].values()), default=len(WORST) - 1)
