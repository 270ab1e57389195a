"""The store: its condition, and what a restore brought."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """The condition of the store.

    * ``state``: ``ok``; or the worst of ``lost`` (its files were moved or replaced), ``read_only`` (it cannot be
      written), ``full`` (the last change found no space) and ``behind`` (acknowledged writes are missing);
    * ``detail``: what is wrong, and what to do; empty for ``ok``.
    """

    schema_name: ClassVar[str] = "ConditionItem"

    state: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredBackup:
    """The content of the archive that was restored; in a dry run, that was verified.

    * ``restored``: false in a dry run;
    * ``release``: the version of the server that made the archive;
    * ``time``: when the archive was made;
    * ``history``: whether it has earlier revisions;
    * ``groups``: the number of groups;
    * ``revisions``: the number of revisions;
    * ``documents``: the number of settings, policies and other small documents;
    * ``resources``: the number of different resources;
    * ``watched``: the groups whose files in the watched directory are applied again, over the restored content.
    """

    schema_name: ClassVar[str] = "RestoredItem"

    restored: bool
    release: str
    time: datetime
    history: bool
    groups: int
    revisions: int
    documents: int
    resources: int
    watched: tuple[str, ...]
