"""Counters side by side in one number: of two such numbers all are added, or subtracted, at once.

A report has a million counters, and Python takes as long for one addition of small numbers as for one of twenty.
Sums must not be negative in any lane; what is added may be, as a difference of two numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

# Room for a counter of eight bytes, and for the sum of more of them than anybody can send.
_LANE = "Q4x"
_LANE_BITS = 8 * struct.calcsize(f"<{_LANE}")
_LANE_MASK = (1 << _LANE_BITS) - 1


def pack(counters: Sequence[int]) -> int:
    """Each from 0 on, below 2**64."""
    return int.from_bytes(struct.pack(f"<{_LANE * len(counters)}", *counters), "little")


def unpack(lanes: int, count: int) -> list[int]:
    """The first ``count`` counters."""
    return [lanes >> _LANE_BITS * place & _LANE_MASK for place in range(count)]
