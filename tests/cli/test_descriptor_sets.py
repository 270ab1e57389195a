"""``codec.descriptor_sets`` of the server and ``--descriptor-set`` of ``xds validate``: types of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.support.commands import xds
from tests.support.process import LOOPBACK
from tests.support.server import ServerProcess
from tests.support.server_forks import serve_to_end

TYPE = "type.googleapis.com/acme.v1.Feature"
PROTO = 'syntax = "proto3"; package acme.v1; message Feature { string name = 1; uint32 share = 2; }'


@pytest.fixture
def descriptor_set(tmp_path: Path) -> Path:
    (tmp_path / "feature.proto").write_text(PROTO)
    found = tmp_path / "feature.pb"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{tmp_path}", f"--descriptor_set_out={found}"]
    subprocess.run([*command, "feature.proto"], check=True, timeout=60)
    return found


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    good, broken = tmp_path / "good.json", tmp_path / "broken.json"
    good.write_text(json.dumps({"resources": [{"@type": TYPE, "name": "f", "share": 5}]}))
    broken.write_text(json.dumps({"resources": [{"@type": TYPE, "name": "f", "shaer": 5}]}))
    return good, broken


def test_a_server_takes_types_of_its_settings(tmp_path: Path, descriptor_set: Path, files: tuple[Path, Path]) -> None:
    good, broken = files
    config = tmp_path / "xds.yaml"
    config.write_text(f"codec: {{descriptor_sets: [{descriptor_set}]}}\n")
    with ServerProcess(tmp_path, ["--store", "memory", "--config", str(config)]) as server:
        remote = Remote(server)
        assert remote.xds("apply", "-g", "g", "-f", good).code == 0
        held = server.request("GET", "/api/v1/groups/g/snapshot").json()
        assert held["resources"] == [{"@type": TYPE, "name": "f", "share": 5}]
        refused = remote.xds("apply", "-g", "g", "-f", broken)
    assert refused.code == 3
    assert 'did you mean "share"?' in refused.err


def test_a_server_does_not_start_with_a_broken_set(tmp_path: Path, descriptor_set: Path) -> None:
    broken = tmp_path / "x.pb"
    broken.write_bytes(b"nothing")
    config = tmp_path / "xds.yaml"
    for path, words in ((broken, "not a descriptor set"), (tmp_path / "none.pb", "No such file")):
        config.write_text(f"codec: {{descriptor_sets: [{descriptor_set}, {path}]}}\n")
        ports = ["--grpc", f"{LOOPBACK}:0", "--http", f"{LOOPBACK}:0"]
        code, log = serve_to_end(tmp_path, "--store", "memory", "--config", config, *ports)
        assert code == 1
        assert f"cannot serve: {path}: {words}" in log


def test_validation_takes_types_of_a_flag(descriptor_set: Path, files: tuple[Path, Path]) -> None:
    good, broken = files
    assert xds("validate", "-f", good, "--descriptor-set", descriptor_set).code == 0
    assert xds("validate", "-f", good).code == 3
    refused = xds("validate", "-f", broken, "--descriptor-set", descriptor_set)
    assert refused.code == 3
    assert f"{broken}:1:" in refused.out + refused.err
    missing = xds("validate", "-f", good, "--descriptor-set", "/nowhere.pb")
    assert missing.code == 2
    assert "/nowhere.pb: No such file" in missing.err
