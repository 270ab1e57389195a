"""A node in proto3 JSON, as REST clients send it and as node files hold it: snake_case or camelCase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xds.model.node import Locality, Node

Json = dict[str, Any]


def decode_node(fields: Json) -> Node:
    """The node; its list of extensions is ignored. Raises ``ValueError`` that names the field."""
    locality = as_object(field_of(fields, "locality", {}), "locality")
    agent, version = text_of(fields, "user_agent_name"), _user_agent_version(fields)
    return Node(
        id=text_of(fields, "id"),
        cluster=text_of(fields, "cluster"),
        locality=Locality(text_of(locality, "region"), text_of(locality, "zone"), text_of(locality, "sub_zone")),
        metadata=as_object(field_of(fields, "metadata", {}), "metadata"),
        user_agent=f"{agent} {version}".strip(),
        user_agent_name=agent,
        user_agent_version=version,
    )


def _user_agent_version(fields: Json) -> str:
    build = as_object(field_of(fields, "user_agent_build_version", {}), "user_agent_build_version")
    number = as_object(field_of(build, "version", {}), "version")
    parts = (field_of(number, part, 0) for part in ("major_number", "minor_number", "patch"))
    return ".".join(map(str, parts)) if number else text_of(fields, "user_agent_version")


def field_of(fields: Mapping[str, Any], name: str, default: Any) -> Any:
    """A field by its proto name or its JSON name; null means absent."""
    value = fields.get(name)
    if value is None:
        head, *rest = name.split("_")
        value = fields.get(head + "".join(map(str.capitalize, rest)))
    return default if value is None else value


def text_of(fields: Mapping[str, Any], name: str) -> str:
    """A text field, empty when absent. Raises ``ValueError``."""
    value = field_of(fields, name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string")
    return value


def as_object(value: Any, what: str) -> Json:
    """The value, which must be an object. Raises ``ValueError``."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a JSON object")
    return value
