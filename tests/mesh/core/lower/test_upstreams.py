"""Upstreams documents: read, written back, and refused with every place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from xds.consul.quantities import SECOND_NS
from xds.mesh.core.lower.upstreams import (
    ESCAPE_CHARACTERS,
    UPSTREAMS_LIMIT,
    Upstream,
    UpstreamsDocument,
    read_upstreams,
)
from xds.model.errors import ValidationError, Violation

FULL: dict[str, Any] = {
    "service": "shop",
    "upstreams": [
        {
            "service": "web",
            "datacenter": "dc2",
            "bind_address": "::1",
            "bind_port": 9191,
            "protocol": "http",
            "connect_timeout": "1.5s",
            "limits": {"max_connections": 1, "max_pending_requests": 0, "max_concurrent_requests": 3},
            "passive_health_check": {
                "interval": "2s",
                "max_failures": 3,
                "enforcing_consecutive_5xx": 0,
                "max_ejection_percent": 50,
                "base_ejection_time": "5s",
            },
            "balance_outbound_connections": "exact_balance",
            "envoy_listener_json": {"filterChains": [], "statPrefix": "Own"},
            "envoy_cluster_json": {"type": "STATIC"},
        },
        {"service": "api"},
    ],
    "failover": "priority",
    "validate_clusters": True,
    "locality_aware": True,
    "external_ca_file": "/ca.pem",
    "regex_program_size": 200,
}


def refusal(document: object) -> list[Violation]:
    with pytest.raises(ValidationError) as caught:
        read_upstreams(document)
    return caught.value.violations


def places(document: object) -> list[tuple[str, str]]:
    return [(one.code, one.pointer) for one in refusal(document)]


def test_a_full_document_is_written_back_as_it_was() -> None:
    read = read_upstreams(FULL)
    assert read.document() == FULL
    assert read_upstreams(read.document()) == read
    json.dumps(read.document())


def test_defaults_are_left_out() -> None:
    document = {"upstreams": [{"service": "web", "bind_address": "127.0.0.1", "bind_port": 0}], "failover": "aggregate"}
    assert read_upstreams(document).document() == {"upstreams": [{"service": "web"}]}
    assert read_upstreams({}) == UpstreamsDocument()
    assert UpstreamsDocument().document() == {"upstreams": []}


def test_names_may_be_in_camel_case_and_escape_hatches_texts() -> None:
    read = read_upstreams(
        {
            "Upstreams": [
                {
                    "Service": "web",
                    "BindPort": 1,
                    "ConnectTimeout": SECOND_NS,
                    "PassiveHealthCheck": {"EnforcingConsecutive5xx": 7},
                    "EnvoyClusterJSON": '{"type": "STATIC"}',
                }
            ]
        }
    )
    (one,) = read.upstreams
    assert (one.bind_port, one.connect_timeout_ns, one.envoy_cluster_json) == (1, SECOND_NS, {"type": "STATIC"})
    assert one.passive_health_check is not None
    assert one.passive_health_check.enforcing_consecutive_5xx == 7


def test_an_upstream_in_another_datacenter_has_a_name_of_its_own() -> None:
    assert Upstream("web").name == "web"
    assert Upstream("web", "dc2").name == "web?dc=dc2"
    read_upstreams({"upstreams": [{"service": "web"}, {"service": "web", "datacenter": "dc2"}]})


REFUSED: list[tuple[object, list[tuple[str, str]]]] = [
    ([], [("wrong_type", "")]),
    ({"upstreams": [{}]}, [("missing_field", "/upstreams/0/service")]),
    ({"upstreams": [{"service": "a b"}]}, [("bad_name", "/upstreams/0/service")]),
    ({"upstreams": [{"service": "a", "datacenter": "/"}]}, [("bad_name", "/upstreams/0/datacenter")]),
    ({"upstreams": [{"service": "a", "bind_address": "localhost"}]}, [("bad_address", "/upstreams/0/bind_address")]),
    ({"upstreams": [{"service": "a", "bind_port": 65_536}]}, [("out_of_range", "/upstreams/0/bind_port")]),
    ({"upstreams": [{"service": "a", "protocol": "udp"}]}, [("bad_choice", "/upstreams/0/protocol")]),
    ({"upstreams": [{"service": "a", "connect_timeout": "-1s"}]}, [("negative", "/upstreams/0/connect_timeout")]),
    (
        {"upstreams": [{"service": "a", "limits": {"max_connections": -1}}]},
        [("negative", "/upstreams/0/limits/max_connections")],
    ),
    (
        {"Upstreams": [{"Service": "a", "Limits": {"MaxConnections": -1}, "BindPort": -1}]},
        [("out_of_range", "/Upstreams/0/BindPort"), ("negative", "/Upstreams/0/Limits/MaxConnections")],
    ),
    (
        {"upstreams": [{"service": "a", "passive_health_check": {"max_ejection_percent": 101}}]},
        [("out_of_range", "/upstreams/0/passive_health_check/max_ejection_percent")],
    ),
    (
        {"upstreams": [{"service": "a", "balance_outbound_connections": "x"}]},
        [("bad_choice", "/upstreams/0/balance_outbound_connections")],
    ),
    ({"upstreams": [{"service": "a", "envoy_listener_json": "{"}]}, [("bad_json", "/upstreams/0/envoy_listener_json")]),
    ({"upstreams": [{"service": "a", "envoy_cluster_json": []}]}, [("wrong_type", "/upstreams/0/envoy_cluster_json")]),
    (
        {"upstreams": [{"service": "a", "envoy_cluster_json": {"name": "x" * ESCAPE_CHARACTERS}}]},
        [("too_large", "/upstreams/0/envoy_cluster_json")],
    ),
    ({"upstreams": [{"service": "a"}, {"service": "a"}]}, [("duplicate_upstream", "/upstreams/1")]),
    (
        {
            "upstreams": [
                {"service": "a", "bind_address": "::1", "bind_port": 1},
                {"service": "b", "bind_address": "0:0:0:0:0:0:0:1", "bind_port": 1},
            ]
        },
        [("duplicate_address", "/upstreams/1/bind_port")],
    ),
    ({"failover": "first"}, [("bad_choice", "/failover")]),
    ({"service": "/"}, [("bad_name", "/service")]),
    ({"upstreams": [{"service": "a"}] * (UPSTREAMS_LIMIT + 1)}, [("too_many", "/upstreams")]),
    # All findings at once.
    (
        {"upstreams": [{"service": "", "bind_address": "x"}, {"service": "a", "protocol": "x"}], "failover": "x"},
        [
            ("bad_choice", "/failover"),
            ("missing_field", "/upstreams/0/service"),
            ("bad_address", "/upstreams/0/bind_address"),
            ("bad_choice", "/upstreams/1/protocol"),
        ],
    ),
]


@pytest.mark.parametrize(("document", "expected"), REFUSED)
def test_refused(document: object, expected: list[tuple[str, str]]) -> None:
    assert places(document) == expected


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("bind_prt", 'did you mean "bind_port"?'),
        ("destination_name", 'did you mean "service"?'),
        ("LocalBindPort", 'did you mean "bind_port"?'),
        ("connect_timeout_ms", 'did you mean "connect_timeout"?'),
        ("config", "write its fields into the upstream itself"),
    ],
)
def test_unknown_fields_and_consuls_names_have_a_hint(field: str, hint: str) -> None:
    (finding,) = refusal({"upstreams": [{"service": "web", field: 1}]})
    assert (finding.code, finding.pointer) == ("unknown_field", f"/upstreams/0/{field}")
    assert finding.hint.startswith(hint)


def test_a_list_in_the_place_of_an_upstream_is_refused() -> None:
    found = {(finding.code, finding.pointer) for finding in refusal({"upstreams": [["web"]]})}
    assert found == {("wrong_type", "/upstreams/0"), ("missing_field", "/upstreams/0/service")}


_NAMES = {*FULL, *FULL["upstreams"][0], "max_connections", "interval", "x"}
_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(_NAMES)), inner, max_size=4),
)


@given(_anything)
@examples(150)
def test_any_value_is_read_or_refused(value: object) -> None:
    try:
        read = read_upstreams(value)
    except ValidationError as error:
        assert error.violations
    else:
        assert read_upstreams(read.document()) == read
