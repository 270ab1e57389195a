"""Rules on ``api_config_source``: where Envoy gets the resources that a resource refers to. Measured with Envoy 1.40.

In a bootstrap, the source of ADS and the aggregated types have other rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xds.codec.rules import MessageRule, Problem, missing

_REST, _GRPC, _DELTA_GRPC = 1, 2, 3  # ApiConfigSource.ApiType
_V2 = 1  # ApiVersion


def _check_api_source(source: Any) -> list[Problem]:
    problems = list(_of_grpc(source)) if source.api_type in (_GRPC, _DELTA_GRPC) else []
    if source.api_type == _REST:
        problems += _of_rest(source)
    if source.transport_api_version == _V2:
        detail = "Envoy no longer has the v2 transport"
        problems.append(Problem(("transport_api_version",), "not_allowed", detail, "transport_api_version: V3"))
    return problems


def _of_grpc(source: Any) -> Iterator[Problem]:
    if source.cluster_names:
        detail = "cluster_names are for sources of type REST"
        yield Problem(("cluster_names",), "not_allowed", detail, "grpc_services: [{envoy_grpc: {cluster_name: ...}}]")
    elif not source.grpc_services:
        detail = "a gRPC source needs an entry in grpc_services"
        hint = "grpc_services: [{envoy_grpc: {cluster_name: ...}}]"
        yield missing(("grpc_services",), detail, hint)
    if len(source.grpc_services) > 1:
        yield Problem(("grpc_services",), "too_many", "a gRPC source has only one entry in grpc_services")


def _of_rest(source: Any) -> Iterator[Problem]:
    if source.grpc_services:
        yield Problem(("grpc_services",), "not_allowed", "grpc_services are for gRPC sources", "cluster_names: [...]")
    elif not source.cluster_names:
        yield missing(("cluster_names",), "a source of type REST needs an entry in cluster_names")
    if len(source.cluster_names) > 1:
        yield Problem(("cluster_names",), "too_many", "a source of type REST has only one entry in cluster_names")
    if not source.HasField("refresh_delay"):
        yield missing(("refresh_delay",), "a source of type REST needs refresh_delay", "refresh_delay: 5s")


SOURCE_FIELD_RULES: Mapping[str, Mapping[str, MessageRule]] = {
    "envoy.config.core.v3.ConfigSource": {"api_config_source": _check_api_source},
}
