"""A real Kubernetes API on the loopback: etcd and kube-apiserver, without nodes and controllers.

The test writes Services and EndpointSlices over the API, as controllers would.
"""

from __future__ import annotations

import base64
import json
import shutil
import ssl
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from bench.kubernetes.programs import KUBE_APISERVER, etcd
from bench.peers.go_program import build
from tests.support.kubernetes_api import SERVICES, SLICES
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, free_port

Json = dict[str, Any]

ADMIN, READER, STRANGER = "admin-token", "reader-token", "stranger-token"
START_S = 90.0
_USERS = f'{ADMIN},admin,1,"system:masters"\n{READER},reader,2,"readers"\n{STRANGER},stranger,3\n'
_PATHS = {SERVICES: "/api/v1", SLICES: "/apis/discovery.k8s.io/v1"}
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1"


def documented_rights() -> tuple[Json, Json]:
    """The role that the documentation gives to the server, and its binding to the users of a test."""
    documents = yaml.safe_load_all((REPOSITORY / "deploy" / "kubernetes" / "source" / "access.yaml").read_text())
    kinds = {each["kind"]: each for each in documents}
    role, binding = kinds["ClusterRole"], kinds["ClusterRoleBinding"]
    binding["metadata"]["name"] = "readers"  # the manifests' own may be created beside it
    group = "rbac.authorization.k8s.io"
    binding["subjects"] = [{"kind": "User", "name": name, "apiGroup": group} for name in ("reader", "certified")]
    return role, binding


class KubernetesCluster:
    """The two processes. The reader, by token or client certificate, has the rights that the documentation gives."""

    def __init__(self, directory: Path, flags: Iterable[str] = ()) -> None:
        self._directory = directory
        self._flags = tuple(flags)
        self._etcd_ports = free_port(), free_port()
        self.port = free_port()
        self._ca = CertificateAuthority(directory, "kubernetes-ca")
        self._certificate = self._ca.issue("kube-apiserver", ("localhost", LOOPBACK))
        self.client_certificate = self._ca.issue("certified")
        self._accounts = self._ca.issue("accounts")  # its key signs the tokens of service accounts
        (directory / "tokens.csv").write_text(_USERS)
        self._etcd: ChildProcess | None = None
        self._api: ChildProcess | None = None
        self.client = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {ADMIN}"},
            verify=self.context(),
            trust_env=False,
            timeout=30.0,
        )

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return f"https://{LOOPBACK}:{self.port}"

    def context(self) -> ssl.SSLContext:
        """A TLS context that trusts the API server."""
        return self._ca.client_context()

    # Life

    def __enter__(self) -> Self:
        self.start()
        self._give_rights()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        for process in (self._api, self._etcd):
            if process is not None:
                process.kill()
                if error is not None:
                    print(process.log_tail())

    def start(self) -> None:
        """Start both."""
        self.start_etcd()
        self.start_api()

    def start_etcd(self) -> None:
        """Start etcd, with its data."""
        client, peer = (f"http://{LOOPBACK}:{port}" for port in self._etcd_ports)
        flags = {
            "data-dir": self._directory / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        argv = [str(etcd()), *(f"--{name}={value}" for name, value in flags.items())]
        self._etcd = ChildProcess("etcd", argv, self._directory)

    def start_api(self) -> None:
        """Start the API server, and wait until it is ready."""
        flags = {
            "etcd-servers": f"http://{LOOPBACK}:{self._etcd_ports[0]}",
            "secure-port": self.port,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "tls-cert-file": self._certificate.path,
            "tls-private-key-file": self._certificate.key_path,
            "client-ca-file": self._ca.path,
            "cert-dir": self._directory / "api",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self._accounts.path,
            "service-account-signing-key-file": self._accounts.key_path,
            "service-cluster-ip-range": "10.96.0.0/12,fd00:10::/112",
            "token-auth-file": self._directory / "tokens.csv",
            "authorization-mode": "RBAC",
            "disable-admission-plugins": "ServiceAccount",
            "endpoint-reconciler-type": "none",  # nothing is written but by the test
            "etcd-compaction-interval": "0",  # the test compacts
        }
        argv = [str(build(KUBE_APISERVER)), *(f"--{name}={value}" for name, value in flags.items()), *self._flags]
        self._api = ChildProcess("kube-apiserver", argv, self._directory)
        self._api.wait_until(self._is_ready, "/readyz", START_S)

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def kill_api(self) -> None:
        """SIGKILL the API server."""
        assert self._api is not None
        self._api.kill()

    def kill_etcd(self) -> None:
        """SIGKILL etcd."""
        assert self._etcd is not None
        self._etcd.kill()

    def lose_everything(self) -> None:
        """Kill both, and start them without data."""
        self.kill_api()
        self.kill_etcd()
        shutil.rmtree(self._directory / "etcd")
        self.start()
        self._give_rights()

    def _give_rights(self) -> None:
        role, binding = documented_rights()
        self._post(f"{_RIGHTS}/clusterroles", role)
        self._post(f"{_RIGHTS}/clusterrolebindings", binding)

    # Who reads

    def kubeconfig(self, name: str = "kubeconfig", token: str = READER, **user: Any) -> Path:
        """Write a kubeconfig with a token, or with other credentials of the user."""
        given = user or {"token": token}
        authority = base64.b64encode(self._ca.pem.encode()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": given}],
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "main",
        }
        path = self._directory / name
        path.write_text(yaml.safe_dump(document))
        return path

    def account(self, name: str = "account") -> Path:
        """Write the folder that a pod has for its service account."""
        folder = self._directory / name
        folder.mkdir(exist_ok=True)
        (folder / "ca.crt").write_text(self._ca.pem)
        (folder / "token").write_text(READER)
        return folder

    # Writing

    def namespace(self, name: str) -> None:
        """Create a namespace."""
        self._post("/api/v1/namespaces", {"metadata": {"name": name}})

    def create(self, *documents: Json) -> None:
        """Create Services and slices."""
        for each in documents:
            self._post(_collection(each), each)

    def put(self, *documents: Json) -> None:
        """Create or replace slices; create Services, or replace their ports."""
        for each in documents:
            path = f"{_collection(each)}/{each['metadata']['name']}"
            present = self.client.get(path)
            if present.status_code == 404:
                self._post(_collection(each), each)
                continue
            metadata = {**each["metadata"], "resourceVersion": present.json()["metadata"]["resourceVersion"]}
            body = {**each, "metadata": metadata}
            if "spec" in each:  # most of it may not be changed
                body["spec"] = {**present.json()["spec"], "ports": each["spec"]["ports"]}
            answer = self.client.put(path, json=body)
            assert answer.is_success, answer.text

    def delete(self, plural: str, name: str, namespace: str = "shop") -> None:
        """Delete an object."""
        answer = self.client.delete(f"{_PATHS[plural]}/namespaces/{namespace}/{plural}/{name}")
        assert answer.is_success, answer.text

    def objects(self, plural: str) -> dict[tuple[str, str], Json]:
        """All objects, by namespace and name."""
        answer = self.client.get(f"{_PATHS[plural]}/{plural}")
        assert answer.is_success, answer.text
        return {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in answer.json()["items"] or []}

    def _post(self, path: str, document: Json) -> None:
        answer = self.client.post(path, json=document)
        assert answer.is_success or answer.status_code == 409, f"{path}: {answer.text}"

    def compact(self) -> None:
        """Let etcd forget its history. The watch cache of the API server stays."""
        version = self.client.get("/api/v1/services", params={"limit": "1"}).json()["metadata"]["resourceVersion"]
        answer = httpx.post(
            f"http://{LOOPBACK}:{self._etcd_ports[0]}/v3/kv/compaction",
            content=json.dumps({"revision": version, "physical": True}),
            trust_env=False,
        )
        assert answer.is_success, answer.text


def _collection(document: Json) -> str:
    plural = SLICES if "addressType" in document else SERVICES
    return f"{_PATHS[plural]}/namespaces/{document['metadata']['namespace']}/{plural}"
