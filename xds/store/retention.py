"""How much history a store keeps, and what collecting the rest came to. Pure.

The policy is that of spec/storage.md 8: the last 20 revisions of a group and anything younger than 7 days keep their
content; who pushed what and when is kept much longer. Both have an upper bound, so that a caller who pushes fifty
times a second does not fill the disk within those days.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from xds.store.audit import AuditLane

DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """What ``Store.collect`` spares.

    * ``revisions``, ``age_s``: the last so many revisions of a group, and all that are younger, keep their content;
    * ``revisions_limit``: never more than so many, however young;
    * ``history_s``, ``history_limit``: the same for the lines of the history, which outlive the content;
    * ``pinned``: revisions by group whose content is kept whatever else is said;
    * ``endpoint_revisions``, ``endpoint_lines``: of the revisions that changed endpoints alone, the last so many keep
      their content, and their lines; they count for none of the numbers above;
    * ``audit_s``, ``audit_bytes``: how old the audit list becomes, and how large with what was changed.

    The head is always kept. Of a deleted group everything is kept for ``age_s`` after the deletion, then nothing but
    the history. Raises ``ValueError`` for a policy that would not keep the head.
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
            raise ValueError("a group keeps at least one revision, and its limit is no lower than what it keeps")


@dataclass(frozen=True, slots=True)
class Collected:
    """What was let go: contents of revisions, lines of history, blobs and their bytes, push ids."""

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
    """The size of a store. ``bytes`` is what it takes on disk (in memory: its blobs), ``free_bytes`` what of that is
    unused. ``revisions`` counts those with content, ``audit`` the entries of the audit list by lane; ``audit_bytes`` is
    what those of changes take, which is what ``Retention.audit_bytes`` bounds.
    """

    bytes: int
    free_bytes: int
    revisions: int
    blobs: int
    audit: Mapping[AuditLane, int]
    audit_bytes: int


@dataclass(frozen=True, slots=True)
class StoreCondition:
    """What is wrong with a store, in words; each is empty where nothing is.

    ``lost``: its files are not those that were opened, nothing is written. ``read_only``: it could only be read when it
    was opened, and since. ``behind``: it lacks commits that were acknowledged.
    """

    lost: str = ""
    read_only: str = ""
    behind: str = ""


@dataclass(frozen=True, slots=True)
class RevisionCounts:
    """Of the revisions of a group that are no pushes of endpoints alone: the lowest of the last
    ``Retention.revisions``, of the last ``revisions_limit``, and of those that are young within these; None where
    there are not so many.
    """

    kept: int | None
    limit: int | None
    young: int | None


def content_floor(newest: int, live: bool, floor: int, counted: RevisionCounts, pinned: Collection[int]) -> int:
    """The lowest revision of a group whose content is to be kept; above ``newest`` when none is.

    ``floor`` is the lowest that has it now.
    """
    if not live and counted.young is None:
        return newest + 1
    kept = counted.kept if counted.kept is not None else 1
    young = kept if counted.young is None else min(kept, counted.young)
    bounded = max(young, counted.limit if counted.limit is not None else 1)
    return max(1, floor, min(bounded, newest, *(each for each in pinned if each >= floor)))
