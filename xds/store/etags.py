"""Etags of stored documents, which have no revision. An etag detects that a document was changed concurrently."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from xds.model.errors import ConflictError

# Instead of an etag: the document must exist, or must not exist.
ANY_ETAG, NO_ETAG = "*", "0"
_ETAG_BYTES = 4


def document_etag(prefix: str, document: Mapping[str, Any]) -> str:
    """The etag of a document. ``prefix`` distinguishes kinds of documents."""
    body = json.dumps(document, sort_keys=True).encode()
    return f"{prefix}-{blake2b(body, digest_size=_ETAG_BYTES).hexdigest()}"


def check_etag(wanted: str, present: str, what: str, group: str) -> None:
    """Raises ``ConflictError`` unless ``wanted`` is empty or matches ``present``, the etag of the present document.

    ``present`` is `NO_ETAG` if there is no document. ``what`` names the document in the message, noun last, such as
    ``group 'edge' settings``.
    """
    if not wanted or wanted == present or (wanted == ANY_ETAG and present != NO_ETAG):
        return
    subject, _, noun = what.rpartition(" ")
    state = f"has no {noun}" if present == NO_ETAG else f"has the {noun} {present}"
    raise ConflictError(f"{subject} {state}", 0, group)
