"""``get``, ``describe``, ``delete``, ``export``, ``rollout`` against a server, and the shared options."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.resources import cluster_load_assignment, eds_cluster, route_config, static_cluster


@pytest.fixture
def group(remote: Remote, request: pytest.FixtureRequest) -> str:
    """A group of its own with three revisions."""
    name = str(request.node.name)
    for port in (81, 82, 83):
        remote.server.push(name, [eds_cluster("a"), cluster_load_assignment("a", port)], message=f"port {port}")
    return name


def test_shared_options_stand_before_or_behind_the_command(remote: Remote, group: str) -> None:
    names = remote.xds("get", "endpoints", "-g", group, "-o", "name")
    assert names.out == "a\n"
    assert remote.xds("-o", "name", "get", "endpoints", "-g", group).out == names.out
    assert remote.xds("-o", "json", "get", "endpoints", "-g", group, "-o", "name").out == names.out
    assert remote.xds("get", "groups", "--server", "127.0.0.1:1").code == 7
    assert remote.xds("get", "groups", "--columns", "typo").code == 2
    assert remote.xds("get", "groups", "--columns", "group", "--no-headers", "--sort-by", "group").code == 0


def test_export_of_any_revision_goes_into_apply_again(remote: Remote, group: str) -> None:
    now = remote.xds("export", group)
    assert remote.xds("apply", "-g", group, "-f", "-", stdin=now.out).out == f"group {group}: revision 3, unchanged\n"
    first = remote.xds("export", group, "--revision", "1", "-o", "json")
    assert "revision 4: ~1 endpoints" in remote.xds("apply", "-g", group, "-f", "-", stdin=first.out).out
    assert remote.xds("export", "nobody").code == 4
    assert remote.xds("export", group, "-o", "table").code == 2


def test_group_is_described(remote: Remote, group: str) -> None:
    text = remote.xds("describe", "group", group).out
    assert "revision:  3 (r3-" in text
    assert "port 82" in text
    document = remote.xds("describe", "group", group, "-o", "json").json()
    assert [item["revision"] for item in document["revisions"]] == [3, 2, 1]
    assert remote.xds("describe", "group", "nobody").code == 4


def test_a_resource_is_described_with_its_references(remote: Remote, group: str) -> None:
    document = remote.xds("describe", "cluster", "a", "-g", group, "-o", "json").json()
    assert document["references"] == [{"how": "uses", "type": "endpoints", "name": "a", "exists": True}]
    assert document["resource"]["name"] == "a"
    used = remote.xds("describe", "endpoint", "a", "-g", group).out
    assert "used by" in used
    assert yaml.safe_load(used.partition("\n\n")[2].partition("\n\n")[2])["cluster_name"] == "a"


def test_resource_may_use_any_cluster_and_all_of_a_type(remote: Remote, request: pytest.FixtureRequest) -> None:
    name = str(request.node.name)
    by_header = {"match": {"prefix": "/"}, "route": {"cluster_header": "x"}}
    remote.server.push(name, [{**route_config("r", by_header), "vhds": {"config_source": {"ads": {}}}}])
    document = remote.xds("describe", "route", "r", "-g", name, "-o", "json").json()
    assert [(link["how"], link["type"], link["name"], link["exists"]) for link in document["references"]] == [
        ("uses", "virtual_hosts", "*", False),
        ("may use", "clusters", "*", True),
    ]
    assert "any cluster (content that cannot be read)" in remote.xds("describe", "route", "r", "-g", name).out


def test_resources_and_groups_are_deleted(remote: Remote, group: str) -> None:
    assert remote.xds("delete", "cluster", "a", "-g", group, "--dry-run").out.endswith("would change: -1 clusters\n")
    assert remote.xds("delete", "cluster", "a", "-g", group, "--if-match", "1").code == 5
    assert remote.xds("delete", "cluster", "a", "-g", group).out == f"group {group}: revision 4: -1 clusters\n"
    assert remote.xds("delete", "cluster", "a", "-g", group).code == 4
    assert remote.xds("delete", group).out == f"group {group}: deleted: -1 endpoints\n"
    assert remote.xds("delete", group).code == 4


def test_prune_deletes_the_groups_that_are_not_among_the_files(remote: Remote, group: str, tmp_path: Path) -> None:
    kept = [item["group"] for item in remote.server.get("/groups")["items"] if item["group"] != group]
    files: list[str | Path] = []
    for name in kept:
        file = tmp_path / f"{name}.yaml"
        file.write_text(remote.xds("export", name).out)
        files += ["-f", file]
    (tmp_path / "kept.yaml").write_text(yaml.safe_dump({"resources": [static_cluster("a", 80)]}))
    files += ["-f", tmp_path / "kept.yaml"]
    asked = remote.xds("apply", *files, "--prune", "--dry-run")
    assert f"group {group}: would be deleted" in asked.out
    assert f"group {group}: deleted" in remote.xds("apply", *files, "--prune").out
    assert remote.xds("get", "groups", "-o", "name").out.split() == sorted({*kept, "kept"})


def test_history_and_the_way_back(remote: Remote, group: str) -> None:
    history = remote.xds("rollout", "history", group, "--columns", "revision,message", "--no-headers")
    assert [line.split(maxsplit=1) for line in history.out.splitlines()] == [
        *(["3", "port 83"], ["2", "port 82"], ["1", "port 81"]),
    ]
    undone = remote.xds("rollout", "undo", group)
    assert (undone.code, "only endpoints changed since revision 1" in undone.err) == (4, True)
    undone = remote.xds("rollout", "undo", group, "--to", "2", "--endpoints", "-m", "why")
    assert undone.out == f"group {group}: revision 4: ~1 endpoints\n"
    assert remote.server.get(f"/groups/{group}/revisions")["items"][0]["message"] == "why"
    assert "port_value: 82" in remote.xds("get", "endpoint", "a", "-g", group).out
    kept = remote.xds("rollout", "undo", group, "--to", "1")
    assert (kept.out, "add --endpoints to roll them back too" in kept.err) == (
        f"group {group}: revision 4, unchanged\n",
        True,
    )
    assert remote.xds("rollout", "undo", group, "--to", "1", "--endpoints", "--wait", "--allow-none").code == 0
    assert "port_value: 81" in remote.xds("get", "endpoint", "a", "-g", group).out
    assert remote.xds("rollout", "undo", group, "--to", "99").code == 4
    assert remote.xds("rollout", "undo", group, "--to", "1", "--if-match", "1").code == 5


def test_nothing_before_the_first_revision(remote: Remote) -> None:
    remote.server.push("first", [static_cluster("a", 80)])
    undone = remote.xds("rollout", "undo", "first")
    assert (undone.code, "no revision before 1" in undone.err) == (4, True)
