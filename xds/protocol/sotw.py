"""The SotW dialect where it differs from Delta at the start of a type: what a reconnecting client holds.

How interest is stated is ``Subscription.replace``; what a response contains is ``draft`` (full state for LDS, CDS and
SRDS, partial otherwise); removals are told by absence, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from xds.model.snapshot import ResourceSet
from xds.protocol.cache import SnapshotCache
from xds.protocol.events import SotwRequest
from xds.protocol.track import Track


def remember(
    track: Track, request: SotwRequest, cache: SnapshotCache, group: str, api: str, former: Sequence[str] = ()
) -> ResourceSet | None:
    """The retained set the client names by its version_info.

    Rule 13: the first request is answered in full all the same; the old set only tells what must not go yet.
    """
    track.placeholders = not request.version_info
    if not request.version_info:
        return None
    return cache.recall(group, track.type.type_url, request.version_info, api, former)
