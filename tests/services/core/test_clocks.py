"""Clocks of TTL checks."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from xds.services.core.clocks import SPARE, Clocks

LONGEST_S = 3.0
MANY = 1_000


def clocks(now: float = 100.0) -> Clocks[str]:
    return Clocks(LONGEST_S, now)


def test_a_clock_ends_once_and_not_before_its_time() -> None:
    found = clocks()
    found.begin("a", 2.0, 100.0)
    assert found.take_ended(101.9, MANY) == []
    assert found.take_ended(102.0, MANY) == ["a"]
    assert found.take_ended(104.0, MANY) == []
    assert found.ends_at("a") is None


def test_a_restarted_clock_ends_later_and_a_shorter_one_sooner() -> None:
    found = clocks()
    found.begin("a", 2.0, 100.0)
    found.begin("a", 2.0, 101.5)
    assert found.take_ended(103.4, MANY) == []
    found.begin("a", 0.5, 103.4)
    assert found.take_ended(103.9, MANY) == ["a"]


def test_a_stopped_clock_never_ends() -> None:
    found = clocks()
    found.begin("a", 1.0, 100.0)
    found.stop("a")
    assert found.take_ended(102.0, MANY) == []
    found.begin("a", 5.0, 102.0)
    assert found.take_ended(105.0, MANY) == []  # the first entry does not end it
    assert found.take_ended(107.0, MANY) == ["a"]


def test_clocks_stand_still_while_the_process_does_not_run() -> None:
    found = clocks()
    found.begin("a", 10.0, 100.0)
    assert found.take_ended(102.0, MANY) == []
    assert found.take_ended(3_702.0, MANY) == []  # an hour in which nobody could be heard
    assert found.lost_s == 3_600.0
    assert found.take_ended(3_704.0, MANY) == []
    assert found.take_ended(3_706.0, MANY) == []
    assert found.take_ended(3_708.0, MANY) == []
    assert found.take_ended(3_710.0, MANY) == ["a"]


def test_a_check_heard_first_after_a_standstill_gets_its_ttl_and_no_more() -> None:
    """The clock of the check that is heard before the next tick must not stand still for the time before."""
    found = clocks()
    found.begin("a", 2.0, 100.0)
    found.begin("a", 2.0, 3_700.0)
    assert found.ends_at("a") == 3_702.0
    assert found.take_ended(3_702.0, MANY) == ["a"]


def test_a_clock_that_is_set_back_lets_nothing_live_longer() -> None:
    found = clocks(100_000.0)
    found.begin("a", 2.0, 100_000.0)
    assert found.take_ended(50_000.0, MANY) == []
    assert found.take_ended(50_002.0, MANY) == ["a"]


def test_many_that_end_at_once_are_taken_in_parts() -> None:
    found = clocks()
    for number in range(25):
        found.begin(str(number), 1.0, 100.0)
    taken = [found.take_ended(102.0, 10) for _ in range(4)]
    assert [len(each) for each in taken] == [10, 10, 5, 0]
    assert {key for each in taken for key in each} == {str(number) for number in range(25)}


def test_heartbeats_take_no_memory() -> None:
    found = clocks()
    for beat in range(200):
        for key in range(100):
            # sooner and later ones: each that is sooner is entered anew
            found.begin(str(key), 1_000.0 - beat if beat % 2 else 2_000.0 + beat, 100.0)
    assert len(found._heap) <= 2 * 100 + SPARE


@given(st.integers(0, 2**32))
def test_clocks_end_as_a_plain_list_of_deadlines_says(seed: int) -> None:
    """Times are halves, so sums are exact."""
    chance, found, plain = random.Random(seed), clocks(0.0), dict[str, float]()
    now = 0.0
    for _ in range(200):
        passed = chance.choice((0.0, 0.5, 1.0, LONGEST_S, 50.0))
        now += passed
        if passed > LONGEST_S:
            plain = {key: due + passed for key, due in plain.items()}
        key, span_s = chance.choice("abcdefgh"), chance.choice((0.5, 1.0, 7.0))
        if chance.random() < 0.5:
            found.begin(key, span_s, now)
            plain[key] = now + span_s
            continue
        ended = {each for each, due in plain.items() if due <= now}
        assert set(found.take_ended(now, MANY)) == ended
        for each in ended:
            del plain[each]
        found.stop(key)
        plain.pop(key, None)
