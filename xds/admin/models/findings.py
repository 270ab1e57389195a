"""Findings: errors and warnings about what was sent to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied

if TYPE_CHECKING:
    from xds.model.errors import Violation

# Every legal name fits, and an answer does not return megabytes of what was pushed.
TEXT_LIMIT = 5_000
_CUT = ("resource", "pointer", "source", "detail", "hint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An error or a warning.

    * ``code``: the kind of finding, for programs;
    * ``severity``: ``error`` or ``warning``;
    * ``resource``: the resource as ``alias/name``; ``resources[3]`` where it has no name; empty for none;
    * ``pointer``: the JSON pointer of the place, within the resource or the document;
    * ``source``: ``FILE:LINE:COLUMN`` where they are known, else empty;
    * ``hint``: how to correct it; may be empty;
    * ``index``: the position among the pushed resources; -1 if it is about none of them.
    """

    schema_name: ClassVar[str] = "FindingItem"

    code: str
    severity: str
    resource: str
    pointer: str
    source: str
    detail: str
    hint: str
    index: int

    @classmethod
    def from_domain(cls, violation: Violation) -> Finding:
        """A finding; long texts are cut."""
        return copied(cls, violation, **{name: shorten(getattr(violation, name)) for name in _CUT})

    def __str__(self) -> str:
        place = " ".join(part for part in (self.source, self.resource, self.pointer) if part)
        text = f"{self.detail}; {self.hint}" if self.hint else self.detail
        return f"{place}: {text}" if place else text


def shorten(text: str) -> str:
    """A text, cut at the limit."""
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "..."
