"""``docs/kubernetes.md`` without a cluster: what kubectl makes are files, and pods are processes of this machine.

The manifests are those of the clone, whose ports are the clone's own.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import yaml

from tests.deploy.pods import MANIFESTS, Objects, Pod, containers, read_kustomization, workloads
from tests.support.background import Background
from tests.support.clone import ADMIN, HTTP, LISTENER, PROBES, Clone
from tests.support.kubernetes_api import endpoint, endpoint_slice, service
from tests.support.kubernetes_pods import READY, FakePodApi
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.upstream import Upstream

FOLDER = "cluster"
NAMES = ("xds.xds.svc", "localhost", "*.xds-members.xds.svc")


class FakeCluster:
    """The cluster of the reader: rows for the commands of the page."""

    def __init__(self) -> None:
        self._apis: dict[Path, tuple[Background, FakePodApi]] = {}

    def prepare(self, clone: Clone) -> None:
        """Write the certificate that the reader has got, and start an API for the source."""
        folder = clone.directory / "certs"
        folder.mkdir()
        authority = CertificateAuthority(folder, "ca")
        authority.issue("server", NAMES)
        (folder / "database-url").write_text("postgresql://xds@db.internal/xds\n")
        background = clone.keep(Background())
        state = clone.directory / FOLDER
        state.mkdir()
        api = FakePodApi(background, state)
        api.kubeconfig()
        self._apis[clone.directory] = background, api

    def create(self, clone: Clone, command: str) -> None:
        """``kubectl create``: a namespace, a Secret or a ConfigMap."""
        kind, *words = shlex.split(command)[2:]
        folder = clone.directory / FOLDER / "namespaces"
        if kind == "namespace":
            folder.mkdir(exist_ok=True)
            (folder / words[0]).touch()
            return
        flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        namespace = words[words.index("-n") + 1]
        assert (folder / namespace).exists(), f"{command}: no namespace {namespace}"
        name = words[0] if kind == "configmap" else words[1]
        key, _, path = flags.get("from-file", "").partition("=")
        files = {"tls.crt": flags["cert"], "tls.key": flags["key"]} if "cert" in flags else {key: path}
        data = {key: (clone.directory / path).read_text() for key, path in files.items()}
        _objects(clone).put(kind, namespace, name, data)

    def apply(self, clone: Clone, command: str) -> None:
        """``kubectl apply -k``: start the first pod of each workload."""
        documents = read_kustomization(clone.directory / shlex.split(command)[-1])
        _objects(clone).apply(documents)
        for name, workload in workloads(documents).items():
            own = {str(clone.ports[port]): free_port() for port in (ADMIN, PROBES)}  # pods have addresses of their own
            pod = Pod(workload, f"{name}-0", _objects(clone), clone.directory / FOLDER, own)
            for container in containers(workload):
                if "http-echo" not in container["image"]:  # the application
                    self._start(clone, pod, container)

    def _start(self, clone: Clone, pod: Pod, container: dict[str, object]) -> None:
        environment = pod.environment(container)
        if "XDS_SOURCES" in environment:  # the token of a pod's account cannot be mounted here
            sources = json.loads(environment["XDS_SOURCES"])
            assert sources == {"cluster": {"kind": "kubernetes"}}
            sources["cluster"]["kubeconfig"] = str(clone.directory / FOLDER / "kubeconfig")
            environment["XDS_SOURCES"] = json.dumps(sources)
        variables = shlex.join(f"{name}={value}" for name, value in environment.items())
        clone.start(pod.name, f"{variables} {shlex.join(pod.command(container))}")

    def greet(self, clone: Clone, command: str) -> None:
        """``kubectl apply -f`` of the Service greeter: one pod, which answers with its name."""
        file = clone.directory / shlex.split(command)[-1]
        kinds = {each["kind"]: each for each in yaml.safe_load_all(file.read_text())}
        background, api = self._apis[clone.directory]
        pod = Upstream(background, "greeter-1")
        metadata = kinds["Service"]["metadata"]
        api.put(service(metadata["name"], namespace=metadata["namespace"], ports=(("http", 80),)))
        one = endpoint(api.address, pod="greeter-1", **READY)
        ports = (("http", pod.port),)
        api.put(endpoint_slice("greeter-1", metadata["name"], one, namespace=metadata["namespace"], ports=ports))

    def replicate(self, clone: Clone, command: str) -> None:
        """``kubectl apply -k`` of three servers, which ``make soak`` starts: the page has made all that they mount."""
        read_kustomization(clone.directory / shlex.split(command)[-1])
        members = yaml.safe_load((clone.directory / MANIFESTS / "replicas" / "members.yaml").read_text())
        for volume in members["spec"]["template"]["spec"]["volumes"]:
            assert _objects(clone).files(members["metadata"]["namespace"], volume)


PODS = FakeCluster()


def _objects(clone: Clone) -> Objects:
    return Objects(clone.directory / FOLDER)


def imaged(clone: Clone, command: str) -> None:
    """Docker may not be there: the image is the one of the manifests."""
    given = yaml.safe_load((clone.directory / MANIFESTS / "server" / "kustomization.yaml").read_text())
    (image,) = given["images"]
    assert f"{image['newName']}:{image['newTag']}" in shlex.split(command)


def server_is_ready(clone: Clone, command: str) -> None:
    """``kubectl rollout status``: until the probes pass. Without a token nothing else is answered."""
    (workload,) = workloads(read_kustomization(clone.directory / MANIFESTS)).values()
    (container,) = containers(workload)
    for probe in (value["httpGet"] for key, value in container.items() if key.endswith("Probe")):
        assert probe["scheme"] == "HTTPS"
        wait_until(lambda path=probe["path"]: _status(clone, path) == "200", "the probe passes")  # type: ignore[misc]
    assert _status(clone, "/api/v1/nodes") == "401"


def envoy_is_connected(clone: Clone, command: str) -> None:
    """``kubectl rollout status`` of the Envoys: until the server knows the first pod."""
    wait_until(lambda: "envoy-0" in clone.done("xds nodes").stdout, "the Envoy is connected")


def _status(clone: Clone, path: str) -> str:
    url = f"https://localhost:{clone.ports[HTTP]}{path}"
    return clone.done(f"curl -s -o answer -w '%{{http_code}}' --cacert certs/ca.pem {url}").stdout


def forwarded(clone: Clone, command: str) -> None:
    """``kubectl port-forward``: of a Service of the manifests, whose port is one of this machine here."""
    found = re.search(r"-n (\w+) service/(\w+) (?:\d+:)?(\d+)$", command)
    assert found is not None
    folder = {"xds": MANIFESTS, "edge": MANIFESTS / "envoy"}[found[1]]
    documents = read_kustomization(clone.directory / folder)
    (chosen,) = (each for each in documents if each["kind"] == "Service" and each["metadata"]["name"] == found[2])
    assert clone.adapted(found[3]) in {str(port["port"]) for port in chosen["spec"]["ports"]}


def exported(clone: Clone, command: str) -> None:
    """``export NAME=VALUE...``, for the commands that follow."""
    for word in shlex.split(command)[1:]:
        name, value = word.split("=", 1)
        clone.set(name, clone.adapted(value))


def greeted(clone: Clone, command: str) -> None:
    """A request goes through the Envoy to the pod of the Service."""
    url = f"http://{LOOPBACK}:{clone.ports[LISTENER]}/"
    wait_until(lambda: clone.done(f"curl -s {url}").stdout == "greeter-1", command)
