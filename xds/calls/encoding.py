"""Encodes the resources of a program as the JSON that the admin API accepts.

A resource is a dictionary with ``@type`` (Envoy's JSON), a protobuf message of any generated package, or a message of
envoy-data-plane. Messages are sent as bytes, so nothing is lost or renamed. The server checks all forms alike. Neither
protobuf nor envoy-data-plane is imported here: messages are recognised by their attributes.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

TYPE_PREFIX = "type.googleapis.com/"
WRAPPER = "envoy.service.discovery.v3.Resource"


@runtime_checkable
class SerializableMessage(Protocol):
    """A message of google.protobuf or of betterproto2 (envoy-data-plane)."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Its bytes."""


ResourceInput = Mapping[str, Any] | SerializableMessage


def encode_resources(resources: Iterable[ResourceInput]) -> list[dict[str, Any]]:
    """Resources as JSON values. Raises ``TypeError`` with the position of a value that is not a resource."""
    if isinstance(resources, Mapping) or not isinstance(resources, Iterable):
        raise TypeError("expected several resources; give a list")
    return [encode_resource(resource, f"resources[{index}]") for index, resource in enumerate(resources)]


def encode_resource(resource: ResourceInput, place: str = "the resource") -> dict[str, Any]:
    """One resource as a JSON value. Raises ``TypeError``."""
    if isinstance(resource, Mapping):
        return dict(resource)
    if isinstance(resource, type) or not isinstance(resource, SerializableMessage):
        raise TypeError(f"{place} is neither a dictionary nor a message: {type(resource).__name__}")
    type_url = type_url_of_message(resource, place)
    if type_url == TYPE_PREFIX + WRAPPER:
        return _wrapper(resource, place)
    return _opaque(type_url, resource.SerializeToString())


def type_url_of_message(message: object, place: str = "the message") -> str:
    """The type URL of a message. Raises ``TypeError`` if it is unknown."""
    descriptor = getattr(message, "DESCRIPTOR", None)
    if descriptor is not None:
        return f"{TYPE_PREFIX}{descriptor.full_name}"
    kind = type(message)
    package = kind.__module__
    while package:
        pool = sys.modules.get(f"{package}.message_pool")  # each package that betterproto2 generated has one
        known = getattr(getattr(pool, "default_message_pool", None), "type_to_url", {})
        if kind in known:
            return str(known[kind])
        package = package.rpartition(".")[0]
    raise TypeError(f"{place}: {kind.__module__}.{kind.__qualname__} has no type URL")


def _opaque(type_url: str, body: bytes) -> dict[str, Any]:
    return {"@type": type_url, "@value_base64": b64encode(body).decode("ascii")}


def _wrapper(message: Any, place: str) -> dict[str, Any]:
    """A ``Resource`` wrapper: name, aliases and TTL are for the server, the packed message is the resource."""
    packed = message.resource
    if packed is None or not packed.type_url:
        raise TypeError(f"{place}: the wrapper has no resource")
    value: dict[str, Any] = {
        "@type": TYPE_PREFIX + WRAPPER,
        "resource": _opaque(packed.type_url, packed.value),
        **({"name": message.name} if message.name else {}),
        **({"aliases": list(message.aliases)} if message.aliases else {}),
    }
    ttl_s = _ttl_s(message)
    return value if ttl_s is None else {**value, "ttl": f"{ttl_s:.9f}".rstrip("0").rstrip(".") + "s"}


def _ttl_s(message: Any) -> float | None:
    ttl = message.ttl
    has_field = getattr(message, "HasField", None)
    if ttl is None or (has_field is not None and not has_field("ttl")):
        return None
    return float(ttl.seconds + ttl.nanos / 1e9) if hasattr(ttl, "nanos") else float(ttl.total_seconds())
