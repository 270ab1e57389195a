"""The Delta dialect where it differs from SotW at the start of a type: what a reconnecting client holds.

How interest is stated is ``Subscription.change``; a response contains what differs (``draft``); removals and names
that do not exist are told by ``removed_resources``.
"""

from __future__ import annotations

from collections.abc import Sequence

from xds.model.snapshot import ResourceSet
from xds.protocol.cache import SnapshotCache
from xds.protocol.events import DeltaRequest
from xds.protocol.track import Track


def remember(
    track: Track, request: DeltaRequest, cache: SnapshotCache, group: str, api: str, former: Sequence[str] = ()
) -> ResourceSet | None:
    """What ``initial_resource_versions`` says the client holds; only the first message of a type may say so.

    Rule 54: use it "to suppress unchanged resources, to send changed ones, and to report in removed_resources those
    that vanished while disconnected. It does not itself subscribe." Versions that are not retained stay as doubts.
    """
    versions = request.initial_versions
    if not versions:
        return None
    old = cache.recall_versions(group, track.type.type_url, versions, api, former)
    track.known.base = old
    if old is None:
        track.known.doubted = versions
    elif len(old) < len(versions):
        track.known.doubted = {name: version for name, version in versions.items() if name not in old.resources}
    return old


def owed_at_first(track: Track, owed: frozenset[str], released: ResourceSet, cache: SnapshotCache) -> frozenset[str]:
    """Rule 56: "names both subscribed and in initial_resource_versions at the current version may be skipped"."""
    doubted = track.known.doubted
    lacking = cache.lacking(owed, track.known.base, released)
    # What is told of another version is sent for that; what does not exist is told as removed when its time comes.
    current = [
        name
        for name, version in doubted.items()
        if name in lacking and ((resource := released.resources.get(name)) is None or resource.version == version)
    ]
    return lacking.difference(current) if current else lacking
