"""What the fleet has and what happens to it: ``nodes``, ``config``, ``explain``, ``rollout status``, ``watch``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.commands import COMMANDS, address
from tests.support.process import REPOSITORY, child_environment, wait_until
from tests.support.resources import static_cluster


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).removeprefix("test_")


@pytest.fixture
def node(remote: Remote, group: str) -> Iterator[Proxy]:
    """A proxy ``<group>-1`` in sync with revision 1: clusters a and b."""
    remote.server.push(group, [static_cluster("a", 80), static_cluster("b", 80)])
    with Proxy(remote.server.grpc_port, f"{group}-1", group) as proxy:
        proxy.answer()
        remote.server.wait_synced(group, f"{group}-1")
        yield proxy


def refuse(remote: Remote, node: Proxy, group: str, proxy_id: str = "") -> None:
    """Push revision 2, which the proxy rejects."""
    node.nack = "not to my taste"
    remote.server.push(group, [static_cluster("a", 81), static_cluster("c", 80)])
    node.answer()
    remote.server.wait_nack(proxy_id or f"{group}-1", "clusters")


def test_grid_counts_and_says_where_to_look(remote: Remote, node: Proxy, group: str) -> None:
    assert remote.xds("nodes", "-g", group).err == "1 node\n"
    refuse(remote, node, group)
    shown = remote.xds("nodes", "-g", group)
    assert "✗ 1→2 NACK " in shown.out
    assert shown.err == f"1 node · 1 NACKed     why: xds nacks -g {group}\n"
    assert remote.xds("nodes", "-g", group, "-q").err == ""
    assert remote.xds("nodes", "-g", group, "--state", "synced", "-o", "name").out == ""
    assert remote.xds("nodes", "-g", group, "--state", "synced,nacked", "-o", "name").out == f"{group}-1\n"


def test_a_proxy_that_polls_is_shown_with_its_last_poll(remote: Remote, group: str) -> None:
    remote.server.push(group, [static_cluster("a", 80)])
    asked: dict[str, object] = {"node": {"id": f"{group}-1", "cluster": group}}
    for _ in range(2):
        url = f"http://127.0.0.1:{remote.server.http_port}/v3/discovery:clusters"
        answer = httpx.post(url, json=asked, verify=False)
        asked["version_info"] = answer.json()["version_info"] if answer.content else None
    shown = remote.xds("nodes", "-g", group)
    assert re.search(rf"^{group}-1 .* polled \d+\w* +✓ 1 ", shown.out, re.MULTILINE), shown.out
    assert shown.err == "1 node\n"


def test_nodes_by_selector(remote: Remote, node: Proxy, group: str) -> None:
    def chosen(selector: str) -> list[str]:
        return remote.xds("nodes", "-l", selector, "-o", "name").out.split()

    assert chosen(f'node.cluster == "{group}"') == [f"{group}-1"]
    assert chosen(f'node.cluster == "{group}" and node.id != "{group}-1"') == []
    wrong = remote.xds("nodes", "-l", "node.clutser == x")
    assert (wrong.code, "did you mean" in wrong.err) == (2, True)


def test_nodes_in_trouble_come_first(remote: Remote, node: Proxy, group: str) -> None:
    """And a text is found in ids and NACKs, in capitals or not."""
    with Proxy(remote.server.grpc_port, f"{group}-0", group) as other:
        other.answer()
        refuse(remote, node, group)
        other.answer()

        def listed(*flags: str) -> list[str]:
            return remote.xds("nodes", "-g", group, *flags, "-o", "name").out.split()

        assert listed() == listed("--order", "id") == [f"{group}-0", f"{group}-1"]
        assert listed("--order", "trouble") == [f"{group}-1", f"{group}-0"]
        table = remote.xds("nodes", "-g", group, "--order", "trouble").out.splitlines()
        assert table[1].startswith(f"{group}-1") and table[2].startswith(f"{group}-0")
        assert listed("--text", "NOT TO MY") == [f"{group}-1"] and listed("--text", ".*") == []
    wrong = remote.xds("nodes", "--order", "worst")
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, "xds: --order=worst: expected id or trouble")


def test_the_timeline_of_a_node(remote: Remote, node: Proxy, group: str) -> None:
    refuse(remote, node, group)
    found = remote.xds("timeline", f"{group}-1", "-o", "json").json()["items"]
    assert [(item["kind"], item["revision"]) for item in found] == [("nacked", 2), ("sent", 2), ("connected", 1)]
    table = remote.xds("timeline", f"{group}-1")
    assert re.search(rf"nacked +{group} +2 +clusters .*not to my taste\n", table.out) and table.err == ""
    assert re.search(rf"sent +{group} +2 .*push", table.out)
    short = remote.xds("timeline", f"{group}-1", "--limit", "1")
    assert "nacked" in short.out and "connected" not in short.out and short.err == "earlier items are left out\n"
    nobody = remote.xds("timeline", "nobody")
    assert nobody.code == 4 and "no node 'nobody' is connected or was connected recently" in nobody.err


def test_config_shows_acked_or_sent_content(remote: Remote, node: Proxy, group: str) -> None:
    def names(*flags: str) -> list[str]:
        return remote.xds("config", f"{group}-1", *flags, "-o", "name").out.split()

    assert names() == ["a", "b"]
    assert names("clusters", "--name", "[b-z]") == ["b"]
    assert names("listeners") == []
    refuse(remote, node, group)
    assert (names(), names("--sent")) == (["a", "b"], ["a", "b", "c"])  # b lingers
    shown = remote.xds("config", f"{group}-1", "cluster", "-o", "json").json()["items"]
    assert [item["resource"]["name"] for item in shown] == ["a", "b"]
    assert remote.xds("config", f"{group}-1", "--sent", "--acked").code == 2
    assert remote.xds("config", "nobody").code == 4


def swap(remote: Remote, node: Proxy, group: str) -> None:
    """Push revision 2, which replaces b by c, and ACK it."""
    remote.server.push(group, [static_cluster("a", 80), static_cluster("c", 80)])
    node.answer()
    remote.server.wait_synced(group, f"{group}-1")


def test_lingering_content_is_shown(remote: Remote, node: Proxy, group: str) -> None:
    swap(remote, node, group)
    name = f"{group}-1"
    assert re.search(r"✓ 2 .* 1 clusters linger until \d\d:\d\d:\d\d \S+$", remote.xds("nodes", "-g", group).out, re.M)
    shown = remote.xds("config", name, "--columns", "name,lingers", "--no-headers").out.splitlines()
    assert [line.split()[:2] for line in shown] == [["a", "-"], ["b", "until"], ["c", "-"]]
    assert "was removed from the group, and lingers until" in remote.xds("explain", name, "clusters", "b").out
    assert re.search(r"lingering:\nTYPE .*\nclusters +2 +\S+ +b\n", remote.xds("describe", "node", name).out)
    assert remote.xds("diff", "--node", name).code == 0
    assert remote.xds("rollout", "status", group).code == 0


def test_lingering_is_ended_by_hand(remote: Remote, node: Proxy, group: str) -> None:
    swap(remote, node, group)
    assert remote.xds("release", "--node", f"{group}-1").out == "1 node released 1 clusters\n"
    node.answer()
    assert remote.xds("config", f"{group}-1", "-o", "name").out.split() == ["a", "c"]
    assert remote.xds("release", "-g", group).out == "nothing lingered\n"
    assert remote.xds("release", "-g", group, "-o", "json").json() == {"nodes": 0, "clients": 0, "released": {}}
    told = remote.xds("watch", "-g", group, "--since", "0", "--kinds", "order", "--limit", "1", "-o", "json").out
    assert json.loads(told)["action"] == "released"
    assert [remote.xds("release", *flags).code for flags in ((), ("-g", group, "--node", "x"))] == [2, 2]
    assert remote.xds("release", "--node", "nobody").code == 4


def test_node_against_its_group(remote: Remote, node: Proxy, group: str) -> None:
    assert remote.xds("diff", "--node", f"{group}-1").code == 0
    refuse(remote, node, group)
    found = remote.xds("diff", "--node", f"{group}-1", "-o", "json")
    assert found.code == 1
    assert [(change["name"], change["change"]) for change in found.json()["changes"]] == [
        *(("a", "changed"), ("c", "added")),  # b lingers, as intended
    ]


def test_node_is_described(remote: Remote, node: Proxy, group: str) -> None:
    refuse(remote, node, group)
    text = remote.xds("describe", "node", f"{group}-1").out
    assert f"cluster:    {group}\n" in text
    assert "not to my taste" in text
    assert remote.xds("describe", "node", f"{group}-1", "-o", "json").json()["node"]["id"] == f"{group}-1"
    assert remote.xds("describe", "node", "nobody").code == 4


def test_explain_says_why(remote: Remote, node: Proxy, group: str, tmp_path: Path) -> None:
    text = remote.xds("explain", f"{group}-1", "clusters", "a").out
    assert f"group:    {group} (by node.cluster)" in text
    file = tmp_path / "bootstrap.yaml"
    file.write_text(f"node: {{id: new, cluster: {group}}}\n")
    assert remote.xds("explain", "--node-file", file, "-o", "json").json()["group"] == group
    assert "group:    none" in remote.xds("explain", "--node-file", "-", stdin='{"id": "stranger"}').out
    assert remote.xds("explain").code == 2
    assert remote.xds("explain", "nobody").code == 4
    assert remote.xds("explain", "--node-file", "-", stdin="[]").code == 3


def test_rollout_status_waits_and_tells(remote: Remote, node: Proxy, group: str) -> None:
    done = remote.xds("rollout", "status", group)
    assert (done.code, "1 of 1 nodes have revision 1" in done.err) == (0, True)
    assert done.out.split()[:5] == ["TYPE", "SYNCED", "PENDING", "NACKED", "NOT_SUBSCRIBED"]
    remote.server.push(group, [static_cluster("a", 82), static_cluster("b", 80)])
    late = remote.xds("rollout", "status", group, "--wait", "--timeout", "100ms")
    assert (late.code, f"{group}-1" in late.err) == (8, True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(remote.xds, "rollout", "status", group, "--wait")
        node.answer_until("2")
        assert waiting.result().code == 0
    node.nack = "not to my taste"
    remote.server.push(group, [static_cluster("a", 83), static_cluster("b", 80)])
    node.answer()
    refused = remote.xds("rollout", "status", group, "--wait")
    assert (refused.code, f"{group}-1 rejected clusters a: not to my taste" in refused.err) == (1, True)
    assert remote.xds("rollout", "status", "nobody").code == 4


def test_equal_nacks_of_a_push_are_one_line(remote: Remote, group: str) -> None:
    remote.server.push(group, [static_cluster("a", 79)])
    with ExitStack() as connected:
        numbers = (10, 1, 2, 3, 4)
        proxies = [connected.enter_context(Proxy(remote.server.grpc_port, f"{group}-{n}", group)) for n in numbers]
        for proxy in proxies:
            proxy.answer()
            proxy.nack = "of the others"
        proxies[-1].nack = "of its own"
        remote.server.push(group, [static_cluster("a", 80)])
        for number, proxy in zip(numbers, proxies, strict=True):
            proxy.answer()
            remote.server.wait_nack(f"{group}-{number}", "clusters")
        said = remote.xds("rollout", "status", group, "--wait=60%")
    assert said.code == 1
    assert f"{group}-1, {group}-2, {group}-3 and 1 more rejected clusters a: of the others\n" in said.err
    assert said.err.count("of the others") == 1
    assert f"{group}-4 rejected clusters a: of its own" in said.err


def test_watch_shows_events_from_a_point_on(remote: Remote, node: Proxy, group: str, tmp_path: Path) -> None:
    first = remote.xds("watch", "-g", group, "--since", "0", "--kinds", "push", "--limit", "1", "-o", "json")
    event = json.loads(first.out)
    assert (event["kind"], event["revision"]) == ("push", 1)
    with remote.start(tmp_path, "watch", "-g", group, "--since", str(event["id"]), "--kinds", "nack,push") as following:
        refuse(remote, node, group)
        following.wait_until(lambda: "nack opened" in following.log(), "the NACK")
        assert "revision=2" in following.log()
        os.kill(following.pid, signal.SIGINT)
        wait_until(lambda: not following.running, "the end")
        assert following.exit_code == 130
    assert remote.xds("watch", "--kinds", "nonsense").code == 2
    assert remote.xds("watch", "--since", "yesterday").code == 2


def test_lists_are_shown_again_when_something_happens(remote: Remote, node: Proxy, group: str, tmp_path: Path) -> None:
    with remote.start(tmp_path, "nodes", "-g", group, "-w", "--columns", "node,cds") as following:
        following.wait_until(lambda: "✓ 1" in following.log(), "the first rendering")
        refuse(remote, node, group)
        following.wait_until(lambda: "✗ 1→2 NACK" in following.log(), "the second one")
        assert following.log().count("NODE") >= 2


def test_eighty_columns_show_states_and_the_note(remote: Remote, group: str) -> None:
    """With ids as fleets have them: pods of a Kubernetes deployment in a zone of a cloud."""
    remote.server.push(group, [static_cluster("a", 80), static_cluster("b", 80)])
    with Proxy(remote.server.grpc_port, f"{group}-7d9f8b6c5d-x2x4z", group, zone="europe-west1-b") as proxy:
        proxy.answer()
        remote.server.wait_synced(group, f"{group}-7d9f8b6c5d-x2x4z")  # what it never had does not linger
        refuse(remote, proxy, group, proxy_id=f"{group}-7d9f8b6c5d-x2x4z")
        shown = COMMANDS.run_in_terminal(
            ["nodes", "-g", group, "--color", "never"], 80, {**address(remote.server.http_port), "COLUMNS": ""}
        )
    head, row, *_ = lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert {"NODE", "CDS", "NOTE"} <= set(head.split())
    assert {"LOCALITY", "AGENT", "CLUSTER", "EDS", "SDS"}.isdisjoint(head.split())
    assert "✗ 1→2 NACK" in row


def test_without_utf_8_states_are_shown_as_words(remote: Remote, node: Proxy, group: str) -> None:
    def shown(*words: str) -> str:
        """What a new interpreter prints, whose streams have the encoding of the environment."""
        environment = child_environment({**address(remote.server.http_port), "PYTHONIOENCODING": "ascii"})
        command = [sys.executable, "-m", "xds.cli.main", *words]
        ran = subprocess.run(command, capture_output=True, env=environment, cwd=REPOSITORY, timeout=60, check=False)
        return (ran.stdout + ran.stderr).decode("ascii")

    assert "ok 1" in shown("nodes", "-g", group)
    refuse(remote, node, group)
    assert " 1>2 NACK " in shown("nodes", "-g", group)
    assert "?" not in shown("nodes", "-g", group) + shown("check")
