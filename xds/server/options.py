"""What the gRPC server can be told. Defaults are those of DESIGN 5."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from xds.control.access import Access
from xds.control.tokens import Tokens
from xds.lrs.report_stream import DEFAULT_SETTINGS, LoadSettings
from xds.protocol.order import OrderRules
from xds.protocol.requests import StreamLimits

MIB = 1024 * 1024
ASYNCIO, GRPCIO = "asyncio", "grpcio"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Settings of the gRPC server.

    * ``port`` 0 lets the system choose; ``XdsServer.start`` returns the port.
    * ``transport``: what carries gRPC, our own on asyncio or grpcio's.
    * ``tls_certificate`` and ``tls_key`` (PEM files) turn TLS on; ``client_ca`` asks clients for certificates.
    * ``client_cert_optional``: who shows no certificate needs a token.
    * ``access``: who may come in, and as which node; where it is None, who has one of ``tokens``, without any
      everybody.
    * ``expiry_spread_s``: streams whose certificate has ended are closed over so many seconds.
    * ``limits``: what one stream may ask for; ``order``: how pushes are ordered (DESIGN 3.2).
    * ``max_receive_bytes``: one request.
    * ``requests_per_s``, ``requests_burst``: per stream. A stream beyond it is read more slowly, never closed: a
      client cannot tell a closed stream from a fault and would come back with all it had asked for.
    * ``in_flight_bytes``: what is written but not yet taken by clients, over all streams, in bodies of more than a few
      kB. A larger body goes alone.
    * ``nodes_shown``: how many nodes get metrics of their own.
    * ``load``: what is asked of the clients that report load.
    * ``drain_s``: over which existing streams are closed (rule 10: "spread the closes").
    """

    host: str = "127.0.0.1"
    port: int = 18000
    transport: str = ASYNCIO
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    client_cert_optional: bool = False
    tokens: Tokens = field(default_factory=Tokens)
    access: Access | None = None
    expiry_spread_s: float = 60.0
    limits: StreamLimits = field(default_factory=StreamLimits)
    order: OrderRules = field(default_factory=OrderRules)
    max_receive_bytes: int = 8 * MIB
    requests_per_s: float = 100.0
    requests_burst: int = 1000
    in_flight_bytes: int = 256 * MIB
    max_streams_per_connection: int = 20_000
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 10.0
    nodes_shown: int = 0
    drain_s: float = 5.0
    load: LoadSettings = DEFAULT_SETTINGS

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return f"{host}:{self.port}"


def channel_arguments(options: ServerOptions) -> list[tuple[str, int]]:
    """Settings of grpcio's core; those of push_path 5 are correctness, not taste."""
    return [
        # "with the defaults, 5000 streams opened in a burst -> 785 streams rejected by the server".
        ("grpc.server.max_pending_requests", 100_000),
        ("grpc.server.max_pending_requests_hard_limit", 200_000),
        # gRPC drops calls that were not asked for within 30 s: nobody is turned away who can still be served.
        ("grpc.server_max_unrequested_time_in_server", 300),
        ("grpc.http2.bdp_probe", 0),
        # Thousands of split EDS streams share one connection (real_clients 2).
        ("grpc.max_concurrent_streams", options.max_streams_per_connection),
        # gRPC ends a call that exceeds its limit without a word to us; what is counted must be let in first.
        ("grpc.max_receive_message_length", 2 * options.max_receive_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", round(options.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(options.keepalive_timeout_s * 1000)),
        # Clients ping as often as they like, with or without calls: a GOAWAY for it would cut off the fleet.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        # Two servers on one port would share a fleet at random.
        ("grpc.so_reuseport", 0),
    ]
