"""The calls about config entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from xds.calls.call import ENTRY_ARGUMENTS, ApiCall, EntryArguments, flags, items, place, reader, write_parts
from xds.calls.results import EntryOutcome, StoredEntry


def config_entries(kind: str = "") -> ApiCall[tuple[StoredEntry, ...]]:
    """Config entries by kind and name."""
    return ApiCall("GET", place("config-entries"), items(StoredEntry), flags(kind=kind))


def config_entry(kind: str, name: str) -> ApiCall[StoredEntry]:
    """One config entry, and who modified it last."""
    return ApiCall("GET", place("config-entries", kind, name), reader(StoredEntry))


def put_config_entries(
    entries: Sequence[Mapping[str, Any]], **options: Unpack[EntryArguments]
) -> ApiCall[EntryOutcome]:
    """Write several config entries, all or none. ``if_match`` is about all of them."""
    return _write("POST", place("config-entries"), [dict(entry) for entry in entries], **options)


def put_config_entry(
    kind: str, name: str, entry: Mapping[str, Any], **options: Unpack[EntryArguments]
) -> ApiCall[EntryOutcome]:
    """Write one config entry. ``if_match`` is about this entry."""
    return _write("PUT", place("config-entries", kind, name), dict(entry), **options)


def delete_config_entry(kind: str, name: str, **options: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Delete one config entry. ``if_match`` is about this entry."""
    return _write("DELETE", place("config-entries", kind, name), None, **options)


def roll_back_config_entries(to: int, **options: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Make a new revision with the config entries of an earlier one; 0: none."""
    return _write("POST", place("config-entries", "rollback"), {"to": to}, **options)


def _write(method: str, path: str, body: object, **given: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    query, headers = write_parts(given, ENTRY_ARGUMENTS)
    return ApiCall(method, path, reader(EntryOutcome), query, headers, body)
