"""Units of time and size, for text that people write and for limits."""

from __future__ import annotations

from collections.abc import Mapping

KIB = 1 << 10
MIB = 1 << 20
# Seconds per unit of time. Each parser chooses the units that it accepts.
UNIT_S: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SHOWN = ("d", "h", "m", "s")


def span_text(seconds: float) -> str:
    """A span of time in its largest unit, rounded down: ``3d``, ``15m``, ``0s``."""
    return next((f"{int(seconds // UNIT_S[unit])}{unit}" for unit in _SHOWN if seconds >= UNIT_S[unit]), "0s")
