"""A server on which everything that has a name has one with a number, in an order that is not the natural one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cli.conftest import Remote
from tests.cli.proxy import STREAM_DEADLINE_S, Proxy
from tests.server.load_client import reporting, told
from tests.support.process import wait_until
from tests.support.resources import eds_cluster, steered_cluster, zoned_load_assignment
from tests.support.server import ServerProcess

# Longer than a column of a terminal has room for.
PREFIX = "checkout-of-the-region-eu-west-"
NUMBERS = (10, 2, 9)
NAMES = [f"{PREFIX}{number}" for number in NUMBERS]
REFUSAL = "There is neither a filter chain nor a default one: this is the reason of "
POLICY = {"capacity": {"rates": [{"per_endpoint_rps": 50}]}, "interval_s": 1}


@contextmanager
def numbered_world(directory: Path) -> Iterator[Remote]:
    """The server, with its content, until the end."""
    for name in NAMES:
        (directory / name).mkdir()
    settings = {"sources": {name: {"kind": "files", "paths": [str(directory / name)]} for name in NAMES}}
    file = directory / "xds.yaml"
    file.write_text(yaml.safe_dump(settings))
    with ExitStack() as stack:
        flags = ["--config", str(file), "--store", "memory", "--lrs-interval", "1s"]
        server = stack.enter_context(ServerProcess(directory, flags))
        _push(server)
        _register(server)
        _decide(server)
        for name in NAMES:
            stack.enter_context(_proxy(server, name)).answer()
            refusing = stack.enter_context(_proxy(server, f"refusing-{name}"))
            refusing.nack = REFUSAL + name
            refusing.answer()
            loads = [told(each, total_successful_requests=20) for each in dict.fromkeys((name, NAMES[0]))]
            stack.enter_context(reporting(server.grpc_port, name, *loads, deadline_s=STREAM_DEADLINE_S))
        wait_until(lambda: len(server.nacks()) == len(NAMES), "a NACK of each node")
        wait_until(lambda: len(server.get("/load")["items"]) == len(NAMES), "the load of each cluster")
        wait_until(lambda: all(_decisions(server, name) for name in NAMES), "a decision for each cluster")
        yield Remote(server)


def _push(server: ServerProcess) -> None:
    for name in NAMES:
        server.push(f"team-{name}", [eds_cluster(name)])
        slower, plan = {**eds_cluster(name), "connect_timeout": "7s"}, {"hold_s": 86_400, "timeout_s": 86_400}
        _put(server, f"/groups/team-{name}/snapshot", {"resources": [slower], "rollout": plan})
    assignments = [zoned_load_assignment(name, {"za": [1, 2], "zb": [3]}) for name in NAMES]
    server.push("edge", [*map(steered_cluster, NAMES), *assignments])
    server.push("bound", list(map(eds_cluster, NAMES)))


def _register(server: ServerProcess) -> None:
    for at, name in zip(NUMBERS, NAMES, strict=True):
        _put(server, f"/registrations/{name}", {"ID": name, "Name": name, "Address": f"10.0.0.{at}", "Port": 80})
        _put(server, f"/registrations/web-{name}", {"Name": "web", "Address": f"10.0.1.{at}", "Port": 80})


def _decide(server: ServerProcess) -> None:
    for at, name in zip(NUMBERS, NAMES, strict=True):
        _put(server, f"/config-entries/service-defaults/{name}", {"protocol": "http"})
        _put(server, f"/groups/bound/bindings/{name}", {"service": name})
        _put(server, f"/groups/edge/assignments/{name}", POLICY)
        _put(server, f"/groups/mesh-{name}/upstreams", _upstreams((name, 9000 + at)))
    pairs = [(name, 9000 + at) for at, name in zip(NUMBERS, NAMES, strict=True)]
    _put(server, "/groups/mesh/upstreams", _upstreams(*pairs))


def _upstreams(*pairs: tuple[str, int]) -> dict[str, Any]:
    return {"service": "shop", "upstreams": [{"service": name, "bind_port": port} for name, port in pairs]}


def _put(server: ServerProcess, path: str, body: dict[str, Any]) -> None:
    answer = server.request("PUT", f"/api/v1{path}", json=body)
    assert answer.is_success, f"{path}: {answer.text}"


def _decisions(server: ServerProcess, name: str) -> list[Any]:
    items: list[Any] = server.get(f"/groups/edge/assignments/{name}/history")["items"]
    return items


def _proxy(server: ServerProcess, name: str) -> Proxy:
    return Proxy(server.grpc_port, name, "edge", zone="za")
