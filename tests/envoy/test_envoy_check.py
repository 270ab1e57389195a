"""The errors that a real Envoy reports, and the resources that they concern."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.codec.shape_files import BOOTSTRAP, load_shape, make_files, shape_names, type_of
from tests.support import resources as r
from tests.support.envoy import envoy_binary
from tests.support.pki import CertificateAuthority
from xds.codec.resources import decode_document
from xds.envoy.envoy_check import deep_check, shorten
from xds.model.errors import Violation
from xds.model.resource import Resource

Json = dict[str, Any]

TIMEOUT_S = 60.0


def decoded(*documents: Json) -> list[Resource]:
    return decode_document(json.dumps({"resources": documents})).resources


async def checked(*documents: Json) -> list[Violation]:
    return await deep_check(decoded(*documents), envoy_binary(), TIMEOUT_S)


async def findings_of(*documents: Json) -> list[tuple[str, str, int]]:
    return [(one.code, one.resource, one.index) for one in await checked(*documents)]


def bad_expression(name: str) -> Json:
    added = [{"header": {"key": "x", "value": "%CEL(request.path.nope())%"}}]
    return r.route_config(name, {**r.direct_route("x"), "request_headers_to_add": added})


async def test_a_set_of_all_types_is_fine(tmp_path: Path) -> None:
    pair = CertificateAuthority(tmp_path).issue("web")
    named = r.upstream_tls("trust", "x")
    assert (
        await findings_of(
            *r.web_resources("c1", 80),
            r.eds_cluster("secure", transport_socket=named),
            r.cluster_load_assignment("secure", 80),
            r.listener("tls", r.scopes("x"), transport_socket=r.downstream_tls("cert")),
            r.scoped_route("s", "web", "k"),
            r.tls_secret("cert", pair.pem, pair.key_pem),
            r.trust_secret("trust", CertificateAuthority(tmp_path, "other").pem),
            r.listener("ext", r.rds("hosts"), filters=[r.discovered_filter("e"), r.discovered_filter("lost")]),
            r.header_extension("e", "x-a", "b"),
            r.vhds_route_config("hosts"),
            r.virtual_host("hosts/a", [r.route("c1")], ["a"]),
            r.runtime("layer", a=1),
            r.api_listener("grpc", r.rds("web")),
        )
        == []
    )


async def test_every_shape_is_fine(tmp_path: Path) -> None:
    make_files(tmp_path)
    shapes = [one for name in shape_names() for one in load_shape(name, tmp_path) if type_of(one) != BOOTSTRAP]
    assert await checked(*shapes) == []


async def test_every_refused_resource_is_named() -> None:
    malformed = r.cluster_load_assignment("b", 80)
    socket = malformed["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    socket["address"] = "fe80::1%nope"
    found = await checked(
        *r.web_resources("c1", 80),
        r.refused_cluster("a"),
        r.eds_cluster("b"),
        malformed,
        bad_expression("r"),
        r.virtual_host("web/v", [r.direct_route("x")], ["a", "A"]),
        *(r.static_cluster(f"good{number}", 80) for number in range(20)),
    )
    assert [(one.resource, one.code, one.severity) for one in found] == [
        ("clusters/a", "envoy_refused", "error"),
        ("endpoints/b", "envoy_refused", "error"),
        ("routes/r", "envoy_refused", "error"),
        ("virtual_hosts/web/v", "envoy_refused", "error"),
    ]
    assert [one.index for one in found] == [4, 6, 7, 8]
    assert "Unknown address resolver: no-resolver" in found[0].detail
    assert "malformed IP address: fe80::1%nope" in found[1].detail
    assert "nope" in found[2].detail
    assert "Duplicate entry of domain a" in found[3].detail


async def test_an_error_between_resources_names_none() -> None:
    listeners = [r.listener(name, r.inline_routes("r"), 15000) for name in "ab"]
    (found,) = await checked(*listeners)
    assert (found.resource, found.index) == ("", -1)
    assert "'b' has duplicate address '127.0.0.1:15000'" in found.detail


async def test_a_bad_secret_is_reported_once() -> None:
    listener = r.listener("tls", r.inline_routes("r"), transport_socket=r.downstream_tls("cert"))
    assert await findings_of(listener, r.tls_secret("cert", r.CERTIFICATE_PEM, r.KEY_PEM)) == [
        ("envoy_refused", "secrets/cert", 1)
    ]


async def test_files_of_the_proxy_are_no_fault() -> None:
    lua = {
        "@type": f"{r.TYPE}envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"filename": "/etc/envoy/there.lua"},
    }
    listener = r.listener("l", r.inline_routes("r"), filters=[{"name": "lua", "typed_config": lua}])
    (found,) = await checked(listener)
    assert (found.code, found.severity, found.resource) == ("unchecked", "warning", "listeners/l")
    assert "/etc/envoy/there.lua" in found.detail


async def test_a_key_that_is_only_on_the_proxy_is_no_fault() -> None:
    secret = r.tls_secret("cert", r.CERTIFICATE_PEM, r.KEY_PEM)
    secret["tls_certificate"] = {"certificate_chain": {"filename": "./c.pem"}, "private_key": {"filename": "./k.pem"}}
    listener = r.listener("tls", r.inline_routes("r"), transport_socket=r.downstream_tls("cert"))
    (found,) = await checked(listener, secret)
    assert (found.code, found.severity, found.resource) == ("unchecked", "warning", "secrets/cert")
    assert "not on this machine, ./" in found.detail and "make it" in found.hint


async def test_clusters_of_the_proxy_are_no_fault() -> None:
    assert (
        await findings_of(r.listener("l", r.inline_routes("r", r.route("mine"))), r.route_config("r", r.route("mine")))
        == []
    )


async def test_resources_that_cannot_be_checked_are_reported() -> None:
    opaque = {"@type": r.CLUSTER_TYPE, "@value_base64": base64.b64encode(b"\x0a\x01a\xf8\x7f\x01").decode()}
    assert await findings_of(opaque) == [("unchecked", "clusters/a", 0)]


def script(directory: Path, text: str) -> Path:
    path = directory / "envoy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def test_a_crash_is_no_fault_of_the_config(tmp_path: Path) -> None:
    found = await deep_check(decoded(r.static_cluster("a", 80)), script(tmp_path, "kill -SEGV $$"), TIMEOUT_S)
    assert [(one.code, one.severity, one.resource) for one in found] == [("unchecked", "warning", "clusters/a")]
    assert "crashed" in found[0].detail


async def test_time_is_bounded(tmp_path: Path) -> None:
    found = await deep_check(decoded(r.static_cluster("a", 80)), script(tmp_path, "exec sleep 60"), 0.2)
    assert [(one.code, one.severity) for one in found] == [("unchecked", "warning")]
    assert "took too long" in found[0].detail


async def test_runs_are_bounded(tmp_path: Path) -> None:
    envoy = script(tmp_path, f"echo x >> {tmp_path}/runs; echo wrong >&2; exit 1")
    found = await deep_check(decoded(*(r.static_cluster(f"c{n}", 80) for n in range(500))), envoy, TIMEOUT_S)
    assert found[-1].code == "unchecked"
    assert len((tmp_path / "runs").read_text().split()) <= 60


async def test_a_binary_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        await deep_check(decoded(r.static_cluster("a", 80)), tmp_path / "nothing", TIMEOUT_S)


def test_constraint_errors_are_shown_without_the_message() -> None:
    output = (
        "error initializing configuration '/tmp/x.pb': goo.gle/debugproto   \n"
        'virtual_hosts {\n  name: "v"\n}\n'
        ": Proto constraint validation failed (RouteConfigurationValidationError.VirtualHosts[0]: embedded message "
        "failed validation | caused by VirtualHostValidationError.Domains: value must contain at least 1 item(s))\n"
    )
    assert shorten(output) == "RouteConfiguration: virtual_hosts[0].domains: value must contain at least 1 item(s)"


def test_markers_and_lines_are_taken_out() -> None:
    output = "error initializing configuration 'x': Invalid duration: goo.gle/debugonly \nseconds: -1\n\n"
    assert shorten(output) == "Invalid duration: seconds: -1"


async def test_envoy_does_not_get_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDS_TOKEN", "hunter2")
    body = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"environment_variable": "XDS_TOKEN"}}}
    (found,) = await checked(r.route_config("r", body))
    assert (found.code, found.resource) == ("unchecked", "routes/r")
    assert "XDS_TOKEN" in found.detail
