"""The client's commands against a running server: data, messages, exit codes."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.commands import FinishedCommand, xds
from tests.support.resources import CLUSTER_TYPE, TYPE, cluster_load_assignment, eds_cluster, static_cluster


def snapshot(path: Path, *resources: object) -> Path:
    path.write_text(yaml.safe_dump({"resources": list(resources)}))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return snapshot(tmp_path / "edge.yaml", eds_cluster("a"), cluster_load_assignment("a", 80))


def test_apply_then_get(remote: Remote, file: Path) -> None:
    applied = remote.xds("apply", "-f", file, "-m", "why ✓")
    assert (applied.code, applied.out) == (0, "group edge: revision 1: +1 clusters, +1 endpoints\n")
    assert remote.xds("apply", "-f", file).out == "group edge: revision 1, unchanged\n"
    groups = remote.xds("get", "groups")
    assert groups.out.splitlines()[0].split() == [
        *("GROUP", "REVISION", "RESOURCES", "NODES", "AGE", "AUTHOR", "MESSAGE"),
    ]
    assert "why ✓" in groups.out
    assert remote.xds("get", "clusters", "-g", "edge", "-o", "name").out == "a\n"
    assert remote.xds("get", "resources", "-g", "edge").out.split()[:3] == ["TYPE", "NAME", "VERSION"]
    one = yaml.safe_load(remote.xds("get", "cluster", "a", "-g", "edge").out)
    assert (one["@type"], one["name"]) == (CLUSTER_TYPE, "a")
    assert remote.xds("get", CLUSTER_TYPE, "a", "-g", "edge", "-o", "json").json() == one
    shown = remote.xds("get", "snapshot", "-g", "edge")
    assert remote.xds("apply", "-g", "edge", "-f", "-", stdin=shown.out).out == "group edge: revision 1, unchanged\n"


def test_a_directory_is_one_group_where_that_is_named(remote: Remote, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    snapshot(folder / "b.yaml", static_cluster("b", 80))
    snapshot(folder / "sub" / "a.yml", static_cluster("a", 80))
    (folder / "notes.txt").write_text("not one of them")
    pushed = remote.xds("apply", "-g", "folder", "-f", folder, "-o", "json").json()
    assert pushed["changes"]["clusters"]["added"] == ["b", "a"]
    assert remote.xds("get", "clusters", "-g", "folder", "-o", "name").out == "a\nb\n"


def test_several_files_for_one_group(remote: Remote, tmp_path: Path) -> None:
    files = [snapshot(tmp_path / f"{name}.yaml", static_cluster(name, 80)) for name in ("x", "y")]
    merged = remote.xds("apply", "-g", "merged", "-f", files[0], "-f", files[1], "--dry-run")
    assert merged.out == "group merged: would change: +2 clusters\n"
    assert remote.xds("get", "snapshot", "-g", "merged").code == 4


def test_revision_0_stands_for_a_group_that_is_not_there(remote: Remote, file: Path) -> None:
    remote.xds("apply", "-g", "codes", "-f", file)
    for command in (["apply"], ["put"], ["put", "--create"]):
        assert remote.xds(*command, "-g", "codes", "-f", file, "--if-match", "0").code == 5
        assert remote.xds(*command, "-g", f"new-{len(command)}-{command[0]}", "-f", file, "--if-match", "0").code == 0


def test_wait_without_nodes_ends_at_once_and_says_so(remote: Remote, file: Path) -> None:
    """A mistyped group must not look like success; the push itself is done."""
    waited = remote.xds("apply", "-g", "nobody", "-f", file, "--wait")
    assert waited.code == 9
    assert "no connected node" in waited.err
    assert "xds: group nobody: none of its nodes is connected; pass --allow-none to accept that" in waited.err
    assert remote.server.get("/groups/nobody")["revision"] == 1
    assert remote.xds("apply", "-g", "nobody", "-f", file, "--wait", "--allow-none").code == 0
    assert remote.xds("rollout", "status", "nobody", "--wait").code == 9
    assert remote.xds("rollout", "status", "nobody", "--wait", "--allow-none").code == 0
    assert remote.xds("rollout", "undo", "nobody", "--to", "1", "--wait").code == 9
    assert remote.xds("rollout", "undo", "nobody", "--to", "1", "--wait", "--allow-none").code == 0
    assert remote.xds("put", "-g", "nobody", "-f", file, "--wait").code == 9
    assert remote.xds("put", "-g", "nobody", "-f", file, "--wait", "--allow-none").code == 0


def test_wait_continues_after_a_group_without_nodes(remote: Remote, tmp_path: Path) -> None:
    files = [snapshot(tmp_path / f"{name}.yaml", static_cluster("a", 80)) for name in ("deserted", "followed")]
    remote.xds("apply", "-f", files[1])
    with Proxy(remote.server.grpc_port, "followed-1", "followed") as proxy:
        proxy.answer()
        remote.server.wait_synced("followed", "followed-1")
        waited = remote.xds("apply", "-f", files[0], "-f", files[1], "--wait")
    assert waited.code == 9
    assert "1 of 1 nodes have revision 1" in waited.err
    assert "group deserted: none of its nodes" in waited.err


def test_a_node_that_requests_nothing_of_the_push_is_counted(remote: Remote, tmp_path: Path) -> None:
    file = tmp_path / "idle.yaml"
    file.write_text(json.dumps({"resources": [static_cluster("a", 80)]}))
    remote.xds("apply", "-f", file)
    with Proxy(remote.server.grpc_port, "idle-1", "idle") as proxy:
        proxy.answer()
        remote.server.wait_synced("idle", "idle-1")
        runtime = {"@type": f"{TYPE}envoy.service.runtime.v3.Runtime", "name": "r", "layer": {"a": 1}}
        (tmp_path / "runtime.json").write_text(json.dumps(runtime))
        waited = remote.xds("put", "-g", "idle", "-f", tmp_path / "runtime.json", "--wait")
    assert (waited.code, "no connected node of this group subscribes" in waited.err) == (0, True)


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_wait_shows_nodes_that_have_rejected_or_lack_the_push(remote: Remote, tmp_path: Path, api: str) -> None:
    group = f"waited-{api}"
    name = f"{group}-1"
    files = [snapshot(tmp_path / f"{turn}.yaml", static_cluster(f"c{turn}", 80)) for turn in range(4)]

    def apply(turn: int, *flags: str) -> FinishedCommand:
        return remote.xds("apply", "-g", group, "-f", files[turn], *flags)

    apply(0)
    with Proxy(remote.server.grpc_port, name, group, api) as proxy, ThreadPoolExecutor(1) as pool:
        proxy.answer()
        remote.server.wait_synced(group, name)
        taken = pool.submit(apply, 1, "--wait")
        proxy.answer_until("2")
        assert taken.result().code == 0
        assert "1 of 1 nodes have revision 2" in taken.result().err
        node = remote.xds("nodes", "-g", group).out.splitlines()[1].split()
        assert (node[0], node[1], node[6:8]) == (name, group, ["✓", "2"])

        late = apply(2, "--wait", "--timeout", "100ms")
        assert (late.code, name in late.err) == (8, True)

        proxy.answer_until("3")
        remote.server.wait_synced(group, name)
        proxy.nack = "not to my taste"
        refused = pool.submit(apply, 3, "--wait=90%")
        proxy.answer()
        assert refused.result().code == 1
        assert f"{name} rejected clusters c3: not to my taste" in refused.result().err
        nacks = remote.xds("nacks", "-g", group, "--type", "clusters", "--since", "1h")
        assert re.search(r" c3 +clusters .* open +not to my taste$", nacks.out, re.M)
        assert re.search(
            r" ✗ 4 NACK \d+s .* clusters c3 rejected; 3 clusters linger", remote.xds("nodes", "-g", group).out
        )


def test_resources_that_v2_cannot_express_are_shown(remote: Remote, tmp_path: Path) -> None:
    newer = static_cluster("b", 80, dns_lookup_family="ALL")
    file = snapshot(tmp_path / "old.yaml", static_cluster("a", 80), newer)
    with Proxy(remote.server.grpc_port, "old-1", "old", "v2") as proxy:
        remote.xds("apply", "-f", file)
        proxy.answer()
        remote.server.wait_synced("old", "old-1")
        assert "✓ 1, 1 unsent" in remote.xds("nodes", "-g", "old").out
        assert "the v2 API has no value" in remote.xds("nodes", "-g", "old", "-o", "yaml").out


def test_bootstrap_needs_no_server() -> None:
    document = yaml.safe_load(xds("bootstrap", "--node-id", "n", "--cluster", "c", "--zone", "z").out)
    assert document["cluster_manager"].keys() == {"load_stats_config"}, "it reports load"
    assert "cluster_manager" not in xds("bootstrap", "--no-lrs", "-o", "json").json()
    assert document["node"] == {"id": "n", "cluster": "c", "locality": {"zone": "z"}}
    rest = xds("bootstrap", "--mode", "rest", "-o", "json").json()
    assert "18080" in str(rest["static_resources"])
    assert xds("bootstrap", "--mode", "nonsense").code == 2
    assert xds("bootstrap", "--xds-addr", "nowhere").code == 2
    assert xds("bootstrap", "--node-id", "").code == 2


@pytest.mark.parametrize("given", [["--cert", "c"], ["--key", "k", "--ca", "a"], ["--cert", "c", "--key", "k"]])
def test_no_bootstrap_leaves_out_a_certificate_silently(given: list[str]) -> None:
    refused = xds("bootstrap", *given)
    assert (refused.code, refused.out) == (2, "")
    assert "needs" in refused.err
