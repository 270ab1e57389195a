"""``xds release``: nodes let go of what lingers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from xds.cli.client import Client, group_path
from xds.cli.failure import CommandError, Exit
from xds.cli.pushing import author

Json = dict[str, Any]


def release(client: Client, node: str, group: str) -> Json:
    """Have a node, or those of a group, let go; how many did, and of what. Raises ``CommandError``."""
    if bool(node) == bool(group):
        raise CommandError(Exit.USAGE, "either --node or --group says whose it is")
    path = f"/nodes/{quote(node, safe='')}/release" if node else group_path(group, "/release")
    return client.call("POST", path, {"author": author()})


def release_text(found: Json) -> str:
    """``2 nodes let go of 3 clusters, 3 endpoints``."""
    if not found["nodes"]:
        return "nothing lingered"
    what = ", ".join(f"{count} {type}" for type, count in found["released"].items())
    return f"{found['nodes']} {'node' if found['nodes'] == 1 else 'nodes'} let go of {what}"
