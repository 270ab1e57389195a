"""Fields that several kinds of lowered resources share, as JSON in proto field names. Pure."""

from __future__ import annotations

from typing import Any

from xds.consul.quantities import SECOND_NS
from xds.model.resource_type import TYPE_PREFIX

Json = dict[str, Any]

_ZERO = "0s"
_LONGEST_NS = 9_000_000_000 * SECOND_NS  # Envoy refuses the greatest durations that Consul takes, some 292 years


def ads() -> Json:
    """A ConfigSource: the aggregated stream."""
    return {"ads": {}, "resource_api_version": "V3"}


def typed_config(message: str, **fields: object) -> Json:
    """An ``Any`` of the message with this full name."""
    return {"@type": f"{TYPE_PREFIX}{message}", **fields}


def extension(name: str, message: str, **fields: object) -> Json:
    """An extension: a filter, a transport socket."""
    return {"name": name, "typed_config": typed_config(message, **fields)}


def duration(value_ns: int) -> str:
    """A Duration: ``1.5s``."""
    whole, rest = divmod(min(value_ns, _LONGEST_NS), SECOND_NS)
    return f"{whole}.{rest:09}".rstrip("0") + "s" if rest else f"{whole}s"


def timeout(value_ns: int) -> str | None:
    """A timeout of an entry. 0 gives None, which means Envoy's default; a negative value gives 0s, no timeout."""
    if value_ns == 0:
        return None
    return duration(value_ns) if value_ns > 0 else _ZERO


def non_empty(**fields: object) -> Json:
    """The fields that are neither None nor empty. Zeros and false are kept."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", {}, [])}


# The options of http2 and grpc, for a cluster.
_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
HTTP2_OPTIONS: Json = {_HTTP_OPTIONS: typed_config(_HTTP_OPTIONS, explicit_http_config={"http2_protocol_options": {}})}
HTTP2_PROTOCOLS = ("http2", "grpc")
