"""Keys of documents about something of a group, such as one of its assignments, and their ids in the store."""

from __future__ import annotations

from urllib.parse import quote, unquote

Key = tuple[str, str]  # group, name


def document_id(key: Key) -> str:
    """The id under which the store keeps a document."""
    return "/".join(quote(part, safe="") for part in key)


def key_of(identifier: str) -> Key:
    """The group and the name of a document."""
    group, _, name = identifier.partition("/")
    return unquote(group), unquote(name)
