"""How resources are named in JSON and in wrappers: name fields, aliases, the keys beside a message, and TTLs."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration

from xds.model.names import XDSTP
from xds.model.resource_type import ENDPOINT, V2_URLS, VIRTUAL_HOST
from xds.wire.fields import duration_of, seconds_of

TYPE_KEY, VALUE_KEY, NAME_KEY = "@type", "@value_base64", "@name"  # keys beside the fields of a message in JSON

# In every other type with a name, the field is ``name``.
_NAME_FIELDS = dict.fromkeys((ENDPOINT, V2_URLS[ENDPOINT]), "cluster_name")
_VIRTUAL_HOSTS = (VIRTUAL_HOST, V2_URLS[VIRTUAL_HOST])


def name_field(type_url: str) -> str:
    """The field that holds the name in resources of a type."""
    return _NAME_FIELDS.get(type_url, "name")


def name_of(type_url: str, message: Any) -> str | None:
    """The name a message gives itself; None for a type without such a field."""
    field = text_field(type_url, message.DESCRIPTOR)
    return None if field is None else str(getattr(message, field))


@cache
def text_field(type_url: str, descriptor: Descriptor) -> str | None:
    """The field that holds the name, if messages of a type have it and it holds a text."""
    name = name_field(type_url)
    field = descriptor.fields_by_name.get(name)
    is_text = field is not None and field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated
    return name if is_text else None


def is_named_by_wrapper(type_url: str) -> bool:
    """Clients request virtual hosts as ``<route configuration>/<host>``; the message may hold another name."""
    return type_url in _VIRTUAL_HOSTS


def aliases_of(type_url: str, name: str, message: Any) -> tuple[str, ...]:
    """``route/domain`` for each domain of the virtual host ``route/host``: VHDS subscribes to these (rule 66)."""
    route, slash, _ = name.rpartition("/")
    if type_url not in _VIRTUAL_HOSTS or not slash or name.startswith(XDSTP):
        return ()
    aliases = dict.fromkeys(f"{route}/{domain}" for domain in message.domains)
    aliases.pop(name, None)
    return tuple(aliases)


def to_duration(ttl_s: float) -> Duration:
    """Seconds as a Duration, to the nanosecond."""
    whole, nanos = duration_of(ttl_s)
    return Duration(seconds=whole, nanos=nanos)


def to_seconds(ttl: Duration) -> float:
    """A Duration as seconds."""
    return seconds_of(ttl.seconds, ttl.nanos)


def duration_text(ttl_s: float) -> str:
    """Seconds as proto3 JSON writes them: ``1.500s``."""
    return to_duration(ttl_s).ToJsonString()
