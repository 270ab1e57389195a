"""deploy/kubernetes: the manifests belong together, and their bootstrap is what Envoy and the command line say it is.

The commands of docs/kubernetes.md start their pods (``tests/docs``). `test_kustomize.py` has what needs more programs.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfile import read_stages
from tests.deploy.pods import MANIFESTS, Objects, Pod, containers, read_kustomization, workloads
from tests.support.commands import xds
from tests.support.envoy import validate
from tests.support.pki import CertificateAuthority
from tests.support.process import REPOSITORY

Json = dict[str, Any]

FOLDER = REPOSITORY / MANIFESTS
FOLDERS = (".", "envoy", "sidecar")


def documents(folder: str) -> list[Json]:
    return read_kustomization(FOLDER / folder)


def of_kind(kind: str, folder: str = ".") -> dict[str, Json]:
    return {each["metadata"]["name"]: each for each in documents(folder) if each["kind"] == kind}


def workload(folder: str) -> Json:
    (found,) = workloads(documents(folder)).values()
    return found


def pod_spec(folder: str) -> Json:
    found: Json = workload(folder)["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_selectors_choose_the_pod_and_ports_are_its_own(folder: str) -> None:
    spec = workload(folder)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    ports = {port["name"] for container in containers(workload(folder)) for port in container["ports"]}
    probed = {each[key]["httpGet"]["port"] for each in containers(workload(folder)) for key in each if "Probe" in key}
    assert probed and probed <= ports
    for service in of_kind("Service", folder).values():
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@pytest.mark.parametrize("folder", FOLDERS)
def test_volumes_are_there_and_are_mounted(folder: str) -> None:
    claimed = {claim["metadata"]["name"] for claim in workload(folder)["spec"].get("volumeClaimTemplates", [])}
    volumes = {volume["name"] for volume in pod_spec(folder)["volumes"]} | claimed
    mounted = {mount["name"] for each in containers(workload(folder)) for mount in each.get("volumeMounts", [])}
    assert mounted == volumes


def test_one_process_at_a_time_has_the_store() -> None:
    """A StatefulSet starts no second pod before the first one has ended."""
    found = workload(".")
    assert (found["kind"], found["spec"]["replicas"]) == ("StatefulSet", 1)


def test_the_user_is_that_of_the_image() -> None:
    made = next(each.rest for each in read_stages(REPOSITORY / "Dockerfile")[-1].all("RUN") if "useradd" in each.rest)
    context = pod_spec(".")["securityContext"]
    assert f"--uid {context['runAsUser']} " in made
    assert context["fsGroup"] == context["runAsUser"]  # the mounted volume is writable, and the secrets readable


def test_no_image_is_that_of_a_public_registry_by_accident() -> None:
    (image,) = yaml.safe_load((FOLDER / "server" / "kustomization.yaml").read_text())["images"]
    assert {each["image"] for each in containers(workload("."))} == {image["name"]}
    assert "/" in image["newName"] and image["newTag"] != "latest"


def test_the_source_has_the_account_of_the_server() -> None:
    (subject,) = of_kind("ClusterRoleBinding")["xds"]["subjects"]
    account = of_kind("ServiceAccount")[subject["name"]]
    assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", account["metadata"]["namespace"])
    assert pod_spec(".")["serviceAccountName"] == subject["name"]
    assert pod_spec(".")["automountServiceAccountToken"] is True
    assert not account["automountServiceAccountToken"]  # without the component nothing of the pod asks the API server
    assert of_kind("ClusterRoleBinding")["xds"]["roleRef"]["name"] in of_kind("ClusterRole")
    assert not {each["kind"] for each in documents("server")} & {"ClusterRole", "ClusterRoleBinding"}
    assert "automountServiceAccountToken" not in workload("server")["spec"]["template"]["spec"]


@pytest.mark.parametrize("folder", ["envoy", "sidecar"])
def test_the_network_policy_lets_proxies_in(folder: str) -> None:
    proxies, namespace = of_kind("NetworkPolicy")["xds"]["spec"]["ingress"]
    (peer,) = proxies["from"]
    labels = workload(folder)["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert (peer["namespaceSelector"], proxies["ports"]) == ({}, [{"port": 18000}])
    assert (namespace["from"], namespace["ports"]) == ([{"podSelector": {}}], [{"port": 18080}])


def test_prometheus_scrapes_a_port_that_the_service_names_once() -> None:
    monitor, policy = yaml.safe_load_all((FOLDER / "monitoring" / "service-monitor.yaml").read_text())
    services = of_kind("Service").values()
    chosen = [
        each
        for each in services
        if monitor["spec"]["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    ]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert [port["name"] for each in chosen for port in each["spec"]["ports"]].count(endpoint["port"]) == 1
    (service,) = chosen
    at = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert endpoint["tlsConfig"]["serverName"] == at
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "xds-server"  # which alerts select
    assert policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]


def test_the_bootstrap_is_the_one_of_the_command_beside_it() -> None:
    text = (FOLDER / "bootstrap" / "kustomization.yaml").read_text().replace("\\\n#", "")
    found = re.search(r"^# +(xds bootstrap .*) > envoy.yaml$", text, re.MULTILINE)
    assert found is not None
    written = xds(*shlex.split(found[1])[1:])
    assert (written.code, written.out) == (0, (FOLDER / "bootstrap" / "envoy.yaml").read_text())


@pytest.mark.parametrize("folder", ["envoy", "sidecar"])
def test_envoy_accepts_the_bootstrap_and_its_flags(folder: str, tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    objects.apply(documents(folder))
    namespace = workload(folder)["metadata"]["namespace"]
    objects.put("configmap", namespace, "xds-ca", {"ca.crt": CertificateAuthority(tmp_path).pem})
    objects.put("secret", namespace, "xds-proxy", {"token": "of-the-proxies"})
    pod = Pod(workload(folder), "envoy-0", objects, tmp_path)
    container = next(containers(workload(folder)))
    command = pod.command(container)
    assert command[command.index("--service-node") + 1] == "envoy-0"
    bootstrap = yaml.safe_load(Path(command[command.index("-c") + 1]).read_text())
    assert validate(bootstrap | {"node": {"id": "envoy-0", "cluster": folder}}, tmp_path) == ""
