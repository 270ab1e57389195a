"""Live endpoints on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.resources import cluster_load_assignment, eds_cluster, load_assignment

ONE, TWO, THREE = (f"127.0.0.1:{port}" for port in (81, 82, 83))


@pytest.fixture
def group(request: pytest.FixtureRequest, remote: Remote) -> Iterator[str]:
    """A group with a cluster of two endpoints."""
    name = str(request.node.name).removeprefix("test_")[:60]
    remote.server.push(name, [eds_cluster("web"), cluster_load_assignment("web", 81, 82)])
    yield name


def shown(remote: Remote, group: str) -> dict[str, tuple[str, int | None]]:
    """Health and weight of the endpoints by address."""
    done = remote.xds("endpoints", "show", "web", "-g", group, "-o", "json")
    assert done.code == 0, done.err
    return {each["address"]: (each["health"], each["weight"]) for each in json.loads(done.out)["endpoints"]}


def test_endpoints_are_added_changed_drained_taken_back_and_removed(remote: Remote, group: str) -> None:
    done = remote.xds("endpoints", "add", "web", THREE, "-g", group, "--weight", "4")
    assert done.code == 0, done.err
    assert [line.split()[:3] for line in done.out.splitlines()] == [
        ["ADDRESS", "HEALTH", "WEIGHT"],
        [ONE, "UNKNOWN", "-"],
        [TWO, "UNKNOWN", "-"],
        [THREE, "UNKNOWN", "4"],
    ]
    assert "web of group" in done.err and "by hand" in done.err
    assert remote.xds("endpoints", "drain", "web", ONE, TWO, "-g", group, "--for", "1h").code == 0
    assert shown(remote, group)[ONE] == ("DRAINING", None)
    assert remote.xds("endpoints", "add", "web", TWO, "-g", group, "--health", "unhealthy").code == 0
    assert shown(remote, group)[TWO] == ("UNHEALTHY", None)
    assert remote.xds("endpoints", "remove", "web", ONE, "-g", group, "--now").code == 0
    assert set(shown(remote, group)) == {TWO, THREE}
    assert remote.xds("endpoints", "delete", "web", "-g", group, "--now").code == 0
    assert set(shown(remote, group)) == {ONE, TWO}
    assert remote.xds("endpoints", "delete", "web", "-g", group).code == 4


def test_the_list_has_owners_and_get_shows_live_assignments(remote: Remote, group: str, tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(load_assignment("web", 83)))
    before = remote.xds("endpoints", "list", "-g", group)
    assert before.out.splitlines()[1].split()[:3] == ["web", "pushed", "2"]
    assert remote.xds("endpoints", "list", "-g", group, "--live", "--no-headers").out == ""
    dry = remote.xds("endpoints", "set", "web", "-g", group, "-f", file, "--dry-run")
    assert dry.code == 0 and "dry run" in dry.err
    assert set(shown(remote, group)) == {ONE, TWO}
    assert remote.xds("endpoints", "set", "web", "-g", group, "-f", file, "--drain", "1h").code == 0
    row = remote.xds("endpoints", "list", "-g", group, "--live", "--no-headers").out.split()
    assert row[:3] == ["web", "by", "hand"] and row[4:6] == ["3", "2"], row
    wide = remote.xds("get", "endpoints", "-g", group, "-o", "wide", "--no-headers").out.split()
    assert wide[0:2] == ["endpoints", "web"] and wide[-1] == "hand"
    assert "83" not in remote.xds("get", "endpoints", "web", "-g", group, "-o", "yaml").out, "what was pushed"


def test_compare_and_set_warnings_and_usage(remote: Remote, group: str) -> None:
    assert remote.xds("endpoints", "add", "web", THREE, "-g", group, "--if-match", "e-12345678").code == 5
    done = remote.xds("endpoints", "remove", "web", "127.0.0.1:99", "-g", group)
    assert done.code == 0 and "there is no endpoint 127.0.0.1:99" in done.err
    assert remote.xds("endpoints", "remove", "web", "127.0.0.1:98", "-g", group, "--strict").code == 3
    assert remote.xds("endpoints", "add", "web", "web:80", "-g", group).code == 3
    assert remote.xds("endpoints", "add", "web", THREE, "-g", group, "--locality", "/").code == 2
    done = remote.xds("endpoints", "delete", "web", "-g", group, "--now", "--drain", "5s")
    assert done.code == 2 and "not both" in done.err
    assert remote.xds("endpoints", "list", "-g", "none").code == 4
