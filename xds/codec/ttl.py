"""Time to live: seconds in the model, ``google.protobuf.Duration`` on the wire."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from xds.wire.fields import duration_of, seconds_of


def duration(ttl_s: float) -> Duration:
    """Seconds as a Duration, to the nanosecond."""
    whole, nanos = duration_of(ttl_s)
    return Duration(seconds=whole, nanos=nanos)


def seconds(ttl: Duration) -> float:
    """A Duration as seconds."""
    return seconds_of(ttl.seconds, ttl.nanos)


def duration_text(ttl_s: float) -> str:
    """Seconds as proto3 JSON writes them: ``1.500s``."""
    return duration(ttl_s).ToJsonString()
