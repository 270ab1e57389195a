"""Services in target files, a server that serves them, upstreams, and a real linkerd2-proxy under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.support.background import Background
from tests.support.linkerd_proxy import OVERRIDE, LinkerdProxy, ProxyPlace, start_identity
from tests.support.load import HttpLoad
from tests.support.own_network import OWN_ADDRESS, redirect
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

Json = dict[str, Any]

NETWORK = "10.96.0.0/16"
DOMAIN = "default.svc.cluster.local"
RPS = 100.0
HTTP: Json = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}


class LinkerdMesh:
    """``virtual`` are the virtual addresses of services: connections to them reach the proxy. ``routing`` as in the
    settings.
    """

    def __init__(
        self,
        directory: Path,
        background: Background,
        running: ExitStack,
        virtual: Mapping[str, str],
        routing: str = "profiles",
    ) -> None:
        self.directory = directory
        self.background = background
        self.running = running
        self._virtual = virtual
        self._targets = directory / "targets"
        self._targets.mkdir()
        config = {
            "sources": {"files": {"kind": "files", "paths": [str(self._targets)], "hold_share": 1}},
            "order": {"endpoint_drain_s": 0.5},
            "destination": {"routing": routing},
        }
        file = directory / "xds.yaml"
        file.write_text(yaml.safe_dump(config))
        # Not forked: what it would be forked from is in another network.
        self.server = running.enter_context(ServerProcess(directory, ["--config", str(file)], forked=False))

    def upstream(self, name: str) -> Upstream:
        """Start an upstream whose answers are its name."""
        made = Upstream(self.background, name, address=OWN_ADDRESS)
        self.running.callback(made.close)
        return made

    def put(
        self,
        service: str,
        upstreams: Sequence[Upstream],
        meta: Mapping[str, Mapping[str, str]] | None = None,
        virtual: str | None = None,
    ) -> None:
        """The instances of a service; ``meta`` is their metadata by name, ``virtual`` their virtual address if it is
        not the service's own; empty for none.
        """
        instances: list[Json] = [
            {"address": one.address, "port": one.port, "id": one.name, "meta": dict((meta or {}).get(one.name, {}))}
            for one in upstreams
        ]
        virtual = self._virtual.get(service, "") if virtual is None else virtual
        for one in instances if virtual else ():
            one["virtual_addresses"] = [virtual]
        path = self._targets / f"{service}.yaml"
        partial = path.with_suffix(".partial")
        partial.write_text(yaml.safe_dump({"services": {service: instances}}))
        partial.replace(path)

    def _is_read(self) -> bool:
        known = {one["service"] for one in self.server.get("/services")["items"]}
        return known >= {file.stem for file in self._targets.glob("*.yaml")}

    def write(self, *entries: Json) -> None:
        """Write config entries."""
        for entry in entries:
            answer = self.server.request("PUT", "/v1/config", json=entry)
            assert answer.is_success, answer.text

    def proxy(self, binary: Path, *, is_ingress: bool, example: Path | None = None) -> LinkerdProxy:
        """A proxy that has its certificate, and takes the connections to virtual addresses. ``example`` is a file with
        its environment.
        """
        wait_until(self._is_read, "the target files to be read")
        identity, port = start_identity(self.directory)
        self.running.enter_context(identity)
        place = ProxyPlace(self.directory, self.server.grpc_port, port)
        proxy = self.running.enter_context(LinkerdProxy(binary, place, is_ingress=is_ingress, example=example))
        proxy.wait_ready()
        redirect(NETWORK, proxy.outbound_port)
        return proxy

    def load(self, service: str, *, is_ingress: bool, **options: Any) -> HttpLoad:
        """Load to the virtual address of a service; in ingress mode to that of any, with the name in a header."""
        headers = {OVERRIDE: f"{service}.{DOMAIN}:80"} if is_ingress else {}
        headers |= options.pop("headers", {})
        load = HttpLoad(
            self.background,
            80,
            rps=options.pop("rps", RPS),
            host=f"{service}.{DOMAIN}",
            address=self._virtual[service],
            headers=headers,
            **options,
        )
        return self.running.enter_context(load)


def wait_bodies(load: HttpLoad, expected: set[str], requests: int = 200) -> dict[str, int]:
    """Wait until exactly these upstreams answer ``requests`` in a row; how many each did."""

    def window() -> dict[str, int] | None:
        before = dict(load.report.bodies)
        load.wait_total(requests)
        found = {name: count - before.get(name, 0) for name, count in load.report.bodies.items()}
        found = {name: count for name, count in found.items() if count}
        return found if set(found) == expected else None

    return wait_until(window, f"answers of exactly {expected}", detail=lambda: load.report) or {}
