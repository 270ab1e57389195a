"""What does not compile, case by case, and the path to where it fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.mesh.core.chain.cases import PD_HTTP
from tests.support.chains import request_of
from xds.mesh.core.chain.chain import ChainError, Flaw
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.request import CompileRequestError, Overrides


@dataclass(frozen=True)
class Failure:
    name: str
    entries: str
    flaw: Flaw
    essence: str
    path: tuple[str, ...]


X_WEB, X_API = "resolver:web.default.default.dc1", "resolver:api.default.default.dc1"
S_WEB, R_WEB = "splitter:web.default.default", "router:web.default.default"
FAILURES = [
    Failure(
        "46_splitter_on_tcp",
        """
- {Kind: service-defaults, Name: web, Protocol: tcp}
- {Kind: service-resolver, Name: web, Subsets: {a: {}}}
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, ServiceSubset: a}]}
""",
        Flaw.PROTOCOL_NOT_HTTP,
        'uses a protocol "tcp" that does not permit advanced routing or splitting behavior',
        (S_WEB,),
    ),
    Failure(
        "47_router_on_tcp",
        """
- {Kind: service-defaults, Name: web, Protocol: tcp}
- {Kind: service-router, Name: web, Routes: [{Match: {HTTP: {PathPrefix: /a}}}]}
""",
        Flaw.PROTOCOL_NOT_HTTP,
        "does not permit advanced routing",
        (R_WEB,),
    ),
    Failure(
        "49_route_to_tcp_service",
        """
- {Kind: service-defaults, Name: web, Protocol: tcp}
- {Kind: service-defaults, Name: api, Protocol: tcp}
- {Kind: service-router, Name: web, Routes: [{Match: {HTTP: {PathPrefix: /api}}, Destination: {Service: api}}]}
""",
        Flaw.PROTOCOL_NOT_HTTP,
        "does not permit advanced routing",
        (R_WEB,),
    ),
    Failure(
        "50_failover_crosses_protocols",
        """
- {Kind: service-defaults, Name: web, Protocol: grpc}
- {Kind: service-defaults, Name: api, Protocol: tcp}
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: api}}}
""",
        Flaw.PROTOCOL_MISMATCH,
        'discovery chain "web" uses inconsistent protocols; service "api" has "tcp" which is not "grpc"',
        (X_WEB, X_API),
    ),
    Failure(
        "52_redirect_to_missing_subset",
        """
- {Kind: service-resolver, Name: api, ConnectTimeout: 12s}
- {Kind: service-resolver, Name: web, Redirect: {Service: api, ServiceSubset: v1}}
""",
        Flaw.UNKNOWN_SUBSET,
        'service "api" does not have a subset named "v1"',
        (X_WEB, "resolver:v1.api.default.default.dc1"),
    ),
    Failure(
        "53_external_and_failover",
        """
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: backup}}}
""",
        Flaw.EXTERNAL_FAILOVER,
        "cannot define failover for external services",
        (X_WEB,),
    ),
    Failure(
        "54_external_and_subsets",
        """
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Subsets: {a: {}}}
""",
        Flaw.EXTERNAL_SUBSETS,
        "cannot define subsets for external services",
        (X_WEB,),
    ),
    Failure(
        "55_external_and_redirect",
        """
- {Kind: service-defaults, Name: web, ExternalSNI: x.example}
- {Kind: service-resolver, Name: web, Redirect: {Datacenter: dc2}}
""",
        Flaw.EXTERNAL_REDIRECT,
        "cannot define redirects for external services",
        (X_WEB, "resolver:web.default.default.dc2"),
    ),
    Failure(
        "56_circular_redirect",
        """
- {Kind: service-resolver, Name: web, Redirect: {Service: api}}
- {Kind: service-resolver, Name: api, Redirect: {Service: web}}
""",
        Flaw.CIRCULAR_REDIRECT,
        "detected circular resolver redirect: [web.default.default.dc1 -> api.default.default.dc1 -> web.default",
        (X_WEB, X_API, X_WEB),
    ),
    Failure(
        "57_circular_splitters",
        PD_HTTP
        + """
- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: api}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 50}, {Weight: 50, Service: web}]}
""",
        Flaw.CIRCULAR_REFERENCE,
        "detected circular reference: [splitter:web.default.default -> splitter:api.default.default -> splitter:web",
        (S_WEB, "splitter:api.default.default", S_WEB),
    ),
    Failure(
        "79_failover_to_unknown_subset_of_another_service",
        """
- {Kind: service-resolver, Name: web, Failover: {"*": {Service: api, ServiceSubset: v9}}}
""",
        Flaw.UNKNOWN_SUBSET,
        'service "api" does not have a subset named "v9"',
        (X_WEB, "resolver:v9.api.default.default.dc1"),
    ),
    Failure(
        "a_path_through_router_and_splitter",
        PD_HTTP
        + """
- {Kind: service-router, Name: web, Routes: [{Destination: {Service: api}}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 100, Service: db, ServiceSubset: v1}]}
""",
        Flaw.UNKNOWN_SUBSET,
        'service "db" does not have a subset named "v1"',
        (R_WEB, "splitter:api.default.default", "resolver:v1.db.default.default.dc1"),
    ),
]


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.name)
def test_failure(case: Failure) -> None:
    with pytest.raises(ChainError) as caught:
        compile_chain(request_of(case.entries))
    assert (caught.value.flaw, caught.value.chain, caught.value.path) == (case.flaw, "web", case.path)
    assert case.essence in caught.value.detail


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ({"service": ""}, "serviceName is required"),
        ({"datacenter": ""}, "evaluateInDatacenter is required"),
        ({"trust_domain": ""}, "evaluateInTrustDomain is required"),
    ],
)
def test_58_missing_parameter(missing: dict[str, Any], told: str) -> None:
    with pytest.raises(CompileRequestError, match=told):
        compile_chain(replace(request_of(""), **missing))


def test_an_unknown_gateway_mode_is_refused() -> None:
    with pytest.raises(CompileRequestError, match="mesh gateway mode 'far'"):
        compile_chain(replace(request_of(""), overrides=Overrides(mesh_gateway_mode="far")))
