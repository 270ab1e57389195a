"""``xds apply`` with errors or warnings: file, line, column and hint; with errors nothing is applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.support.commands import xds

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
GOOD = f"""\
resources:
- "@type": {CLUSTER}
  name: good
"""
BROKEN = f"""\
# two of one type
resources:
- "@type": {CLUSTER}
  name: c1
  outlier_detection:
    consecutive_5x: 3
---
resources:
- "@type": {CLUSTER}
  name: c2
  connect_timeout: 250ms
"""
LAX = f"""\
resources:
- "@type": {CLUSTER}
  name: lax

  type: static
"""


def _is_absent(remote: Remote, group: str) -> bool:
    return remote.xds("get", "clusters", "-g", group).code == 4


def test_a_broken_file_is_reported_by_line_and_column_and_nothing_is_applied(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    broken = tmp_path / "b.yaml"
    broken.write_text(BROKEN)
    ran = remote.xds("apply", "-g", "broken", "-f", tmp_path)
    assert (ran.code, ran.out) == (3, "")
    assert f"{broken}:6:5 clusters/c1 /outlier_detection/consecutive_5x: " in ran.err
    assert 'did you mean "consecutive_5xx"?' in ran.err
    assert f"{broken}:11:3 clusters/c2 /connect_timeout: " in ran.err
    assert 'write "0.250s"' in ran.err
    assert _is_absent(remote, "broken")


def test_a_broken_file_of_one_group_keeps_the_others_from_being_applied(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(GOOD)
    (tmp_path / "second.json").write_text(
        json.dumps({"resources": [{"@type": CLUSTER, "name": "c1", "nope": 1}]}, indent=1)
    )
    ran = remote.xds("apply", "-f", tmp_path / "first.yaml", "-f", tmp_path / "second.json")
    assert ran.code == 3
    assert f"{tmp_path / 'second.json'}:6:4 clusters/c1 /nope: " in ran.err
    assert _is_absent(remote, "first")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("resources:\n- name: a\n  name: b\n", "3:3"),
        ('{"resources": [\n', "2:1"),
        ("resources: []\nresuorces: []\n", "2:1"),
        ("version: [1]\nresources: []\n", "1:1"),
    ],
)
def test_errors_around_the_resources_are_reported_without_a_server(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    ran = xds("apply", "-f", file, environment={"XDS_ADDR": "http://127.0.0.1:1"})
    assert ran.code == 3
    assert ran.err.startswith(f"{file}:{place}") or f" {file}:{place}" in ran.err


def test_standard_input_has_lines_too(remote: Remote) -> None:
    ran = remote.xds("apply", "-g", "piped", "-f", "-", stdin=BROKEN)
    assert ran.code == 3
    assert "standard input:6:5 clusters/c1" in ran.err


def test_warnings_name_the_file_and_stop_nothing_unless_strict(remote: Remote, tmp_path: Path) -> None:
    file = tmp_path / "lax.yaml"
    file.write_text(LAX)
    strict = remote.xds("apply", "-g", "lax", "-f", file, "--strict")
    assert strict.code == 3
    assert f"{file}:5:3 clusters/lax /type: " in strict.err
    assert _is_absent(remote, "lax")
    ran = remote.xds("apply", "-g", "lax", "-f", file)
    assert ran.code == 0
    assert f"warning: {file}:5:3 clusters/lax /type: 'static' is read as STATIC (write STATIC)" in ran.err
