"""Traffic assignment policies on the command line, and findings of ``validate`` about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.resources import steered_cluster, zoned_load_assignment

POLICY = {"cluster": "web", "capacity": {"rates": [{"per_endpoint_rps": 50}]}}
CLUSTER = steered_cluster("web")
ENDPOINTS = zoned_load_assignment("web", {"za": [1, 2], "zb": [3]})


@pytest.fixture
def group(request: pytest.FixtureRequest, remote: Remote) -> Iterator[str]:
    """A group with a cluster in two zones."""
    name = str(request.node.name).removeprefix("test_")[:60]
    remote.server.push(name, [CLUSTER, ENDPOINTS])
    yield name


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(POLICY))
    return file


def test_a_policy_is_set_shown_and_deleted(remote: Remote, group: str, policy: Path) -> None:
    done = remote.xds("assignment", "set", "-g", group, "-f", policy)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split() == ["CLUSTER", "SOURCE", "STANDING", "RPS", "SHARES", "WHY", "CHANGED"]
    assert remote.xds("assignment", "show", "-g", group, "-o", "name").out == "web\n"
    shown = yaml.safe_load(remote.xds("assignment", "show", "web", "-g", group, "-o", "yaml").out)
    assert shown["policy"]["strategy"] == "waterfall_by_zone"
    assert [target["endpoints"] for target in shown["targets"]] == [2, 1]
    listed = json.loads(remote.xds("assignment", "show", "-g", group, "-o", "json").out)
    assert [item["cluster"] for item in listed["items"]] == ["web"]
    assert remote.xds("assignment", "delete", "web", "-g", group, "--dry-run").code == 0
    assert remote.xds("assignment", "delete", "web", "-g", group).code == 0
    assert remote.xds("assignment", "show", "web", "-g", group).code == 4


def test_a_dry_run_changes_nothing(remote: Remote, group: str, policy: Path) -> None:
    done = remote.xds("assignment", "set", "-g", group, "-f", policy, "--dry-run")
    assert done.code == 0
    assert "dry run: nothing was changed" in done.err
    assert remote.xds("assignment", "show", "web", "-g", group).code == 4


def test_what_is_wrong_with_a_policy_is_told_at_once(remote: Remote, group: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps({**POLICY, "strategy": "fountain", "intervals": 1}))
    done = remote.xds("assignment", "set", "-g", group, "-f", file)
    assert done.code == 3
    assert "/strategy" in done.err and "/intervals" in done.err
    assert remote.xds("assignment", "set", "-g", group, "-f", tmp_path / "none").code == 2
    assert remote.xds("assignment", "set", "-g", group, "-f", "-", stdin="[1]").code == 3
    assert remote.xds("assignment", "set", "-g", group, "-f", "-", stdin="{}").code == 2


def test_a_policy_over_another_one(remote: Remote, group: str, policy: Path) -> None:
    remote.xds("assignment", "set", "-g", group, "-f", policy)
    assert remote.xds("assignment", "set", "-g", group, "-f", policy, "--if-match", "p-00000000").code == 5
    etag = yaml.safe_load(remote.xds("assignment", "show", "web", "-g", group, "-o", "yaml").out)["etag"]
    assert remote.xds("assignment", "delete", "web", "-g", group, "--if-match", etag).code == 0


def test_what_stands_in_the_way_is_warned_of(remote: Remote, group: str, policy: Path) -> None:
    remote.server.push(group, [{**CLUSTER, "lrs_server": None}, ENDPOINTS])
    done = remote.xds("assignment", "set", "-g", group, "-f", policy)
    assert done.code == 0
    assert "warning: policy/web" in done.err
    assert "lrs_server: {self: {}}" in done.err
    assert remote.xds("assignment", "set", "-g", group, "-f", policy, "--strict").code == 3


def test_validate_warns_of_what_a_policy_lacks(remote: Remote, group: str, policy: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "edge.yaml"
    snapshot.write_text(yaml.safe_dump({"resources": [{**CLUSTER, "common_lb_config": None}, ENDPOINTS]}))
    done = remote.xds("validate", "-f", snapshot, "--policy", policy, "--failure-threshold", "warning")
    assert done.code == 3
    assert "policy.yaml: warning: policy/web" in done.out
    assert "locality_weighted_lb_config" in done.out
    assert remote.xds("validate", "-f", snapshot, "--failure-threshold", "warning").code == 0
    live = ("validate", "-f", snapshot, "-g", group, "--against", "live", "--failure-threshold", "warning")
    assert remote.xds(*live).code == 0
    remote.xds("assignment", "set", "-g", group, "-f", policy)
    assert "locality_weighted_lb_config" in remote.xds(*live).out


def test_validate_tells_what_is_wrong_with_a_policy(remote: Remote, tmp_path: Path) -> None:
    snapshot, file = tmp_path / "edge.yaml", tmp_path / "wrong.yaml"
    snapshot.write_text(yaml.safe_dump({"resources": [CLUSTER, ENDPOINTS]}))
    file.write_text("capacity: {}\ncluster: web\n")
    done = remote.xds("validate", "-f", snapshot, "--policy", file)
    assert done.code == 3
    assert "wrong.yaml: error: /capacity" in done.out
