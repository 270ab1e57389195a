"""A Consul whose users write one service as ``Web``, ``WEB`` and ``web``, moved to a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.commands import address, xds
from tests.support.process import wait_until
from tests.support.server import ServerProcess

Json = dict[str, Any]

ENTRIES: list[Json] = [
    {"Kind": "service-defaults", "Name": "Web", "Protocol": "http"},
    {"Kind": "service-resolver", "Name": "web", "Subsets": {"v2": {"Filter": "Service.Meta.v == 2"}}},
    {"Kind": "service-splitter", "Name": "WEB", "Splits": [{"Weight": 90}, {"Weight": 10, "ServiceSubset": "v2"}]},
]
UPSTREAMS: Json = {"upstreams": [{"service": "wEB", "bind_port": 9191}]}
PLAIN, V2 = "wEB.default.dc1.internal.consul", "v2.wEB.default.dc1.internal.consul"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as started:
        yield started


def consul(server: ServerProcess, method: str, path: str, body: Json | None = None) -> httpx.Response:
    answer = server.request(method, f"/v1/{path}", json=body)
    assert answer.is_success, answer.text
    return answer


def move(server: ServerProcess) -> None:
    """Entries and instances, as a script reads them from Consul and writes them."""
    for entry in ENTRIES:
        assert consul(server, "PUT", "config", entry).json() is True
    for number, (name, meta) in enumerate((("web", {}), ("Web", {"v": "2"}), ("WEB", {})), 1):
        body = {"ID": f"w{number}", "Name": name, "Address": f"10.0.0.{number}", "Port": 8080, "Meta": meta}
        consul(server, "PUT", "agent/service/register", body)


def addresses(server: ServerProcess, assignment: str) -> set[str]:
    shown = server.get(f"/groups/edge/endpoints/{assignment}")
    return {each["address"].removesuffix(":8080") for each in shown["endpoints"]}


def test_a_changed_case_of_a_name_loses_no_request(server: ServerProcess, tmp_path: Path) -> None:
    move(server)
    answer = server.request("PUT", "/api/v1/groups/edge/upstreams?selector=node.cluster == a", json=UPSTREAMS)
    assert answer.is_success, answer.text
    document = server.get("/groups/edge/upstreams")
    assert document["resources"]["routes"] == 1  # the protocol and the splits
    assert sorted(each["name"] for each in document["assignments"]) == sorted((PLAIN, V2))
    assert {entry for each in document["lowered"] for entry in each["entries"]} == {
        "service-defaults/Web",
        "service-resolver/web",
        "service-splitter/WEB",
    }
    wait_until(lambda: addresses(server, PLAIN) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}, "the instances")
    assert addresses(server, V2) == {"10.0.0.2"}

    (service,) = server.get("/services")["items"]
    assert (service["service"], service["instances"], service["bindings"]) == ("WEB", 3, 2)
    assert len(server.get("/services/web")["instances"]) == 3
    assert consul(server, "GET", "catalog/services").json().keys() == {"WEB", "Web", "web"}

    environment = address(server.http_port)
    read = xds("config-entry", "read", "service-splitter", "web", "-o", "json", environment=environment)
    assert read.code == 0, read.err
    assert read.json()["Name"] == "WEB"
    files = tmp_path / "entries.json"
    files.write_text(json.dumps([{**entry, "Name": entry["Name"].lower()} for entry in ENTRIES]))
    differences = xds("config-entry", "diff", "-f", str(files), "-o", "json", environment=environment)
    assert [(one["kind"], one["from"]["Name"], one["to"]["Name"]) for one in differences.json()["items"]] == [
        ("service-defaults", "Web", "web"),
        ("service-splitter", "WEB", "web"),
    ]

    # A blocking query under one name sees the end of an instance that registered under another.
    index = consul(server, "GET", "health/service/wEB").headers["X-Consul-Index"]
    consul(server, "PUT", "agent/service/deregister/w3")
    found = consul(server, "GET", f"health/service/wEB?index={index}&wait=10s").json()
    assert {each["Service"]["Service"] for each in found} == {"web", "Web"}

    # An entry is deleted under another name than it was written: the chain and the upstreams follow.
    index = consul(server, "GET", "discovery-chain/wEB").headers["X-Consul-Index"]
    deleted = xds("config-entry", "delete", "service-splitter", "web", environment=environment)
    assert deleted.code == 0, deleted.err
    chain = consul(server, "GET", f"discovery-chain/wEB?index={index}&wait=10s").json()["Chain"]
    assert (chain["Protocol"], list(chain["Nodes"])) == ("http", ["resolver:wEB.default.default.dc1"])
    assert [each["name"] for each in server.get("/groups/edge/upstreams")["assignments"]] == [PLAIN]
