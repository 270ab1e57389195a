"""What may be registered: each fault is named with its place, and nothing of it is taken."""

from __future__ import annotations

from typing import Any

import pytest

from xds.model.errors import ValidationError
from xds.services.core.instance import OUTPUT_CHARACTERS
from xds.services.core.registered_instance import AGENT_NODE, RegisteredCheck, decode, encode
from xds.services.core.registration_rules import (
    cut_output,
    read_catalog_registration,
    read_check,
    read_deregistration,
    read_service,
)

WEB: dict[str, Any] = {"Name": "web", "Address": "10.0.0.1", "Port": 80}
NODE: dict[str, Any] = {"Node": "n1", "Address": "10.0.0.1"}


@pytest.mark.parametrize(
    ("changes", "pointer", "told"),
    [
        ({"Name": ""}, "/Name", "Missing service name"),
        ({"Name": "a b"}, "/Name", "not a valid service name"),
        ({"Name": "x" * 300}, "/Name", "not a valid service name"),
        ({"Service": "another"}, "/Name", "'web' and Service 'another'"),
        ({"ID": "x" * 300}, "/ID", "at most 255"),
        ({"Address": "web.example"}, "/Address", "Envoy resolves no names"),
        ({"Address": "fe80::1%eth0"}, "/Address", "not an IP address"),
        ({"Address": "010.0.0.1"}, "/Address", "not an IP address"),
        ({"Address": "0.0.0.0"}, "/Address", "Invalid service address"),
        ({"Port": 0}, "/Port", "not in 1..65535"),
        ({"Port": -1}, "/Port", "not in 1..65535"),
        ({"Port": 65_536}, "/Port", "not in 1..65535"),
        ({"Port": "eighty"}, "/Port", ""),
        ({"Ports": [{"Name": "admin", "Port": 0}]}, "/Ports/0", "not in 1..65535"),
        ({"Ports": [{"Name": "a", "Port": 1}, {"Name": "a", "Port": 2}]}, "/Ports", "a name of its own"),
        ({"Ports": [{"Port": 1}]}, "/Ports", "a name of its own"),
        ({"SocketPath": "/run/web"}, "/SocketPath", "sockets are not supported"),
        ({"Kind": "connect-proxy"}, "/Kind", "register the service itself"),
        ({"Connect": {"Native": True}}, "/Connect", "Consul's mesh"),
        ({"Proxy": {"DestinationServiceName": "web"}}, "/Proxy", "Consul's mesh"),
        ({"Namespace": "team"}, "/Namespace", "requires Consul Enterprise"),
        ({"Tags": ["t"] * 1025}, "/Tags", "at most 1024"),
        ({"Meta": {"a.b": "c"}}, "/Meta", "invalid characters"),
        ({"Meta": {str(number): "" for number in range(65)}}, "/Meta", "64 are allowed"),
        ({"Weights": {"Passing": 0}}, "/Weights/Passing", "not in 1..65535"),
        ({"Weights": {"Passing": 1, "Warning": 65_536}}, "/Weights/Warning", "not in 0..65535"),
        ({"Chekc": {}}, "/Chekc", 'did you mean "Check"?'),
        ({"Check": {"TTL": "10s", "Status": "frob"}}, "/Check/Status", "not a valid status"),
        ({"Check": {"TTL": "soon"}}, "/Check/TTL", "a duration"),
        ({"Check": {"TTL": "999ms"}}, "/Check/TTL", "less than a second"),
        ({"Check": {"TTL": 10}}, "/Check/TTL", "less than a second"),  # nanoseconds, as in Consul
        ({"Check": {"Name": "x"}}, "/Check/TTL", "TTL must be > 0"),
        ({"Checks": [{}]}, "/Checks/0/TTL", "TTL must be > 0"),
        ({"Checks": [{"TTL": "1s", "CheckID": "a"}, {"TTL": "1s", "CheckID": "a"}]}, "/Checks/1", "a second check"),
        ({"Checks": [{"TTL": "1s"}] * 65}, "/Checks", "at most 64"),
        ({"Check": {"TTL": "1s", "Notes": "x" * 5_000}}, "/Check/Notes", "4096 are allowed"),
    ],
)
def test_a_service_with_a_fault_is_refused_with_its_place(changes: dict[str, Any], pointer: str, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read_service({**WEB, **changes})
    found = [one for one in refused.value.violations if one.pointer == pointer]
    assert found, refused.value
    assert any(told in str(one) for one in found), refused.value


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        ({"HTTP": "http://localhost/", "Interval": "10s"}, "http"),
        ({"TCP": "localhost:80", "Interval": "10s", "Timeout": "1s"}, "tcp"),
        ({"UDP": "localhost:80", "Interval": "10s"}, "udp"),
        ({"GRPC": "localhost:80", "GRPCUseTLS": True, "Interval": "10s"}, "grpc"),
        ({"H2PING": "localhost:80", "Interval": "10s"}, "h2ping"),
        ({"Args": ["/bin/true"], "Interval": "10s"}, "script"),
        ({"ScriptArgs": ["/bin/true"], "Interval": "10s"}, "script"),
        ({"DockerContainerID": "x", "Args": ["/bin/true"], "Interval": "10s"}, "docker"),
        ({"AliasService": "web"}, "alias"),
        ({"OSService": "w3svc", "Interval": "10s"}, "os_service"),
    ],
)
def test_checks_that_would_be_made_here_are_refused_by_name(check: dict[str, Any], kind: str) -> None:
    forms: list[tuple[Any, Any]] = [
        (read_service, {**WEB, "Check": check}),
        (read_service, {**WEB, "Checks": [{"TTL": "10s"}, check]}),
        (read_check, {"Name": "x", "ServiceID": "web", **check}),
        (read_catalog_registration, {**NODE, "Check": {"Name": "x", "Status": "passing", "Definition": check}}),
    ]
    for read, value in forms:
        with pytest.raises(ValidationError) as refused:
            read(value)
        assert [one.code for one in refused.value.violations] == ["unsupported_check"]
        assert f"the type {kind} " in str(refused.value)
        assert "Envoy checks health" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"Address": "10.0.0.1"}, "/Node"),
        ({"Node": "n1"}, "/Address"),
        ({**NODE, "Node": "a/b"}, "/Node"),
        ({**NODE, "Service": {"ID": "x"}}, "/Service/Service"),
        ({**NODE, "Service": {"Service": "x"}}, "/Service/Port"),
        ({**NODE, "Service": {"Service": "x", "Port": 1, "Check": {"TTL": "1s"}}}, "/Service/Checks"),
        ({**NODE, "Check": {}}, "/Check"),
        ({**NODE, "Checks": [{"Name": "a"}, {"Name": "b", "Status": "frob"}]}, "/Checks/1/Status"),
        ({**NODE, "Check": {"Name": "a", "Node": "n2"}}, "/Check"),
        ({**NODE, "NodeMeta": {"a b": ""}}, "/NodeMeta"),
        ({**NODE, "Nodemeat": {}}, "/Nodemeat"),
        ([], ""),
    ],
)
def test_a_registration_in_the_catalog_with_a_fault_is_refused_with_its_place(value: Any, pointer: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read_catalog_registration(value)
    assert pointer in [one.pointer for one in refused.value.violations], refused.value


def test_additional_fields_of_consuls_clients_are_accepted() -> None:
    value = {
        **WEB,
        "Token": "secret",
        "Proxy": None,
        "Connect": {},
        "Weights": None,
        "Checks": None,
        "Check": {"TTL": "10s", "Timeout": "1s", "Method": "GET", "TLSSkipVerify": False, "Header": {"a": ["b"]}},
        "CreateIndex": 0,
        "ModifyIndex": 0,
    }
    found = read_service(value)
    assert (found.node, found.id, found.service, found.weight) == (AGENT_NODE, "web", "web", 1)
    assert b"secret" not in encode(found)
    read_deregistration({"Node": "n1", "Address": "10.0.0.1", "Datacenter": "dc1"})


def test_checks_are_named_as_consul_names_them() -> None:
    one = read_service({**WEB, "ID": "web-1", "Check": {"TTL": "10s"}})
    assert [(check.id, check.name) for check in one.checks] == [("service:web-1", "Service 'web' check")]
    two = read_service(
        {**WEB, "ID": "web-1", "Check": {"TTL": "10s"}, "Checks": [{"TTL": "1s"}, {"CheckID": "x", "TTL": "1s"}]}
    )
    assert [check.id for check in two.checks] == ["service:web-1:1", "service:web-1:2", "x"]


def test_instances_are_not_deregistered_sooner_than_after_a_minute() -> None:
    one = read_service({**WEB, "Check": {"TTL": "10s", "DeregisterCriticalServiceAfter": "1s"}})
    assert one.checks[0].deregister_after_s == 60


def test_stored_registrations_are_read_back_unchanged() -> None:
    value = {
        **WEB,
        "ID": "web-1",
        "Tags": ["a"],
        "Meta": {"k": "v"},
        "Ports": [{"Name": "admin", "Port": 9901}],
        "TaggedAddresses": {"wan": {"Address": "192.0.2.1", "Port": 80}},
        "Weights": {"Passing": 7, "Warning": 0},
        "Locality": {"Region": "eu", "Zone": "a"},
        "EnableTagOverride": True,
        "Checks": [{"TTL": "90s", "Status": "warning", "Notes": "n", "DeregisterCriticalServiceAfter": "2h"}],
    }
    one = read_service(value)
    assert decode(encode(one)) == one
    node = read_catalog_registration({**NODE, "NodeMeta": {"a": "b"}, "TaggedAddresses": {"lan": "10.0.0.1"}}).node
    assert decode(encode(node)) == node


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"Node": 1}', b'{"Service": "web", "Frob": 1}', b"\xff"])
def test_a_record_that_cannot_be_read_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode(body)


def test_a_record_with_an_unknown_status_is_an_error() -> None:
    one = read_service({**WEB, "Check": {"TTL": "10s"}})
    with pytest.raises(ValueError, match="unknown status"):
        decode(encode(one).replace(b'"critical"', b'"frob"'))
    assert RegisteredCheck("a").status == "critical"


def test_long_output_is_cut_and_says_so() -> None:
    found = cut_output("x" * 10_000)
    assert found.startswith("x" * OUTPUT_CHARACTERS)
    assert found.endswith(f"(captured {OUTPUT_CHARACTERS} of 10000 characters)")


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (None, (1, 1)),
        ({"Passing": 0, "Warning": 0}, (1, 1)),
        ({"Passing": 0, "Warning": 3}, (0, 3)),
        ({"Passing": 5}, (5, 0)),
    ],
)
def test_weights_in_the_catalog_may_be_what_the_go_client_sends_for_none(
    weights: Any, expected: tuple[int, int]
) -> None:
    given = read_catalog_registration({**NODE, "Service": {"Service": "db", "Port": 1, "Weights": weights}})
    assert given.registration is not None
    assert (given.registration.weight, given.registration.warning_weight) == expected
