"""The request rate limit."""

from __future__ import annotations

import pytest

from xds.server.flow.limits import RateLimit


def test_bursts_pass_and_requests_beyond_them_wait() -> None:
    limit = RateLimit(per_s=100, burst=10)
    assert [limit.reserve(0.0) for _ in range(10)] == [pytest.approx(0.0)] * 10
    assert limit.reserve(0.0) == pytest.approx(0.01)
    assert limit.reserve(0.0) == pytest.approx(0.02)


def test_quiet_time_gives_the_burst_back() -> None:
    limit = RateLimit(per_s=100, burst=10)
    for _ in range(20):
        limit.reserve(0.0)
    assert limit.reserve(10.0) == 0.0
    assert [limit.reserve(10.0) for _ in range(9)] == [pytest.approx(0.0)] * 9
    assert limit.reserve(10.0) > 0


def test_the_plain_rate_never_waits() -> None:
    limit = RateLimit(per_s=100, burst=1)
    assert max(limit.reserve(number / 100) for number in range(1000)) == pytest.approx(0.0)


def test_a_request_of_more_units_waits_longer() -> None:
    limit = RateLimit(per_s=1000, burst=100)
    assert limit.reserve(0.0, 100) == pytest.approx(0.0)
    assert limit.reserve(0.0, 500) == pytest.approx(0.5)
    assert limit.reserve(1.0, 100) == pytest.approx(0.0)
