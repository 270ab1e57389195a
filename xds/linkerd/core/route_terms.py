"""Conversions that routes of chains and of RouteConfigurations share, in the terms of a profile.

A profile matches paths by regular expressions over the whole path, and methods; nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xds.linkerd.core.profile import ProfileRoute, StatusRange, WeightedAuthority

_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~")
ROUTES_LIMIT = 1_000
SKIPPED_LIMIT = 100


@dataclass(frozen=True, slots=True)
class ProfileRules:
    """The routes and overrides of a destination. ``skipped`` lists inexpressible parts, with reasons."""

    routes: tuple[ProfileRoute, ...] = ()
    overrides: tuple[WeightedAuthority, ...] = ()
    skipped: tuple[str, ...] = ()


def escaped(text: str) -> str:
    """A regular expression that matches exactly this text, in the syntax of the client (Rust's regex)."""
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in text)


def path_regex(kind: str, text: str, ignores_case: bool) -> str:
    """The regular expression of a path. ``kind``: ``exact``, ``prefix``, ``separated_prefix`` or ``regex``."""
    patterns = {"exact": "{}", "prefix": "{}.*", "separated_prefix": "{}(/.*)?"}
    regex = text if kind == "regex" else patterns[kind].format(escaped(text))
    return f"(?i){regex}" if ignores_case else regex


# The conditions of retries that are about statuses; ``retriable-status-codes`` are given as numbers.
_CONDITIONS: dict[str, tuple[StatusRange, ...]] = {
    "5xx": ((500, 599),),
    "gateway-error": ((502, 504),),
    "retriable-4xx": ((409, 409),),
    "retriable-status-codes": (),
}


def status_ranges(conditions: Iterable[str], codes: Iterable[int]) -> tuple[tuple[StatusRange, ...], tuple[str, ...]]:
    """The statuses that are retried, and the conditions that are not about statuses, which Linkerd cannot express.

    These are failed connections, resets, gRPC's codes, headers and rate limits. A request with such a condition alone
    may be repeated only before an upstream had it, so it is never repeated here.
    """
    given = tuple(conditions)
    ranges = [span for each in given for span in _CONDITIONS.get(each, ())]
    ranges += [(code, code) for code in sorted(set(codes)) if 100 <= code <= 599]
    return _merge_ranges(ranges), tuple(dict.fromkeys(each for each in given if each not in _CONDITIONS))


def _merge_ranges(spans: Iterable[StatusRange]) -> tuple[StatusRange, ...]:
    merged: list[StatusRange] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)
