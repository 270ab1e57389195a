"""``validate``, ``convert``, ``diff``, and what ``apply`` does beyond one group."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.commands import xds
from tests.support.envoy import envoy_binary
from tests.support.process import REPOSITORY
from tests.support.resources import (
    CERTIFICATE_PEM,
    KEY_PEM,
    cluster_load_assignment,
    eds_cluster,
    refused_cluster,
    route,
    route_config,
    static_cluster,
    tls_secret,
)
from xds.push.directory import scan


def snapshot(path: Path, *resources: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"resources": list(resources)}, sort_keys=False))
    return path


def test_all_findings_of_a_file_have_their_places(tmp_path: Path) -> None:
    file = tmp_path / "edge.yaml"
    shutil.copy(REPOSITORY / "examples/broken/refused-by-server.yaml", file)
    found = xds("validate", "-f", file)
    assert found.code == 3
    assert f"{file}:6:5: error: clusters/shop /conect_timeout: " in found.out
    assert '(did you mean "connect_timeout"?)' in found.out
    assert len(found.out.splitlines()) == 3
    assert "3 errors" in found.err
    items = xds("validate", "-f", file, "-o", "json").json()["items"]
    assert [item["source"].partition(":")[2] for item in items] == ["6:5", "11:5", "18:59"]


def test_findings_between_files_have_a_place(tmp_path: Path) -> None:
    snapshot(tmp_path / "edge" / "a.yaml", static_cluster("a", 80), static_cluster("b", 80))
    snapshot(tmp_path / "edge" / "b.yaml", route_config("r", route("c")))
    found = xds("validate", "-g", "edge", "-f", tmp_path / "edge")
    assert (found.code, len(found.out.splitlines())) == (0, 1)
    assert f"{tmp_path}/edge/b.yaml:" in found.out
    assert "warning: routes/r /virtual_hosts/0/routes/0/route/cluster: there is no cluster 'c'" in found.out
    assert xds("validate", "-g", "edge", "-f", tmp_path / "edge", "--failure-threshold", "warning").code == 3
    snapshot(tmp_path / "edge" / "c.yaml", static_cluster("a", 81))
    twice = xds("validate", "-g", "edge", "-f", tmp_path / "edge")
    assert (twice.code, f"{tmp_path}/edge/c.yaml:" in twice.out) == (3, True)


def test_a_good_file_says_so_on_standard_error(tmp_path: Path) -> None:
    good = xds("validate", "-f", snapshot(tmp_path / "edge.yaml", static_cluster("a", 80)))
    assert (good.code, good.out, good.err) == (0, "", "1 resource in 1 group: 0 errors, 0 warnings\n")
    assert xds("validate", "-q", "-f", tmp_path / "edge.yaml").err == ""


def test_envoy_is_asked(tmp_path: Path) -> None:
    file = snapshot(tmp_path / "edge.yaml", refused_cluster("a"))
    assert xds("validate", "-f", file).code == 0
    asked = xds("validate", "-f", file, "--envoy", envoy_binary())
    assert (asked.code, "clusters/a" in asked.out) == (3, True)
    assert xds("validate", "-f", file, "--envoy", tmp_path / "absent").code == 2


def test_validation_against_the_content_of_the_server(remote: Remote, tmp_path: Path) -> None:
    whole = snapshot(tmp_path / "live.yaml", static_cluster("a", 80), route_config("r", route("a")))
    remote.xds("apply", "-f", whole)
    snapshot(whole, route_config("r", route("a")))
    assert "this push deletes" in remote.xds("validate", "-f", whole, "--against", "live").out
    assert xds("validate", "-f", whole, "--against", "live", environment={"XDS_ADDR": "127.0.0.1:1"}).code == 7


@pytest.mark.parametrize(
    "flags", [["--against", "dead"], ["--failure-threshold", "hint"], ["--timeout", "soon"], ["-f", "/nonexistent"]]
)
def test_wrong_usage_of_validate(flags: list[str], tmp_path: Path) -> None:
    file = snapshot(tmp_path / "edge.yaml", static_cluster("a", 80))
    assert xds("validate", "-f", file, *flags).code == 2


def test_a_static_configuration_becomes_a_snapshot_and_a_bootstrap(remote: Remote, tmp_path: Path) -> None:
    static = REPOSITORY / "examples/hello/envoy-static.yaml"
    made = [tmp_path / name for name in ("snapshot.yaml", "bootstrap.yaml")]
    where = ("--xds-addr", "10.0.0.1:18000")
    converted = xds("convert", static, "--snapshot", made[0], "--bootstrap", made[1], *where)
    assert (converted.code, converted.out) == (0, "")
    assert "10.0.0.1" in made[1].read_text()
    assert xds("convert", "-", stdin=static.read_text()).out == made[0].read_text()
    assert remote.xds("apply", "-g", "converted", "-f", made[0]).code == 0
    assert xds("convert", "-", stdin="- 1").code == 3
    assert xds("convert", tmp_path / "absent").code == 2


def test_differences_of_files_by_content(remote: Remote, tmp_path: Path) -> None:
    file = snapshot(tmp_path / "diffed.yaml", static_cluster("a", 80), static_cluster("b", 80))
    new = remote.xds("diff", "-f", file)
    assert (new.code, "+++ diffed (files)/clusters/a" in new.out) == (1, True)
    remote.xds("apply", "-f", file)
    same = remote.xds("diff", "-f", file)
    assert (same.code, same.out, same.err) == (0, "", "")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"resources": [static_cluster("a", 81), static_cluster("c", 80)]}))
    changed = remote.xds("diff", "-f", other, "-g", "diffed")
    assert changed.code == 1
    assert re.search(r"^- +port_value: 80\n\+ +port_value: 81$", changed.out, re.MULTILINE)
    document = remote.xds("diff", "-f", other, "-g", "diffed", "-o", "json").json()
    assert [(change["name"], change["change"]) for change in document["changes"]] == [
        *(("a", "changed"), ("b", "removed"), ("c", "added")),
    ]
    remote.xds("apply", "-f", other, "-g", "diffed")
    between = remote.xds("diff", "-g", "diffed", "--from", "1", "--to", "2")
    assert (between.code, "diffed (revision 1)/clusters/b" in between.out) == (1, True)
    assert remote.xds("diff", "-g", "diffed", "--from", "2", "--to", "1", "-o", "name").out.split() == [
        *("clusters/a", "clusters/b", "clusters/c"),
    ]


def test_wrong_usage_and_absence_are_not_differences(remote: Remote, tmp_path: Path) -> None:
    bad = snapshot(tmp_path / "bad.yaml", {**static_cluster("a", 80), "nmae": 1})
    assert remote.xds("diff").code == 2
    assert remote.xds("diff", "-f", bad, "--node", "n").code == 2
    assert remote.xds("diff", "-f", bad).code == 3
    assert remote.xds("diff", "--node", "nobody").code == 4


def test_secrets_are_compared_and_not_shown(remote: Remote, tmp_path: Path) -> None:
    one, other = (KEY_PEM.replace("MIIE", key) for key in ("MIIEkey1", "MIIEkey2"))
    files = [
        snapshot(tmp_path / f"{number}.yaml", tls_secret("s", CERTIFICATE_PEM, key))
        for number, key in enumerate((one, other))
    ]
    remote.xds("apply", "-g", "secret", "-f", files[0])
    hidden = remote.xds("diff", "-g", "secret", "-f", files[1])
    assert (hidden.code, "MIIEkey" in hidden.out) == (1, False)
    assert "redacted" in hidden.out
    assert "MIIEkey2" in remote.xds("diff", "-g", "secret", "-f", files[1], "--show-secrets").out
    assert "MIIEkey1" not in remote.xds("get", "secret", "s", "-g", "secret").out
    assert "MIIEkey1" in remote.xds("get", "secret", "s", "-g", "secret", "--show-secrets").out
    exported = remote.xds("export", "secret")
    assert (
        remote.xds("apply", "-g", "secret", "-f", "-", stdin=exported.out).out
        == "group secret: revision 1, unchanged\n"
    )


def test_groups_are_applied_together_or_not_at_all(remote: Remote, tmp_path: Path) -> None:
    good = snapshot(tmp_path / "together-1.yaml", static_cluster("a", 80))
    bad = snapshot(tmp_path / "together-2.yaml", {**static_cluster("a", 80), "nmae": 1})
    refused = remote.xds("apply", "-f", good, "-f", bad)
    assert (refused.code, f"{bad}:" in refused.err) == (3, True)
    assert remote.xds("get", "snapshot", "-g", "together-1").code == 4
    snapshot(bad, eds_cluster("b"), cluster_load_assignment("b", 80))
    assert len(remote.xds("apply", "-f", good, "-f", bad).out.splitlines()) == 2
    assert remote.xds("apply", "-f", good, "-f", bad, "--if-match", "1").code == 2


def test_dry_runs(remote: Remote, tmp_path: Path) -> None:
    file = snapshot(tmp_path / "dry.yaml", static_cluster("a", 80))
    assert remote.xds("apply", "-f", file, "--dry-run").out == "group dry: would change: +1 clusters\n"
    offline = xds("apply", "-f", file, "--dry-run=client", environment={"XDS_ADDR": "127.0.0.1:1"})
    assert (offline.code, offline.out) == (0, "group dry: 1 resource, valid\n")
    assert remote.xds("get", "snapshot", "-g", "dry").code == 4
    assert remote.xds("apply", "-f", file, "--dry-run=nobody").code == 2


def test_strict_makes_errors_of_warnings(remote: Remote, tmp_path: Path) -> None:
    file = snapshot(tmp_path / "strict.yaml", route_config("r", route("nowhere")))
    assert remote.xds("apply", "-f", file, "--strict").code == 3
    told = remote.xds("apply", "-f", file)
    assert (told.code, f"warning: {file}:" in told.err) == (0, True)


def test_a_directory_is_read_as_watch_reads_it(remote: Remote, tmp_path: Path) -> None:
    """Each file and each subdirectory is a group; hidden files, as of a mounted ConfigMap, are none."""
    root = tmp_path / "groups"
    snapshot(root / "read-edge.yaml", static_cluster("a", 80))
    snapshot(root / "read-core" / "clusters.yaml", static_cluster("b", 80))
    snapshot(root / "read-core" / "deep" / "more.yaml", static_cluster("c", 80))
    snapshot(root / "read-core" / "..2026" / "more.yaml", static_cluster("c", 80))
    snapshot(root / ".hidden.yaml", static_cluster("d", 80))
    (root / "README.md").write_text("# Groups")
    assert {path.name for path in root.iterdir()} == {"read-edge.yaml", "read-core", ".hidden.yaml", "README.md"}
    assert sorted(scan(root)) == ["read-core", "read-edge"]
    pushed = remote.xds("apply", "-f", root, "-o", "json").json()
    assert [each["group"] for each in pushed] == ["read-core", "read-edge"]
    assert remote.xds("get", "clusters", "-g", "read-core", "-o", "name").out.split() == ["b", "c"]
    assert remote.xds("diff", "-f", root).code == 0
    assert "2 groups" in remote.xds("validate", "-f", root).err
    whole = remote.xds("apply", "-f", root, "-g", "read-whole", "-o", "json").json()
    assert sorted(whole["changes"]["clusters"]["added"]) == ["a", "b", "c"]
    (tmp_path / "empty").mkdir()
    assert "has no .json, .yaml, .yml files" in remote.xds("apply", "-f", tmp_path / "empty").err
