"""docker-compose.yml without Docker: each service's own command as a process of this machine.

A service's name and port become a free loopback port, what is mounted becomes a copy with the same replacement made,
and an image is stood in for by the program that it runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.dockerfile import read_stages
from tests.support.envoy import FLAGS as ENVOY_FLAGS
from tests.support.envoy import envoy_binary
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, free_port

Json = dict[str, Any]

# Where each service listens inside its container. Both Envoys share one port here as they share one snapshot; the
# kernel spreads connections over those that listen.
LISTENS = {
    "xds": ("18000", "18080"),
    "envoy-east": ("10000",),
    "envoy-west": ("10000",),
    "upstream-v1": ("18001",),
    "upstream-v2": ("18001",),
}
BIN = Path(sys.executable).parent
ANY_ADDRESS = "0.0.0.0"


def compose() -> Json:
    """The compose file, anchors resolved."""
    document: Json = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    return document


class NativeCompose:
    """The services as processes, started one by one."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self.services: dict[str, Json] = compose()["services"]
        self._directory = directory
        self._running = running
        listener = free_port()
        self._ports = {
            (service, port): listener if port == "10000" else free_port()
            for service, ports in LISTENS.items()
            for port in ports
        }
        self._image = read_stages(REPOSITORY / "Dockerfile")[-1]

    def port(self, service: str, port: str) -> int:
        """Where a service's port is here."""
        return self._ports[service, port]

    def admin_address(self, service: str) -> str:
        """Where an Envoy's admin interface is; empty while it does not run."""
        path = self._admin_path(service)
        return path.read_text() if path.exists() else ""

    def start(self, service: str) -> ChildProcess:
        """Start the command of a service."""
        argv = [self._adapted(service, argument) for argument in self.services[service]["command"]]
        program, *rest = [*self._entrypoint(service), *argv, *self._extra(service)]
        process = ChildProcess(service, [BIN / program, *rest], self._directory, self._environment(service))
        return self._running.enter_context(process)

    def _entrypoint(self, service: str) -> list[str]:
        image = self.services[service]["image"]
        if image.startswith("envoyproxy/"):
            return [str(envoy_binary())]
        return self._image.last("ENTRYPOINT").arguments if "build" in self.services[service] else []

    def _extra(self, service: str) -> list[str]:
        """What lets two Envoys live on one machine, and tells where their admin interfaces are."""
        if not service.startswith("envoy"):
            return []
        return ["--admin-address-path", str(self._admin_path(service)), *ENVOY_FLAGS]

    def _environment(self, service: str) -> dict[str, str]:
        """That of the image and the service; the image's ports are the server's defaults."""
        given = {**self._image.environment(), **self.services[service].get("environment", {})}
        ours = {name: self._adapted(service, value) for name, value in given.items() if name.startswith("XDS_")}
        grpc, http = (str(self._ports["xds", port]) for port in LISTENS["xds"])
        data = str(self._directory / "data")
        return {**ours, "XDS_SERVER__GRPC__PORT": grpc, "XDS_SERVER__HTTP__PORT": http, "XDS_STORE__DATA": data}

    def _adapted(self, service: str, text: str) -> str:
        """A word of a command, or a value of the environment."""
        own = {port: str(self._ports[service, port]) for port in LISTENS.get(service, ())}
        for (name, port), free in self._ports.items():
            text = re.sub(rf"\b{name}:{port}\b", f"{LOOPBACK}:{free}", text)
        for source, target in self._mounts(service):
            if text.startswith(f"{target}/"):
                return str(self._copy(source) / text.removeprefix(f"{target}/"))
        return own.get(text, text.replace(ANY_ADDRESS, LOOPBACK))

    def _mounts(self, service: str) -> Iterator[tuple[str, str]]:
        for volume in self.services[service].get("volumes", []):
            source, target, *_ = volume.split(":")
            if source.startswith("./"):
                yield source, target

    def _copy(self, source: str) -> Path:
        """The mounted folder with the addresses of its YAML files replaced."""
        target = self._directory / source
        for path in (path for path in (REPOSITORY / source).rglob("*") if path.suffix in {".yaml", ".py"}):
            copied = target / path.relative_to(REPOSITORY / source)
            if copied.exists():  # a service that was started before may be reading it
                continue
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text(self._readdressed(path) if path.suffix == ".yaml" else path.read_text())
        return target

    def _readdressed(self, path: Path) -> str:
        documents = list(yaml.safe_load_all(path.read_text()))
        self._readdress(documents)
        return str(yaml.safe_dump_all(documents))

    def _readdress(self, value: object) -> None:
        """Give every socket address in ``value`` its place on this machine."""
        if isinstance(value, list):
            for item in value:
                self._readdress(item)
        elif isinstance(value, dict) and "port_value" in value:
            service = "envoy-east" if value["address"] == ANY_ADDRESS else value["address"]
            value["port_value"] = self._ports.get((service, str(value["port_value"])), 0)
            value["address"] = LOOPBACK
        elif isinstance(value, dict):
            for item in value.values():
                self._readdress(item)

    def _admin_path(self, service: str) -> Path:
        return self._directory / f"{service}.admin"
