"""Values that several answers contain: times and localities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from xds.model.node import Locality

Document = Mapping[str, Any]  # JSON of another API: a resource, a config entry


def time_of(seconds: float) -> datetime:
    """The time of epoch seconds, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def time_text(time: datetime) -> str:
    """RFC 3339 in UTC, milliseconds."""
    in_utc = time if time.tzinfo is UTC else time.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class NodeLocality:
    """A locality. Parts that are not set are empty.

    * ``region``: the region;
    * ``zone``: the zone;
    * ``sub_zone``: the part of the zone.
    """

    schema_name: ClassVar[str] = "LocalityItem"

    region: str
    zone: str
    sub_zone: str

    @classmethod
    def from_domain(cls, locality: Locality) -> NodeLocality:
        """The locality of a node or of endpoints."""
        return cls(locality.region, locality.zone, locality.sub_zone)

    def __str__(self) -> str:
        return "/".join(filter(None, (self.region, self.zone, self.sub_zone)))
