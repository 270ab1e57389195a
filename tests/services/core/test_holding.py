"""What one source has shown of a service: what is kept of a loss, what came after it, and what drains."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.core.service_world import instance
from xds.model.drains import DRAINING_LIMIT
from xds.services.core import holding_record
from xds.services.core.draining import InstanceDrains, ObservedInstance, socket_address
from xds.services.core.holding import HoldRule, ServiceHolding
from xds.services.core.holding_record import HoldingEncoder, decoded
from xds.services.core.instance import Health, Instance

RULE = HoldRule(0.5, 10.0, 15.0)


def shown(*numbers: int, health: Health = Health.PASSING) -> dict[str, Instance]:
    return {one.id: one for one in (instance(number, health) for number in numbers)}


def holding(*numbers: int) -> ServiceHolding:
    found = ServiceHolding()
    found.put(shown(*numbers), 100.0, RULE)
    return found


def draining(found: ServiceHolding) -> list[str]:
    return sorted(one.instance.id for _, one, _ in found.draining)


def restarted(found: ServiceHolding) -> ServiceHolding:
    return decoded(HoldingEncoder().encoded("", found))


def test_the_texts_of_large_services_are_kept_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, made = holding_record._observed_json, list[str]()

    def counted(seen: ObservedInstance) -> dict[str, Any]:
        made.append(seen.instance.id)
        return encode(seen)

    monkeypatch.setattr(holding_record, "_observed_json", counted)
    encoder, services = HoldingEncoder(cached_from=2, limit=6), {name: holding(1, 2) for name in "abcd"}
    for _ in range(5):
        for name in "abc":
            encoder.encoded(name, services[name])
    assert len(made) == 6, "all three are remembered, however often they are stored"
    encoder.encoded("d", services["d"])
    encoder.encoded("a", services["a"])
    assert len(made) == 10, "the fourth took the place of the one that was stored first"


@pytest.mark.parametrize("restarts", [False, True])
def test_an_instance_that_came_after_a_held_loss_drains_when_it_goes(restarts: bool) -> None:
    """Only the last good set is kept: what came later is not part of the loss, and is not served once it is gone."""
    found = holding(*range(1, 7))
    found.put(shown(1), 101.0, RULE)
    lost = ["i2", "i3", "i4", "i5", "i6"]
    assert (sorted(found.lost), found.good_n, found.late) == (lost, 6, [])
    found.put(shown(1, 7), 102.0, RULE)
    assert found.late == ["i7"]
    if restarts:
        found = restarted(found)
        assert found.late == ["i7"]
    found.put(shown(1), 103.0, RULE)
    assert sorted(found.lost) == lost
    assert draining(found) == ["i7"]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_instance_of_the_last_good_set_that_goes_later_is_kept_too(restarts: bool) -> None:
    found = holding(1, 2, 3, 4)
    found.put(shown(1), 101.0, RULE)
    found = restarted(found) if restarts else found
    found.put({}, 130.0, RULE)
    assert sorted(found.lost) == ["i1", "i2", "i3", "i4"]
    assert draining(found) == []


def test_a_second_loss_within_the_window_counts_from_the_first() -> None:
    """Half of half goes step by step: each is no more than the share, together they are."""
    found = holding(*range(1, 9))
    found.put(shown(1, 2, 3, 4), 101.0, RULE)
    assert not found.is_held
    found.put(shown(1, 2, 3), 111.0, RULE)
    assert found.is_held and sorted(found.lost) == ["i4"]


def test_a_second_loss_after_the_window_counts_by_itself() -> None:
    found = holding(*range(1, 9))
    found.put(shown(1, 2, 3, 4), 101.0, RULE)
    found.put(shown(1, 2, 3), 111.1, RULE)
    assert not found.is_held


def test_the_window_begins_with_the_first_loss() -> None:
    found = holding(*range(1, 13))
    found.put(shown(*range(1, 11)), 101.0, RULE)
    found.put(shown(*range(1, 9)), 108.0, RULE)
    found.put(shown(*range(1, 6)), 112.0, RULE)
    assert not found.is_held, "of the eight since the window of the first loss ended, five are left"


def test_a_held_loss_that_came_back_whole_is_no_loss_that_later_ones_are_compared_with() -> None:
    found = holding(1)
    found.put({}, 101.0, RULE)
    assert found.is_held
    found.put(shown(*range(1, 8)), 101.0, RULE)
    found.put(shown(*range(1, 7)), 102.0, RULE)
    found.put(shown(1, 2, 5), 103.0, RULE)
    assert found.is_held, "three of seven are left"


def test_a_change_after_losses_that_were_not_held_holds_nothing() -> None:
    found = holding(*range(1, 9))
    found.put(shown(1, 2, 3, 4), 101.0, RULE)
    found.put(shown(1, 2, 3, 4, health=Health.CRITICAL), 102.0, HoldRule(0.3))
    assert not found.is_held
    assert (found.good_n, found.held_since, found.late) == (0, 0.0, [])


def test_an_instance_that_is_shown_again_drains_no_more() -> None:
    found = holding(1, 2, 3)
    found.put(shown(1, 2), 101.0, RULE)
    assert draining(found) == ["i3"]
    found.put(shown(1, 2, 3), 102.0, RULE)
    assert draining(found) == []
    assert found.draining.next_end is None


def test_a_place_that_another_instance_has_does_not_drain_when_the_loss_is_accepted() -> None:
    found = holding(*range(1, 7))
    found.put(shown(1), 101.0, RULE)
    moved_in = instance(9, host=2)
    found.put({**shown(1), moved_in.id: moved_in}, 102.0, RULE)
    assert found.accept(103.0, RULE) == 5
    assert draining(found) == ["i3", "i4", "i5", "i6"]


def test_a_loss_that_was_accepted_is_the_start_of_the_next_comparison() -> None:
    found = holding(1, 2, 3, 4)
    found.put(shown(1, 2, 3), 101.0, RULE)
    found.put(shown(1), 102.0, RULE)
    assert found.is_held
    found.accept(103.0, RULE)
    found.put({}, 104.0, HoldRule(1.0))
    found.put(shown(1, 2), 105.0, RULE)
    found.put(shown(1), 106.0, RULE)
    assert not found.is_held, "one of two is no more than the share"


def test_an_instance_keeps_its_age_through_a_held_loss() -> None:
    found = holding(1, 2, 3, 4)
    found.put(shown(1), 101.0, RULE)
    found.put(shown(1, 2, 3, 4), 102.0, RULE)
    assert not found.is_held
    assert {seen.since for seen in found.present.values()} == {100.0}
    assert found.present["i2"].changed_at == 102.0


def test_an_instance_that_moves_drains_at_its_old_place() -> None:
    found = holding(1, 2, 3, 4)
    moved = instance(4, host=7)
    found.put({**shown(1, 2, 3), moved.id: moved}, 101.0, RULE)
    assert [one.instance.address for _, one, _ in found.draining] == ["10.0.0.4"]


def test_a_kept_instance_that_comes_back_elsewhere_drains_at_its_old_place() -> None:
    found = holding(*range(1, 7))
    found.put(shown(1), 101.0, RULE)
    moved = instance(4, host=9)
    found.put({**shown(1), moved.id: moved}, 102.0, RULE)
    assert sorted(found.lost) == ["i2", "i3", "i5", "i6"]
    assert [one.instance.address for _, one, _ in found.draining] == ["10.0.0.4"]


def test_an_instance_shown_as_draining_has_drained_for_that_time() -> None:
    found = holding(1, 2, 3)
    found.put({**shown(1, 2), **shown(3, health=Health.DRAINING)}, 101.0, RULE)
    found.put({**shown(1, 2), **shown(3, health=Health.DRAINING)}, 105.0, RULE)
    found.put(shown(1, 2), 109.0, RULE)
    ((_, _, until),) = found.draining
    assert until == 116.0
    found.put({**shown(1), **shown(2, health=Health.DRAINING)}, 120.0, RULE)
    found.put(shown(1), 135.0, RULE)
    assert draining(found) == ["i3"], "its time was over when it went; that of i3 is ended by the index"


def test_of_too_many_draining_instances_the_oldest_are_removed_at_once() -> None:
    made = InstanceDrains()
    for number in range(DRAINING_LIMIT + 2):
        one = Instance(f"i{number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 80)
        made.begin(socket_address(one), ObservedInstance(one, 0.0, 0.0), 10.0 + number)
    assert len(made) == DRAINING_LIMIT
    assert made.next_end == 12.0
    again = next(iter(made))
    made.begin(*again)
    assert list(made)[-1] == again, "it is the latest now"
    assert made.end(12.0) and made.next_end == 13.0
