"""Consul's own clients against a real server: the Go client here, the command line where it is built."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.consul.clients import CONSUL_CLIENT
from bench.peers.go_program import build
from tests.support.server import ServerProcess

GO_TIMEOUT_S = 2_000  # the first run builds Consul's packages, on whatever machine
RUN_S = 100

pytestmark = [pytest.mark.soak, pytest.mark.timeout(GO_TIMEOUT_S), pytest.mark.xdist_group("consul")]

TOLD: dict[str, Any] = {
    "set proxy-defaults": True,
    "set splitter": True,
    "set router": True,
    "create resolver": True,
    "create resolver again": False,
    "set wrong splitter": "500 (service-splitter/web /Splits: the sum of all split weights must be 100, not 50",
    "set mesh": "400 (Request decoding failed: /Kind: config entries of the kind mesh are not supported",
    "get splitter": {
        "Kind": "service-splitter",
        "Name": "web",
        "Splits": [{"Weight": 90}, {"Weight": 10, "Service": "api"}],
        "CreateIndex": 2,
        "ModifyIndex": 2,
    },
    "get router": {
        "Kind": "service-router",
        "Name": "web",
        "Routes": [
            {
                "Match": {"HTTP": {"PathPrefix": "/admin"}},
                "Destination": {"Service": "admin", "RequestTimeout": "30s"},
            }
        ],
        "CreateIndex": 3,
        "ModifyIndex": 3,
    },
    "get absent": '404 (Config entry not found for "service-splitter" / "absent")',
    "list resolvers": [
        {"Kind": "service-resolver", "Name": "api", "ConnectTimeout": "7s", "CreateIndex": 4, "ModifyIndex": 4}
    ],
    "leader": True,
    "get chain": "router:web.default.default",
    "get chain overridden": True,
    "set resolver": True,
    "woken": True,
    "get resolver": True,
    "delete an old resolver": False,
    "delete resolver": True,
    "delete router": True,
    "delete router again": True,
}


def test_the_go_client_writes_reads_waits_and_deletes(tmp_path: Path) -> None:
    program = build(CONSUL_CLIENT)
    with ServerProcess(tmp_path, ["--store", "memory"]) as server:
        ran = subprocess.run(
            [program, f"127.0.0.1:{server.http_port}"], capture_output=True, text=True, timeout=RUN_S, check=True
        )
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["Step"] for line in lines] == list(TOLD)
    for line in lines:
        expected = TOLD[line["Step"]]
        if isinstance(expected, str) and "Error" in line:
            assert expected in line["Error"]
        else:
            assert (line["Value"], line.get("Error")) == (expected, None), line
