"""How much history a store keeps, and the results of a collection. Pure.

By default the last 20 revisions of a group and all revisions younger than 7 days keep their content. Who pushed what
and when is kept much longer. Both have an upper bound, so that fifty pushes a second do not fill the disk in those
days. See docs/internals/design.md#storage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from xds.store.audit_entries import AuditLane

DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """What ``Store.collect`` keeps.

    * ``revisions``, ``age_s``: this many last revisions of a group, and all younger revisions, keep their content;
    * ``revisions_limit``: the upper bound, however young the revisions are;
    * ``history_s``, ``history_limit``: the same for the lines of the history, which are kept longer than the content;
    * ``pinned``: revisions by group. Their content is always kept, and that of all later revisions that changed more
      than endpoints. A revision whose content is deleted already has no effect;
    * ``endpoint_revisions``, ``endpoint_lines``: how many revisions that changed endpoints alone keep their content,
      and their lines. They do not count for the numbers above;
    * ``audit_s``, ``audit_bytes``: the maximum age of the audit list, and the maximum size of its changes.

    The head is always kept. The content of a deleted group is kept for ``age_s`` after the deletion. Raises
    ``ValueError`` for a policy that does not keep the head.
    """

    revisions: int = 20
    age_s: float = 7 * DAY_S
    revisions_limit: int = 10_000
    history_s: float = 365 * DAY_S
    history_limit: int = 100_000
    pinned: Mapping[str, Collection[int]] = field(default_factory=dict)
    endpoint_revisions: int = 100
    endpoint_lines: int = 10_000
    audit_s: float = 365 * DAY_S
    audit_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.revisions < 1 or self.revisions_limit < self.revisions or self.history_limit < 1:
            raise ValueError(
                "a group keeps at least one revision, and a limit is at least the number of revisions kept"
            )


@dataclass(frozen=True, slots=True)
class Collected:
    """Numbers of deleted things: contents of revisions, lines of history, blobs and their bytes, push ids."""

    revisions: int = 0
    lines: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    push_ids: int = 0

    def __add__(self, other: Collected) -> Collected:
        names = [each.name for each in fields(Collected)]
        return Collected(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The size of a store. ``bytes`` is the size on disk (in memory: of the blobs), ``free_bytes`` its unused part.

    ``revisions`` counts revisions with content, ``audit`` the entries of the audit list by lane. ``audit_bytes`` is the
    size of the entries of changes, which ``Retention.audit_bytes`` bounds.
    """

    bytes: int
    free_bytes: int
    revisions: int
    blobs: int
    audit: Mapping[AuditLane, int]
    audit_bytes: int


@dataclass(frozen=True, slots=True)
class StoreCondition:
    """The problems of a store as messages, empty where there is none.

    ``lost``: the files of the store were moved or replaced, and nothing is written. ``read_only``: the store cannot be
    written since it was opened. ``full``: a write found no space, and no change was stored since. ``behind``:
    acknowledged commits are missing. ``copy``: there is no copy of the present state on this disk.

    ``cut_off_s`` is the epoch time since which the database of a store has not answered, 0 while it does; then
    ``read_only`` says why.
    """

    lost: str = ""
    read_only: str = ""
    full: str = ""
    behind: str = ""
    copy: str = ""
    cut_off_s: float = 0.0

    @property
    def wrong(self) -> str:
        """The worst problem of the store itself; empty for none."""
        return self.lost or self.read_only or self.full or self.behind


@dataclass(frozen=True, slots=True)
class RevisionBounds:
    """The revisions of a group at which rules of retention end. Pushes of endpoints alone do not count.

    ``by_number`` and ``by_limit`` are the lowest of the last ``Retention.revisions`` and of the last
    ``revisions_limit``; ``by_age`` is the lowest young one from ``by_limit`` on. None where there are not that many.
    """

    by_number: int | None
    by_limit: int | None
    by_age: int | None


def content_floor(newest: int, live: bool, floor: int, bounds: RevisionBounds, pinned: Collection[int]) -> int:
    """The lowest revision of a group that keeps its content; above ``newest`` when none does.

    ``floor`` is the lowest revision with content now. The content of all ``pinned`` revisions above it must exist.
    """
    if not live and bounds.by_age is None:
        return newest + 1
    by_number = bounds.by_number if bounds.by_number is not None else 1
    by_age = by_number if bounds.by_age is None else min(by_number, bounds.by_age)
    limited = max(by_age, bounds.by_limit if bounds.by_limit is not None else 1)
    return max(1, floor, min(limited, newest, *(each for each in pinned if each >= floor)))
