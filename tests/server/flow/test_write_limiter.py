"""Bytes in flight: bounded, in order, and nobody waits for clients that do not read."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.examples import examples
from xds.server.flow.limits import DEFAULT_FLOW
from xds.server.flow.write_limiter import LargeWrite, WriteLanes

LIMIT = 400  # 300 in the fast lane, 100 in the slow one


class Account:
    """A write limiter with its clock, and the results of its writes."""

    def __init__(self) -> None:
        self.lanes = WriteLanes(LIMIT)
        self.now = 0.0
        self.started: list[LargeWrite] = []

    def write(self, size: int, client: str = "") -> LargeWrite:
        found = LargeWrite(client or f"client-{id(object())}", "peer", size, lambda: self.started.append(found))
        if self.lanes.begin(found, self.now):
            self.started.append(found)
        return found

    def finish(self, write: LargeWrite) -> None:
        self.lanes.end(write, self.now, done=True)

    def look(self, after_s: float) -> list[LargeWrite]:
        self.now += after_s
        return self.lanes.rebalance(self.now)


def test_writes_within_the_bound_start_at_once() -> None:
    account = Account()
    writes = [account.write(100) for _ in range(3)]
    assert account.started == writes
    assert account.lanes.used_bytes == 300
    assert account.lanes.waits == 0


def test_those_beyond_the_bound_start_in_order_as_room_comes() -> None:
    account = Account()
    first, second, *waiting = [account.write(100) for _ in range(6)]
    assert account.lanes.waiting_n == 3
    account.finish(second)
    assert account.started[-1] is waiting[1]
    account.finish(first)
    assert account.started[-1] is waiting[2]
    assert account.lanes.used_bytes == 300


def test_a_small_one_does_not_pass_a_large_one_that_waits() -> None:
    account = Account()
    first = account.write(200)
    large, small = account.write(200), account.write(50)
    assert account.started == [first]
    account.finish(first)
    assert account.started == [first, large, small]


def test_one_larger_than_the_bound_goes_alone() -> None:
    account = Account()
    first = account.write(10)
    large, behind = account.write(1000), account.write(10)
    account.finish(first)
    assert account.started == [first, large]
    account.finish(large)
    assert account.started == [first, large, behind]


def test_one_that_is_given_up_while_it_waits_holds_up_nobody() -> None:
    account = Account()
    first, given_up, behind = account.write(300), account.write(300), account.write(100)
    account.lanes.end(given_up, account.now, done=False)
    account.finish(first)
    assert account.started == [first, behind]
    assert account.lanes.used_bytes == 100


def test_slow_writes_are_ended_when_others_wait() -> None:
    account = Account()
    slow = account.write(100)
    account.write(200)
    account.now += DEFAULT_FLOW.slow_write_s
    waiting = account.write(100)
    assert account.look(0) == []
    assert account.started[-1] is waiting
    assert account.lanes.slow_n == 1
    account.finish(slow)
    assert account.lanes.slow_n == 0


def test_a_slow_client_waits_for_other_slow_ones_until_it_takes_something_promptly() -> None:
    account = Account()
    slow = [account.write(100, "a"), account.write(100, "b"), account.write(100, "c")]
    waiting = account.write(100)
    account.look(DEFAULT_FLOW.slow_write_s)
    assert account.started[-1] is waiting
    again = account.write(100, "a")
    assert account.started[-1] is not again
    for write in slow:
        account.finish(write)
    assert account.started[-1] is again
    account.finish(again)
    account.write(100, "b")
    account.write(100, "a")
    assert account.lanes.slow_n == 1  # b alone: a is no longer slow


def test_when_slow_ones_fill_both_lanes_the_oldest_are_cut_off() -> None:
    account = Account()
    oldest = account.write(100)
    others = [account.write(100) for _ in range(2)]
    waiting = [account.write(100) for _ in range(4)]
    cut = account.look(DEFAULT_FLOW.slow_write_s)
    assert cut == [oldest, others[0]]  # the third gets the slow lane's room as soon as they are gone
    assert account.look(0) == []  # the room of those cut already is counted
    for write in cut:
        account.lanes.end(write, account.now, done=False)
    account.look(0)
    assert account.started[-3:] == waiting[:3]
    assert account.lanes.terminated == 2


def test_no_write_is_ended_while_no_other_waits() -> None:
    account = Account()
    for _ in range(3):
        account.write(100)
    assert account.look(DEFAULT_FLOW.slow_write_timeout_s) == []


def test_one_whose_cut_came_to_nothing_is_cut_again() -> None:
    account = Account()
    stuck = account.write(150)
    account.write(100)
    account.write(300)
    assert account.look(DEFAULT_FLOW.slow_write_s) == [stuck]
    assert account.look(0) == []
    assert account.look(DEFAULT_FLOW.slow_write_s) == [stuck]


def test_known_slow_clients_get_time_before_they_are_cut_for_each_other() -> None:
    account = Account()
    for name in ("a", "b"):
        account.write(100, name)
    blocked = account.write(200)
    account.look(DEFAULT_FLOW.slow_write_s)
    for write in [*account.started]:
        account.finish(write)
    assert blocked in account.started
    account.lanes.end(account.write(1, "z"), account.now, done=True)
    first = account.write(100, "a")
    second = account.write(100, "b")
    assert account.lanes.slow_n == 2
    assert account.look(DEFAULT_FLOW.slow_write_s) == []
    assert account.look(DEFAULT_FLOW.slow_write_timeout_s) == [first]
    account.lanes.end(first, account.now, done=False)
    assert account.started[-1] is second


class Machine(RuleBasedStateMachine):
    """Any sequence of events keeps the bound, the order and the sums."""

    def __init__(self) -> None:
        super().__init__()
        self.account = Account()
        self.open: list[LargeWrite] = []
        self.cut: list[LargeWrite] = []

    @property
    def waiting(self) -> list[LargeWrite]:
        return [write for write in self.open if write not in self.account.started]

    @property
    def under_way(self) -> list[LargeWrite]:
        return [write for write in self.open if write in self.account.started]

    @rule(size=st.integers(1, 500), client=st.integers(0, 20))
    def enter(self, size: int, client: int) -> None:
        self.open.append(self.account.write(size, f"client-{client}"))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), done=st.booleans())
    def leave(self, data: st.DataObject, done: bool) -> None:
        write = data.draw(st.sampled_from(self.open))
        self.open.remove(write)
        self.account.lanes.end(write, self.account.now, done and write in self.account.started)

    @rule(after_s=st.floats(0, 12))
    def look(self, after_s: float) -> None:
        waited = bool(self.waiting)
        cut = self.account.look(after_s)
        assert waited or not cut
        for write in cut:
            self.open.remove(write)
            self.account.lanes.end(write, self.account.now, done=False)

    @invariant()
    def is_bounded(self) -> None:
        for lane in (self.account.lanes._fast, self.account.lanes._slow):
            assert lane.used == sum(write.charge for write in lane.writes)
            total = sum(write.size for write in lane.writes)
            assert total <= lane.limit or len(lane.writes) == 1
        assert self.account.lanes.used_bytes <= LIMIT

    @invariant()
    def counts_what_is_open(self) -> None:
        under_way = {*self.account.lanes._fast.writes, *self.account.lanes._slow.writes}
        assert under_way == set(self.under_way)
        assert self.account.lanes.waiting_n == len(self.waiting)

    @invariant()
    def lets_wait_only_for_want_of_room(self) -> None:
        for lane in (self.account.lanes._fast, self.account.lanes._slow):
            assert lane.head is None or not lane.fits(lane.head)

    def teardown(self) -> None:
        """No write starves: in time, and when the slow ones are cut, all get room."""
        for _ in range(20 * len(self.open) + 20):
            if not self.waiting:
                break
            self.look(DEFAULT_FLOW.slow_write_timeout_s)
        assert not self.waiting
        for write in self.open:
            self.account.finish(write)
        assert self.account.lanes.used_bytes == 0


TestMachine = Machine.TestCase
TestMachine.settings = examples(80)
