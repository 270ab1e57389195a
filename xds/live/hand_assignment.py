"""One assignment that is set by hand: the wanted endpoints, the draining endpoints, its stored form. Pure."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from xds.codec.record import dump_record, load_record
from xds.live.assignment_edits import addresses_of
from xds.live.draining import DrainingEndpoint, still_draining, with_draining
from xds.live.owners import HAND, LEAVING, Owner
from xds.model.resource import Resource
from xds.store.etags import NO_ETAG, document_etag

_ADDRESSES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class HandAssignment:
    """An assignment that was set by hand.

    ``wanted`` is the assignment that was set; ``draining`` are endpoints that drain. ``leaving``: the assignment was
    deleted, or its binding has ended; ``wanted`` is then the pushed assignment. ``actor`` and ``author`` changed it
    last, at ``time_s`` (epoch seconds).
    """

    wanted: Resource
    draining: tuple[DrainingEndpoint, ...] = ()
    leaving: bool = False
    actor: str = ""
    author: str = ""
    time_s: float = 0.0

    def served(self) -> Resource:
        """The assignment that proxies are served."""
        return with_draining(self.wanted, self.draining)

    def owner(self) -> Owner:
        """Its owner; of kind ``LEAVING`` if it was deleted."""
        kind = LEAVING if self.leaving else HAND
        return Owner(kind, actor=self.actor or self.author, time_s=self.time_s)

    @property
    def etag(self) -> str:
        """The etag of the wanted assignment. The end of a draining endpoint does not change it."""
        return NO_ETAG if self.leaving else assignment_etag(self.wanted)

    def is_due(self, now_s: float) -> bool:
        """Whether an endpoint has drained, or the deleted assignment has no draining endpoint any more."""
        return any(one.until_s <= now_s for one in self.draining) or self.is_over

    @property
    def is_over(self) -> bool:
        """Whether it was deleted and no endpoint drains any more."""
        return self.leaving and not self.draining

    def advanced(self, now_s: float, wanted: Resource | None = None) -> HandAssignment:
        """This assignment at ``now_s``, with another ``wanted`` assignment if one is given.

        Endpoints that have drained, or that are wanted again, drain no longer.
        """
        present = wanted if wanted is not None else self.wanted
        return replace(self, wanted=present, draining=still_draining(self.draining, present, now_s))

    def is_same(self, other: HandAssignment) -> bool:
        """Whether both have the same wanted and draining endpoints."""
        return self.wanted.version == other.wanted.version and self.draining == other.draining

    def audit_summary(self) -> dict[str, Any]:
        """The assignment for the audit list: its endpoints. Costs some 10 us for each endpoint."""
        addresses = list(addresses_of(self.wanted))
        summary: dict[str, Any] = {"endpoints_n": len(addresses), "endpoints": addresses[:_ADDRESSES_SHOWN]}
        if self.draining:
            summary["draining"] = [one.address for one in self.draining][:_ADDRESSES_SHOWN]
        return summary

    def document(self) -> dict[str, Any]:
        """The stored form."""
        draining = [
            {"address": one.address, "entry": b64encode(one.entry).decode(), "until_s": one.until_s}
            for one in self.draining
        ]
        return {
            "assignment": b64encode(dump_record(self.wanted)).decode(),
            "draining": draining,
            "leaving": self.leaving,
            "actor": self.actor,
            "author": self.author,
            "time_s": self.time_s,
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> HandAssignment:
        """The assignment of a stored document. Raises ``ValueError``, ``KeyError``, ``TypeError``."""
        draining = tuple(
            DrainingEndpoint(str(one["address"]), b64decode(one["entry"]), float(one["until_s"]))
            for one in document["draining"]
        )
        wanted = load_record(b64decode(document["assignment"]))
        return cls(
            wanted,
            draining,
            bool(document["leaving"]),
            str(document["actor"]),
            str(document["author"]),
            float(document["time_s"]),
        )


def assignment_etag(wanted: Resource) -> str:
    """The etag of an assignment."""
    return document_etag("e", {"version": wanted.version})
