"""What reading asks about the type of a resource, found once for all resources of the type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor

from xds.codec import schema
from xds.codec.naming import is_named_by_wrapper, text_field
from xds.model.resource_type import TYPE_PREFIX

_WRAPPERS = (schema.WRAPPER_TYPE, "envoy.api.v2.Resource")


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """``type_url`` is as clients know it; there is a ``message_class`` if the type is in the schema.

    ``text_field`` holds the name; None where no field does. Those that are named outside are the ones with aliases:
    virtual hosts.
    """

    type_url: str
    message_class: type[Any] | None = None
    text_field: str | None = None
    is_wrapper: bool = False
    is_named_by_wrapper: bool = False


def type_info(type_url: str) -> TypeInfo:
    """The kind of a type URL, whatever stands before the name of the message."""
    found = schema.descriptor(type_url)
    return TypeInfo(type_url) if found is None else _kind(found)


@cache
def _kind(descriptor: Descriptor) -> TypeInfo:
    type_url = TYPE_PREFIX + descriptor.full_name  # clients know the types of the schema by this prefix only
    return TypeInfo(
        type_url,
        message_factory.GetMessageClass(descriptor),
        text_field(type_url, descriptor),
        descriptor.full_name in _WRAPPERS,
        is_named_by_wrapper(type_url),
    )
