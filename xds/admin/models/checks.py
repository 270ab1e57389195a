"""The check of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRow:
    """One row of the check.

    * ``check``: the name of the row: ``ready``, ``store``, ``members`` (only where several servers may share the
      store), ``streams`` (refused ones), ``nacks``, ``rollouts`` (those that wait for a person), ``load`` (clusters
      that fail most of their requests), ``endpoints`` (clusters in use without a serving endpoint), ``watch``,
      ``sources`` or ``certificates``;
    * ``state``: ``ok``, ``warning`` or ``failed``;
    * ``detail``: what was found, in words;
    * ``next``: the command to run next;
    * ``see``: the section of the project's documentation about the row.
    """

    schema_name: ClassVar[str] = "CheckRowItem"

    check: str
    state: str
    detail: str
    next: str
    see: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedServer:
    """All rows of the check.

    * ``state``: the worst state of a row;
    * ``partial``: present if servers did not answer: their names. What they would find is missing.
    """

    schema_name: ClassVar[str] = "CheckAnswer"

    state: str
    items: tuple[CheckedRow, ...]
    partial: tuple[str, ...] = ()
