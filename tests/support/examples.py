"""How many examples the property tests try.

`make test` tries few of them, and the same ones everywhere and always: what it tells of a change does not hang on
chance. `make soak` tries many, new ones each time.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

FIXED, SOAK = "fixed", "soak"  # the latter by --hypothesis-profile
UNSAID = 50
STEPS = 30  # of a state machine
SOAK_TIMES, SOAK_STEPS = 20, 60


def register_profiles() -> None:
    """Call before tests are imported. A failure tells how to have it again, and a slow machine is none."""
    common = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(
        FIXED, common, max_examples=UNSAID, stateful_step_count=STEPS, derandomize=True, database=None
    )
    settings.register_profile(SOAK, common, max_examples=UNSAID * SOAK_TIMES, stateful_step_count=SOAK_STEPS)
    settings.load_profile(FIXED)


def examples(count: int, in_soak: int | None = None, **others: Any) -> settings:
    """The settings of a test that tries ``count`` examples; in `make soak` so many times more, unless it says."""
    if not settings().derandomize:
        count = SOAK_TIMES * count if in_soak is None else in_soak
    return settings(max_examples=count, **others)
