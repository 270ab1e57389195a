"""Stored config entries, as far as a backup has to know them. The bytes of a resource begin otherwise."""

from __future__ import annotations

import json


def kind_of_entry(body: bytes) -> str:
    """The kind of the config entry of any release that these stored bytes are; empty for other bytes."""
    try:
        document = json.loads(body) if body[:1] == b"{" else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict) or "CreateIndex" not in document:
        return ""
    kind = document.get("Kind")
    return kind if isinstance(kind, str) else ""
