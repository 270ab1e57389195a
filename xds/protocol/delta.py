"""The Delta dialect where it differs from SotW at the start of a type: what a reconnecting client holds.

How interest is stated is ``Subscription.change``; a response contains what differs (``draft``); removals and names
that do not exist are told by ``removed_resources``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    held = old.resources if old is not None else {}
    track.known.doubted = {name: version for name, version in versions.items() if name not in held}
    return old


def owed_at_first(track: Track, owed: Iterable[str], released: ResourceSet) -> set[str]:
    """Rule 56: "names both subscribed and in initial_resource_versions at the current version may be skipped"."""
    known = track.known
    held = known.base.resources if known.base is not None else {}

    def is_current(name: str) -> bool:
        resource = released.resources.get(name)
        if resource is None:
            return name in held or name in known.doubted  # told as removed when its time comes
        version = held[name].version if name in held else known.doubted.get(name)
        return version == resource.version

    return {name for name in owed if not is_current(name)}
