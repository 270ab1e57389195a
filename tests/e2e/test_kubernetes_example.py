"""examples/kubernetes works: its commands, with an API in place of the reader's cluster."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.support.background import Background
from tests.support.clone import LISTENER, SERVE, Clone, Row, Walk, bootstrap, envoy, says, sees, try_page
from tests.support.kubernetes_api import SLICES, endpoint, endpoint_slice
from tests.support.kubernetes_pods import DRAINING, READY, FakePodApi, write_kubeconfig
from tests.support.load import HttpLoad
from tests.support.process import REPOSITORY, wait_until
from tests.support.upstream import Upstream

PAGE = REPOSITORY / "examples" / "kubernetes" / "README.md"
LOAD = "python examples/load.py http://127.0.0.1:10000/ --requests 200"
SHOW = "xds service greeter.default"


class Cluster:
    """What the reader's cluster does: pods of the Service of greeter.yaml."""

    def __init__(self, background: Background, directory: Path) -> None:
        self._background = background
        self._api = FakePodApi(background, directory)
        self._pods: dict[str, Upstream] = {}
        self._started = 0
        self.url = self._api.fake.url

    def apply(self, clone: Clone, command: str) -> None:
        """``kubectl apply``: the Service, and the pods of the Deployment."""
        files = re.findall(r"-f (\S+)", command)
        documents = [each for file in files for each in yaml.safe_load_all((clone.directory / file).read_text())]
        kinds = {each["kind"]: each for each in documents}
        assert kinds.keys() == {"Service", "Deployment"}
        labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
        assert kinds["Service"]["spec"]["selector"] == labels == kinds["Deployment"]["spec"]["selector"]["matchLabels"]
        self._api.put({key: kinds["Service"][key] for key in ("metadata", "spec")} | _families(kinds["Service"]))
        for _ in range(kinds["Deployment"]["spec"]["replicas"]):
            self.start()

    def start(self) -> None:
        """Another pod."""
        self._started += 1
        name = f"greeter-{self._started}"
        self._pods[name] = Upstream(self._background, name)
        self._write(name, READY)

    def scale(self, clone: Clone, command: str) -> None:
        """``kubectl scale``."""
        while len(self._pods) < int(command.rsplit(maxsplit=1)[-1]):
            self.start()
        wait_until(lambda: len(re.findall("passing", clone.run(SHOW))) >= len(self._pods), "all pods are seen")

    def restart(self, clone: Clone, command: str) -> None:
        """``kubectl rollout restart``: each pod is replaced by a new one, and drains first."""
        for name in list(self._pods):
            self.start()
            self._write(name, DRAINING)
            _wait_draining(clone, name)
            self._pods.pop(name)
            self._api.delete(SLICES, name, "default")

    def _write(self, name: str, state: dict[str, Any]) -> None:
        one = endpoint(self._api.address, pod=name, **state)
        ports = (("http", self._pods[name].port),)
        self._api.put(endpoint_slice(name, "greeter", one, namespace="default", ports=ports))


def _wait_draining(clone: Clone, name: str) -> None:
    wait_until(lambda: re.search(f"{name}.*draining", clone.run(SHOW)), "it drains")


def _families(document: dict[str, Any]) -> dict[str, Any]:
    """What the API server fills in."""
    return {"spec": {"type": "ClusterIP", "ipFamilies": ["IPv4"], **document["spec"]}}


def test_the_page_of_the_example(tmp_path: Path, running: ExitStack, background: Background) -> None:
    clone = Clone(tmp_path, running)
    (tmp_path / "kubectl").mkdir()
    cluster = Cluster(background, tmp_path / "kubectl")
    written = tmp_path / "kubectl" / "kubeconfig"

    def config(clone: Clone, command: str) -> None:
        write_kubeconfig(tmp_path / "kubectl", cluster.url)
        (clone.directory / "kubeconfig").write_text(written.read_text())

    def greeted(*names: str) -> Row:
        return sees(*(rf"^ *\d+ of 200  {name}$" for name in names))

    def restart(clone: Clone, command: str) -> None:
        with HttpLoad(background, clone.ports[LISTENER]) as load:
            cluster.restart(clone, command)
            load.wait_total(100)
        assert load.report.failed == 0, load.report

    walk: Walk = [
        ("kubectl apply -f examples/kubernetes/greeter.yaml", cluster.apply),
        ("kubectl config view --minify --flatten > kubeconfig", config),
        ("xds serve --config examples/kubernetes/xds.yaml", SERVE),
        ("xds sources", sees("cluster +kubernetes +reading")),
        (SHOW, sees("greeter-1", "greeter-2")),
        ("xds apply -g kubernetes -f examples/kubernetes/snapshot.yaml", says("revision 1")),
        ("xds endpoints bind greeter greeter.default -g kubernetes", says("greeter.default")),
        ("xds bootstrap --node-id kubernetes-1 --cluster kubernetes > envoy.yaml", bootstrap),
        ("envoy -c envoy.yaml", envoy("kubernetes-1")),
        (LOAD, greeted("greeter-1", "greeter-2")),
        ("kubectl scale deployment greeter --replicas 3", cluster.scale),
        (LOAD, greeted("greeter-1", "greeter-2", "greeter-3")),
        ("kubectl rollout restart deployment greeter", restart),
        (SHOW, sees("greeter-4", "greeter-5", "greeter-6")),
    ]
    try_page(PAGE, walk, clone)
