"""Connections that come at once: some are read, the others wait."""

from __future__ import annotations

import asyncio

from tests.server.conftest import until
from xds.server.rpc.doorway import Doorway


class Guest:
    """One connection, and whether it may be read."""

    def __init__(self) -> None:
        self.is_inside = True

    def wait_outside(self) -> None:
        self.is_inside = False

    def come_in(self) -> None:
        self.is_inside = True


async def test_guests_come_in_as_others_are_greeted_in_their_order() -> None:
    doorway, guests = Doorway(places=2), [Guest() for _ in range(5)]
    for guest in guests:
        doorway.enter(guest)
    assert [guest.is_inside for guest in guests] == [True, True, False, False, False]
    doorway.leave(guests[1])
    assert [guest.is_inside for guest in guests] == [True, True, True, False, False]
    doorway.leave(guests[1])
    assert not guests[3].is_inside
    for guest in guests:
        doorway.leave(guest)


async def test_who_is_gone_while_it_waits_takes_no_place() -> None:
    doorway, (first, gone, last) = Doorway(places=1), [Guest() for _ in range(3)]
    for guest in (first, gone, last):
        doorway.enter(guest)
    doorway.leave(gone)
    doorway.leave(first)
    assert last.is_inside and not gone.is_inside
    doorway.leave(last)


async def test_who_says_nothing_holds_up_nobody_for_long() -> None:
    doorway, silent, other = Doorway(places=1), Guest(), Guest()
    doorway.enter(silent)
    doorway.enter(other)
    assert not other.is_inside
    await until(lambda: other.is_inside)
    doorway.leave(other)
    await asyncio.sleep(0)
