"""Schemas of Kubernetes and of the Prometheus operator, from their public Go modules of pinned versions."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

from bench.peers.child import PeerError
from bench.peers.go_program import go_command

Json = dict[str, Any]

DOWNLOAD_TIMEOUT_S = 300.0
# By version: the checksum of the module, as go.sum has it.
KUBERNETES = {
    "v1.31.1": "h1:1fcYJe8SAhtannpChbmnzHLwAV9Je99PrGaFtBvCxms=",
    "v1.36.1": "h1:Mt7NKigaZ2KmOmCLhX81lGlH9JU5wjXnYhXnxAun9XA=",
}
OPERATOR = ("v0.82.2", "h1:qalPLM8wkvCtu9aHcoSKGDpCZR3aWRMKeHev5WomTBQ=")


def _module(path: str, version: str, checksum: str) -> Path:
    """The folder of a module, fetched if it is not there."""
    go = go_command()
    if go is None:
        raise PeerError("Go is needed for the schemas: https://go.dev/dl")
    argv = [go, "mod", "download", "-json", f"{path}@{version}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False, cwd="/")
    found = json.loads(done.stdout or "{}")
    if done.returncode or found.get("Error"):
        raise PeerError(f"{' '.join(argv)}: {found.get('Error') or done.stderr}")
    assert found["Sum"] == checksum, f"{path}@{version}: {found['Sum']}"
    return Path(found["Dir"])


class Schemas:
    """The objects of one version of Kubernetes; a field that it does not know is a fault."""

    def __init__(self, version: str) -> None:
        folder = _module("k8s.io/kubernetes", version, KUBERNETES[version])
        swagger = json.loads((folder / "api" / "openapi-spec" / "swagger.json").read_text())
        self._definitions: Json = {name: _strict(each) for name, each in swagger["definitions"].items()}
        # Swagger has one type only.
        for name in self._definitions:
            if name.endswith(".IntOrString"):
                self._definitions[name] = {"type": ["string", "integer"]}
        self._names = {
            (f"{kind['group']}/{kind['version']}".lstrip("/"), kind["kind"]): name
            for name, each in swagger["definitions"].items()
            for kind in each.get("x-kubernetes-group-version-kind", [])
        }

    def faults(self, document: Json) -> list[str]:
        """What is wrong with an object; it is of a kind that is not known if the kind is."""
        name = self._names.get((document["apiVersion"], document["kind"]))
        if name is None:
            return [f"{document['apiVersion']} {document['kind']} is not known"]
        schema = {"$ref": f"#/definitions/{name}", "definitions": self._definitions}
        return _faults(schema, document)


def service_monitor_faults(document: Json) -> list[str]:
    """What is wrong with a ServiceMonitor."""
    return _faults(_service_monitor(), document)


@cache
def _service_monitor() -> Json:
    folder = _module("github.com/prometheus-operator/prometheus-operator", *OPERATOR)
    crd = "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"
    (version,) = yaml.safe_load((folder / crd).read_text())["spec"]["versions"]
    schema: Json = _strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _strict(schema: Any) -> Any:
    """The schema without fields beside those that it names."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if isinstance(strict.get("properties"), dict) and strict.get("type") == "object":
        strict.setdefault("additionalProperties", False)
    return strict


def _faults(schema: Json, document: Json) -> list[str]:
    found = jsonschema_rs.Draft4Validator(schema).iter_errors(document)
    return [f"{'/'.join(map(str, each.instance_path))}: {each.message}" for each in found]
