"""NACK records: what a node rejected, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied

if TYPE_CHECKING:
    from xds.fleet.merged_nacks import EqualNacks
    from xds.fleet.state import NackRecord

NODES_SHOWN = 100  # of equal NACKs


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack:
    """A NACK record: what a node rejected, and why. There is one open record per node, type and rejected content.

    * ``id``: its number, which no other record ever gets;
    * ``version``: the ``version_info`` of the rejected response;
    * ``nonce``: the nonce of the rejected response;
    * ``code``: the gRPC status code in the NACK;
    * ``message``: the error message of the client; long ones are cut;
    * ``names``: some of the names that may be rejected;
    * ``resources``: the number of names that may be rejected;
    * ``guilty``: the names that are known to be rejected; empty while they are not known;
    * ``count``: how often it was NACKed;
    * ``state``: ``open`` or ``resolved``;
    * ``first``: the time of the first NACK;
    * ``last``: the time of the last NACK;
    * ``resolved``: when the record was resolved; null while it is open;
    * ``nodes``: present with ``by=message``: some of the nodes with an equal NACK; ``count`` is then the sum over all;
    * ``nodes_total``: present with ``by=message``: the number of these nodes.
    """

    schema_name: ClassVar[str] = "NackItem"

    id: int
    node: str
    group: str
    type: str
    type_url: str
    version: str
    nonce: str
    code: int
    message: str
    names: tuple[str, ...]
    resources: int
    guilty: tuple[str, ...]
    count: int
    state: str
    first: datetime
    last: datetime
    resolved: datetime | None
    nodes: tuple[str, ...] = ()
    nodes_total: int = 0

    @classmethod
    def from_merged(cls, merged: EqualNacks[NackRecord]) -> Nack:
        """Equal NACKs of several nodes."""
        record = replace(merged.latest, count=merged.times, first=merged.first)
        return copied(cls, record, nodes=tuple(merged.nodes[:NODES_SHOWN]), nodes_total=merged.nodes_total)


@dataclass(frozen=True, slots=True)
class NackPage:
    """A page of NACK records, newest first; with ``by=message`` open ones first, then those of the most nodes.

    * ``partial``: present if servers did not answer: their names. NACKs of their nodes are missing.
    """

    items: tuple[Nack, ...]
    next_page_token: str = ""
    partial: tuple[str, ...] = ()
