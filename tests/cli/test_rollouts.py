"""Careful rollouts from the command line: begun, watched, decided by people, taken back by the server."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.process import wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.cli.careful_rollouts import longest_s, rollout_line

Json = dict[str, Any]
REFUSAL = "address already in use"


class Answering:
    """Proxies that answer all that they get; ``versions`` are those of their responses."""

    def __init__(self, remote: Remote, group: str, running: ExitStack) -> None:
        self.remote = remote
        self.group = group
        self.versions: dict[str, list[str]] = {}
        self._running = running

    def add(self, *names: str, refuses: bool = False) -> None:
        """Connect proxies. With ``refuses`` they reject all responses but the first."""
        for name in (f"{self.group}-{short}" for short in names):
            proxy = self._running.enter_context(Proxy(self.remote.server.grpc_port, name, self.group))
            self.versions[name] = []
            Thread(target=self._answer, args=(name, proxy, refuses), daemon=True).start()
            wait_until(lambda name=name: self.versions[name], f"configuration of {name}")  # type: ignore[misc]

    def _answer(self, name: str, proxy: Proxy, refuses: bool) -> None:
        with suppress(grpc.RpcError, StopIteration):
            while True:
                # The refusal is chosen before the response is read: a proxy that refuses does so from the second on.
                proxy.nack = REFUSAL if self.versions[name] and refuses else ""
                self.versions[name].append(proxy.answer())


@pytest.fixture
def proxies(remote: Remote, group: str, running: ExitStack) -> Answering:
    return Answering(remote, group, running)


def file_of(directory: Path, port: int) -> Path:
    """A snapshot with a cluster."""
    file = directory / f"{port}.json"
    file.write_text(json.dumps({"resources": [static_cluster("a", port)]}))
    return file


def apply(remote: Remote, group: str, file: Path, *words: str) -> Any:
    return remote.xds("apply", "-g", group, "-f", file, *words)


def status(remote: Remote, group: str) -> Json:
    found: Json = remote.server.get(f"/groups/{group}/rollout")
    return found


def row(remote: Remote, check: str) -> Json:
    """A row of the check of the server."""
    found: Json = next(each for each in remote.server.get("/check")["items"] if each["check"] == check)
    return found


def wait_for(remote: Remote, group: str, **fields: object) -> Json:
    wait_until(
        lambda: all(status(remote, group).get(name) == value for name, value in fields.items()), f"{group}: {fields}"
    )
    return status(remote, group)


def test_a_good_push_is_promoted_by_itself(remote: Remote, group: str, proxies: Answering, tmp_path: Path) -> None:
    proxies.add("p1", "p2", "p3", "p4")
    done = apply(remote, group, file_of(tmp_path, 81), "--canary", "1,50%", "--hold", "0s", "--wait")
    assert (done.code, done.out) == (0, f"group {group}: revision 2: ~1 clusters\n")
    assert f"rollout of {group}: started, wave 1 of 3 (1): no node reports load" in done.err
    assert f"group {group}: revision 2 in place of 1: promoted" in done.err
    assert [seen[-1].partition("+")[0] for seen in proxies.versions.values()] == ["2"] * 4
    seen = remote.xds("watch", "--kinds", "rollout", "-g", group, "--no-follow", "-o", "jsonl").out
    actions = [json.loads(line)["action"] for line in seen.splitlines()]
    assert (actions[0], actions[-1], set(actions[1:-1])) == ("started", "promoted", {"wave"})


def test_a_refused_push_is_taken_back(remote: Remote, group: str, proxies: Answering, tmp_path: Path) -> None:
    proxies.add("p1", "p2", "p3", refuses=True)
    file = file_of(tmp_path, 81)
    failed = apply(remote, group, file, "--canary", "1,50%", "-m", "as in git", "--wait")
    (canary,) = (name for name, seen in proxies.versions.items() if len(seen) > 1)
    assert (failed.code, failed.err.count(f"rolled back: {canary} rejected"), REFUSAL in failed.err) == (1, 1, True)
    assert [len(seen) for name, seen in proxies.versions.items() if name != canary] == [1, 1]
    last, taken, *_ = remote.server.get(f"/groups/{group}/revisions")["items"]
    assert (last["kind"], last["actor"], REFUSAL in last["message"]) == ("rollback", "server", True)
    assert taken["undone_by"] == last["revision"]
    shown = remote.xds("rollout", "history", group).out
    assert ("rollback to 1" in shown, "undone by 3" in shown) == (True, True)
    again = apply(remote, group, file)
    assert (again.code, "taken back" in again.err, REFUSAL in again.err, "--retry" in again.err) == (
        5,
        True,
        True,
        True,
    )
    found = row(remote, "rollouts")
    assert (found["state"], f"group {group}: revision 2 rolled back: " in found["detail"]) == ("warning", True)
    assert "rollback" in remote.xds("audit", "-g", group).out
    tried = apply(remote, group, file, "--canary", "1", "--retry", "--wait")
    assert (tried.code, "rolled back" in tried.err) == (1, True)


def test_people_pause_resume_promote_and_abort(remote: Remote, group: str, proxies: Answering, tmp_path: Path) -> None:
    proxies.add("p1", "p2", "p3", "p4")
    assert apply(remote, group, file_of(tmp_path, 81), "--canary=1,50%", "--hold", "1h", "--timeout", "1h").code == 0
    running = wait_for(remote, group, state="running", nodes={"wave": 1, "acked": 1, "nacked": 0, "outside": 3})
    assert (running["head"], running["base"], running["wave"], running["waves"], running["size"]) == (2, 1, 1, 3, "1")
    assert (running["synced"], running["pending"]) == (4, 0)  # nodes outside of the wave have what they are to have
    assert running["plan"]["waves"] == ["1", "50%"]
    listed = remote.xds("rollout", "list", "--columns", "GROUP,STATE,WAVE,HEAD,BASE").out
    assert f"{group} running 1 of 3 (1) 2 1".split() in [line.split() for line in listed.splitlines()]
    again = apply(remote, group, file_of(tmp_path, 81), "--wait", "--timeout", "300ms")
    assert (again.code, "unchanged" in again.out, "timed out waiting for the rollout" in again.err) == (8, True, True)
    told = remote.xds("rollout", "status", group).err
    assert f"group {group}: revision 2 in place of 1, wave 1 of 3 (1): 1 node, 1 ACKed\n" in told
    paused = remote.xds("rollout", "pause", group, "-m", "looking at latencies")
    assert (paused.code, paused.out.strip()) == (
        0,
        f"group {group}: revision 2 in place of 1, wave 1 of 3 (1); paused: looking at latencies",
    )
    waiting = remote.xds("rollout", "status", group, "--wait", "--timeout", "300ms")
    assert (waiting.code, "timed out waiting for the rollout" in waiting.err) == (8, True)
    assert remote.xds("rollout", "resume", group).code == 0
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(remote.xds, "rollout", "status", group, "--wait")
        assert remote.xds("rollout", "promote", group, "-m", "urgent").code == 0
        assert waiter.result().code == 0
    wait_for(remote, group, state="promoted", synced=4)
    assert apply(remote, group, file_of(tmp_path, 82), "--canary", "1", "--hold", "1h", "--timeout", "1h").code == 0
    aborted = remote.xds("rollout", "abort", group, "-m", "wrong certificate", "-o", "json")
    assert (aborted.json()["state"], aborted.json()["reason"]) == ("rolled_back", "aborted: wrong certificate")
    for action in ("pause", "resume", "promote", "abort"):
        assert remote.xds("rollout", action, group).code == 4
    seen = remote.xds("audit", "-g", group).out
    assert [each for each in ("rollout.paused", "rollout.resumed", "rollout.promoting") if each not in seen] == []


def test_lines_of_nodes_are_shown(remote: Remote, group: str, proxies: Answering, tmp_path: Path) -> None:
    proxies.add("p1", "p2", "p3")
    assert apply(remote, group, file_of(tmp_path, 81), "--canary", "1", "--hold", "1h", "--timeout", "1h").code == 0
    wait_for(remote, group, nodes={"wave": 1, "acked": 1, "nacked": 0, "outside": 2})
    head = remote.xds("nodes", "-g", group, "--line", "head", "-o", "name").out.split()
    base = remote.xds("nodes", "-g", group, "--line", "base", "-o", "name").out.split()
    assert (len(head), len(base), sorted((*head, *base))) == (1, 2, sorted(proxies.versions))
    rows = {line.split()[0]: line.split()[1] for line in remote.xds("nodes", "-g", group).out.splitlines()[1:]}
    assert rows == {head[0]: "head", **dict.fromkeys(base, "base")}
    nodes = (node for node in remote.server.get("/nodes")["items"] if node["group"] == group)
    states = {node["id"]: node["types"]["clusters"] for node in nodes}
    assert {id: (each["state"], each["revision"]) for id, each in states.items()} == {
        head[0]: ("synced", 2),
        base[0]: ("synced", 1),
        base[1]: ("synced", 1),
    }
    why = remote.xds("explain", head[0]).out
    assert "rollout:  served 2: wave 1 of 2 has this node by its id\n" in why
    assert "rollout:  served 1, not 2: not among the nodes of wave 1 of 2\n" in remote.xds("explain", base[0]).out
    for node, place in ((head[0], "in the wave"), (base[0], "outside of the wave")):
        assert f"rollout:    {place}\n" in remote.xds("describe", "node", node).out
    metrics = remote.server.request("GET", "/metrics").text
    assert f'xds_server_rollout_nodes{{group="{group}",line="head"}} 1.0' in metrics
    assert f'xds_server_rollout_nodes{{group="{group}",line="base"}} 2.0' in metrics
    described = remote.xds("describe", "group", group).out
    assert "revision 2 in place of 1, wave 1 of 2 (1)" in described
    for shown in (described, remote.xds("rollout", "status", group).out):
        words = [line.split() for line in shown.splitlines()]
        assert ["TYPE", "SYNCED", "PENDING", "NACKED", "NOT_SUBSCRIBED", "AT_BASE"] in words
        assert ["clusters", "3", "0", "0", "0", "2"] in words
    assert remote.xds("rollout", "abort", group).code == 0
    assert "AT_BASE" not in remote.xds("rollout", "status", group).out
    assert remote.xds("nodes", "--line", "side").code == 2


def test_a_dry_run_names_the_proxies_of_each_wave(
    remote: Remote, group: str, proxies: Answering, tmp_path: Path
) -> None:
    proxies.add("p1", "p2", "p3", "p4")
    dry = apply(remote, group, file_of(tmp_path, 81), "--canary", "1,50%", "--dry-run")
    lines = [line.strip() for line in dry.err.splitlines()]
    assert dry.code == 0
    assert [line.partition(":")[0] for line in lines if line.startswith("wave")] == [
        "wave 1 (1) would add 1 node",
        "wave 2 (50%) would add 1 node",
        "wave 3 (100%) would add 2 nodes",
    ]
    others = "a wave of a number of nodes takes another one beside each that subscribes to nothing of this change"
    assert others in lines
    shares = apply(remote, group, file_of(tmp_path, 81), "--canary", "50%", "--dry-run")
    assert "wave 1 (50%) would add 2 nodes" in shares.err and others not in shares.err
    planned = apply(remote, group, file_of(tmp_path, 81), "--canary", "1,50%", "--dry-run", "-o", "json").json()
    assert sorted(id for wave in planned["rollout"]["planned"] for id in wave["nodes"]) == sorted(proxies.versions)
    assert "state" not in status(remote, group)


def test_a_plan_of_a_group_applies_to_every_push(
    remote: Remote, group: str, proxies: Answering, tmp_path: Path
) -> None:
    proxies.add("p1", "p2", "p3")
    given = ("--rollout", "1", "--rollout-hold", "1h", "--rollout-timeout", "1h")
    assert remote.xds("group", "set", group, *given).code == 0
    put = remote.xds("put", "-g", group, "-f", file_of(tmp_path, 81))
    assert f"rollout of {group}: started, wave 1 of 2 (1)" in put.err
    urgent = apply(remote, group, file_of(tmp_path, 82), "--all-at-once", "--wait")
    assert (urgent.code, f"rollout of {group}: ended" in urgent.err) == (0, True)
    assert status(remote, group)["state"] == "superseded"
    assert "revision 3, rollout all at once" in remote.xds("audit", "-g", group).out
    undone = remote.xds("rollout", "undo", group, "--to", "1")
    assert (undone.code, "started, wave 1 of 2 (1)" in undone.err) == (0, True)
    undone = remote.xds("rollout", "undo", group, "--to", "1", "--all-at-once", "--wait")
    assert (undone.code, f"rollout of {group}: ended" in undone.err) == (0, True)
    deleted = remote.xds("delete", "cluster", "a", "-g", group, "-y", "--allow-empty", "--canary", "--hold", "0s")
    assert (deleted.code, "started, wave 1 of 2 (1)" in deleted.err) == (0, True)


def test_a_held_rollout_waits_for_a_person(remote: Remote, group: str, proxies: Answering, tmp_path: Path) -> None:
    proxies.add("p1", "p2", refuses=True)
    held = apply(remote, group, file_of(tmp_path, 81), "--canary", "1", "--on-failure", "hold", "--wait")
    assert (held.code, REFUSAL in held.err) == (1, True)
    assert status(remote, group)["state"] == "held"
    found = row(remote, "rollouts")
    assert (found["state"], f"group {group}: revision 2 held at wave 1 of 2" in found["detail"]) == ("warning", True)
    metrics = remote.server.request("GET", "/metrics").text
    assert 'xds_server_rollouts{state="held"} 1.0' in metrics
    assert remote.xds("rollout", "undo", group).code == 0
    assert status(remote, group)["state"] == "rolled_back"


def test_a_push_to_all_at_once_takes_itself_back_too(
    remote: Remote, group: str, proxies: Answering, tmp_path: Path
) -> None:
    proxies.add("p1", "p2", refuses=True)
    failed = apply(remote, group, file_of(tmp_path, 81), "--canary", "100%", "--wait")
    assert (failed.code, "rolled back: " in failed.err, REFUSAL in failed.err) == (1, True, True)
    assert (status(remote, group)["state"], status(remote, group)["revision"]) == ("rolled_back", 3)


def test_a_watched_directory_does_not_try_again_what_was_taken_back(tmp_path: Path, running: ExitStack) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    file = watched / "edge.json"
    file.write_text(json.dumps({"resources": [static_cluster("a", 80)]}))
    arguments = ["--store", "memory", "--watch", str(watched)]
    remote = Remote(running.enter_context(ServerProcess(tmp_path, arguments)))
    wait_until(lambda: remote.xds("get", "groups", "-o", "name").out == "edge\n", "the file is applied")
    assert remote.xds("group", "set", "edge", "--rollout", "1", "--rollout-hold", "0s").code == 0
    proxies = Answering(remote, "edge", running)
    proxies.add("p1", "p2", refuses=True)
    bad = json.dumps({"resources": [static_cluster("a", 81)]})
    file.write_text(bad)
    wait_for(remote, "edge", state="rolled_back")
    file.write_text(f"{bad}\n")
    wait_until(lambda: row(remote, "watch")["state"] == "warning", "the file is refused")
    assert "taken back" in row(remote, "watch")["detail"]
    assert [sum(len(seen) > 1 for seen in proxies.versions.values()), status(remote, "edge")["head"]] == [1, 2]
    file.write_text(json.dumps({"resources": [static_cluster("a", 80), static_cluster("b", 80)]}))
    wait_until(lambda: row(remote, "watch")["state"] == "ok", "another file is applied")


def test_a_line_tells_who_is_waited_for_and_how_many_requests_fail() -> None:
    later = (datetime.now(UTC) + timedelta(seconds=200.5)).isoformat()
    rollout = {
        "group": "edge",
        "state": "running",
        "head": 43,
        "base": 42,
        "wave": 2,
        "waves": 4,
        "size": "10%",
        "plan": {"max_errors": 0.02},
        "nodes": {"wave": 12, "acked": 11, "nacked": 0, "outside": 108},
        "errors": 0.001,
        "deadline": later,
        "pending_nodes": ["edge-7"],
        "held": [],
    }
    line = "group edge: revision 43 in place of 42, wave 2 of 4 (10%): 12 nodes, 11 ACKed, 1 pending (edge-7), 3m to go"
    assert rollout_line(rollout) == f"{line}; errors +0.1% (bound 2%)"
    without = {**rollout, "plan": {"max_errors": None}, "nodes": {"wave": 0, "acked": 0, "nacked": 0, "outside": 3}}
    assert rollout_line(without).endswith("(10%): 0 nodes, 3m to go")
    unknown = rollout_line({**without, "unknown": "no node of the wave is connected"})
    assert unknown.endswith("3m to go; cannot be judged yet: no node of the wave is connected")
    held = {**rollout, "state": "held", "reason": "edge-3 rejected it"}
    assert rollout_line(held).endswith("; held: edge-3 rejected it")
    assert longest_s({**rollout, "plan": {"hold_s": 60, "timeout_s": 300}}) == 3 * 360
