"""The errors that the server reports between resources are exactly those that a real Envoy reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import resources as r
from tests.support.bootstrap import static_bootstrap
from tests.support.envoy import envoy_binary, validate
from tests.support.server import ServerProcess
from xds.codec.crosscheck import check_references
from xds.codec.resources import decode_document
from xds.model.errors import ValidationError

Json = dict[str, Any]

DNS: Json = {
    "name": "envoy.filters.udp.dns",
    "typed_config": {
        "@type": f"{r.TYPE}envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfig",
        "stat_prefix": "dns",
        "server_config": {"inline_dns_table": {}},
    },
}
UNBOUND: Json = {"bind_to_port": False}


def at(host: str, port: int, **fields: object) -> Json:
    return {"socket_address": {"address": host, "port_value": port, **fields}}


def web(address: Json, **fields: object) -> Json:
    return {**r.listener("l", r.inline_routes("r", r.direct_route("x"))), "address": address, **fields}


def udp(address: Json) -> Json:
    return {"@type": r.LISTENER_TYPE, "address": address, "udp_listener_config": {}, "listener_filters": [DNS]}


def internal() -> Json:
    made = web({}, internal_listener={})
    del made["address"]
    return made


def also(*addresses: Json) -> Json:
    return {"additional_addresses": [{"address": address} for address in addresses]}


A = at("127.0.0.1", 15000)
PIPE: Json = {"pipe": {"path": "@xds-test"}}
ADDRESSES = {
    "the same": [web(A), web(A)],
    "another port": [web(A), web(at("127.0.0.1", 15001))],
    "any port": [web(at("127.0.0.1", 0)), web(at("127.0.0.1", 0))],
    "any address and one of them": [web(at("0.0.0.0", 15000)), web(A)],
    "both families": [web(at("0.0.0.0", 15000)), web(at("::", 15000, ipv4_compat=True))],
    "IPv6 with and without IPv4": [web(at("::", 15000)), web(at("::", 15000, ipv4_compat=True))],
    "IPv6 in two spellings": [web(at("::1", 15000)), web(at("0:0:0:0:0:0:0:1", 15000))],
    "not bound": [web(A, **UNBOUND), web(A, **UNBOUND)],
    "one not bound": [web(A), web(A, **UNBOUND)],
    "not bound, port 0": [web(at("127.0.0.1", 0), **UNBOUND), web(at("127.0.0.1", 0), **UNBOUND)],
    "TCP and UDP": [web(A), udp(at("127.0.0.1", 15000, protocol="UDP"))],
    "UDP twice": [udp(at("127.0.0.1", 15000, protocol="UDP"))] * 2,
    "an additional one": [web(A), web(at("127.0.0.1", 15001), **also(A))],
    "additional to itself": [web(A, **also(A))],
    "pipes": [web(PIPE), web(PIPE)],
    "network namespaces": [web(A), web(at("127.0.0.1", 15000, network_namespace_filepath="/proc/self/ns/net"))],
    "internal ones": [internal(), internal()],
    "no reuse of ports": [web(A, enable_reuse_port=False), web(A, enable_reuse_port=False)],
}
DOMAINS = {
    "across": (["x"], ["x"]),
    "within": (["x", "x"], ["y"]),
    "upper case": (["x"], ["X"]),
    "everything": (["*"], ["*"]),
    "suffix": (["*.x"], ["*.X"]),
    "prefix": (["x.*"], ["x.*"]),
    "port": (["x"], ["x:80"]),
    "final dot": (["x"], ["x."]),
}


def errors(documents: Sequence[Json]) -> list[str]:
    pushed = decode_document(json.dumps({"resources": documents})).resources
    return [one.code for one in check_references(pushed) if one.severity == "error"]


def refused(listeners: Sequence[Json], directory: Path) -> str:
    return validate(static_bootstrap((), listeners, **r.INTERNAL_LISTENERS), directory)


@pytest.mark.parametrize("case", ADDRESSES)
def test_addresses(case: str, tmp_path: Path) -> None:
    listeners = [{**one, "name": f"l{index}"} for index, one in enumerate(ADDRESSES[case])]
    message = refused(listeners, tmp_path)
    assert ("has duplicate address" in message) == bool(message), message
    assert bool(message) == (errors(listeners) == ["address_clash"])


@pytest.mark.parametrize("case", DOMAINS)
def test_domains(case: str, tmp_path: Path) -> None:
    hosts = [r.host(f"v{index}", [r.direct_route("x")], domains) for index, domains in enumerate(DOMAINS[case])]
    listeners = [r.listener("l", {"route_config": {"name": "r", "virtual_hosts": hosts}}, 15000)]
    message = refused(listeners, tmp_path)
    assert ("domain" in message) == bool(message), message
    assert bool(message) == (errors(listeners) == ["duplicate_domain"])


@pytest.mark.parametrize("categories", [0, 1, 2])
def test_categories_of_drops(categories: int, tmp_path: Path) -> None:
    drops = [{"category": f"c{number}", "drop_percentage": {"numerator": 1}} for number in range(categories)]
    cluster = r.static_cluster("c")
    cluster["load_assignment"]["policy"] = {"drop_overloads": drops}
    message = validate(static_bootstrap((cluster,), ()), tmp_path)
    assert ("drop_overloads" in message) == bool(message), message
    found: list[str] = []
    try:
        decode_document(json.dumps({"resources": [cluster]}))
    except ValidationError as error:
        found = [one.code for one in error.violations]
    assert found == (["too_many"] if message else [])


def test_the_server_asks_envoy_where_it_is_set_up(tmp_path: Path, running: ExitStack) -> None:
    environment = {"XDS_CODEC__ENVOY": str(envoy_binary())}
    server = running.enter_context(ServerProcess(tmp_path, environment=environment))
    body = {"resources": [*r.web_resources("c1", 80), r.refused_cluster("bad")]}
    answer = server.request("POST", "/api/v1/validate", params={"envoy": "true"}, json=body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["resource"], error["code"]) == ("clusters/bad", "envoy_refused")
    assert "Unknown address resolver: no-resolver" in error["detail"]
