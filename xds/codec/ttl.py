"""Time to live: seconds in the model, ``google.protobuf.Duration`` on the wire."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

_NANOS = 1_000_000_000


def duration(ttl_s: float) -> Duration:
    """Seconds as a Duration, to the nanosecond."""
    nanos = round(ttl_s * _NANOS)
    return Duration(seconds=nanos // _NANOS, nanos=nanos % _NANOS)


def seconds(ttl: Duration) -> float:
    """A Duration as seconds."""
    return float(ttl.seconds + ttl.nanos / _NANOS)


def duration_text(ttl_s: float) -> str:
    """Seconds as proto3 JSON writes them: ``1.500s``."""
    return duration(ttl_s).ToJsonString()
