"""What a real Envoy dumps can be pushed again, and a second Envoy then has the same."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support import resources as r
from tests.support.envoy import EnvoyProcess
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import ServerProcess
from xds.envoy.bootstrap import BootstrapOptions, bootstrap
from xds.envoy.convert import convert

Json = dict[str, Any]

CHECKS = [
    {
        "timeout": "1s",
        "interval": "0.2s",
        "no_traffic_interval": "0.2s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "tcp_health_check": {},
    }
]


def assignment(name: str, *localities: Json) -> Json:
    return {"@type": r.ENDPOINT_TYPE, "cluster_name": name, "endpoints": list(localities)}


def endpoint(port: int, **fields: object) -> Json:
    return {"endpoint": {"address": r.address(port)}, **fields}


def dumped(envoy: EnvoyProcess) -> dict[str, Json]:
    """The assignments of EDS clusters by name, as Envoy dumps them."""
    document = envoy.admin("/config_dump?include_eds").json()
    sections = [one for one in document["configs"] if one["@type"].endswith(".EndpointsConfigDump")]
    found = [one["endpoint_config"] for one in sections[0].get("dynamic_endpoint_configs", [])]
    return {one["cluster_name"]: one for one in found if one["cluster_name"] in ("plain", "checked")}


def states(assignment: Json) -> list[str]:
    return [one["health_status"] for locality in assignment["endpoints"] for one in locality["lb_endpoints"]]


def test_a_dump_with_endpoints_can_be_pushed(tmp_path: Path, running: ExitStack) -> None:
    nobody = free_port()
    pushed = [
        r.eds_cluster("plain"),
        r.eds_cluster("checked", health_checks=CHECKS),
        r.eds_cluster("renamed", service_name="plain"),
        assignment(
            "plain",
            {"lb_endpoints": [endpoint(1, load_balancing_weight=5), endpoint(2, health_status="DRAINING")]},
            {"lb_endpoints": [endpoint(3)], "locality": {"zone": "b"}, "load_balancing_weight": 3},
            {"lb_endpoints": [endpoint(4, health_status="UNHEALTHY")], "priority": 1},
        ),
        assignment("checked", {"lb_endpoints": [endpoint(nobody)]}),
    ]
    server = running.enter_context(ServerProcess(tmp_path))
    server.push("first", pushed)
    first = running.enter_context(EnvoyProcess(tmp_path, connected(server, "first"), name="first")).wait_live()
    wait_until(lambda: states(dumped(first)["checked"]) == ["UNHEALTHY"], "the check fails")

    conversion = convert(
        first.admin("/config_dump?include_eds").json(), options=BootstrapOptions("", "", LOOPBACK, server.grpc_port)
    )

    assert conversion.errors == ()
    (connection,) = conversion.bootstrap["static_resources"]["clusters"]
    (there,) = connection["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert there["endpoint"]["address"]["socket_address"]["port_value"] == server.grpc_port
    sent = {one["cluster_name"]: one for one in conversion.snapshot["resources"] if one["@type"] == r.ENDPOINT_TYPE}
    assert "health_status" not in sent["checked"]["endpoints"][0]["lb_endpoints"][0]
    assert any("'plain'" in note and "UNHEALTHY" in note for note in conversion.notes)
    server.push("second", conversion.snapshot["resources"])
    of_second = {**conversion.bootstrap, "node": {"id": "second", "cluster": "second"}}
    second = running.enter_context(EnvoyProcess(tmp_path, of_second, name="second")).wait_live()
    streams = {stream["service"] for stream in server.nodes()["second"]["streams"]}
    assert streams == {"ADS", "LRS"}, "its load goes to this server, too"
    wait_until(lambda: dumped(second) == dumped(first), "the second Envoy has what the first has")
    # Envoy has only these two words for a dump, so an endpoint that drains is dumped as unhealthy.
    assert states(dumped(second)["plain"]) == ["HEALTHY", "UNHEALTHY", "HEALTHY", "UNHEALTHY"]


def connected(server: ServerProcess, node: str) -> Json:
    return bootstrap(BootstrapOptions(node, node, LOOPBACK, server.grpc_port))
