"""Manifests of Kubernetes without a cluster: a pod's own command line as a process of this machine.

What a container mounts becomes a folder with copies of its Secrets and ConfigMaps, and paths of mounts in commands,
variables and YAML files become paths of it. Names of Services become the loopback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.dockerfile import read_stages
from tests.support.envoy import FLAGS as ENVOY_FLAGS
from tests.support.envoy import envoy_binary
from tests.support.process import LOOPBACK, REPOSITORY

Json = dict[str, Any]

MANIFESTS = Path("deploy/kubernetes")
ANY_ADDRESS = "0.0.0.0"
WORKLOADS = ("StatefulSet", "Deployment")


def read_kustomization(folder: Path) -> list[Json]:
    """What kustomize makes of a folder of this repository; patches of strategic merges are left out.

    ``make soak`` compares it with kustomize itself.
    """
    given = yaml.safe_load((folder / "kustomization.yaml").read_text())
    found: list[Json] = []
    for name in given.get("resources", []):
        path = folder / name
        found += read_kustomization(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    found += [_config_map(folder, each) for each in given.get("configMapGenerator", [])]
    for name in given.get("components", []):
        found += read_kustomization(folder / name)
        component = yaml.safe_load((folder / name / "kustomization.yaml").read_text())
        for patch in component.get("patches", []):
            _patch(found, patch)
    for each in found:
        if "namespace" in given:
            each["metadata"].setdefault("namespace", given["namespace"])
    return found


def _config_map(folder: Path, given: Json) -> Json:
    files = (name.partition("=") for name in given["files"])
    data = {key: (folder / (path or key)).read_text() for key, _, path in files}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": given["name"]}, "data": data}


def _patch(documents: Iterable[Json], patch: Json) -> None:
    """Apply the additions of a JSON patch."""
    target = patch["target"]
    (document,) = (
        each for each in documents if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"])
    )
    for operation in yaml.safe_load(patch["patch"]):
        assert operation["op"] == "add", operation
        *way, last = operation["path"].strip("/").split("/")
        place: Any = document
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        if last == "-":
            place.append(operation["value"])
        else:
            place[last] = operation["value"]


def workloads(documents: Iterable[Json]) -> dict[str, Json]:
    """The StatefulSets and Deployments by name."""
    return {each["metadata"]["name"]: each for each in documents if each["kind"] in WORKLOADS}


def containers(workload: Json) -> Iterator[Json]:
    """All containers of its pod."""
    spec = workload["spec"]["template"]["spec"]
    yield from spec.get("initContainers", [])
    yield from spec["containers"]


class Objects:
    """Secrets and ConfigMaps as files: ``NAMESPACE/NAME/KEY``, below ``secret`` and ``configmap``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, kind: str, namespace: str, name: str, data: Mapping[str, str]) -> None:
        """Create or replace one."""
        folder = self._directory / kind / namespace / name
        folder.mkdir(parents=True, exist_ok=True)
        for key, text in data.items():
            (folder / key).write_text(text)

    def apply(self, documents: Iterable[Json]) -> None:
        """Create those of the manifests."""
        for each in documents:
            if each["kind"] == "ConfigMap":
                self.put("configmap", each["metadata"]["namespace"], each["metadata"]["name"], each["data"])

    def files(self, namespace: str, volume: Json) -> dict[str, str]:
        """What a volume of a pod has. Fails if it was not created."""
        if "secret" in volume:
            kind, name = "secret", volume["secret"]["secretName"]
        elif "configMap" in volume:
            kind, name = "configmap", volume["configMap"]["name"]
        else:
            return {}
        folder = self._directory / kind / namespace / name
        assert folder.is_dir(), f"{kind} {namespace}/{name} was not created"
        return {path.name: path.read_text() for path in folder.iterdir()}


class Pod:
    """One pod of a workload. ``ports`` are those of this machine by those of the manifests."""

    def __init__(
        self, workload: Json, name: str, objects: Objects, directory: Path, ports: Mapping[str, int] | None = None
    ) -> None:
        self.name = name
        self._workload = workload
        self._directory = directory / name
        self._ports = {port: str(number) for port, number in (ports or {}).items()}
        spec = workload["spec"]["template"]["spec"]
        for volume in [*spec.get("volumes", []), *self._claimed()]:
            for container in containers(workload):
                self._mount(container, volume, objects.files(workload["metadata"]["namespace"], volume))

    def _claimed(self) -> Iterator[Json]:
        for claim in self._workload["spec"].get("volumeClaimTemplates", []):
            yield {"name": claim["metadata"]["name"]}

    def _mount(self, container: Json, volume: Json, files: Mapping[str, str]) -> None:
        for mount in container.get("volumeMounts", []):
            if mount["name"] == volume["name"]:
                folder = self._directory / mount["mountPath"].lstrip("/")
                folder.mkdir(parents=True, exist_ok=True)
                for key, text in files.items():
                    (folder / key).write_text(self.adapted(container, text) if key.endswith(".yaml") else text)

    def command(self, container: Json) -> list[str]:
        """The program that its image starts, with the arguments of the manifest."""
        program = self._program(container)
        arguments = [self._expanded(container, self.adapted(container, each)) for each in container["args"]]
        return [*program, *arguments, *(ENVOY_FLAGS if program == [str(envoy_binary())] else ())]

    def environment(self, container: Json) -> dict[str, str]:
        """Its variables."""
        values: dict[str, str] = {}
        for each in container.get("env", []):
            if "valueFrom" in each:
                assert each["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
                values[each["name"]] = self.name
            else:
                text = self.adapted(container, each["value"])
                values[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], text)
        return values

    def adapted(self, container: Json, text: str) -> str:
        """The text with the paths of the mounts, the addresses and the ports of this machine."""
        mounts = "|".join(re.escape(mount["mountPath"]) for mount in container.get("volumeMounts", []))
        text = re.sub(rf"(?<![\w/.])({mounts})\b", rf"{self._directory}\1", text) if mounts else text
        text = re.sub(r"(address: )(\w+\.)+svc\b", rf"\g<1>{LOOPBACK}", text).replace(ANY_ADDRESS, LOOPBACK)
        ports = "|".join(self._ports)
        return re.sub(rf"\b({ports})\b", lambda found: self._ports[found[0]], text) if ports else text

    def _program(self, container: Json) -> list[str]:
        if container["image"].startswith("envoyproxy/"):
            return [str(envoy_binary())]
        assert "xds-server" in container["image"]
        return read_stages(REPOSITORY / "Dockerfile")[-1].last("ENTRYPOINT").arguments

    def _expanded(self, container: Json, text: str) -> str:
        return re.sub(r"\$\((\w+)\)", lambda found: self.environment(container)[found[1]], text)
