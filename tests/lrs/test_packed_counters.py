"""Counters side by side in one integer: `xds.lrs.packed_counters`."""

from __future__ import annotations

from xds.lrs.packed_counters import pack, shift_lanes, unpack, unpack_traffic


def test_lanes_are_added_and_subtracted_side_by_side() -> None:
    most = (1 << 64) - 1
    one, other = pack(1, most, 0), pack(2, most, 5)
    assert unpack(one + other, 3) == [3, 2 * most, 5]
    assert unpack_traffic(one + other) == (3, 2 * most, 5)
    assert unpack(one + other - one, 3) == unpack_traffic(other) == (2, most, 5)
    assert unpack(one + shift_lanes(7, 3), 4) == (1, most, 0, 7)
    assert pack() == 0
