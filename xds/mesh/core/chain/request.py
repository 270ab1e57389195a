"""The parameters of a compilation."""

from __future__ import annotations

from dataclasses import dataclass, field

from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.model.errors import InvalidRequestError

GATEWAY_MODES = ("", "none", "local", "remote")


class CompileRequestError(InvalidRequestError):
    """The compile request is wrong: a parameter is missing or not supported."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """The overrides of one downstream. Empty values, and values without effect, do not change the chain."""

    protocol: str = ""
    connect_timeout_ns: int = 0
    mesh_gateway_mode: str = ""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """``datacenter`` and ``trust_domain`` are those of the caller.

    ``has_partitions``: names and JSON have partitions, as in Consul 1.11 and later.
    """

    service: str
    entries: ConfigEntries
    datacenter: str
    trust_domain: str
    overrides: Overrides = field(default_factory=Overrides)
    has_partitions: bool = True


def check_request(request: CompileRequest) -> None:
    """Raises ``CompileRequestError``, in Consul's words if a parameter is missing."""
    for name, value in (
        ("serviceName", request.service),
        ("evaluateInDatacenter", request.datacenter),
        ("evaluateInTrustDomain", request.trust_domain),
    ):
        if not value:
            raise CompileRequestError(f"{name} is required")
    if request.overrides.mesh_gateway_mode not in GATEWAY_MODES:
        raise CompileRequestError(f"invalid mesh gateway mode {request.overrides.mesh_gateway_mode[:80]!r}")
