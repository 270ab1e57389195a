"""deploy/kubernetes as kustomize builds it: schemas of two versions, a real API server, three servers on a database."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from bench.peers.go_program import GoProgram, build
from tests.deploy.kubernetes_schemas import KUBERNETES, Schemas, service_monitor_faults
from tests.deploy.native import BIN
from tests.deploy.pods import MANIFESTS, Objects, Pod, containers, read_kustomization, workloads
from tests.support.kubernetes_api import endpoint, endpoint_slice, service
from tests.support.kubernetes_cluster import KubernetesCluster
from tests.support.pki import CertificateAuthority
from tests.support.postgres import USER, PostgresServer
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, free_port, wait_until

Json = dict[str, Any]

GO_TIMEOUT_S = 3_000  # the first run builds kustomize and the API server, on whatever machine
RUN_S = 60
KUSTOMIZE = GoProgram(
    "kustomize-5.7.1",
    Path(__file__).resolve().parent / "kustomize",
    package="sigs.k8s.io/kustomize/kustomize/v5",
)
FOLDERS = (".", "envoy", "sidecar", "replicas", "monitored")
OPERATOR = {"ServiceMonitor"}
PATHS = {
    "v1": "/api/v1",
    "apps/v1": "/apis/apps/v1",
    "networking.k8s.io/v1": "/apis/networking.k8s.io/v1",
    "policy/v1": "/apis/policy/v1",
    "rbac.authorization.k8s.io/v1": "/apis/rbac.authorization.k8s.io/v1",
}
PLURALS = {"NetworkPolicy": "networkpolicies"}
TOKEN = "of-the-operator"
OPERATOR_TOKEN = {"name": "operator", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest(), "scopes": ["admin"]}

pytestmark = [pytest.mark.soak, pytest.mark.timeout(GO_TIMEOUT_S), pytest.mark.xdist_group("kubernetes")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Json]]:
    """The objects of each folder; ``monitored`` is the first one with the component `monitoring`."""
    program = build(KUSTOMIZE)
    copied = tmp_path_factory.mktemp("kustomize") / "kubernetes"
    shutil.copytree(REPOSITORY / MANIFESTS, copied)
    monitored = copied / "monitored"
    monitored.mkdir()
    (monitored / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: xds\nresources: [../server]\n"
        "components: [../source, ../monitoring]\n"
    )
    return {folder: _build(program, copied / folder) for folder in FOLDERS}


def _build(program: Path, folder: Path) -> list[Json]:
    done = subprocess.run([program, "build", folder], capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("version", KUBERNETES)
def test_schemas_know_every_field(version: str, built: dict[str, list[Json]]) -> None:
    schemas = Schemas(version)
    found = [each for folder in FOLDERS for each in built[folder]]
    faults = {
        (each["kind"], each["metadata"]["name"]): told
        for each in found
        if (told := service_monitor_faults(each) if each["kind"] in OPERATOR else schemas.faults(each))
    }
    assert not faults
    assert {each["kind"] for each in found} >= OPERATOR | {"StatefulSet", "Deployment", "PodDisruptionBudget"}


def test_a_wrong_field_is_found(built: dict[str, list[Json]]) -> None:
    """Else the schemas would hold for anything."""
    schemas = Schemas(next(iter(KUBERNETES)))
    (deployment,) = workloads(copy.deepcopy(built["envoy"])).values()
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert "readynessProbe" in str(schemas.faults(deployment))
    (monitor,) = (each for each in built["monitored"] if each["kind"] in OPERATOR)
    assert "schema" in str(service_monitor_faults(monitor | {"spec": monitor["spec"] | {"schema": "https"}}))


@pytest.mark.parametrize("folder", [".", "envoy", "sidecar"])
def test_other_tests_read_what_kustomize_builds(folder: str, built: dict[str, list[Json]]) -> None:
    """But for the hash in names of ConfigMaps, the images, and labels of what is generated."""
    ours = {
        (each["kind"], _name(each)): _comparable(each) for each in read_kustomization(REPOSITORY / MANIFESTS / folder)
    }
    theirs = {(each["kind"], _name(each)): _comparable(each) for each in built[folder]}
    assert ours == theirs


def _name(document: Json) -> str:
    return re.sub("-[a-z0-9]{10}$", "", document["metadata"]["name"])


def _comparable(document: Json) -> Json:
    if document["kind"] == "ConfigMap":
        return {"data": document["data"]}
    copied: Json = json.loads(json.dumps(document))
    if document["kind"].startswith("ClusterRole"):
        copied["metadata"].pop("namespace", None)
    for workload in workloads([copied]).values():
        for container in containers(workload):
            container.pop("image")
        for volume in workload["spec"]["template"]["spec"]["volumes"]:
            volume.pop("configMap", None)
    return copied


def test_a_real_api_server_takes_them_and_the_account_reads_services(
    built: dict[str, list[Json]], tmp_path: Path, running: ExitStack
) -> None:
    cluster = running.enter_context(KubernetesCluster(tmp_path))
    for name in ("xds", "edge", "shop"):
        cluster.namespace(name)
    for folder in FOLDERS:
        for each in (one for one in built[folder] if one["kind"] not in OPERATOR):
            _create(cluster, each, dryRun="All")
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    for each in (one for one in built["."] if one["kind"] in kinds):
        _create(cluster, each)
    answer = cluster.client.post(
        "/api/v1/namespaces/xds/serviceaccounts/xds/token",
        json={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    assert answer.is_success, answer.text
    kubeconfig = cluster.kubeconfig("of-the-account", token=answer.json()["status"]["token"])
    cluster.create(service("web", clusterIP="None"), endpoint_slice("web-a", "web", endpoint("10.0.0.1")))
    client = _start(
        built["."], 0, tmp_path, CertificateAuthority(tmp_path), running, {"XDS_SOURCES": _sources(kubeconfig)}
    )
    reads = partial(_answers, client, "/api/v1/services/web.shop")
    wait_until(reads, "the service is read", detail=lambda: client.get("/api/v1/sources").text)


def _sources(kubeconfig: Path) -> str:
    """In place of the token that is mounted into a pod."""
    return json.dumps({"cluster": {"kind": "kubernetes", "kubeconfig": str(kubeconfig)}})


def _create(cluster: KubernetesCluster, document: Json, **query: str) -> None:
    plural = PLURALS.get(document["kind"], f"{document['kind'].lower()}s")
    namespace = document["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    path = f"{PATHS[document['apiVersion']]}{within}/{plural}"
    answer = cluster.client.post(path, params={"fieldValidation": "Strict", **query}, json=document)
    assert answer.is_success or answer.status_code == httpx.codes.CONFLICT, f"{path}: {answer.text}"


def test_three_servers_share_the_database(built: dict[str, list[Json]], tmp_path: Path, running: ExitStack) -> None:
    database = running.enter_context(PostgresServer())
    url = f"postgresql://{USER}@{LOOPBACK}:{database.port}/{USER}"
    (workload,) = workloads(built["replicas"]).values()
    number = workload["spec"]["replicas"]
    authority = CertificateAuthority(tmp_path)
    clients = [_start(built["replicas"], at, tmp_path, authority, running, {}, url) for at in range(number)]
    pushed = clients[0].put("/api/v1/groups/edge/snapshot", json={"resources": []})
    assert pushed.is_success, pushed.text
    for client in clients:
        wait_until(partial(_answers, client, "/api/v1/groups/edge"), "each has the push")
        wait_until(partial(_knows_members, client, number), "each answers for all")


def _knows_members(client: httpx.Client, number: int) -> bool:
    members = client.get("/api/v1/members").json()
    return len(members["items"]) == number and not members.get("partial")


def _start(
    documents: list[Json],
    at: int,
    directory: Path,
    authority: CertificateAuthority,
    running: ExitStack,
    changed: dict[str, str],
    url: str = "",
) -> httpx.Client:
    """A client of a server's pod, which runs as a process of this machine."""
    (workload,) = workloads(documents).values()
    certificate = authority.issue(f"xds-{at}", ("localhost", LOOPBACK))
    objects = Objects(directory)
    objects.apply(documents)
    objects.put("secret", "xds", "xds-tls", {"tls.crt": certificate.pem, "tls.key": certificate.key_pem})
    objects.put("secret", "xds", "xds-tokens", {"tokens": json.dumps([OPERATOR_TOKEN])})
    objects.put("secret", "xds", "xds-database", {"url": url})
    objects.put("configmap", "xds", "xds-ca", {"ca.crt": authority.pem})
    pod = Pod(workload, f"xds-{at}", objects, directory)
    (container,) = containers(workload)
    ports = {port["name"]: free_port() for port in container["ports"]}
    environment = pod.environment(container)
    if "XDS_SERVER__ADVERTISE" in environment:
        assert environment["XDS_SERVER__ADVERTISE"] == f"https://xds-{at}.xds-members.xds.svc:18080"
        environment["XDS_SERVER__ADVERTISE"] = f"https://localhost:{ports['http']}"
        changed = {"XDS_SOURCES": "{}"}
    environment |= changed | {f"XDS_SERVER__{name.upper()}__PORT": str(port) for name, port in ports.items()}
    program, *arguments = pod.command(container)
    server = running.enter_context(ChildProcess(pod.name, [BIN / program, *arguments], directory, environment))
    base = f"https://localhost:{ports['http']}"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    client = running.enter_context(
        httpx.Client(base_url=base, verify=authority.client_context(), headers=headers, trust_env=False)
    )
    probe = container["startupProbe"]["httpGet"]["path"]
    server.wait_until(partial(_answers, client, probe), "the startup probe passes")
    return client


def _answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).is_success
    except httpx.TransportError:
        return False
