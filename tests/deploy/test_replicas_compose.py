"""deploy/replicas/docker-compose.yml: its form, and that its three servers share one database."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.deploy.native import BIN
from tests.deploy.test_compose import CONDITIONS
from tests.support.postgres import USER, PostgresServer
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, child_environment, free_port, wait_until

Json = dict[str, Any]

FOLDER = REPOSITORY / "deploy/replicas"
DOCUMENT: Json = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
SERVICES: dict[str, Json] = DOCUMENT["services"]
SERVERS = ("xds-1", "xds-2", "xds-3")
SNAPSHOT = REPOSITORY / "deploy/compose/snapshot.yaml"


@pytest.mark.parametrize("service", SERVICES)
def test_service_refers_to_what_exists(service: str) -> None:
    item = SERVICES[service]
    for name, rule in item.get("depends_on", {}).items():
        assert name in SERVICES
        assert rule["condition"] in CONDITIONS
    for volume in item.get("volumes", []):
        source, _, *mode = volume.split(":")
        assert source in DOCUMENT["volumes"] or ((FOLDER / source).is_dir() and mode == ["ro"])
    assert all(re.fullmatch(rf"{re.escape(LOOPBACK)}:\d+:\d+", port) for port in item.get("ports", ()))


def test_servers_differ_only_in_where_they_are() -> None:
    """They share the database and the name that proxies use; the disk of each is its own."""
    commands = {name: " ".join(SERVICES[name]["command"]) for name in SERVERS}
    assert len({command.replace(f"http://{name}:", "") for name, command in commands.items()}) == 1
    assert all(SERVICES[name]["networks"]["default"]["aliases"] == ["xds"] for name in SERVERS)
    assert len({volume for name in SERVERS for volume in SERVICES[name]["volumes"]}) == len(SERVERS)


@pytest.mark.soak
def test_the_servers_share_the_database(tmp_path: Path, running: ExitStack) -> None:
    """The commands of the file as processes of this machine."""
    database = running.enter_context(PostgresServer())
    ports = {name: (free_port(), free_port()) for name in SERVERS}
    for name in SERVERS:
        command = [_adapted(word, database.port, ports) for word in SERVICES[name]["command"]]
        grpc, http = (f"{LOOPBACK}:{port}" for port in ports[name])
        argv: list[str | Path] = [BIN / "xds", *command, "--grpc", grpc, "--http", http, "--data", tmp_path / name]
        server = running.enter_context(ChildProcess(name, argv, tmp_path, SERVICES[name]["environment"]))
        server.wait_until(partial(_answers, f"http://{http}/readyz"), "ready")
    first, *others = (f"http://{LOOPBACK}:{http}" for _, http in ports.values())
    push: list[str | Path] = [BIN / "xds", "apply", "-g", "shop", "-f", SNAPSHOT]
    subprocess.run(push, check=True, env=child_environment({"XDS_ADDR": first}))
    for other in others:
        wait_until(partial(_answers, f"{other}/api/v1/groups/shop"), "the other server has the push")
    expected = {f"http://localhost:{http}" for _, http in ports.values()}
    for place in (first, *others):  # it hears of the server that started last with its next heartbeat
        wait_until(partial(_shows, place, expected), "all three are members")


def _shows(place: str, expected: set[str]) -> bool:
    """Whether a server shows these members, and all of them answer."""
    answer = httpx.get(f"{place}/api/v1/members", trust_env=False, verify=False).json()
    return {member["url"] for member in answer["items"]} == expected and not answer.get("partial")


def _adapted(word: str, database: int, ports: dict[str, tuple[int, int]]) -> str:
    """A word of a command: names of services become this machine."""
    for name, (_, http) in ports.items():
        word = word.replace(f"http://{name}:18080", f"http://localhost:{http}")
    return word.replace("xds:example@database/xds", f"{USER}@{LOOPBACK}:{database}/{USER}")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, verify=False).status_code == httpx.codes.OK
    except httpx.TransportError as error:
        raise ConnectionError(repr(error)) from error
