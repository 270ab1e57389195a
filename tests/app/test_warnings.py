"""Warnings of the server at start about missing access control."""

from __future__ import annotations

from typing import Any

import pytest

from xds.app.ports import warnings_of
from xds.app.settings import load_settings

TLS = {"certificate": "s.pem", "private_key": "s.key"}
MUTUAL = {**TLS, "client_ca": "ca.pem"}
TOKEN = {"token_sha256": ["0" * 64]}
RULES = {"rules": [{"principal": "cn:{id}", "node": {"id": "{id}"}}]}


@pytest.mark.parametrize(
    ("server", "auth", "says"),
    [
        ({}, {}, []),
        ({"grpc": {"host": "0.0.0.0", "tls": TLS}}, TOKEN, ["auth.nodes: server.grpc.host is"]),
        ({"http": {"host": "0.0.0.0", "tls": TLS}}, TOKEN, ["auth.nodes: server.http.host is"]),
        ({"grpc": {"host": "0.0.0.0", "tls": TLS}}, {**TOKEN, "nodes": RULES}, []),
        ({"grpc": {"host": "0.0.0.0", "tls": TLS}}, {**TOKEN, "nodes": {**RULES, "mode": "off"}}, ["auth.nodes"]),
        ({"grpc": {"host": "0.0.0.0"}, "insecure": True}, {}, ["auth.nodes"]),
        ({"grpc": {"tls": MUTUAL}}, {}, ["server.http: the gRPC port asks for certificates"]),
        ({"grpc": {"tls": MUTUAL}}, TOKEN, []),
    ],
)
def test_warnings_at_the_start(server: dict[str, Any], auth: dict[str, Any], says: list[str]) -> None:
    found = list(warnings_of(load_settings(flags={"server": server, "auth": auth})))
    assert len(found) == len(says)
    assert all(warning.startswith(begins) for warning, begins in zip(found, says, strict=True))
