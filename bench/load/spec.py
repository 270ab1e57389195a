"""The description of a fleet, and how it is passed to a worker process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Variant = Literal["sotw", "delta"]

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
METHODS: dict[Variant, str] = {"sotw": "StreamAggregatedResources", "delta": "DeltaAggregatedResources"}


class Subscription(NamedTuple):
    """One type on each stream; ``names`` None means all there are."""

    type_url: str
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """``streams`` alike clients of the server at ``target`` ("host:port").

    ``node_bytes`` is about how long each serialized Node is, made up with extensions like Envoy's; it goes with each
    request if ``node_every_request``, else with the first one of a stream. ``ca`` is a file of certificates to trust
    and means TLS. Every ``worker_streams`` streams get a process of their own. The first stream has the number
    ``first_node``, which its node is named by: two fleets at one server must not be the same clients.
    """

    target: str
    streams: int
    variant: Variant
    subscriptions: tuple[Subscription, ...]
    node_bytes: int = 0
    node_every_request: bool = False
    streams_per_connection: int = 1
    ca: Path | None = None
    worker_streams: int = 2500
    first_node: int = 0

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return {**asdict(self), "ca": str(self.ca) if self.ca else None}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> FleetSpec:
        """What `to_json` wrote."""
        subscriptions = tuple(
            Subscription(url, None if names is None else tuple(names)) for url, names in fields["subscriptions"]
        )
        ca = Path(fields["ca"]) if fields["ca"] else None
        return cls(**{**fields, "subscriptions": subscriptions, "ca": ca})


@dataclass(frozen=True, slots=True)
class Ack:
    """How many ACKs were sent, and when the first and the last of them (monotonic seconds)."""

    count: int
    first_at: float
    last_at: float
