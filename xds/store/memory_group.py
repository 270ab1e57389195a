"""What the reference engine holds of a group."""

from __future__ import annotations

from dataclasses import dataclass, field

from xds.store.base import Entry, Head, Manifest, RevisionInfo
from xds.store.revisions import Key


@dataclass(slots=True)
class Group:
    """``manifests`` and ``history`` by revision; a deletion has only the latter, and so has what was collected.

    ``floor`` is the lowest revision whose content is kept. ``content`` and ``blob_ids`` are the head's, in the order of
    pushes: a change of one resource must not cost a look at all.
    """

    head: Head
    manifests: dict[int, Manifest] = field(default_factory=dict)
    history: dict[int, RevisionInfo] = field(default_factory=dict)
    floor: int = 1
    content: dict[Key, Entry] = field(default_factory=dict)
    blob_ids: dict[Key, str] = field(default_factory=dict)

    def current(self) -> Manifest | None:
        return self.manifests.get(self.head.revision)
