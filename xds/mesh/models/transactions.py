"""The JSON of a transaction."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from xds.admin.shapes.groups import PushAnswer
from xds.mesh.models.config_entries import EntryAnswer


class TransactionAnswer(TypedDict):
    """The results of a transaction.

    * ``results``: one for each change, in their order;
    * ``config_entries``: present if config entries were written.
    """

    results: list[PushAnswer]
    config_entries: NotRequired[EntryAnswer]
