"""Counters side by side in one number: of two such numbers all are added, or subtracted, at once.

A report has a million counters, and Python takes as long for one addition of small numbers as for one of twenty.
Sums must not be negative in any lane; what is added may be, as a difference of two numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

# A counter of eight bytes, and room for the sum of more of them than anybody can send.
_LANE = "QI"
_LANE_BYTES = struct.calcsize(f"<{_LANE}")
_LANE_BITS = 8 * _LANE_BYTES


def pack(counters: Sequence[int]) -> int:
    """Each from 0 on, below 2**64."""
    return int.from_bytes(struct.pack(f"<{'Q4x' * len(counters)}", *counters), "little")


def shifted(lanes: int, places: int) -> int:
    """The same counters, behind so many others: the sum with those is all of them."""
    return lanes << _LANE_BITS * places


def unpack(lanes: int, count: int) -> Sequence[int]:
    """All counters, of which there are ``count``."""
    parts = struct.unpack(f"<{_LANE * count}", lanes.to_bytes(_LANE_BYTES * count, "little"))
    low, high = parts[::2], parts[1::2]
    return [one + (more << 64) for one, more in zip(low, high, strict=True)] if any(high) else low
