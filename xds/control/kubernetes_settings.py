"""Settings of a Kubernetes cluster as a source (docs/services.md#kubernetes)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from xds.control.source_settings import SourceSettings

NAMESPACES_LIMIT = 100  # each takes two connections

Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
Place = Annotated[str, Field(max_length=253)]


class KubernetesSettings(SourceSettings):
    """A Kubernetes cluster: the endpoints of its Services.

    Without ``kubeconfig``, the server runs in a pod of the cluster and has the rights of the pod's service account.
    ``namespaces`` and ``labels`` (a label selector, of Services and their slices) choose what is read. ``family``
    is that of the endpoints of Services that have both; ``service`` takes the first of the Service. EndpointSlices tell
    the zone of an endpoint: ``regions`` has the region by zone, ``region`` is that of all other zones. With
    ``zone_hints`` the zone is the one that Kubernetes wants to use the endpoint, where all endpoints of a Service have
    such a hint. A watch that says nothing for ``silence_s`` is begun again; everything is listed again each
    ``relist_s``.
    """

    kind: Literal["kubernetes"]
    kubeconfig: Path | None = None
    context: str = Field("", max_length=253)
    namespaces: tuple[Namespace, ...] = Field((), max_length=NAMESPACES_LIMIT)
    labels: str = Field("", max_length=1_000)
    family: Literal["service", "ipv4", "ipv6"] = "service"
    region: Place = ""
    regions: dict[Place, Place] = Field(default_factory=dict, max_length=1_000)
    zone_hints: bool = True
    datacenter: str = Field("", max_length=64)
    page_size: int = Field(100, ge=1, le=10_000)
    watch_s: float = Field(300.0, ge=5, le=3_600)
    silence_s: float = Field(75.0, ge=1, le=3_600)
    relist_s: float = Field(3_600.0, ge=10, le=86_400)
    events_per_s: float = Field(2_000.0, gt=0, le=1_000_000)
    services_limit: int = Field(20_000, ge=1, le=1_000_000)
    endpoints_limit: int = Field(400_000, ge=1, le=10_000_000)

    @model_validator(mode="after")
    def _fits(self) -> KubernetesSettings:
        if self.context and self.kubeconfig is None:
            raise ValueError("context is one of a kubeconfig: set kubeconfig")
        if len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError("a namespace is named twice")
        return self
