"""What pages say of real Envoys, against each Envoy's own ``/config_dump``.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.browser.devtools import BrowserPage
from tests.browser.test_groups import press
from tests.support.process import wait_until
from tests.support.random_fleet import BAD, GREEN, NODES, RandomFleet
from tests.support.server import ServerProcess

pytestmark = pytest.mark.browser

STEPS = 24
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
WORDS = {"nacked": "✗ NACKed", "synced": "✓ synced"}
CAREFULLY = {"waves": "1", "hold_s": 250}


@pytest.fixture
def server(tmp_path: Path, running: ExitStack) -> ServerProcess:
    return running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))


@pytest.fixture
def fleet(tmp_path: Path, server: ServerProcess, running: ExitStack) -> RandomFleet:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # shown if the test fails
    return RandomFleet(tmp_path, server, running, random.Random(seed))


@pytest.fixture
def page(tmp_path: Path, server: ServerProcess, running: ExitStack) -> BrowserPage:
    url = f"http://127.0.0.1:{server.http_port}/ui/nodes"
    return running.enter_context(BrowserPage(url, tmp_path / "browser"))


def listed(page: BrowserPage) -> dict[str, list[str]]:
    """The rows of the list of nodes by their ids."""
    return {row[0]: row[1:] for row in page.evaluate(ROWS)}


def content(server: ServerProcess, group: str, revision: int) -> dict[str, str]:
    """The setting of each cluster of a revision."""
    found = server.get(f"/groups/{group}/revisions/{revision}/diff", **{"from": "0"})
    return {each["name"]: each["after"]["connect_timeout"] for each in found["resources"]}


def unlike_envoys(page: BrowserPage, fleet: RandomFleet) -> Iterator[str]:
    """What the list of nodes says otherwise than the API does, and than what the Envoys run."""
    rows = listed(page)
    for node in NODES:
        state, group, revision = rows.get(node, ["missing", "", ""])[:3]
        item = fleet.server.get(f"/nodes/{node}")
        wanted = WORDS.get(item["types"]["clusters"]["state"], "another one")
        if (state.split("\n")[0], group) != (wanted, item["group"]):
            yield f"{node}: {state} in {group}, not {wanted} in {item['group']}"
        elif wanted == WORDS["synced"]:
            pushed = content(fleet.server, group, int(revision.removesuffix(" (wave)")))
            lingering = {name for each in item["lingering"] for name in each["names"]}
            dumped = fleet.dumped(node)
            if pushed != {name: setting for name, setting in dumped.items() if name not in lingering - pushed.keys()}:
                yield f"{node}: revision {revision} of {group} has {pushed}, the Envoy {dumped}, lingering {lingering}"


def test_the_list_of_nodes_says_what_envoys_run(page: BrowserPage, fleet: RandomFleet) -> None:
    page.wait_for("3 nodes", ".counts")
    fleet.run(STEPS, lambda: [*fleet.differences(), *unlike_envoys(page, fleet)])
    assert page.messages == []


def test_a_rollout_on_its_page_is_what_envoys_run(page: BrowserPage, fleet: RandomFleet) -> None:
    """From the canary to an abort by hand, and to the server's own roll-back of what Envoy rejects."""
    server = fleet.server
    wait_until(lambda: not fleet.differences(), "all Envoys in step")
    fleet.push(GREEN)
    first = server.get(f"/groups/{GREEN}")["revision"]
    page.go(f"/ui/groups/{GREEN}")
    page.wait_for("3/3 ACKed", "main")
    wait_until(lambda: running_revisions(fleet, first) == [first] * 3, "all Envoys run it")

    fleet.push(GREEN, rollout=CAREFULLY)
    page.wait_for("1 node (now): ✓ 1/1 ACKed, 2 outside of the wave", ".waves")
    page.wait_for(f"3/3 ACKed, 2 of them the version of revision {first}", "main")
    wait_until(lambda: running_revisions(fleet, first) == [first, first, first + 1], "one Envoy runs the next one")
    assert in_wave(page) == {node for node in NODES if fleet.dumped(node) == content(server, GREEN, first + 1)}
    page.go(f"/ui/groups/{GREEN}")
    page.wait_for("running", "main")
    press(page, "Abort")
    page.wait_for("Yes, abort", "main")
    press(page, "Yes, abort")
    page.wait_for("rolled back", "main")
    page.wait_for(f"undone by {first + 2}", "main")
    page.wait_for("3/3 ACKed", "main")
    wait_until(lambda: running_revisions(fleet, first) == [first] * 3, "all Envoys run the first one again")

    fleet.push(GREEN, is_good=False, rollout=CAREFULLY)
    page.wait_for(f"undone by {first + 4}", "main")
    shown = " ".join(page.wait_for("3/3 ACKed", "main").split())
    (nack,) = [
        each for each in server.nacks(group=GREEN) if f"clusters/{BAD}" in each["guilty"] or BAD in each["guilty"]
    ]
    assert " ".join(nack["message"].split()) in shown
    wait_until(lambda: running_revisions(fleet, first) == [first] * 3, "all Envoys run the first one again")
    assert in_wave(page) == set()
    wait_until(lambda: [*unlike_envoys(page, fleet)] == [], "the list", detail=lambda: [*unlike_envoys(page, fleet)])
    assert page.messages == []


def running_revisions(fleet: RandomFleet, least: int) -> list[int]:
    """The oldest revision from ``least`` on with the clusters that an Envoy runs, of each Envoy; -1 without one."""
    newest = fleet.server.get(f"/groups/{GREEN}")["revision"]
    contents = {json.dumps(content(fleet.server, GREEN, each)): each for each in range(newest, least - 1, -1)}
    return sorted(contents.get(json.dumps(fleet.dumped(node)), -1) for node in NODES)


def in_wave(page: BrowserPage) -> set[str]:
    """The nodes that the list shows as in the wave."""
    page.go("/ui/nodes")
    page.wait_for("3 nodes", ".counts")
    return {node for node, row in listed(page).items() if "(wave)" in row[2]}
