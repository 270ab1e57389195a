"""The table of refused clients: one row for an address and a reason, bounded, with what a report would have."""

from __future__ import annotations

import pytest

from xds.fleet.refused_streams import (
    KEPT_S,
    RECENT_S,
    REPORT_CHANGED_S,
    REPORT_EVERY_S,
    ROWS_LIMIT,
    RefusalReason,
    RefusedStreams,
    StreamRefusal,
    address_of,
)

NOW = 1_000_000.0


def refusal(
    host: str = "10.0.0.7", message: str = "no token", reason: RefusalReason = RefusalReason.UNAUTHENTICATED
) -> StreamRefusal:
    return StreamRefusal(reason, message, f"ipv4:{host}:4711", "ADS")


def test_refusals_are_one_row_for_an_address_and_a_reason() -> None:
    table = RefusedStreams()
    for second in range(13):
        table.add(refusal(), NOW + second)
    table.add(refusal(reason=RefusalReason.TLS, message="no client certificate"), NOW + 20)
    newest, first = table.clients(NOW + 30)
    assert (newest.last.reason, newest.count) == (RefusalReason.TLS, 1)
    assert (first.last.address, first.count, first.first_at, first.last_at) == ("10.0.0.7", 13, NOW, NOW + 12)
    assert table.recent(NOW + 30) == 14
    assert table.recent(NOW + 30 + RECENT_S + 60) == 0
    assert list(table.clients(NOW + 30 + KEPT_S)) == []


def test_a_report_is_due_at_first_then_once_a_minute_with_the_count() -> None:
    table = RefusedStreams()
    due = []
    for step in range(int(3 * REPORT_EVERY_S)):
        row, count = table.add(refusal(), NOW + step)
        if count:
            due.append((step, count))
            row.note_reported()
    assert due == [(0, 1), (60, 60), (120, 60)]


def test_another_reason_of_the_same_client_is_reported_a_second_later() -> None:
    table = RefusedStreams()
    row, _ = table.add(refusal(), NOW)
    row.note_reported()
    assert table.add(refusal(message="an unknown token"), NOW + REPORT_CHANGED_S / 2)[1] == 0
    assert table.add(refusal(message="an unknown token"), NOW + REPORT_CHANGED_S)[1] == 2


def test_a_report_that_was_not_written_stays_due() -> None:
    table = RefusedStreams()
    assert [table.add(refusal(), NOW)[1] for _ in range(3)] == [1, 2, 3]


def test_a_flood_from_many_addresses_is_bounded_and_keeps_the_newest() -> None:
    table = RefusedStreams()
    for number in range(10_000):
        table.add(refusal(f"10.{number >> 8}.{number & 255}.1"), NOW + number / 10_000)
    rows = list(table.clients(NOW + 1))
    assert len(rows) == ROWS_LIMIT
    assert rows[0].last.address == f"10.{9_999 >> 8}.{9_999 & 255}.1"
    assert table.recent(NOW + 1) == 10_000


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("ipv6:[fd00::7]:4711", "fd00::7"),
        ("[fd00::7]:4711", "fd00::7"),
        ("10.0.0.7:4711", "10.0.0.7"),
        ("", ""),
    ],
)
def test_the_address_is_the_peer_without_kind_and_port(peer: str, address: str) -> None:
    assert address_of(peer) == address
