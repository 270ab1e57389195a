"""Traffic assignment policies on the command line, and findings of ``validate`` about them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.resources import steered_cluster, zoned_load_assignment
from xds.cli.output import Color
from xds.cli.table import Style
from xds.steering.tables import BAR_ELSEWHERE, BAR_MOST, bar, targets_text

NEVER = Color.NEVER
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


def test_a_second_table_has_the_targets(remote: Remote, group: str, policy: Path) -> None:
    remote.xds("assignment", "set", "-g", group, "-f", policy)
    sources, targets = remote.xds("assignment", "show", "web", "-g", group).out.split("\n\n")
    assert sources.split()[0] == "CLUSTER"
    header, near, far = targets.splitlines()
    assert header.split() == ["CLUSTER", "TARGET", "HEALTHY", "LOAD", "CAPACITY", "FULL", "DECIDED", "REAL"]
    assert near.split() == ["web", "r/za", "2/2", "0.0", "100", "0%", "░" * BAR_ELSEWHERE, "-", "-"]
    assert far.split()[:5] == ["web", "r/zb", "1/1", "0.0", "50"]
    assert remote.xds("assignment", "show", "-g", group).out.split("\n\n")[1] == targets
    assert "DECIDED-RPS" in remote.xds("assignment", "show", "-g", group, "-o", "wide").out
    columns = remote.xds("assignment", "show", "-g", group, "--columns", "cluster,source").out
    assert columns.splitlines()[0].split() == ["CLUSTER", "SOURCE"] and "TARGET" not in columns


def test_the_history_of_a_cluster_that_nobody_reports_is_empty(remote: Remote, group: str, policy: Path) -> None:
    remote.xds("assignment", "set", "-g", group, "-f", policy)
    done = remote.xds("assignment", "history", "web", "-g", group)
    assert done.out.split() == ["NUMBER", "AGE", "SOURCE", "WHAT", "RPS", "BEFORE", "AFTER", "WHY"]
    assert remote.xds("assignment", "history", "none", "-g", group).code == 4


@pytest.mark.parametrize(
    ("part", "shown"),
    [(None, "░" * 8), (0.0, "░" * 8), (0.5, "████░░░░"), (0.53, "████▏░░░"), (1.0, "█" * 8), (7.0, "█" * 8)],
)
def test_a_bar_fills_with_the_part(part: float | None, shown: str) -> None:
    assert bar(part, 8) == shown


def test_a_bar_without_block_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert bar(0.5, 8) == "[####----]"


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "bar_width"), [(80, 10), (300, BAR_MOST), (70, 0)])
def test_the_bar_takes_what_the_terminal_has_left(
    columns: int, bar_width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", _Terminal(io.BytesIO(), "utf-8"))
    monkeypatch.setenv("COLUMNS", str(columns))
    shares = {"decided_share": 0.5, "real_share": 0.25, "utilisation": 0.5, "decided_rps": 5.0}
    place = {"region": "europe-west", "zone": "a", "sub_zone": ""}
    load = {"load_rps": 5.0, "capacity_rps": 10.0, "endpoints": 3, "healthy": 3, "pushed_priority": 0, "metrics": {}}
    text = targets_text([{"cluster": "web", "targets": [{"locality": place, **load, **shares}]}], Style(color=NEVER))
    assert max(map(len, text.splitlines())) <= max(columns, 70)
    assert sum(text.count(each) for each in "█▌░") == bar_width


def test_a_dry_run_changes_nothing(remote: Remote, group: str, policy: Path) -> None:
    done = remote.xds("assignment", "set", "-g", group, "-f", policy, "--dry-run")
    assert done.code == 0
    assert "dry run: nothing was changed" in done.err
    assert remote.xds("assignment", "show", "web", "-g", group).code == 4


def test_all_errors_of_a_policy_are_reported_together(remote: Remote, group: str, tmp_path: Path) -> None:
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


def test_obstacles_of_a_policy_are_warned_of(remote: Remote, group: str, policy: Path) -> None:
    remote.server.push(group, [{**CLUSTER, "lrs_server": None}, ENDPOINTS])
    done = remote.xds("assignment", "set", "-g", group, "-f", policy)
    assert done.code == 0
    assert "warning: policy/web" in done.err
    assert "lrs_server: {self: {}}" in done.err
    assert remote.xds("assignment", "set", "-g", group, "-f", policy, "--strict").code == 3


def test_validate_warns_of_missing_parts_of_a_policy(remote: Remote, group: str, policy: Path, tmp_path: Path) -> None:
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


def test_validate_reports_errors_of_a_policy(remote: Remote, tmp_path: Path) -> None:
    snapshot, file = tmp_path / "edge.yaml", tmp_path / "wrong.yaml"
    snapshot.write_text(yaml.safe_dump({"resources": [CLUSTER, ENDPOINTS]}))
    file.write_text("capacity: {}\ncluster: web\n")
    done = remote.xds("validate", "-f", snapshot, "--policy", file)
    assert done.code == 3
    assert "wrong.yaml: error: /capacity" in done.out
