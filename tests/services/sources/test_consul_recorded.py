"""Answers of a real Consul 1.12.9 to the queries of the source, and what is read of them.

To record anew, with Go: ``python -m tests.services.sources.test_consul_recorded``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import httpx

from bench.consul.agent_process import consul_agent
from xds.model.node import Locality
from xds.services.core.instance import Check, Health, Instance
from xds.services.sources.consul_health import InstanceOptions, read_instances

RECORDED = Path(__file__).parent / "recorded" / "consul-health-1.12.9.json"

Json = dict[str, Any]

REGISTERED: tuple[tuple[str, Json], ...] = (
    (
        "/v1/catalog/register",
        {
            "Node": "rack-7",
            "Address": "10.0.0.7",
            "TaggedAddresses": {"lan": "10.0.0.7", "wan": "192.0.2.7"},
            "NodeMeta": {"az": "eu-1a", "region": "eu-1"},
            "Service": {
                "ID": "web-1",
                "Service": "web",
                "Port": 8080,
                "Tags": ["v1", "primary"],
                "Meta": {"version": "v1"},
                "Weights": {"Passing": 10, "Warning": 2},
            },
            "Checks": [
                {"CheckID": "serfHealth", "Name": "node", "Status": "passing"},
                {"CheckID": "web-1:http", "ServiceID": "web-1", "Name": "http", "Status": "warning", "Output": "slow"},
            ],
        },
    ),
    (
        "/v1/catalog/register",
        {
            "Node": "rack-8",
            "Address": "10.0.0.8",
            "Service": {
                "ID": "web-2",
                "Service": "web",
                "Address": "10.8.0.2",
                "Port": 8080,
                "TaggedAddresses": {"wan": {"Address": "192.0.2.8", "Port": 443}},
            },
            "Check": {"CheckID": "serfHealth", "Name": "node", "Status": "critical", "Output": "no answer"},
        },
    ),
    (
        "/v1/agent/service/register",
        {"ID": "web-3", "Name": "web", "Address": "10.0.0.9", "Port": 80, "Check": {"TTL": "30s", "Status": "passing"}},
    ),
    ("/v1/agent/service/maintenance/web-3?enable=true&reason=moving", {}),
)
ASKED = ("web", "absent")


def test_a_real_answer_is_read() -> None:
    recorded = json.loads(RECORDED.read_text())["web"]
    assert int(recorded["headers"]["X-Consul-Index"]) > 1
    first, second, third = sorted(
        read_instances(json.dumps(recorded["body"]).encode(), InstanceOptions("dc1", "region", "az")),
        key=lambda one: one.id,
    )
    # The node of the agent itself comes first: "one".
    assert (first.id, first.address, first.port, first.node, first.health) == (
        "one/web-3",
        "10.0.0.9",
        80,
        "one",
        Health.CRITICAL,
    )
    assert sorted(check.id for check in first.checks) == ["_service_maintenance:web-3", "serfHealth", "service:web-3"]
    assert second == Instance(
        id="rack-7/web-1",
        address="10.0.0.7",
        port=8080,
        meta={"version": "v1"},
        tags=("v1", "primary"),
        weight=10,
        warning_weight=2,
        locality=Locality("eu-1", "eu-1a"),
        node="rack-7",
        node_meta={"az": "eu-1a", "region": "eu-1"},
        checks=(
            Check("serfHealth", Health.PASSING, name="node"),
            Check("web-1:http", Health.WARNING, name="http", output="slow"),
        ),
    )
    assert (third.address, third.health) == ("10.8.0.2", Health.CRITICAL)


def test_a_real_answer_is_read_from_another_datacenter() -> None:
    recorded = json.loads(RECORDED.read_text())["web"]
    found = {one.id: one for one in read_instances(json.dumps(recorded["body"]).encode(), InstanceOptions("here"))}
    assert {name: (one.address, one.port, one.datacenter) for name, one in found.items()} == {
        "one/web-3": ("10.0.0.9", 80, "dc1"),
        "rack-7/web-1": ("192.0.2.7", 8080, "dc1"),
        "rack-8/web-2": ("192.0.2.8", 443, "dc1"),
    }


def test_a_service_that_consul_does_not_know_is_empty() -> None:
    recorded = json.loads(RECORDED.read_text())["absent"]
    assert read_instances(json.dumps(recorded["body"]).encode(), InstanceOptions()) == []
    assert int(recorded["headers"]["X-Consul-Index"]) >= 1


def record() -> None:
    """Ask a real Consul and write down its answers."""
    with (
        tempfile.TemporaryDirectory() as folder,
        consul_agent(Path(folder)) as address,
        httpx.Client(base_url=f"http://{address}", trust_env=False, verify=False) as client,
    ):
        for path, body in REGISTERED:
            client.put(path, json=body).raise_for_status()
        answers = {service: client.get(f"/v1/health/service/{service}") for service in ASKED}
    recorded = {
        service: {
            "headers": {name.title(): value for name, value in answer.headers.items() if name.startswith("x-consul")},
            "body": answer.json(),
        }
        for service, answer in answers.items()
    }
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    record()
