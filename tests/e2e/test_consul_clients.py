"""Consul's own clients against a real server: the Go client, and the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bench.consul.clients import CONSUL, CONSUL_CLIENT
from bench.peers.go_program import build
from tests.support.server import ServerProcess

GO_TIMEOUT_S = 3_000  # the first run builds Consul's packages, on whatever machine
RUN_S = 100

pytestmark = [pytest.mark.soak, pytest.mark.timeout(GO_TIMEOUT_S), pytest.mark.xdist_group("consul")]

TOKEN = "a-token-of-consul"
WRITTEN = "Config entry written: "
SPLITTER = """\
{
    "Kind": "service-splitter",
    "Name": "web",
    "Splits": [
        {
            "Weight": 90
        },
        {
            "Weight": 10,
            "Service": "api"
        }
    ],
    "CreateIndex": 2,
    "ModifyIndex": 2
}"""

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
    with ServerProcess(tmp_path, ["--store", "memory"]) as server:
        _check_calls(server, "config-entries", TOLD)


def _check_calls(server: ServerProcess, calls: str, told: Mapping[str, object], token: str = "") -> None:
    """Let the Go client make its ``calls``, and check what each of them returned, or a part of its error."""
    program = build(CONSUL_CLIENT)
    ran = subprocess.run(
        [program, f"127.0.0.1:{server.http_port}", calls],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={**os.environ, "CONSUL_HTTP_TOKEN": token},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["Step"] for line in lines] == list(told)
    for line in lines:
        expected = told[line["Step"]]
        if isinstance(expected, str) and "Error" in line:
            assert expected in line["Error"]
        else:
            assert (line.get("Value"), line.get("Error")) == (expected, None), line


# Commands in order: arguments, standard input, exit code, and the whole output (``...`` stands for anything).
COMMANDS: tuple[tuple[str, str, int, str], ...] = (
    (
        "write -",
        '{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}',
        0,
        WRITTEN + "proxy-defaults/global",
    ),
    (
        "write -",
        'kind = "service-splitter"\nname = "web"\nsplits = [{weight = 90}, {weight = 10, service = "api"}]',
        0,
        WRITTEN + "service-splitter/web",
    ),
    ("read -kind service-splitter -name web", "", 0, SPLITTER),
    ("list -kind service-splitter", "", 0, "web"),
    ("list -kind service-router", "", 0, ""),
    ("read -kind service-splitter -name absent", "", 1, "...404 (Config entry not found for...absent..."),
    (
        "write -",
        '{"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 50}]}',
        1,
        "...500 (service-splitter/web /Splits: the sum...must be 100, not 50...",
    ),
    ("write -", '{"Kind": "mesh"}', 1, "...400 (...the kind mesh are not supported..."),
    (
        "write -cas -modify-index 1 -",
        '{"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 100}]}',
        1,
        "Config entry not updated: service-splitter/web",
    ),
    (
        "write -cas -modify-index 2 -",
        '{"Kind": "service-splitter", "Name": "web", "Splits": [{"Weight": 100}]}',
        0,
        WRITTEN + "service-splitter/web",
    ),
    ("delete -kind proxy-defaults -name global", "", 1, '...500 (...the chain of "web" would break: ...'),
    (
        "delete -cas -modify-index 2 -kind service-splitter -name web",
        "",
        1,
        "Config entry not deleted: service-splitter/web",
    ),
    ("delete -kind service-splitter -name web", "", 0, "Config entry deleted: service-splitter/web"),
    ("delete -kind proxy-defaults -name global", "", 0, "Config entry deleted: proxy-defaults/global"),
)


def test_the_command_line_writes_reads_lists_and_deletes(tmp_path: Path) -> None:
    program = build(CONSUL)
    digest = sha256(TOKEN.encode()).hexdigest()
    auth = {"XDS_AUTH__TOKENS": json.dumps([{"name": "ops", "sha256": digest, "scopes": ["admin"]}])}
    with ServerProcess(tmp_path, ["--store", "memory"], auth, token=TOKEN) as server:
        address = {"CONSUL_HTTP_ADDR": f"127.0.0.1:{server.http_port}", "CONSUL_HTTP_TOKEN": TOKEN}
        for arguments, given, code, told in COMMANDS:
            ran = subprocess.run(
                [program, "config", *arguments.split()],
                input=given,
                capture_output=True,
                text=True,
                timeout=RUN_S,
                env={**os.environ, **address},
                check=False,
            )
            output = (ran.stdout + ran.stderr).strip()
            pattern = ".*".join(map(re.escape, told.split("...")))
            assert ran.returncode == code, (arguments, output)
            assert re.fullmatch(pattern, output, re.DOTALL), (arguments, output)


SERVICES_TOLD: dict[str, Any] = {
    "self": ["dc1", True, 1],
    "name of the node": "xds-server",
    "leader": True,
    "peers": True,
    "register": None,
    "register again": None,
    "register another": None,
    "register an HTTP check": "400 (Bad request: /Check: checks of the type http are not supported; Envoy checks",
    "register a check": None,
    "services of the agent": ["web-1", "web-2"],
    "service of the agent": 8081,
    "pass": None,
    "warn": None,
    "fail": None,
    "checks of the agent": ["critical", "broken"],
    "update": None,
    "update an absent check": "404 (Unknown check ID",
    "maintenance": None,
    "passing": 1,
    "with a tag": 1,
    "passing of the mesh": 1,
    "status": "passing",
    "weight": 10,
    "checks": 3,
    "end of maintenance": None,
    "remove a check": None,
    "register in the catalog": None,
    "services": {"db": [], "web": ["v1"]},
    "instances": "db-host",
    "instances of the mesh": "db1",
    "filtered": 1,
    "datacenters": ["dc1"],
    "deregister from the catalog": None,
    "index": True,
    "woken": True,
    "passing after it": 1,
    "deregister": None,
    "deregister again": "404 (Unknown service ID",
    "deregister another": None,
    "nothing is left": 0,
}


def test_the_go_client_registers_reads_and_waits_for_instances(tmp_path: Path) -> None:
    digest = sha256(TOKEN.encode()).hexdigest()
    scopes = ["read", "register:*"]
    auth = {"XDS_AUTH__TOKENS": json.dumps([{"name": "apps", "sha256": digest, "scopes": scopes}])}
    with ServerProcess(tmp_path, ["--store", "memory"], auth, token=TOKEN) as server:
        _check_calls(server, "services", SERVICES_TOLD, TOKEN)


WEB_HCL = """\
service {
  id = "web-1"
  name = "web"
  address = "10.0.0.1"
  port = 80
  tags = ["v1"]
  check {
    id = "alive"
    ttl = "5m"
  }
}
"""
# Commands in order: arguments, exit code, and the whole output (``...`` stands for anything).
SERVICE_COMMANDS: tuple[tuple[str, int, str], ...] = (
    ("services register {file}", 0, "Registered service: web"),
    ("services register -name=api -id=api-1 -address=10.0.0.2 -port=81", 0, "Registered service: api"),
    ("services register -name=api", 1, "...400 (Bad request: /Port: port 0 is not in 1..65535..."),
    ("catalog services", 0, "api\nweb"),
    ("catalog services -tags", 0, "api...web...v1"),
    ("catalog datacenters", 0, "dc1"),
    ("catalog nodes -service=web", 0, "Node...xds-server...10.0.0.1..."),
    ("maint -enable -service=web-1 -reason=disk", 0, 'Service maintenance is now enabled for "web-1"'),
    ("maint -disable -service=web-1", 0, 'Service maintenance is now disabled for "web-1"'),
    ("services deregister -id=web-1", 0, "Deregistered service: web-1"),
    ("services deregister -id=web-1", 1, "...404 (Unknown service ID..."),
    ("catalog services", 0, "api"),
    ("info", 0, "build:...version = 1.12.9...consul:...leader = true..."),
)


def test_the_command_line_registers_and_lists_services(tmp_path: Path) -> None:
    program = build(CONSUL)
    file = tmp_path / "web.hcl"
    file.write_text(WEB_HCL)
    with ServerProcess(tmp_path, ["--store", "memory"]) as server:
        for arguments, code, told in SERVICE_COMMANDS:
            ran = subprocess.run(
                [program, *arguments.format(file=file).split()],
                capture_output=True,
                text=True,
                timeout=RUN_S,
                env={**os.environ, "CONSUL_HTTP_ADDR": f"127.0.0.1:{server.http_port}"},
                check=False,
            )
            output = (ran.stdout + ran.stderr).strip()
            pattern = ".*".join(map(re.escape, told.split("...")))
            assert ran.returncode == code, (arguments, output)
            assert re.fullmatch(pattern, output, re.DOTALL), (arguments, output)
