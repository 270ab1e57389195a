"""Values of flags that are written in a form of their own."""

from __future__ import annotations

import re

from xds.cli.failure import CommandError, Exit

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds of ``30``, ``500ms``, ``60s``, ``2m``. Raises ``CommandError``."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise CommandError(Exit.USAGE, f"not a duration: {text!r} (such as 500ms, 60s, 2m)")
    return float(found[1]) * _UNIT_S[found[2] or "s"]


def parse_percent(text: str) -> float:
    """``90%`` or ``90`` as a number above 0 and up to 100. Raises ``CommandError``."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise CommandError(Exit.USAGE, f"not a percentage: {text!r} (such as 90%)")
    return percent


def given(**filters: str) -> dict[str, str]:
    """The filters that are set."""
    return {name: value for name, value in filters.items() if value}
