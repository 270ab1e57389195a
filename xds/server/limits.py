"""Limits that end a request, each counted when it is hit (``xds_server_limit_hits_total``)."""

from __future__ import annotations

from xds.model.errors import LimitError, RemoteProtocolError
from xds.server.metrics.counters import Metrics


def check_size(data: bytes, limit_bytes: int) -> None:
    """Raises ``LimitError`` for a request that is too large."""
    if len(data) > limit_bytes:
        raise LimitError("receive_bytes", f"a request of {len(data)} bytes; at most {limit_bytes} are accepted")


def count(error: RemoteProtocolError, metrics: Metrics) -> None:
    """Count the limit that an error speaks of, if it does."""
    if isinstance(error, LimitError):
        metrics.limit_hits[error.limit] += 1
