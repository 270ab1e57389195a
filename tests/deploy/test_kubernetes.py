"""deploy/kubernetes: the manifests belong together, and the container does what they ask of it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.deploy.dockerfile import read_stages
from tests.deploy.native import ANY_ADDRESS, BIN
from tests.support import resources as r
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, free_port

Json = dict[str, Any]

MANIFEST = REPOSITORY / "deploy/kubernetes/xds.yaml"
SECRETS = {"xds-tls": ("tls.crt", "tls.key"), "xds-tokens": ("sha256",)}
TOKEN = "a token of the test"


def documents() -> dict[str, Json]:
    """The manifests by kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def pod() -> Json:
    """The pod of the Deployment."""
    found: Json = documents()["Deployment"]["spec"]["template"]["spec"]
    return found


def container() -> Json:
    """The only container."""
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found


def test_selectors_choose_the_pod() -> None:
    found = documents()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert found["Service"]["spec"]["selector"].items() <= labels.items()
    ports = {port["name"] for port in container()["ports"]}
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} == ports
    assert {container()[probe]["httpGet"]["port"] for probe in probes()} <= ports


def probes() -> Iterator[str]:
    """The names of the probes."""
    return (name for name in container() if name.endswith("Probe"))


def test_volumes_are_there() -> None:
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == set(volumes)
    found = documents()
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == found["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["config"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert {volume["secret"]["secretName"] for volume in volumes.values() if "secret" in volume} == set(SECRETS)


def test_one_process_at_a_time_has_the_store() -> None:
    spec = documents()["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_user_is_that_of_the_image() -> None:
    made = next(each.rest for each in read_stages(REPOSITORY / "Dockerfile")[-1].all("RUN") if "useradd" in each.rest)
    context = pod()["securityContext"]
    assert f"--uid {context['runAsUser']} " in made
    assert context["fsGroup"] == context["runAsUser"]  # the mounted volume is writable, and the secrets readable


class MountedContainer:
    """What the container mounts, as directories of the test; its command and environment with their paths."""

    def __init__(self, directory: Path, ca: CertificateAuthority) -> None:
        self.ports = {name: free_port() for name in ("grpc", "http")}
        self._directory = directory
        certificate = ca.issue("xds", ("localhost", LOOPBACK))
        self._write("tls/tls.crt", certificate.pem)
        self._write("tls/tls.key", certificate.key_pem)
        self._write("tokens/sha256", json.dumps([hashlib.sha256(TOKEN.encode()).hexdigest()]))
        for name, text in documents()["ConfigMap"]["data"].items():
            self._write(f"config/{name}", self.placed(text).replace(ANY_ADDRESS, LOOPBACK))

    def _write(self, name: str, text: str) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def placed(self, text: str) -> str:
        """The text with the paths of the mounts."""
        mounts = "|".join(re.escape(mount["mountPath"]) for mount in container()["volumeMounts"])
        return re.sub(rf"(?<![\w/])({mounts})\b", rf"{self._directory}\1", text)

    def environment(self) -> dict[str, str]:
        """That of the manifest, with free ports."""
        given = {each["name"]: self.placed(each["value"]) for each in container()["env"]}
        return given | {f"XDS_SERVER__{name.upper()}__PORT": str(port) for name, port in self.ports.items()}


@pytest.fixture
def served(tmp_path: Path, running: ExitStack) -> httpx.Client:
    """A client of the container's command, started natively."""
    ca = CertificateAuthority(tmp_path)
    mounted = MountedContainer(tmp_path, ca)
    argv = [str(BIN / "xds"), *map(mounted.placed, container()["args"])]
    server = running.enter_context(ChildProcess("xds", argv, tmp_path, mounted.environment()))
    client = running.enter_context(
        httpx.Client(
            base_url=f"https://{LOOPBACK}:{mounted.ports['http']}", verify=ca.client_context(), trust_env=False
        )
    )

    def ready() -> bool:
        probe = container()["startupProbe"]["httpGet"]
        assert probe["scheme"] == "HTTPS"
        try:
            return client.get(probe["path"]).status_code == 200
        except httpx.TransportError as error:
            raise ConnectionError from error

    server.wait_until(ready, "the startup probe passes")
    return client


def test_the_container_passes_its_probes_and_takes_a_push_with_the_token(served: httpx.Client) -> None:
    for probe in probes():
        assert served.get(container()[probe]["httpGet"]["path"]).status_code == 200, probe
    push = {"resources": [r.static_cluster("a")]}
    assert served.put("/api/v1/groups/edge/snapshot", json=push).status_code == 401
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert served.put("/api/v1/groups/edge/snapshot", json=push, headers=bearer).status_code == 200
