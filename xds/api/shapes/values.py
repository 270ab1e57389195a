"""Values that several answers contain: times, localities, findings."""

from __future__ import annotations

from datetime import UTC, datetime

from typing_extensions import TypedDict


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class FindingItem(TypedDict):
    """An error or a warning; ``index`` is the position among the pushed resources, -1 if it concerns none of them."""

    code: str
    severity: str
    resource: str
    pointer: str
    source: str
    detail: str
    hint: str
    index: int


class LocalityItem(TypedDict):
    """Region, zone and sub-zone."""

    region: str
    zone: str
    sub_zone: str
