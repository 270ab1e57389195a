"""Weights of splits: percentages in steps of 0.01, held as basis points (0 to 10,000) so that sums are exact."""

from __future__ import annotations

import math
import struct

WHOLE = 10_000  # basis points
BASIS_POINTS = 100  # of one percent


def basis_points(percent: float) -> int:
    """The percentage rounded to 0.01, halves away from zero, in the single precision that Consul uses."""
    scaled = _single(_single(percent) * BASIS_POINTS)
    return math.floor(scaled + 0.5) if scaled >= 0 else -math.floor(-scaled + 0.5)


def percent(points: int) -> int | float:
    """The percentage as it is printed: ``33.33``, and ``50`` rather than ``50.0``."""
    whole, rest = divmod(points, BASIS_POINTS)
    return points / BASIS_POINTS if rest else whole


def product(outer: int, inner: int) -> int:
    """The weight of a leg within a leg, both in basis points, halves rounded up."""
    return (outer * inner * 2 + WHOLE) // (2 * WHOLE)


def _single(value: float) -> float:
    """The nearest number of single precision."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)
