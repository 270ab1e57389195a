"""Quantities as Consul writes them: durations (``1m30s``, ``250ms``), in nanoseconds here, and the weights of splits.

Weights are percentages in steps of 0.01. They are basis points here (0 to 10,000), so that sums are exact.
"""

from __future__ import annotations

import math
import re
import struct

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
# The range of Go's time.Duration: 64 bits with sign.
LIMIT_NS = 2**63 - 1

_UNIT_NS = {
    "ns": 1,
    "us": MICROSECOND_NS,
    "\u00b5s": MICROSECOND_NS,  # the micro sign
    "\u03bcs": MICROSECOND_NS,  # the Greek letter
    "ms": MILLISECOND_NS,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": HOUR_NS,
}
_PART = re.compile(r"([0-9]{1,20})(?:\.([0-9]{0,40}))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)|\.([0-9]{1,40})(ns|us|ms|s|m|h)")
_TEXT_LIMIT = 200  # characters

WHOLE = 10_000  # basis points
BASIS_POINTS = 100  # of one percent


def parse_duration(text: str) -> int:
    """The nanoseconds of a Go duration; fractions of a nanosecond are cut off. Raises ``ValueError``."""
    sign, rest = (-1 if text[:1] == "-" else 1), text[text[:1] in ("-", "+") :]
    if rest == "0":
        return 0
    if not rest or len(rest) > _TEXT_LIMIT:
        raise ValueError("not a duration")
    total, at = 0, 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None:
            raise ValueError("not a duration")
        total += _part_ns(match)
        at = match.end()
    if total > LIMIT_NS:
        raise ValueError("a duration of more than 292 years")
    return sign * total


def _part_ns(match: re.Match[str]) -> int:
    whole, fraction = str(match[1] or "0"), str(match[2] or match[4] or "")
    unit = _UNIT_NS[match[3] or match[5]]
    return int(whole) * unit + int(fraction or 0) * unit // int(10 ** len(fraction))


def duration_text(value_ns: int) -> str:
    """The duration as Go prints it: ``5s``, ``1m30s``, ``1.5ms``, ``0s``."""
    sign, magnitude = ("-" if value_ns < 0 else ""), abs(value_ns)
    if magnitude == 0:
        return "0s"
    if magnitude < MICROSECOND_NS:
        return f"{sign}{magnitude}ns"
    if magnitude < MILLISECOND_NS:
        return f"{sign}{_decimal(magnitude, MICROSECOND_NS)}\u00b5s"
    if magnitude < SECOND_NS:
        return f"{sign}{_decimal(magnitude, MILLISECOND_NS)}ms"
    minutes, rest = divmod(magnitude, MINUTE_NS)
    hours, minutes = divmod(minutes, 60)
    before = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{before}{_decimal(rest, SECOND_NS)}s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{str(rest).zfill(digits).rstrip('0')}"


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
