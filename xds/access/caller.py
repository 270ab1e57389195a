"""Who asks for a write, as revisions, events and the audit list name it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import structlog

from xds.store.audit_entries import VALUE_LIMIT, AuditNote
from xds.store.base import Meta


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a write. ``actor`` is authenticated; ``author`` is what the client claims; ``peer`` its address."""

    actor: str = ""
    author: str = ""
    peer: str = ""

    def meta(self, message: str = "") -> Meta:
        """The caller as the metadata of a revision."""
        return Meta(self.author, message, actor=self.actor)

    def names(self) -> dict[str, str]:
        """Actor and author, as far as they are known, for the details of events."""
        return {name: value for name, value in (("actor", self.actor), ("author", self.author)) if value}

    def note(
        self,
        action: str,
        *,
        group: str = "",
        subject: str = "",
        message: str = "",
        old: object = None,
        new: object = None,
    ) -> AuditNote:
        """A note for the audit list. ``old`` and ``new`` are JSON values; None: not given."""
        return AuditNote(
            action,
            self.actor,
            self.author,
            self.peer,
            group,
            subject,
            message,
            _json(old),
            _json(new),
            request_id=str(structlog.contextvars.get_contextvars().get("request_id", "")),
            time_s=time.time(),
        )


SERVER = "server"  # the actor of pushes that the server makes itself, from a watched directory
UNKNOWN_CALLER = Caller()


def _json(value: object) -> str:
    """The JSON of a value; its size in place of a value that is too long. Empty for None."""
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_LIMIT else json.dumps({"omitted": f"{len(text)} characters"})
