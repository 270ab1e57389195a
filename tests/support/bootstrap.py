"""Bootstraps of real clients: Envoy in each transport variant, and gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import LOOPBACK
from tests.support.resources import ADS, GRPC_SERVER_TEMPLATE, UPSTREAM_TLS_TYPE, address, load_assignment

Json = dict[str, Any]

XDS_CLUSTER = "xds_cluster"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
REST_REFRESH = "0.3s"
# Envoy's own wait grows to 30 s, longer than tests wait for anything.
# `xds bootstrap` has 30 s and 5 s; a test of a server that no longer answers does not wait so long.
KEEPALIVE: Json = {"interval": "2s", "timeout": "2s"}
RECONNECT: Json = {"retry_back_off": {"base_interval": "0.2s", "max_interval": "2s"}}


class Variant(StrEnum):
    """How an Envoy talks to the management server."""

    ADS_SOTW = "ads-sotw"
    ADS_DELTA = "ads-delta"
    SPLIT_SOTW = "split-sotw"
    SPLIT_DELTA = "split-delta"
    REST = "rest"

    @property
    def is_ads(self) -> bool:
        """True when all types share one stream."""
        return self in {Variant.ADS_SOTW, Variant.ADS_DELTA}

    @property
    def config_source(self) -> Json:
        """The config source for EDS, RDS and the rest of an Envoy in this variant."""
        return EnvoyBootstrap(0, self).config_source

    @property
    def api_type(self) -> str:
        """Envoy's ApiConfigSource.ApiType."""
        if self is Variant.REST:
            return "REST"
        return "DELTA_GRPC" if self in {Variant.ADS_DELTA, Variant.SPLIT_DELTA} else "GRPC"


STREAMED = tuple(variant for variant in Variant if variant is not Variant.REST)


def in_variants(*quick: Variant, others: Sequence[Variant] = STREAMED) -> pytest.MarkDecorator:
    """Runs a test in the variants ``quick``, and in ``others`` by `make soak`. The parameter is ``variant``."""
    late = [pytest.param(variant, marks=pytest.mark.soak) for variant in others if variant not in quick]
    return pytest.mark.parametrize("variant", [*quick, *late])


@dataclass(frozen=True, slots=True)
class XdsTls:
    """Files for TLS to the management server; a certificate and key make it mutual."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None
    sni: str = "localhost"

    def transport_socket(self) -> Json:
        """The xDS cluster's transport socket."""
        context: Json = {"validation_context": {"trusted_ca": {"filename": str(self.ca)}}}
        if self.certificate is not None:
            pair = {
                "certificate_chain": {"filename": str(self.certificate)},
                "private_key": {"filename": str(self.key)},
            }
            context["tls_certificates"] = [pair]
        config = {"@type": UPSTREAM_TLS_TYPE, "sni": self.sni, "common_tls_context": context}
        return {"name": "envoy.transport_sockets.tls", "typed_config": config}


@dataclass(frozen=True, slots=True)
class EnvoyBootstrap:
    """One Envoy's bootstrap. ``xds_port`` is the server's gRPC port, for REST its HTTP port.

    ``other_xds_ports`` are those of further servers, any of which the Envoy may choose.
    """

    xds_port: int
    variant: Variant = Variant.ADS_DELTA
    node_id: str = "envoy-1"
    node_cluster: str = "test"
    locality: Json | None = None
    metadata: Json | None = None
    node_on_first_message_only: bool = True
    initial_metadata: tuple[tuple[str, str], ...] = ()
    load_reports: bool = False
    runtime_layers: tuple[str, ...] = ()
    tls: XdsTls | None = None
    static_clusters: tuple[Json, ...] = ()
    static_listeners: tuple[Json, ...] = ()
    changes: Json = field(default_factory=dict)
    other_xds_ports: tuple[int, ...] = ()

    def document(self) -> Json:
        """The whole bootstrap; ``changes`` replace top-level fields."""
        whole: Json = {
            "node": self._node(),
            "admin": {"address": address(0)},
            "static_resources": {
                "clusters": [self._xds_cluster(), *map(_untyped, self.static_clusters)],
                "listeners": [_untyped(listener) for listener in self.static_listeners],
            },
            "dynamic_resources": self._dynamic_resources(),
        }
        if self.load_reports:
            whole["cluster_manager"] = {"load_stats_config": self._grpc_source("GRPC")}
        if self.runtime_layers:
            whole["layered_runtime"] = {"layers": [self._runtime_layer(name) for name in self.runtime_layers]}
        return {**whole, **self.changes}

    @property
    def config_source(self) -> Json:
        """The config source for this Envoy's EDS, RDS and other resources."""
        return ADS if self.variant.is_ads else {"api_config_source": self._api_source(), "resource_api_version": "V3"}

    def _node(self) -> Json:
        optional = {"locality": self.locality, "metadata": self.metadata}
        return {
            "id": self.node_id,
            "cluster": self.node_cluster,
            **{key: value for key, value in optional.items() if value is not None},
        }

    def _dynamic_resources(self) -> Json:
        source = self.config_source
        both: Json = {"cds_config": source, "lds_config": source}
        return {"ads_config": self._api_source(), **both} if self.variant.is_ads else both

    def _runtime_layer(self, name: str) -> Json:
        return {"name": name, "rtds_layer": {"name": name, "rtds_config": self.config_source}}

    def _api_source(self) -> Json:
        if self.variant is Variant.REST:
            return {
                "api_type": "REST",
                "transport_api_version": "V3",
                "cluster_names": [XDS_CLUSTER],
                "refresh_delay": REST_REFRESH,
                "request_timeout": "1s",
            }
        source = self._grpc_source(self.variant.api_type)
        return {**source, "set_node_on_first_message_only": True} if self.node_on_first_message_only else source

    def _grpc_source(self, api_type: str) -> Json:
        service: Json = {"envoy_grpc": {"cluster_name": XDS_CLUSTER, "retry_policy": RECONNECT}}
        if self.initial_metadata:
            service["initial_metadata"] = [{"key": key, "value": value} for key, value in self.initial_metadata]
        return {"api_type": api_type, "transport_api_version": "V3", "grpc_services": [service]}

    def _xds_cluster(self) -> Json:
        cluster: Json = {
            "name": XDS_CLUSTER,
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_assignment": load_assignment(XDS_CLUSTER, self.xds_port, *self.other_xds_ports),
        }
        if self.variant is not Variant.REST:
            keepalive = {"connection_keepalive": KEEPALIVE} if self.other_xds_ports else {}
            http2: Json = {"explicit_http_config": {"http2_protocol_options": keepalive}}
            options = {"@type": "type.googleapis.com/" + HTTP_OPTIONS, **http2}
            cluster["typed_extension_protocol_options"] = {HTTP_OPTIONS: options}
        if self.tls is not None:
            cluster["transport_socket"] = self.tls.transport_socket()
        return cluster


def static_bootstrap(clusters: Sequence[Json], listeners: Sequence[Json], **fields: Any) -> Json:
    """A bootstrap without a management server; ``@type`` of the resources is dropped."""
    static = {"clusters": list(map(_untyped, clusters)), "listeners": list(map(_untyped, listeners))}
    node = {"id": "static", "cluster": "test"}
    return {"node": node, "admin": {"address": address(0)}, "static_resources": static, **fields}


def grpc_bootstrap(
    xds_port: int, node_id: str = "grpc-1", node_cluster: str = "test", features: Sequence[str] = ("xds_v3",)
) -> Json:
    """A gRPC client's bootstrap; without ``xds_v3`` the old client (1.49.1) speaks the v2 transport."""
    server = {
        "server_uri": f"{LOOPBACK}:{xds_port}",
        "channel_creds": [{"type": "insecure"}],
        "server_features": list(features),
    }
    return {
        "xds_servers": [server],
        "node": {"id": node_id, "cluster": node_cluster, "locality": {"region": "r", "zone": "z"}},
        "server_listener_resource_name_template": GRPC_SERVER_TEMPLATE,
    }


def _untyped(resource: Json) -> Json:
    return {key: value for key, value in resource.items() if key != "@type"}
