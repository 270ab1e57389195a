"""The list of 10,000 nodes in a real Chromium: how soon it stands there, what is first, and that its counts are true.
And events beyond what the server keeps.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic, time
from typing import NamedTuple

import pytest

from bench.nodes import NACKED_EVERY, FilledServer
from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.support.background import Background
from xds.fleet.event_log import RARE_LIMIT, EventKind
from xds.fleet.fleet import Fleet
from xds.fleet.node_state import NodeState
from xds.fleet.state import Sync

pytestmark = pytest.mark.browser

NODES_N = 10_000
FIRST_CONTENT_S = 1.0  # the goal; a test on a busy machine asserts ten times as much
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
IN_SIGHT = "[...document.querySelectorAll('tbody tr')].filter(row => row.getBoundingClientRect().bottom < innerHeight)"


class Filled(NamedTuple):
    """A page on a server with nodes, the fleet behind it, and its loop."""

    page: BrowserPage
    fleet: Fleet
    background: Background


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A server in this process, and a browser on it."""
    with Background() as background:
        server = FilledServer(NODES_N)
        background.run(server.__aenter__(), 120)
        port = server.server.addresses()[1][1]
        try:
            with BrowserPage(f"http://127.0.0.1:{port}/docs", tmp_path_factory.mktemp("browser")) as page:
                page.look("light", 1280)
                yield Filled(page, server.server.fleet, background)
        finally:
            background.run(server.__aexit__())


@pytest.mark.parametrize("path", ["/", "/ui/nodes", "/ui/nodes/edge-50", "/ui/groups", "/ui/groups/edge"])
def test_a_page_of_a_large_fleet_stands_there_at_once(filled: Filled, path: str) -> None:
    page, took = filled.page, []
    address = page.evaluate("location.origin") + path
    for _ in range(3):
        page.call("Page.navigate", url="about:blank")
        began = monotonic()
        page.call("Page.navigate", url=address)
        page.wait_for("1", "#content table")
        took.append(monotonic() - began)
    print(f"{path} of {NODES_N} nodes: first content after {min(took):.2f} s (goal {FIRST_CONTENT_S} s)")
    assert min(took) < 10 * FIRST_CONTENT_S
    assert audit(page) == [] and page.messages == []


def test_the_nodes_that_nacked_are_on_the_first_screen(filled: Filled) -> None:
    page = filled.page
    page.go("/ui/nodes")
    page.wait_for("10,000 nodes")
    rows = page.evaluate(ROWS)
    assert len(rows) == 100 and all("NACKed" in row[1] for row in rows)
    assert page.evaluate(f"{IN_SIGHT}.length") >= 5
    assert audit(page) == [] and page.messages == []


def is_nacked(node: NodeState) -> bool:
    return any(type.state is Sync.NACKED for type in node.types)


FILTERS: dict[str, Callable[[NodeState], bool]] = {
    "": lambda node: True,
    "?state=nacked": is_nacked,
    "?state=pending": lambda node: any(type.state is Sync.PENDING for type in node.types),
    "?text=EDGE-77": lambda node: "edge-77" in node.id,
    "?text=port+3": lambda node: any("port 3" in type.error for type in node.types),
    "?user_agent=envoy+1.37.0": lambda node: node.user_agent == "envoy 1.37.0",
    "?text=1b&state=nacked": lambda node: node.locality.zone == "1b" and is_nacked(node),
    "?group=edge": lambda node: node.group == "edge",
    "?group=none": lambda node: False,
}


@pytest.mark.parametrize("query", FILTERS)
def test_counts_are_those_of_all_nodes_that_match(filled: Filled, query: str) -> None:
    page, now = filled.page, time()
    wanted = [node for node in map(filled.fleet.node, filled.fleet.ids_after()) if node and FILTERS[query](node)]
    present = [node for node in wanted if node.is_present(now)]
    page.go(f"/ui/nodes{query}")
    told = page.wait_for(f"{len(wanted):,} node", ".counts")
    counts = Counter(
        {word: int(number.replace(",", "")) for number, word in re.findall(r"(\d[\d,]*) ([a-zA-Z]+)", told)}
    )
    assert counts["nodes"] + counts["node"] == len(wanted)
    assert counts["connected"] == len(present)
    assert counts["NACKed"] == sum(map(is_nacked, present))
    assert counts["NACKed"] + counts["pending"] + counts["synced"] == len(present)
    assert counts["gone"] == len(wanted) - len(present)
    if not query:
        census = filled.fleet.census(now)
        assert counts["NACKed"] == census.nacked["clusters", "edge"] == NODES_N // NACKED_EVERY


def test_any_node_is_found(filled: Filled) -> None:
    filled.page.go("/ui/nodes?text=edge-9999")
    filled.page.wait_for("1 node,")
    assert [row[0] for row in filled.page.evaluate(ROWS)] == ["edge-9999"]


def test_pages_of_the_list_have_addresses(filled: Filled) -> None:
    page = filled.page
    page.go("/ui/nodes?state=nacked")
    page.wait_for("200 nodes")
    first = page.evaluate(ROWS)
    page.evaluate("[...document.querySelectorAll('.pages a')].at(-1).click()")
    page.wait_for("First 100 nodes")
    second = page.evaluate(ROWS)
    assert len({row[0] for row in [*first, *second]}) == 200
    page.evaluate("history.back()")
    page.wait_for("Next 100 nodes")
    assert [row[0] for row in page.evaluate(ROWS)] == [row[0] for row in first]


def test_a_group_of_all_nodes_stands_there_as_soon_with_true_numbers(filled: Filled) -> None:
    page = filled.page
    for path, words in (("/ui/groups", "10,000 nodes"), ("/ui/groups/edge", "10,000 nodes connected")):
        page.call("Page.navigate", url=f"http://{page.evaluate('location.host')}{path}")
        began = monotonic()
        page.wait_for(words, "main")
        print(f"{path} of {NODES_N} nodes after {monotonic() - began:.2f} s (goal {FIRST_CONTENT_S} s)")
        assert monotonic() - began < 10 * FIRST_CONTENT_S
    census = filled.fleet.census(time())
    nacked = census.nacked["clusters", "edge"]
    page.wait_for(f"{NODES_N - nacked}/{NODES_N} ACKed, {nacked} NACKed", "main")
    page.go("/ui/groups")
    page.wait_for(f"✗ {nacked} nodes", "main")
    assert audit(page) == [] and page.messages == []


def test_events_that_the_server_no_longer_has_leave_a_gap(filled: Filled) -> None:
    """On a page that was paused for long."""
    page, newest = filled.page, f"group-{RARE_LIMIT + 9}"
    page.go(f"/ui/events?group={newest}")
    page.wait_for("0 events", ".counts")
    filled.background.run(happen(filled.fleet, newest, 1))
    page.wait_for("1 event", ".counts")
    page.wait_for("live", "#live")
    page.evaluate("document.getElementById('live').click()")
    page.wait_for("paused", "#live")
    filled.background.run(happen(filled.fleet, "group", RARE_LIMIT + 9))
    filled.background.run(happen(filled.fleet, newest, 1))
    page.evaluate("document.getElementById('live').click()")
    page.wait_for("events are missing here", "table")
    assert [row[1] for row in page.evaluate(ROWS)][:3] == ["group", "lagged", "group"]
    page.go("/ui/events?since=24h")
    page.wait_for(f"the newest 200 of {RARE_LIMIT:,} events", ".counts")
    assert len(page.evaluate(ROWS)) == 200
    assert audit(page) == [] and page.messages == []


async def happen(fleet: Fleet, group: str, times: int) -> None:
    """Events of a group."""
    for _ in range(times):
        fleet.events.record(EventKind.GROUP, "configured", time(), group=group)
