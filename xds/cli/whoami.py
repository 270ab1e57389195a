"""``xds whoami``."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def caller_line(found: Json) -> str:
    """Who asks, and with which scopes."""
    if not found["authenticated"]:
        return "anybody: the server has no tokens, and everybody may do everything"
    return f"{found['name'] or 'a token without a name'}: {', '.join(found['scopes']) or 'no scopes'}"
