"""The verdict of a running Envoy on one resource, which it reads from a file (xDS by ``path_config_source``).

A verdict takes some 10 ms, where ``--mode validate`` takes 300. The admin interface is a Unix socket.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from tests.support.envoy import FLAGS, envoy_binary
from xds.codec.naming import TYPE_KEY

Json = dict[str, Any]

_WAIT_S = 20.0
_POLL_S = 0.002
_NAME = "probe"
_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_PACKAGE = "type.googleapis.com/envoy.extensions.filters"
_ROUTER = {"name": "router", "typed_config": {TYPE_KEY: f"{_PACKAGE}.http.router.v3.Router"}}
_ADS = {"envoy_grpc": {"cluster_name": f"{_NAME}-ads"}}
# The prefix of the counters of each kind.
_COUNTERS = {
    "listeners": "listener_manager.lds",
    "clusters": "cluster_manager.cds",
    "routes": f"http.{_NAME}.rds.{_NAME}",
    "endpoints": f"cluster.{_NAME}-eds",
    "tls_certificate": f"cluster.{_NAME}-tls_certificate.client_ssl_socket_factory",
    "secrets": "sds",
}
_SECRETS = ("tls_certificate", "validation_context")
_SHOWN = 200
_VALUE = re.compile(r"^(.+): (\d+)$", re.MULTILINE)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_WAIT_S)
        self.sock.connect(self._path)


class JudgingEnvoy:
    """An Envoy that accepts or rejects one resource after another. It is started again when it has died.

    ``clusters`` are the names of its static clusters. ``has_own_network``: it runs in a network namespace of its own,
    so that resources may bind any address and port. This needs the rights of root.
    """

    def __init__(self, directory: Path, clusters: Iterable[str] = (), *, has_own_network: bool = False) -> None:
        self._directory = directory
        self._clusters = sorted(set(clusters))
        self._has_own_network = has_own_network
        self._asked = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: UnixConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def verdict(self, kind: str, value: Json) -> str | None:
        """Why Envoy rejects the resource; empty if it accepts it; None for kinds of secrets that are not tried."""
        if kind == "secrets" and not any(name in value for name in _SECRETS):
            return None
        name = "cluster_name" if kind == "endpoints" else "name"
        given = {key: one for key, one in value.items() if key != "clusterName"} if kind == "endpoints" else value
        self._asked += 1
        # Some options of a listener cannot change, so each listener has a new name.
        called = f"{_NAME}-{self._asked}" if kind == "listeners" else _NAME
        # Envoy may die late, of the resource before: so there are two attempts.
        for _ in range(2):
            said = self._attempt(kind, {**given, name: called})
            if said is not None:
                return said
        return "Envoy died"

    def _attempt(self, kind: str, value: Json) -> str | None:
        """None when Envoy died."""
        try:
            return self._ask(kind, value)
        except (OSError, http.client.HTTPException, TimeoutError) as error:
            died = self._has_died()
            self._stop()
            return None if died else f"no answer: {error!r}"

    def _has_died(self) -> bool:
        if self._process is None:
            return False
        try:
            return self._process.wait(1) is not None
        except subprocess.TimeoutExpired:
            return False

    def _ask(self, kind: str, value: Json) -> str:
        if self._process is None or self._process.poll() is not None:
            self._start()
        held = next((one for one in _SECRETS if one in value), "") if kind == "secrets" else kind
        before = self._counts(kind)
        offset = self._log.stat().st_size
        self._write(held, [value])
        ends = time.monotonic() + _WAIT_S
        while True:
            now = self._counts(kind)
            if now["rejected"] > before["rejected"]:
                return self._reason(offset)
            if now["success"] > before["success"]:
                return ""
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > ends:
                raise TimeoutError(f"no verdict on {kind}")
            time.sleep(_POLL_S)

    @property
    def _log(self) -> Path:
        return self._directory / "envoy.log"

    def _reason(self, offset: int) -> str:
        with self._log.open("rb") as stream:
            stream.seek(offset)
            said = stream.read().decode(errors="replace")
        text = said.strip().rpartition("rejected: ")[2] or "refused"
        return " ".join((text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} ... {text[-_SHOWN:]}").split())

    def _write(self, name: str, resources: list[Json]) -> None:
        new = self._directory / "new"
        new.write_text(json.dumps({"resources": resources}))
        new.rename(self._directory / "xds" / f"{name}.json")

    def _counts(self, kind: str) -> dict[str, int]:
        """How often a file of the kind was accepted (``success``) and rejected (the file, or a resource in it)."""
        found = {"success": 0, "rejected": 0}
        assert self._admin is not None
        pattern = r"(sds.*|lds|cds|rds.probe|cluster.probe-eds)\.(update_success|update_rejected|update_failure)$"
        self._admin.request("GET", f"/stats?filter={pattern}".replace("\\", "%5C").replace("|", "%7C"))
        text = self._admin.getresponse().read().decode()
        for name, count in _VALUE.findall(text):
            if _is_of(kind, name):
                found["success" if name.endswith("success") else "rejected"] += int(count)
        return found

    def _start(self) -> None:
        folder = self._directory / "xds"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        socket_file = self._directory / "admin"
        socket_file.unlink(missing_ok=True)
        for name in ("listeners", "clusters", "routes", "endpoints", *_SECRETS):
            self._write(name, [])
        config = self._directory / "bootstrap.json"
        config.write_text(json.dumps(self._bootstrap(folder, socket_file)))
        argv = [str(envoy_binary()), "-c", str(config), "-l", "warning", *FLAGS]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _in_own_network(argv) if self._has_own_network else argv,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self._directory,
            )
        ends = time.monotonic() + _WAIT_S
        self._admin = UnixConnection(socket_file)
        while True:
            try:
                self._counts("clusters")
                return
            except OSError:
                if time.monotonic() > ends or self._process.poll() is not None:
                    raise
                self._admin.close()
                time.sleep(0.05)

    def _stop(self) -> None:
        if self._admin is not None:
            self._admin.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._admin = None

    def _bootstrap(self, folder: Path, admin: Path) -> Json:
        static = [_cluster(name) for name in self._clusters if not name.startswith(_NAME)]
        eds = {"service_name": _NAME, "eds_config": _source(folder, "endpoints")}
        watched = {"name": f"{_NAME}-eds", "type": "EDS", "eds_cluster_config": eds}
        secret = [_secret_cluster(folder, name) for name in _SECRETS]
        internal = "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
        return {
            "admin": {"address": {"pipe": {"path": str(admin)}}},
            "node": {"id": _NAME, "cluster": _NAME},
            "bootstrap_extensions": [{"name": "internal", "typed_config": {TYPE_KEY: internal}}],
            "dynamic_resources": {
                "ads_config": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [_ADS]},
                "cds_config": _source(folder, "clusters"),
                "lds_config": _source(folder, "listeners"),
            },
            "static_resources": {
                "clusters": [*static, _cluster(f"{_NAME}-ads"), watched, *secret],
                "listeners": [_route_listener(folder)],
            },
        }


def _in_own_network(argv: list[str]) -> list[str]:
    """The command in a network namespace where any address may be bound."""
    free = "for v in 4 6; do echo 1 > /proc/sys/net/ipv$v/ip_nonlocal_bind; done;"
    return ["unshare", "-n", "sh", "-c", " ".join(["ip link set lo up 2>/dev/null;", free, "exec", *argv])]


def _is_of(kind: str, name: str) -> bool:
    prefix = _COUNTERS[kind]
    return ".sds." in f".{name}" or "sds." in name if kind == "secrets" else name.startswith(f"{prefix}.")


def _source(folder: Path, name: str) -> Json:
    return {"path_config_source": {"path": str(folder / f"{name}.json")}, "resource_api_version": "V3"}


def _cluster(name: str) -> Json:
    return {"name": name, "type": "STATIC", "load_assignment": {"cluster_name": name}}


def _secret_cluster(folder: Path, kind: str) -> Json:
    one = {"name": _NAME, "sds_config": _source(folder, kind)}
    of_kind: Json = {"tls_certificate_sds_secret_configs": [one]}
    if kind == "validation_context":
        of_kind = {"validation_context_sds_secret_config": one}
    socket_config = {"name": "tls", "typed_config": {TYPE_KEY: _TLS, "common_tls_context": of_kind}}
    return {**_cluster(f"{_NAME}-{kind}"), "transport_socket": socket_config}


def _route_listener(folder: Path) -> Json:
    """A listener for the routes. Names of abstract sockets have no directory, so its socket has a unique name."""
    judge = sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    manager = {
        TYPE_KEY: f"{_PACKAGE}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": _NAME,
        "rds": {"route_config_name": _NAME, "config_source": _source(folder, "routes")},
        "http_filters": [_ROUTER],
    }
    return {
        "name": f"{_NAME}-holder",
        "address": {"pipe": {"path": f"@xds-mistakes-{_NAME}-holder-{judge}"}},
        "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}],
    }
