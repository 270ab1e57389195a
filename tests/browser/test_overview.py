"""What somebody on call sees first, and where it leads: the overview, the nodes behind a NACK, one node, the events.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.looks import LOOKS
from tests.browser.pictures import take_picture
from tests.browser.simulated import FollowingNode
from tests.browser.world import identity, select
from tests.support import resources as r
from tests.support.commands import address, xds
from tests.support.process import wait_until
from tests.support.server import ServerProcess

pytestmark = pytest.mark.browser

Json = dict[str, Any]
EDGE, SHOP = "edge", "shop"
WHY = "Error adding/updating cluster(s) pay: hosts are not set"
REFUSING = ("edge-3", "edge-7")
TYPES = (r.CLUSTER_TYPE, r.LISTENER_TYPE)
DOOR = r.listener("door", r.inline_routes("door", r.direct_route("hello")))  # the same in each revision
TABLES = """Object.fromEntries([...document.querySelectorAll("table")].map((table) => [table.caption.innerText,
  [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()))]))"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two nodes of a group reject its last push; another group is rolled out to one node first."""
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"]))
        for group, count in ((EDGE, 8), (SHOP, 4)):
            select(server, group)
            server.push(group, [r.static_cluster("web", 80), DOOR], author="ann", message="the first set")
            for number in range(count):
                node = identity(f"{group}-{number}", group, "ab"[number % 2], f"1.{36 + number % 2}.0")
                refuses = {"pay": WHY} if node.id in REFUSING else {}
                running.enter_context(FollowingNode(server.grpc_port, node, refuses, types=TYPES))
        wait_until(lambda: nodes_in(server, "synced") == 12, "all connected")
        server.push(EDGE, [r.static_cluster("web", 80, 81), DOOR], author="ann", message="a second port for web")
        wait_until(lambda: nodes_in(server, "synced") == 12, "all in step")
        body = {
            "resources": [r.static_cluster("web", 80, 82), DOOR],
            "rollout": {"waves": ["1", "50%"], "hold_s": 3600, "timeout_s": 7200},
        }
        carefully = {"author": "bob", "message": "move web to another port"}
        assert server.request("PUT", f"/api/v1/groups/{SHOP}/snapshot", json=body, params=carefully).is_success
        resources = [r.static_cluster("web", 80, 81), r.static_cluster("pay", 90), DOOR]
        server.push(EDGE, resources, author="bob", message="pay for it")
        wait_until(lambda: nodes_in(server, "nacked") == len(REFUSING), "two NACKs")
        wait_until(lambda: nodes_in(server, "pending") == 0, "all others in step")
        yield server


def nodes_in(server: ServerProcess, state: str) -> int:
    """The number of nodes in a state."""
    number: int = server.get("/nodes", counts="true", limit="1")["counts"]["by_state"][state]
    return number


@pytest.fixture(scope="module")
def window(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    with BrowserPage(f"http://127.0.0.1:{server.http_port}/", tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(window: BrowserPage) -> Iterator[BrowserPage]:
    window.messages.clear()
    window.look("light", 1280)
    yield window
    assert window.messages == []


def test_the_overview_shows_what_is_wrong_since_when_and_what_changed(page: BrowserPage, server: ServerProcess) -> None:
    page.go("/")
    page.wait_for("On the command line")
    assert page.text(".counts") == "! checks: warning · 12 nodes, 12 connected · ✗ 2 NACKed · ✓ 10 synced"
    tables = page.evaluate(TABLES)
    assert [row[:2] for row in tables["Rollouts"]] == [[SHOP, "… running"]]
    assert tables["Rollouts"][0][2] == "revision 2: wave 1 of 3 (1), ✓ 1/1 ACKed, 3 outside of the wave"
    bar = "document.querySelector('main table progress')"
    assert page.evaluate(f"[{bar}.value, {bar}.max]") == [1, 4]
    assert [row[:3] for row in tables["NACKs"]] == [[WHY, "2 nodes", "clusters/pay"]]
    rows = server.get("/check")["items"]
    assert [row[0] for row in tables["Checks"]] == [row["check"] for row in rows]
    (nacks,) = (row for row in tables["Checks"] if row[0] == "nacks")
    assert nacks[1] == "! warning" and "xds nacks" in nacks[2]
    changes = [[row[1], row[2], row[3], row[4]] for row in tables["Last changes"]]
    assert changes[:2] == [
        ["push, revision 3", EDGE, "bob", "pay for it"],
        ["push, revision 2", SHOP, "bob", "move web to another port"],
    ]
    assert [row[:2] for row in tables["Nodes by client"]] == [["envoy 1.36.0", "6"], ["envoy 1.37.0", "6"]]
    assert server.get("/version")["version"] in page.text()
    for scheme, width in LOOKS:
        page.look(scheme, width)
        assert audit(page) == [], (scheme, width)
    take_picture(page, "overview", 1280)


def test_a_nack_leads_to_its_nodes_and_a_node_tells_its_story(page: BrowserPage) -> None:
    page.go("/")
    page.wait_for("2 nodes")
    click(page, "2 nodes")
    page.wait_for("2 nodes, 2 connected", ".counts")
    assert {row[0] for rows in page.evaluate(TABLES).values() for row in rows} == set(REFUSING)
    click(page, "edge-3")
    page.wait_for("Timeline")
    assert WHY in page.text("pre")
    tables = page.evaluate(TABLES)
    assert tables["Types"][0][:2] == ["clusters", "✗ NACKed"]
    story = [(row[1], row[2]) for row in tables["Timeline"]]
    assert story[:2] == [("✗ NACKed", "3"), ("was sent", "3")], story
    assert ("was sent", "2") in story and "connected" in story[-1][0], story
    take_picture(page, "node")


def test_trouble_comes_first_among_the_nodes(page: BrowserPage, server: ServerProcess) -> None:
    page.go("/ui/nodes")
    page.wait_for("12 nodes", ".counts")
    (rows,) = page.evaluate(TABLES).values()
    assert [row[0] for row in rows[:3]] == [*REFUSING, "edge-0"]
    printed = xds("nodes", "--order", "trouble", "-o", "json", environment=address(server.http_port)).json()
    states = [(node["id"], node["group"], node["types"]["clusters"]["state"]) for node in printed["items"]]
    assert [(row[0], row[2], row[1].split()[1].lower()) for row in rows] == states
    take_picture(page, "nodes")


def test_a_node_outside_of_the_wave_has_the_revision_before_it(page: BrowserPage) -> None:
    page.go("/ui/nodes?line=head")
    page.wait_for("1 node, 1 connected", ".counts")
    (rows,) = page.evaluate(TABLES).values()
    assert [row[3] for row in rows] == ["2 (wave)"]
    page.go(f"/ui/nodes?group={SHOP}&line=base")
    page.wait_for("3 nodes, 3 connected", ".counts")
    (rows,) = page.evaluate(TABLES).values()
    assert [row[3] for row in rows] == ["1"] * 3, "what the wave does not change is at its revision everywhere"


def test_events_follow_and_lead_to_their_subjects(page: BrowserPage, server: ServerProcess) -> None:
    page.go("/ui/events")
    page.wait_for("opened", "table")
    page.wait_for("live", "#live")
    take_picture(page, "events")
    server.request("PUT", "/api/v1/groups/quiet", json={"priority": 3})
    page.wait_for("quiet", "table")
    assert page.evaluate(f"{TABLES}['All that happened'][0].slice(1, 4)") == ["group", "configured", "quiet"]
    page.go("/ui/events?node=edge-3&kinds=nack")
    page.wait_for("1 event", ".counts")
    click(page, "edge-3")
    page.wait_for("Timeline")


def test_the_commands_on_the_pages_exist(page: BrowserPage, server: ServerProcess) -> None:
    page.go("/ui/nodes/edge-3")
    page.wait_for("On the command line")
    commands = page.evaluate("[...document.querySelectorAll('pre code')].at(-1).innerText").splitlines()
    assert len(commands) >= 4
    for command in commands:
        finished = xds(*shlex.split(command)[1:], environment=address(server.http_port))
        assert finished.code == 0, (command, finished.err)
        assert "edge-3" in finished.out or "clusters" in finished.out, command


def click(page: BrowserPage, text: str) -> None:
    """Follow the link with this text in the content."""
    page.evaluate(
        f"[...document.querySelectorAll('main a')].find(each => each.innerText == {json.dumps(text)}).click()"
    )


def test_a_node_that_is_gone_counts_as_gone(page: BrowserPage, server: ServerProcess) -> None:
    with FollowingNode(server.grpc_port, identity("edge-gone", EDGE), {}, types=TYPES):
        wait_until(lambda: nodes_in(server, "synced") == 11, "one more in step")
    wait_until(lambda: nodes_in(server, "synced") == 10, "it is gone")
    for path in ("/", "/ui/nodes"):
        page.go(path)
        told = page.wait_for("1 gone", ".counts")
        assert told.endswith("13 nodes, 12 connected · ✗ 2 NACKed · ✓ 10 synced · 1 gone")
    printed = xds("nodes", environment=address(server.http_port))
    assert printed.err.startswith("13 nodes · 2 NACKed · 1 gone ")
