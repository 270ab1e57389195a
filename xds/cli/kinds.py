"""The words for kinds of resources on the command line."""

from __future__ import annotations

from urllib.parse import quote

from xds.cli.client import group_path
from xds.cli.failure import CommandError, Exit
from xds.model.resource_type import V3_TYPES, type_url_of

OTHERS = ("groups", "snapshot", "resources")


def known_type(word: str) -> str:
    """An alias (also in the singular), a message name or a type URL. Raises ``CommandError`` for another word."""
    aliases = [rule.alias for rule in V3_TYPES]
    for alias in (word, f"{word}s"):
        if alias in aliases:
            return alias
    if "." in word:
        return type_url_of(word)
    raise CommandError(Exit.USAGE, f"no such kind: {word!r} ({', '.join((*OTHERS, *aliases))}, or a type URL)")


def resources_path(group: str, type: str, name: str = "") -> str:
    """The path of a type's resources in a group, or of one of them."""
    path = group_path(group, f"/resources/{quote(type, safe='')}")
    return f"{path}/{quote(name, safe='')}" if name else path
