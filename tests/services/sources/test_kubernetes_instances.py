"""Which instances follow from a Service of Kubernetes and its slices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kubernetes_api import endpoint, endpoint_slice, service
from xds.model.errors import Violation
from xds.model.node import Locality
from xds.services.core.instance import Health, Instance, check_instance
from xds.services.source_settings import KubernetesSettings
from xds.services.sources.json_members import MemberError
from xds.services.sources.kubernetes_instances import service_instances
from xds.services.sources.kubernetes_objects import read_service, read_slice

Json = dict[str, Any]


PLAIN = KubernetesSettings(kind="kubernetes")


def read(of: Json, *slices: Json, rules: KubernetesSettings = PLAIN) -> tuple[dict[str, Instance], list[Violation]]:
    """The instances by id, and everything that cannot be used."""
    values = [read_slice(each) for each in slices]
    instances, found = service_instances(read_service(of), values, rules)
    assert len({one.id for one in instances}) == len(instances)
    assert not [wrong for one in instances for wrong in check_instance(one)]
    return {one.id: one for one in instances}, [*found, *(each for one in values for each in one.findings)]


def places(instances: dict[str, Instance]) -> set[str]:
    return {f"{one.address}:{one.port}" for one in instances.values()}


# Conditions


@pytest.mark.parametrize(
    ("conditions", "health"),
    [
        ({"ready": True, "serving": True, "terminating": False}, Health.PASSING),
        ({"ready": None}, Health.PASSING),  # unknown readiness counts as ready
        ({}, Health.PASSING),
        ({"ready": False, "serving": False, "terminating": False}, Health.CRITICAL),
        ({"ready": False}, Health.CRITICAL),
        ({"ready": False, "serving": True, "terminating": True}, Health.DRAINING),
        ({"ready": False, "serving": False, "terminating": True}, Health.CRITICAL),
        ({"ready": False, "serving": None, "terminating": True}, Health.CRITICAL),  # unknown serving is readiness
        # publishNotReadyAddresses: ready is true whatever the pod says
        ({"ready": True, "serving": False, "terminating": False}, Health.PASSING),
        ({"ready": True, "serving": False, "terminating": True}, Health.DRAINING),
        ({"ready": True, "serving": True, "terminating": True}, Health.DRAINING),
    ],
)
def test_conditions_say_how_an_instance_is(conditions: Json, health: Health) -> None:
    one = {"addresses": ["10.0.0.1"], "conditions": conditions}
    instances, found = read(service("web"), endpoint_slice("web-1", "web", one))
    assert [each.health for each in instances.values()] == [health]
    assert not found


def test_an_endpoint_without_conditions_is_ready() -> None:
    instances, _ = read(service("web"), endpoint_slice("web-1", "web", {"addresses": ["10.0.0.1"]}))
    assert instances["10.0.0.1"].health is Health.PASSING


# Several slices


def test_a_service_has_the_endpoints_of_all_its_slices() -> None:
    slices = [endpoint_slice(f"web-{i}", "web", endpoint(f"10.0.{i}.1", pod=f"p{i}")) for i in range(3)]
    instances, _ = read(service("web"), *slices)
    assert instances.keys() == {"p0", "p1", "p2"}


def test_an_endpoint_in_two_slices_is_one_instance() -> None:
    one = endpoint("10.0.0.1", pod="p")
    instances, found = read(service("web"), endpoint_slice("web-1", "web", one), endpoint_slice("web-2", "web", one))
    assert places(instances) == {"10.0.0.1:8080"}
    assert not found


@pytest.mark.parametrize("old_first", [True, False])
def test_a_pod_that_terminates_in_one_slice_does_so_in_all(old_first: bool) -> None:
    old = endpoint("10.0.0.1", pod="p")
    now = endpoint("10.0.0.1", ready=False, serving=True, terminating=True, pod="p")
    first, second = (old, now) if old_first else (now, old)
    instances, _ = read(service("web"), endpoint_slice("a", "web", first), endpoint_slice("b", "web", second))
    assert instances["p"].health is Health.DRAINING


@pytest.mark.parametrize("old_first", [True, False])
def test_an_address_belongs_to_the_pod_that_is_ready(old_first: bool) -> None:
    old = endpoint("10.0.0.1", ready=False, serving=True, terminating=True, pod="old")
    now = endpoint("10.0.0.1", pod="new")
    first, second = (old, now) if old_first else (now, old)
    instances, _ = read(service("web"), endpoint_slice("a", "web", first), endpoint_slice("b", "web", second))
    assert {name: one.health for name, one in instances.items()} == {"new": Health.PASSING}


def test_ports_of_one_address_in_several_slices_are_taken_together() -> None:
    """As for Endpoints objects that people write: a slice for each set of ports."""
    of = service("web", ports=(("http", 80), ("admin", 81)))
    instances, found = read(
        of,
        endpoint_slice("a", "web", endpoint("10.0.0.1"), ports=(("http", 8080),)),
        endpoint_slice("b", "web", endpoint("10.0.0.1"), ports=(("admin", 9090),)),
    )
    one = instances["10.0.0.1"]
    assert (one.port, dict(one.ports)) == (8080, {"http": 8080, "admin": 9090})
    assert not found


def test_two_processes_on_one_address_are_two_instances() -> None:
    instances, _ = read(
        service("web"),
        endpoint_slice("a", "web", endpoint("10.0.0.1"), ports=(("", 8080),)),
        endpoint_slice("b", "web", endpoint("10.0.0.1"), ports=(("", 8081),)),
    )
    assert places(instances) == {"10.0.0.1:8080", "10.0.0.1:8081"}


def test_two_addresses_of_one_pod_are_two_instances() -> None:
    instances, _ = read(
        service("web"), endpoint_slice("a", "web", endpoint("10.0.0.1", pod="p"), endpoint("10.0.0.2", pod="p"))
    )
    assert places(instances) == {"10.0.0.1:8080", "10.0.0.2:8080"}


def test_the_order_of_slices_changes_nothing() -> None:
    """Two servers that see the same say the same."""
    slices = [
        endpoint_slice(f"s{i}", "web", *(endpoint(f"10.0.{j}.1", pod=f"p{j}") for j in range(i, i + 3)))
        for i in range(4)
    ]
    of = read_service(service("web"))
    values = [read_slice(each) for each in slices]
    forward, _ = service_instances(of, values, PLAIN)
    back, _ = service_instances(of, values[::-1], PLAIN)
    assert forward == back
    assert len(forward) == 6


# Families


def dual(*families: str, v4: bool = True, v6: bool = True) -> list[Json]:
    slices = [service("web", ipFamilies=list(families))]
    if v4:
        slices.append(endpoint_slice("a", "web", endpoint("10.0.0.1", pod="p")))
    if v6:
        slices.append(endpoint_slice("b", "web", endpoint("fd00::1", pod="p"), family="IPv6"))
    return slices


@pytest.mark.parametrize(
    ("families", "address"), [(("IPv4", "IPv6"), "10.0.0.1"), (("IPv6", "IPv4"), "fd00::1"), ((), "10.0.0.1")]
)
def test_a_pod_of_two_families_is_one_instance_of_the_services_first(families: tuple[str, ...], address: str) -> None:
    instances, found = read(*dual(*families))
    assert [one.address for one in instances.values()] == [address]
    assert not found


def test_the_second_family_is_used_where_the_first_has_no_endpoints() -> None:
    """A headless Service without selector has both families, whatever the cluster has."""
    instances, _ = read(*dual("IPv4", "IPv6", v4=False))
    assert [one.address for one in instances.values()] == ["fd00::1"]


def test_the_operator_chooses_the_family() -> None:
    instances, found = read(*dual("IPv4", "IPv6"), rules=KubernetesSettings(kind="kubernetes", family="ipv6"))
    assert [one.address for one in instances.values()] == ["fd00::1"]
    assert not found


def test_a_service_without_the_chosen_family_is_reported() -> None:
    instances, found = read(*dual("IPv4", v6=False), rules=KubernetesSettings(kind="kubernetes", family="ipv6"))
    assert not instances
    assert [each.code for each in found] == ["no_family"]


def test_names_are_no_endpoints() -> None:
    named = endpoint_slice("a", "web", endpoint("db.example.org"), family="FQDN")
    instances, found = read(service("web"), named)
    assert not instances
    assert [(each.code, each.pointer) for each in found] == [
        ("invalid_address_type", "/endpointslices/shop/a/addressType")
    ]


@pytest.mark.parametrize("address", ["", "10.0.0", "010.0.0.1", "fd00::1", "fe80::1%eth0", "web.shop"])
def test_an_invalid_address_alone_is_left_out(address: str) -> None:
    instances, found = read(service("web"), endpoint_slice("a", "web", endpoint(address), endpoint("10.0.0.2")))
    assert instances.keys() == {"10.0.0.2"}
    assert [each.pointer for each in found] == ["/endpointslices/shop/a/endpoints/0/addresses"]


def test_only_the_first_address_of_an_endpoint_has_a_meaning() -> None:
    one = {**endpoint("10.0.0.1"), "addresses": ["10.0.0.1", "10.0.0.2"]}
    instances, _ = read(service("web"), endpoint_slice("a", "web", one))
    assert instances.keys() == {"10.0.0.1"}


# Ports


def test_ports_are_those_of_the_pods_by_name_and_the_first_is_the_services() -> None:
    of = service("web", ports=(("http", 80), ("metrics", 9100)))
    ports = (("metrics", 9101), ("http", 8080))
    instances, _ = read(of, endpoint_slice("a", "web", endpoint("10.0.0.1"), ports=ports))
    one = instances["10.0.0.1"]
    assert (one.port, dict(one.ports)) == (8080, {"http": 8080, "metrics": 9101})


def test_tcp_comes_before_udp() -> None:
    of = service("dns", ports=(("dns", 53), ("dns-tcp", 53)))
    one = endpoint_slice("a", "dns", endpoint("10.0.0.1"), ports=(("dns", 5353), ("dns-tcp", 5354)))
    one["ports"][0]["protocol"] = "UDP"
    instances, _ = read(of, one)
    assert (instances["10.0.0.1"].port, dict(instances["10.0.0.1"].ports)) == (5354, {"dns": 5353, "dns-tcp": 5354})


def test_one_name_of_a_port_has_another_number_in_each_pod() -> None:
    of = service("web", ports=(("http", 80),))
    instances, _ = read(
        of,
        endpoint_slice("a", "web", endpoint("10.0.0.1"), ports=(("http", 8080),)),
        endpoint_slice("b", "web", endpoint("10.0.0.2"), ports=(("http", 9090),)),
    )
    assert places(instances) == {"10.0.0.1:8080", "10.0.0.2:9090"}


def test_an_endpoint_without_the_port_of_the_service_is_left_out() -> None:
    """Its requests would arrive at another port."""
    of = service("web", ports=(("http", 80), ("metrics", 9100)))
    instances, found = read(
        of,
        endpoint_slice("a", "web", endpoint("10.0.0.1"), ports=(("http", 8080), ("metrics", 9100))),
        endpoint_slice("b", "web", endpoint("10.0.0.2", pod="lame"), ports=(("metrics", 9100),)),
    )
    assert instances.keys() == {"10.0.0.1"}
    assert [(each.code, "lame" in each.detail) for each in found] == [("no_port", True)]


def test_a_port_that_no_pod_has_is_not_the_port_of_the_service() -> None:
    of = service("web", ports=(("http", 80), ("metrics", 9100)))
    instances, _ = read(of, endpoint_slice("a", "web", endpoint("10.0.0.1"), ports=(("metrics", 9100),)))
    assert instances["10.0.0.1"].port == 9100


@pytest.mark.parametrize("ports", [None, [], [{"name": "", "port": None}], [{"port": 80, "protocol": "SCTP"}]])
def test_a_service_without_ports_has_no_instances_and_is_reported(ports: Any) -> None:
    one = {**endpoint_slice("a", "web", endpoint("10.0.0.1")), "ports": ports}
    instances, found = read(service("web", ports=(), clusterIP="None"), one)
    assert not instances
    assert "no_port" in [each.code for each in found]


# Where and what


def test_zone_node_and_the_operators_region_are_the_locality() -> None:
    rules = KubernetesSettings(kind="kubernetes", region="eu-1", regions={"us-1a": "us-1"}, datacenter="west")
    instances, _ = read(
        service("web"),
        endpoint_slice(
            "a",
            "web",
            endpoint("10.0.0.1", zone="eu-1a", nodeName="n1"),
            endpoint("10.0.0.2", zone="us-1a"),
            endpoint("10.0.0.3"),
        ),
        rules=rules,
    )
    assert [(one.locality, one.node, one.datacenter) for one in instances.values()] == [
        (Locality("eu-1", "eu-1a"), "n1", "west"),
        (Locality("us-1", "us-1a"), "", "west"),
        (Locality("eu-1", ""), "", "west"),
    ]


def hinted(*hints: list[str] | None) -> Json:
    listed = [endpoint(f"10.0.0.{i}", zone="a") for i in range(len(hints))]
    for one, zones in zip(listed, hints, strict=True):
        if zones:
            one["hints"] = {"forZones": [{"name": zone} for zone in zones]}
    return endpoint_slice("s", "web", *listed)


@pytest.mark.parametrize(
    ("hints", "follows", "zones"),
    [
        ((["a"], ["b"]), True, ["a", "b"]),
        ((["b", "a"], ["b", "c"]), True, ["a", "b"]),  # its own zone, if that is one of them
        ((["b"], None), True, ["a", "a"]),  # as for kube-proxy, all have hints or none counts
        ((["b"], ["b"]), False, ["a", "a"]),
    ],
)
def test_the_zone_of_an_endpoint_is_that_of_its_hint(hints: Any, follows: bool, zones: list[str]) -> None:
    instances, _ = read(service("web"), hinted(*hints), rules=KubernetesSettings(kind="kubernetes", zone_hints=follows))
    assert [one.locality.zone for one in instances.values()] == zones


def test_an_endpoint_that_drains_needs_no_hint() -> None:
    one = hinted(["b"])
    one["endpoints"].append(endpoint("10.0.0.9", ready=False, serving=True, terminating=True, zone="a"))
    instances, _ = read(service("web"), one)
    assert [each.locality.zone for each in instances.values()] == ["b", "a"]


def test_labels_and_what_identifies_the_pod_are_meta() -> None:
    labels = {"version": "v2", "endpointslice.kubernetes.io/managed-by": "x", "service.kubernetes.io/headless": ""}
    one = endpoint_slice("a", "web", endpoint("10.0.0.1", pod="web-0", hostname="web-0"), labels=labels)
    instances, _ = read(service("web"), one)
    assert instances["web-0"].meta == {"version": "v2", "namespace": "shop", "pod": "web-0", "hostname": "web-0"}


def test_labels_beyond_the_bounds_of_the_catalog_are_left_out() -> None:
    labels = {f"l{i:03}": "x" for i in range(100)} | {"a" * 200: "x"}
    instances, _ = read(service("web"), endpoint_slice("a", "web", endpoint("10.0.0.1"), labels=labels))
    assert len(instances["10.0.0.1"].meta) <= 64
    assert instances["10.0.0.1"].meta["namespace"] == "shop"


# Kinds of Services


@pytest.mark.parametrize("spec", [{"clusterIP": "None"}, {"type": "LoadBalancer"}, {"type": "NodePort"}])
def test_headless_and_exposed_services_are_as_all_others(spec: Json) -> None:
    instances, found = read(service("web", **spec), endpoint_slice("a", "web", endpoint("10.0.0.1")))
    assert places(instances) == {"10.0.0.1:8080"}
    assert not found


def test_slices_of_a_service_without_selector_count() -> None:
    of = service("db", ports=(("", 5432),))
    assert "selector" not in of["spec"]
    instances, _ = read(of, endpoint_slice("by-hand", "db", endpoint("192.0.2.1"), ports=(("", 5432),)))
    assert places(instances) == {"192.0.2.1:5432"}


def test_an_external_name_is_refused_with_a_hint() -> None:
    of = read_service(service("db", ports=(), type="ExternalName", externalName="db.example.org"))
    (found,) = of.findings
    assert (found.code, found.pointer) == ("external_name", "/services/shop/db/spec/externalName")
    assert "db.example.org" in found.detail
    assert "dns" in found.hint


# What the API server should have refused


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("metadata",), None, "the object has no namespace"),
        (("metadata", "name"), "", "the object has no name"),
        (("metadata", "namespace"), 7, "namespace must be a string, not 7"),
        (("metadata", "labels"), ["x"], "labels must be an object, not"),
        (("metadata", "labels", "version"), 2, "a value of labels must be a string, not 2"),
        (("endpoints",), {"a": 1}, "endpoints must be a list, not"),
        (("endpoints",), [7], "an element of endpoints must be an object, not 7"),
        (("endpoints",), [{}] * 1_001, "endpoints has 1001 values, at most 1000"),
        (("endpoints", 0, "addresses"), "10.0.0.1", "addresses must be a list, not '10.0.0.1'"),
        (("endpoints", 0, "conditions"), True, "conditions must be an object, not True"),
        (("endpoints", 0, "conditions", "ready"), "yes", "ready must be a boolean, not 'yes'"),
        (("endpoints", 0, "zone"), "z" * 300, "zone has 300 characters, at most 253"),
        (("ports",), 80, "ports must be a list, not 80"),
    ],
)
def test_a_slice_of_another_shape_is_an_error_with_its_place(path: tuple[Any, ...], value: Any, message: str) -> None:
    document = endpoint_slice("a", "web", endpoint("10.0.0.1"))
    at: Any = document
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    with pytest.raises(MemberError, match=message):
        read_slice(document)


def test_a_slice_without_a_service_is_reported() -> None:
    one = endpoint_slice("a", "web")
    one["metadata"]["labels"] = {}
    assert [each.code for each in read_slice(one).findings] == ["no_service"]


@pytest.mark.parametrize("port", [0, -1, 70_000, True, "80", 1.5])
def test_an_invalid_port_alone_is_left_out(port: Any) -> None:
    one = endpoint_slice("a", "web", endpoint("10.0.0.1"), ports=(("http", 8080), ("x", port)))
    instances, found = read(service("web", ports=(("http", 80), ("x", 81))), one)
    assert dict(instances["10.0.0.1"].ports) == {"http": 8080}
    assert [each.pointer for each in found] == ["/endpointslices/shop/a/ports/1/port"]
