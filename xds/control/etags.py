"""Etags of documents that make no revision: what one must be now, so that of two who change it at once one is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from xds.model.errors import ConflictError

# What a document must be, besides an etag of ours: any, or none.
ANY_ETAG, NO_ETAG = "*", "0"
_ETAG_BYTES = 4


def document_etag(prefix: str, document: Mapping[str, Any]) -> str:
    """Names the content of a document; ``prefix`` tells kinds of documents apart."""
    body = json.dumps(document, sort_keys=True).encode()
    return f"{prefix}-{blake2b(body, digest_size=_ETAG_BYTES).hexdigest()}"


def check_etag(wanted: str, found: str, what: str, group: str) -> None:
    """Raises ``ConflictError`` where the document is another than ``wanted`` says; an empty one is not asked for.

    ``found`` is `NO_ETAG` where there is none, ``what`` is told: "group 'edge' has ... the settings".
    """
    if not wanted or wanted == found or (wanted == ANY_ETAG and found != NO_ETAG):
        return
    subject, _, noun = what.rpartition(" ")
    told = f"has no {noun}" if found == NO_ETAG else f"has the {noun} {found}"
    raise ConflictError(f"{subject} {told}", 0, group)
