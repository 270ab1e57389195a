"""``xds put``: single resources into a group that keeps the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xds.cli.client import Client, RefusedError, group_path
from xds.cli.failure import CommandError, Exit
from xds.cli.pushing import if_match as header
from xds.cli.sources import placed, read_sources, refused

Json = dict[str, Any]


def put_resources(
    client: Client, files: Iterable[Path], group: str, query: Mapping[str, str], if_match: str, *, create: bool
) -> Json:
    """Put all resources of the files as one; the answer to the push. Raises ``CommandError``."""
    (source,) = read_sources(files, group)
    if not source.resources:
        raise CommandError(Exit.INVALID, "there is no resource in what -f names")
    if source.label or source.labels:
        raise CommandError(Exit.INVALID, "a version is that of a whole snapshot: take it out, or use xds apply")
    change = {"group": group, "put": source.resources, **_precondition(client, group, if_match, create)}
    try:
        answer = client.call("POST", "/transactions", query, body={"changes": [change]})
    except RefusedError as error:
        if error.status == 412 and not (if_match or create):
            raise CommandError(Exit.NOT_FOUND, f"there is no group {group!r}; pass --create to make it") from None
        raise refused(error, [source]) from None
    result: Json = answer["results"][0]
    return {**result, "warnings": placed(result.get("warnings", []), [source])}


def _precondition(client: Client, group: str, if_match: str, create: bool) -> dict[str, str]:
    """The group must be there, as a mistyped name would make another one; or it may not be there yet."""
    if if_match:
        return {"if_match": header(if_match)["If-Match"]}
    if create and not _exists(client, group):
        return {"if_none_match": "*"}
    return {"if_match": "*"}


def _exists(client: Client, group: str) -> bool:
    """Has the group a snapshot?"""
    try:
        return bool(client.call("GET", group_path(group))["revision"])
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        return False
