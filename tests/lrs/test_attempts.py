"""How many requests clients wanted to send, by what they report."""

from __future__ import annotations

import pytest

from tests.lrs.reports import HERE, T0, THERE, Books, row, stats
from xds.lrs.figures import attempted, failed, repeats_at_most

# What Envoy 1.40 reports of 100 requests (tests/e2e/test_demand.py): issued, successes, errors, dropped; then tries.
MEASURED = {
    "max_connections": (100, 100, 0, 0, 100),
    "max_pending_requests": (3, 3, 0, 97, 100),
    "max_requests": (3, 3, 97, 97, 100),
    "max_requests while others take long": (0, 0, 100, 100, 100),
    "max_retries": (106, 0, 106, 0, 106),
    "drop_overload": (50, 50, 0, 50, 100),
    "no connection": (0, 0, 100, 0, 100),
    "no connection to half of them": (50, 50, 50, 0, 100),
    "retries": (300, 0, 300, 0, 300),
    "streams that end later": (100, 0, 0, 0, 100),
    "streams that ended": (10, 100, 0, 0, 10),
    "a client that reports no issued ones": (0, 80, 20, 0, 100),
}


@pytest.mark.parametrize("case", MEASURED)
def test_attempts_are_counted_once_whatever_kept_them_from_an_endpoint(case: str) -> None:
    *reported, tries = MEASURED[case]
    assert attempted(*reported) == tries


@pytest.mark.parametrize(
    ("reported", "repeats"),
    [((100, 100, 0), 0), ((222, 0, 222), 222), ((211, 120, 0), 91), ((100, 60, 0, 40), 0), ((150, 100, 50), 50)],
)
def test_retries_are_at_most_failed_and_unfinished_requests(reported: tuple[int, ...], repeats: int) -> None:
    assert repeats_at_most(*reported) == repeats


@pytest.mark.parametrize(
    ("reported", "repeats"),
    [
        ((3, 3, 97, 0, 97), 0),  # max_requests: the errors are the drops once more
        ((3, 3, 0, 0, 97), 0),  # max_pending_requests
        ((50, 30, 60, 0, 40), 20),  # some of the issued ones failed too
        ((50, 30, 60, 0, 0), 50),  # failed connections may be retried
    ],
)
def test_requests_that_a_circuit_breaker_drops_are_no_retries(reported: tuple[int, ...], repeats: int) -> None:
    assert repeats_at_most(*reported) == repeats


def test_the_demand_of_a_source_includes_dropped_requests() -> None:
    book = Books()
    book.open(1)
    book.open(2, locality=THERE)
    book.tell(1, 10, stats("web", row(HERE, issued=30, successes=30, errors=90), row(THERE, issued=20), dropped=90))
    book.tell(2, 10, stats("web", row(THERE, issued=20, successes=15, errors=5)))
    here, there = book.demand("", "web", T0 + 10, 10).sources
    assert (here.attempted_ps, here.rps) == (14.0, 5.0)
    assert (there.attempted_ps, there.repeats_ps) == (2.0, 0.5)


@pytest.mark.parametrize(
    ("issued", "successes", "errors", "dropped", "lost"),
    [
        (100, 100, 0, 0, 0),
        (3, 3, 0, 97, 97),
        (3, 3, 97, 97, 97),  # max_requests: the errors are the drops once more
        (0, 0, 100, 0, 100),  # no connection
        (300, 0, 300, 0, 300),
        (50, 40, 10, 50, 60),
    ],
)
def test_failed_and_dropped_tries_count_once(
    issued: float, successes: float, errors: float, dropped: float, lost: float
) -> None:
    assert failed(issued, successes, errors, dropped) == lost <= attempted(issued, successes, errors, dropped)
