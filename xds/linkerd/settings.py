"""Settings of the Linkerd Destination API (docs/linkerd.md)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from xds.access.auth_settings import Section

if TYPE_CHECKING:
    from xds.linkerd.core.mesh_state import DestinationRules

_DOMAIN = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_LABEL = r"^[A-Za-z0-9_-]+$"
_WINDOW_MAX = 2**31 - 1  # of HTTP/2 windows, and of the retries of a budget
_COUNT_MAX = 2**32 - 1
Domain = Annotated[str, Field(pattern=_DOMAIN, max_length=200)]
Port = Annotated[int, Field(ge=1, le=65_535)]


class DestinationSettings(Section):
    """The settings of Linkerd's Destination API.

    ``routing``: ``profiles`` puts routes and traffic splits into profiles and policies, ``policies`` into policies
    alone. ``labels`` are keys of the metadata of instances that become labels. ``periodic_update_s`` is the interval of
    periodic updates to proxies of 2018, ``periodic_update_today_s`` to those of today; 0 for none. An answer waits
    ``settle_s`` for data that was not read yet. The sizes of HTTP/2, for meshed endpoints, are the proxy's own if they
    are 0; clients fail on frames beyond HTTP/2's limits. The policy of an unknown address waits until ``start_s`` after
    the start of the server.
    """

    cluster_domains: tuple[Domain, ...] = Field(("cluster.local",), min_length=1, max_length=16)
    consul_domain: Domain = "consul"
    namespace: str = Field("default", pattern=_LABEL, max_length=63)
    trust_domain: Domain = "cluster.local"
    control_namespace: str = Field("linkerd", pattern=_LABEL, max_length=63)
    inbound_port: Port = 4143
    opaque_ports: tuple[Port, ...] = (25, 587, 3306, 4444, 5432, 6379, 9300, 11211)
    ipv6: bool = True
    labels: tuple[str, ...] = Field((), max_length=16)
    routing: Literal["profiles", "policies"] = "profiles"
    inbound_policy: Literal["all-unauthenticated", "all-authenticated", "deny"] = "all-unauthenticated"
    keep_alive_s: float = Field(0.0, ge=0, le=3600)
    keep_alive_timeout_s: float = Field(0.0, ge=0, le=3600)
    keep_alive_while_idle: bool = False
    connection_window_bytes: int = Field(0, ge=0, le=_WINDOW_MAX)
    stream_window_bytes: int = Field(0, ge=0, le=_WINDOW_MAX)
    adaptive_windows: bool = False
    reset_streams: int = Field(0, ge=0, le=_COUNT_MAX)
    frame_bytes: Literal[0] | Annotated[int, Field(ge=16_384, le=16_777_215)] = 0
    send_buffer_bytes: int = Field(0, ge=0, le=_COUNT_MAX)
    retry_ratio: float = Field(0.2, ge=0, le=1000)
    retry_min_per_s: int = Field(10, ge=0, le=_WINDOW_MAX)
    retry_ttl_s: float = Field(10.0, ge=1, le=60)
    periodic_update_s: float = Field(10.0, ge=0, le=3600)
    periodic_update_today_s: float = Field(0.0, ge=0, le=3600)
    settle_s: float = Field(2.0, ge=0, le=60)
    start_s: float = Field(30.0, ge=0, le=600)

    def rules(self, datacenter: str) -> DestinationRules:
        """The settings for the resolver. Its modules are imported here, since light commands read settings too."""
        from xds.linkerd.core.authority import NamingRules
        from xds.linkerd.core.endpoint import Http2Params
        from xds.linkerd.core.inbound_policy import InboundDefault
        from xds.linkerd.core.mesh_role import MeshRules
        from xds.linkerd.core.mesh_state import DestinationRules
        from xds.linkerd.core.profile import RetryBudget

        http2 = Http2Params(**{each.name: getattr(self, each.name) for each in fields(Http2Params)})
        mesh = MeshRules(
            self.trust_domain,
            self.control_namespace,
            self.inbound_port,
            frozenset(self.opaque_ports),
            http2 if http2.is_set else None,
            frozenset(self.labels),
        )
        naming = NamingRules(self.cluster_domains, self.consul_domain, self.namespace)
        inbound = InboundDefault(self.inbound_policy)
        budget = RetryBudget(self.retry_ratio, self.retry_min_per_s, self.retry_ttl_s)
        return DestinationRules(naming, mesh, self.ipv6, datacenter, inbound, self.routing == "profiles", budget)
