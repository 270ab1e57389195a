"""``xds delete``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xds.cli.client import Client, group_path
from xds.cli.kinds import known_type, resources_path

Json = dict[str, Any]


def delete_group(client: Client, group: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Json:
    """Delete a group; the answer to the push. Raises ``CommandError``."""
    return {**client.call("DELETE", group_path(group), query, headers), "deleted": True}


def delete_resource(
    client: Client, group: str, kind: str, name: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> Json:
    """Take one resource out of a group; the answer to the push. Raises ``CommandError``."""
    return client.call("DELETE", resources_path(group, known_type(kind), name), query, headers)
