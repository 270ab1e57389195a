"""Etags of stored documents, which have no revision, and of groups. An etag detects a concurrent change."""

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


def check_group_etag(wanted: str, expect: int | None, revision: int, present: str, group: str) -> None:
    """Raises ``ConflictError`` unless a group is at revision ``expect`` and ``wanted`` is empty or matches it.

    ``wanted`` is the etag ``present``, that of any content of a revision (``r42``), or `ANY_ETAG`. A group that does
    not exist is at revision 0 and has none.
    """
    if wanted and not present:
        raise ConflictError(f"there is no group {group!r}", 0, group)
    if wanted == ANY_ETAG:
        return
    tag, _, digest = wanted.partition("-")
    expect = int(tag[1:]) if tag else expect
    if expect not in (None, revision):
        raise ConflictError(f"group {group!r} is at revision {revision}, not {expect}", revision, group)
    if digest and wanted != present:
        raise ConflictError(f"group {group!r} has other content at revision {revision}", revision, group)
