"""Documents without their secrets; the schema is read only when one is shown."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def without_secrets(document: Json) -> Json:
    """A copy of a resource's document with keys and tokens replaced; it cannot be applied again."""
    from xds.codec.redaction import redact

    return redact(document)
