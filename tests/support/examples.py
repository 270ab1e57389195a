"""The number of examples in property tests.

`make test` tries few examples, and always the same ones, so that its result does not depend on chance. `make soak`
tries many new ones each time.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

FIXED, SOAK = "fixed", "soak"  # the latter by --hypothesis-profile
UNSAID = 50  # the count of a test that says none
FEWEST = 5
STEPS = 30  # of a state machine
SOAK_TIMES, SOAK_STEPS = 5, 60


def register_profiles() -> None:
    """Set the profile; call this before tests are imported.

    A failure prints how to reproduce it. A slow machine is not a failure.
    """
    common = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(
        FIXED, common, max_examples=_fixed(UNSAID), stateful_step_count=STEPS, derandomize=True, database=None
    )
    settings.register_profile(SOAK, common, max_examples=UNSAID * SOAK_TIMES, stateful_step_count=SOAK_STEPS)
    settings.load_profile(FIXED)


def examples(count: int, in_soak: int | None = None, **others: Any) -> settings:
    """The settings of a test with ``count`` examples.

    `make test` tries a third of them, and `make soak` multiplies them, unless the test sets its own number.
    """
    if settings().derandomize:
        return settings(max_examples=_fixed(count), **others)
    return settings(max_examples=SOAK_TIMES * count if in_soak is None else in_soak, **others)


def _fixed(count: int) -> int:
    """What is tried the same way each time finds what broke; more of it finds little more."""
    return max(count // 3, min(count, FEWEST))
