"""Options of the gRPC server. The defaults are those of docs/configuration.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from xds.access.authorisation import Access
from xds.access.tokens import Tokens
from xds.lrs.report_stream import DEFAULT_SETTINGS, LoadSettings
from xds.model.units import MIB
from xds.protocol.requests import StreamLimits
from xds.server.flow.anonymous import DEFAULT_ANONYMOUS, AnonymousLimits
from xds.server.flow.limits import DEFAULT_FLOW, FlowLimits
from xds.snapshots.order import OrderRules

ASYNCIO, GRPCIO = "asyncio", "grpcio"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Settings of the gRPC server.

    * ``port`` 0 lets the system choose; ``XdsServer.start`` returns the port.
    * ``transport``: ``ASYNCIO`` (our own) or ``GRPCIO``.
    * ``tls_certificate`` and ``tls_key`` (PEM files) turn TLS on; ``client_ca`` asks clients for certificates.
    * ``client_cert_optional``: a client without a certificate needs a token.
    * ``access``: the rules for clients and nodes. None: every client with one of ``tokens``, or every client if there
      are none.
    * ``expiry_spread_s``: streams whose certificate has expired are closed over this many seconds.
    * ``limits``: how much one stream may request; ``order``: how pushes are ordered
    (docs/internals/design.md#order-of-updates).
    * ``max_receive_bytes``: of one request.
    * ``requests_per_s``, ``requests_burst``: per stream. Requests above the rate wait, and the stream is never closed
      for it: the client could not tell that from a failure, and would reconnect with all its subscriptions.
    * ``in_flight_bytes``: bytes written but not yet read by clients, over all streams, in bodies larger than
      ``flow.small_write_bytes``. A body larger than ``in_flight_bytes`` is written alone.
    * ``anonymous``: limits of connections without an authenticated call.
    * ``nodes_shown``: how many nodes have metrics of their own.
    * ``load``: the requests for load reports.
    * ``drain_s``: existing streams are closed over this many seconds (rule 10).
    * ``max_stream_age_s``: streams are closed when their connection has this age; 0: never.
    * ``reuse_port``: other servers may listen on the same port of this machine.
    * ``flow``: constants of flow control.
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
    anonymous: AnonymousLimits = DEFAULT_ANONYMOUS
    nodes_shown: int = 0
    drain_s: float = 5.0
    max_stream_age_s: float = 0.0
    reuse_port: bool = False
    load: LoadSettings = DEFAULT_SETTINGS
    flow: FlowLimits = DEFAULT_FLOW

    @property
    def address(self) -> str:
        """``host:port``, an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return f"{host}:{self.port}"
