"""Counters side by side in one integer, each in a lane of 96 bits.

A fleet reports a million counters in an interval. Python adds two integers of twenty digits as fast as two small ones,
so all counters of a row are added at once: 30 ns for three counters, instead of 57 ns one by one. No lane of a sum may
be negative.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_LANE = "QI"  # a counter of 8 bytes, and 4 bytes for the carries of a sum
_LANE_BYTES = struct.calcsize(f"<{_LANE}")
_LANE_BITS = 8 * _LANE_BYTES
TRAFFIC_LANES = 3  # successes, errors, issued requests
_TRAFFIC = struct.Struct(f"<{_LANE * TRAFFIC_LANES}")


def pack(*counters: int) -> int:
    """Pack counters from 0 to 2**64 - 1 into one integer, the first in the lowest lane."""
    packed = 0
    for counter in reversed(counters):
        packed = packed << _LANE_BITS | counter
    return packed


def shift_lanes(packed: int, lanes: int) -> int:
    """Move packed counters up by this many lanes, which leaves room for others below."""
    return packed << _LANE_BITS * lanes


def unpack(packed: int, count: int) -> Sequence[int]:
    """The ``count`` counters of a packed integer."""
    parts = struct.unpack(f"<{_LANE * count}", packed.to_bytes(_LANE_BYTES * count, "little"))
    low, high = parts[::2], parts[1::2]
    return [one + (more << 64) for one, more in zip(low, high, strict=True)] if any(high) else low


def unpack_traffic(packed: int) -> tuple[int, int, int]:
    """Successes, errors and issued requests, as `unpack` with three lanes."""
    one, one_more, two, two_more, three, three_more = _TRAFFIC.unpack(packed.to_bytes(_TRAFFIC.size, "little"))
    return one + (one_more << 64), two + (two_more << 64), three + (three_more << 64)
