"""Values that several answers contain: times, localities, findings."""

from __future__ import annotations

from datetime import UTC, datetime

from typing_extensions import TypedDict

from xds.model.node import Locality


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class FindingItem(TypedDict):
    """An error or a warning.

    * ``code``: the kind of finding, for programs;
    * ``severity``: ``error`` or ``warning``;
    * ``resource``: the resource as ``alias/name``; ``resources[3]`` where it has no name; empty for none;
    * ``pointer``: the JSON pointer of the place, within the resource or the document;
    * ``source``: ``FILE:LINE:COLUMN`` where they are known, else empty;
    * ``hint``: how to correct it; may be empty;
    * ``index``: the position among the pushed resources; -1 if it is about none of them.
    """

    code: str
    severity: str
    resource: str
    pointer: str
    source: str
    detail: str
    hint: str
    index: int


class LocalityItem(TypedDict):
    """A locality. Parts that are not set are empty.

    * ``region``: the region;
    * ``zone``: the zone;
    * ``sub_zone``: the part of the zone.
    """

    region: str
    zone: str
    sub_zone: str


def locality_item(locality: Locality) -> LocalityItem:
    """A locality as JSON."""
    return {"region": locality.region, "zone": locality.zone, "sub_zone": locality.sub_zone}
