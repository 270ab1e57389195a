"""``xds config-entry`` against a server: files, findings with places, exit codes, history, undo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.process import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "config-entries"


def resolver(name: str, **fields: object) -> dict[str, object]:
    return {"Kind": "service-resolver", "Name": name, **fields}


def written(remote: Remote, *entries: dict[str, object], **flags: str) -> str:
    arguments = [part for flag, value in flags.items() for part in (f"--{flag}", value)]
    ran = remote.xds("config-entry", "write", "-f", "-", *arguments, stdin=json.dumps(entries))
    assert ran.code == 0, ran.err
    return ran.out


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a service that no other test writes."""
    return str(request.node.name).replace("_", "-")


def test_files_are_written_read_and_listed(remote: Remote) -> None:
    out = remote.xds("config-entry", "write", "-f", EXAMPLE).out
    assert "+ service-splitter/web\n" in out
    assert "chains: web" in out
    shown = remote.xds("config-entry", "read", "service-splitter", "web").out
    assert yaml.safe_load(shown)["Splits"] == [
        {"Weight": 95, "ServiceSubset": "v1"},
        {"Weight": 5, "ServiceSubset": "v2"},
    ]
    again = remote.xds("config-entry", "write", "-f", "-", stdin=shown)
    assert again.out.endswith("unchanged\n")
    names = remote.xds("config-entry", "list", "service-router", "-o", "name")
    assert names.out == "service-router/web\n"
    assert remote.xds("config-entry", "list").out.splitlines()[0].split() == ["KIND", "NAME", "REVISION"]
    document = remote.xds("config-entry", "read", "service-splitter", "web", "-o", "json").json()
    assert document["ModifyIndex"] >= document["CreateIndex"] > 0


def test_a_dry_run_changes_nothing(remote: Remote, name: str) -> None:
    text = json.dumps(resolver(name))
    ran = remote.xds("config-entry", "write", "-f", "-", "--dry-run", stdin=text)
    assert (ran.code, f"would change; chains: {name}" in ran.out) == (0, True)
    assert remote.xds("config-entry", "read", "service-resolver", name).code == 4


def test_findings_name_file_line_and_column(remote: Remote, name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(f"Kind: service-resolver\nName: {name}\nConectTimeout: 5s\n")
    second.write_text(f"- Kind: service-resolver\n  Name: {name}-2\n  ConnectTimeout: soon\n")
    ran = remote.xds("config-entry", "write", "-f", tmp_path)
    assert ran.code == 3
    assert f"{first}:3:1" in ran.err
    assert 'did you mean "ConnectTimeout"?' in ran.err
    assert f"{second}:3:" in ran.err
    assert remote.xds("config-entry", "read", "service-resolver", name).code == 4


def test_a_broken_chain_is_refused_with_its_path(remote: Remote, name: str) -> None:
    written(remote, {"Kind": "service-defaults", "Name": name, "Protocol": "http"}, resolver(name, Subsets={"v1": {}}))
    splitter: dict[str, object] = {
        "Kind": "service-splitter",
        "Name": name,
        "Splits": [{"Weight": 100, "ServiceSubset": "v2"}],
    }
    ran = remote.xds("config-entry", "write", "-f", "-", stdin=json.dumps(splitter))
    assert ran.code == 3
    assert f'the chain of "{name}" would break' in ran.err
    assert f"path: splitter:{name}.default.default" in ran.err
    splitter["Splits"] = [{"Weight": 100, "ServiceSubset": "v1"}]
    written(remote, splitter)
    assert remote.xds("config-entry", "delete", "service-resolver", name).code == 3
    assert remote.xds("config-entry", "read", "service-resolver", name).code == 0


@pytest.mark.parametrize("suffix", [".hcl", ".yaml"])
def test_hcl_is_refused_by_name(remote: Remote, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"web{suffix}"
    file.write_text('Kind = "service-resolver"\nName = "web"\nSubsets = {\n  v1 = { Filter = "x" }\n}\n')
    for path in (file, tmp_path):
        for command in ("write", "diff"):
            ran = remote.xds("config-entry", command, "-f", path)
            assert ran.code == 3
            assert str(file) in ran.err
            assert "HCL is not read: write JSON or YAML" in ran.err


def test_preconditions(remote: Remote, name: str) -> None:
    written(remote, resolver(name))
    revision = remote.xds("config-entry", "read", "service-resolver", name, "-o", "json").json()["ModifyIndex"]
    text = json.dumps(resolver(name, ConnectTimeout="9s"))
    assert remote.xds("config-entry", "write", "-f", "-", "--if-match", f"{revision + 1}", stdin=text).code == 5
    assert remote.xds("config-entry", "write", "-f", "-", "--if-match", f"{revision}", stdin=text).code == 0
    assert remote.xds("config-entry", "delete", "service-resolver", name, "--if-match", f"{revision}").code == 5
    assert remote.xds("config-entry", "delete", "service-resolver", name, "--if-match", f"{revision + 1}").code == 0
    assert remote.xds("config-entry", "delete", "service-resolver", name).code == 4


def test_differences(remote: Remote, name: str, tmp_path: Path) -> None:
    file = tmp_path / "entry.json"
    file.write_text(json.dumps(resolver(name, ConnectTimeout="5s")))
    added = remote.xds("config-entry", "diff", "-f", file)
    assert (added.code, f"+++ service-resolver/{name}" in added.out) == (1, True)
    assert remote.xds("config-entry", "write", "-f", file).code == 0
    assert remote.xds("config-entry", "diff", "-f", file).code == 0
    file.write_text(json.dumps(resolver(name, ConnectTimeout="6s")))
    changed = remote.xds("config-entry", "diff", "-f", file, "-o", "json")
    assert (changed.code, changed.json()["items"][0]["to"]["ConnectTimeout"]) == (1, "6s")
    newest = remote.xds("config-entry", "history", "-o", "json").json()["items"][0]["revision"]
    past = remote.xds("config-entry", "diff", "--to", str(newest), "-o", "name")
    assert (past.code, past.out) == (1, f"service-resolver/{name}\n")
    assert remote.xds("config-entry", "diff").code == 2
    assert remote.xds("config-entry", "diff", "-f", file, "--to", "1").code == 2


def test_undo_takes_back_the_last_change(remote: Remote, name: str) -> None:
    written(remote, resolver(name), message="first")
    kept = remote.xds("config-entry", "read", "service-resolver", name).out
    written(remote, resolver(name, ConnectTimeout="9s"), message="slower")
    planned = remote.xds("config-entry", "undo", "--dry-run")
    assert (planned.code, "would change" in planned.out) == (0, True)
    ran = remote.xds("config-entry", "undo", "-m", "back")
    assert ran.code == 0
    assert "slower" in ran.err
    before, after = (
        yaml.safe_load(kept),
        yaml.safe_load(remote.xds("config-entry", "read", "service-resolver", name).out),
    )
    assert {**after, "ModifyIndex": 0} == {**before, "ModifyIndex": 0}
    lines = remote.xds("config-entry", "history").out.splitlines()
    assert "rollback to" in lines[1]
    assert "undone by" in lines[2]
    assert remote.xds("config-entry", "undo", "--to", "99999").code == 4


def test_kinds_that_are_not_ours_are_refused_by_name(remote: Remote) -> None:
    ran = remote.xds("config-entry", "read", "service-intentions", "web")
    assert (ran.code, "service-intentions" in ran.err) == (2, True)
    assert remote.xds("config-entry", "list", "mesh").code == 2
