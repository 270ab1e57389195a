"""docker-compose.yml: its form, and that its services together do what they are for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.deploy.native import LISTENS, NativeCompose, compose
from tests.support.commands import xds
from tests.support.envoy import get
from tests.support.process import LOOPBACK, REPOSITORY, wait_until

Json = dict[str, Any]

SERVICES: dict[str, Json] = compose()["services"]
ENVOYS = ("envoy-east", "envoy-west")
KEYS = {
    "build", "command", "depends_on", "environment", "healthcheck", "image", "init", "ports", "restart", "volumes",
}  # fmt: skip
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
MADE_BY = re.compile(r"\A# (xds bootstrap .*)\n")
every_service = pytest.mark.parametrize("service", SERVICES)
every_envoy = pytest.mark.parametrize("envoy", ENVOYS)


def test_top_level() -> None:
    document = compose()
    assert {key for key in document if not key.startswith("x-")} == {"name", "services", "volumes"}
    named = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {name for name in named if not name.startswith("./")} == set(document["volumes"])


@every_service
def test_service_is_well_formed(service: str) -> None:
    item = SERVICES[service]
    assert set(item) <= KEYS
    assert re.fullmatch(r"[a-z/-]+(:v?[\d.]+(-slim)?)?", item["image"])
    assert "build" in item or ":" in item["image"], "an image of others has a version"
    assert all(isinstance(word, str) for word in item.get("command", []))
    assert all(isinstance(value, str) for value in item.get("environment", {}).values())


@every_service
def test_service_waits_for_services_that_exist(service: str) -> None:
    for name, rule in SERVICES[service].get("depends_on", {}).items():
        assert name in SERVICES
        assert rule["condition"] in CONDITIONS


@every_service
def test_mounted_folders_exist_and_are_read_only(service: str) -> None:
    for volume in SERVICES[service].get("volumes", []):
        source, target, *mode = volume.split(":")
        assert target.startswith("/")
        assert not source.startswith("./") or ((REPOSITORY / source).is_dir() and mode == ["ro"])


@every_service
def test_ports_are_published_to_this_machine_alone(service: str) -> None:
    published = SERVICES[service].get("ports", [])
    assert all(re.fullmatch(rf"{re.escape(LOOPBACK)}:\d+:\d+", port) for port in published), "--insecure"
    inside = {port.rpartition(":")[2] for port in published}
    assert inside <= set(LISTENS.get(service, ("9090",)))


@every_envoy
def test_bootstrap_is_the_one_that_its_first_line_makes(envoy: str) -> None:
    text = (REPOSITORY / f"deploy/compose/{envoy}.yaml").read_text()
    found = MADE_BY.match(text)
    assert found is not None
    made = xds(*found[1].split()[1:])
    assert yaml.safe_load(text) == yaml.safe_load(made.out), made.err


def test_the_envoys_are_in_two_localities() -> None:
    nodes = [yaml.safe_load((REPOSITORY / f"deploy/compose/{envoy}.yaml").read_text())["node"] for envoy in ENVOYS]
    assert [node["id"] for node in nodes] == list(ENVOYS)
    assert nodes[0]["locality"] != nodes[1]["locality"]


def test_the_path_works_as_a_whole(tmp_path: Path, running: ExitStack) -> None:
    """Load goes through both Envoys to both versions, and Prometheus finds what it is to scrape."""
    native = NativeCompose(tmp_path, running)
    server = native.start("xds")
    admin = f"http://{LOOPBACK}:{native.port('xds', '18080')}"
    server.wait_until(lambda: _answers(f"{admin}/readyz"), "ready")
    for service in ("upstream-v1", "upstream-v2", *ENVOYS):
        native.start(service)
    assert wait_exit(native, "push") == 0
    listener = native.port("envoy-east", "10000")
    wait_until(lambda: all(_nodes_state(admin).get(envoy) == "synced" for envoy in ENVOYS), "both Envoys have it")

    wait_until(lambda: _reporting(admin) >= set(ENVOYS), "both Envoys report their load")

    load = native.start("load")
    load.wait_until(lambda: {"v1", "v2"} <= set(re.findall(r"Hello from (\w+)!", load.log())), "both versions answer")
    assert "failed" not in load.log()
    # The kernel chooses an Envoy for each connection; the load generator makes two, so here are some more.
    wait_until(lambda: get(listener).status_code == 200 and all(_served(native)), "both Envoys serve")

    prometheus = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())
    scrape = prometheus["scrape_configs"][0]
    assert all((REPOSITORY / "deploy/prometheus" / name).is_file() for name in prometheus["rule_files"])
    assert scrape["static_configs"][0]["targets"] == ["xds:18080"]
    metrics = httpx.get(f"{admin}{scrape['metrics_path']}", trust_env=False, verify=False).text
    assert "xds_server_nodes" in metrics


def wait_exit(native: NativeCompose, service: str) -> int:
    """Run a service that ends; its exit code."""
    ended = native.start(service)
    wait_until(lambda: not ended.running, f"{service} ends", detail=ended.log_tail)
    assert ended.exit_code is not None
    return ended.exit_code


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, verify=False).status_code == 200
    except httpx.TransportError as error:
        raise ConnectionError(repr(error)) from error


def _nodes_state(admin: str) -> dict[str, str]:
    items = httpx.get(f"{admin}/api/v1/nodes", trust_env=False, verify=False).json()["items"]
    return {item["id"]: item["types"].get("routes", {}).get("state", "") for item in items}


def _reporting(admin: str) -> set[str]:
    """The nodes with an open load stream."""
    items = httpx.get(f"{admin}/api/v1/nodes", trust_env=False, verify=False).json()["items"]
    return {item["id"] for item in items if any(stream["service"] == "LRS" for stream in item["streams"])}


def _served(native: NativeCompose) -> Iterator[int]:
    """How many requests each Envoy answered with a success."""
    for envoy in ENVOYS:
        url = f"http://{native.admin_address(envoy)}/stats"
        query = {"format": "json", "filter": r"^http\.web\.downstream_rq_2xx$"}
        stats = httpx.get(url, params=query, trust_env=False, verify=False).json()["stats"]
        yield sum(stat.get("value", 0) for stat in stats)
