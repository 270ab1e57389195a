"""The inline data of a ``DataSource`` in Envoy's configuration. Data in files is at the proxy, and is not checked."""

from __future__ import annotations

from typing import Any


def inline_content(message: Any, field: str) -> str | None:
    """The inline data of a ``DataSource``; None for data in a file or an environment variable."""
    return content(getattr(message, field)) if message.HasField(field) else None


def content(source: Any) -> str | None:
    """As `inline_content`, of the ``DataSource`` itself."""
    match source.WhichOneof("specifier"):
        case "inline_string":
            return str(source.inline_string)
        case "inline_bytes":
            return bytes(source.inline_bytes).decode(errors="replace")
    return None


def specifier(source: Any) -> str:
    """The field of a ``DataSource`` that is set."""
    return str(source.WhichOneof("specifier"))
