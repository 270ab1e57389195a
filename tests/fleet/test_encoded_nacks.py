"""Open NACK records that outlast the process."""

from __future__ import annotations

import pytest

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.fleet import Fleet
from xds.fleet.nacks import (
    STORED_MESSAGE_CHARACTERS,
    STORED_NAMES_CHARACTERS,
    NackLog,
    decoded,
    encoded,
)
from xds.fleet.refused_content import RefusedContent
from xds.fleet.state import NackRecord, NackState
from xds.model.resource_type import type_url_of

SERVED = resource_set("clusters", "2", good="1", bad="x")


def only(fleet: Fleet) -> NackRecord:
    [record] = fleet.nack_log.select()
    return record


def restarted(fleet: Fleet, now: float = 2000.0) -> Fleet:
    """A fleet that knows of another one what was kept."""
    stand, _ = fleet.nack_log.take_changes(1000)
    rows = [(each.record.id, each.record.node, each.record.type_url, encoded(each)) for each in stand]
    after = Fleet()
    after.restore([decoded(*row) for row in rows], now)
    return after


def test_a_record_is_decoded_as_it_was_encoded(fleet: Fleet) -> None:
    client = Client(fleet, "n1", "edge")
    client.nack(response(SERVED), "Error \ud800 \n bad", guilty=("bad",))
    client.nack(response(SERVED), "again", guilty=("bad",))
    assert only(restarted(fleet)) == only(fleet)


def test_an_id_never_stands_for_another_record() -> None:
    """Those of resolved records are not kept: what comes later begins above them all."""
    before = Fleet(first_nack_id=1_000)
    client = Client(before, "n1")
    client.nack(response(SERVED), guilty=("bad",))
    client.nack(response(resource_set("listeners", "1", other="x")), guilty=("other",))
    given = {record.id for record in before.nack_log.select()}
    [kept, *_] = before.nack_log.take_changes(1).open
    after = Fleet(first_nack_id=2_000)
    after.restore([decoded(kept.record.id, "n1", kept.record.type_url, encoded(kept))], 0.0)
    Client(after, "n2").nack(response(SERVED), guilty=("bad",))
    assert given < {1_000, 1_001, 1_002}
    assert sorted(record.id for record in after.nack_log.select()) == [kept.record.id, 2_000]
    # A clock that went back does not make two of one.
    late = Fleet(first_nack_id=5)
    late.restore([decoded(kept.record.id, "n1", kept.record.type_url, encoded(kept))], 0.0)
    Client(late, "n2").nack(response(SERVED), guilty=("bad",))
    assert max(record.id for record in late.nack_log.select()) == kept.record.id + 1


def test_the_ids_of_two_servers_differ() -> None:
    ids: list[set[int]] = []
    for number in (0, 3):
        fleet = Fleet()
        fleet.nack_log.number((1_000 << 10) + number, 1 << 10)
        client = Client(fleet, "n1")
        client.nack(response(SERVED), guilty=("bad",))
        [refusal] = fleet.nack_log.take_changes(1).open
        again = Fleet()
        again.nack_log.number((1_000 << 10) + number, 1 << 10)
        again.restore([refusal], 0.0)
        Client(again, "n2").nack(response(SERVED), guilty=("bad",))
        ids.append({record.id for record in again.nack_log.select()})
    assert ids == [{1_000 << 10, 1_001 << 10}, {(1_000 << 10) + 3, (1_001 << 10) + 3}]


def test_a_loaded_record_is_resolved_as_before(fleet: Fleet) -> None:
    Client(fleet).nack(response(SERVED), guilty=("bad",))
    after = restarted(fleet)
    client = Client(after)
    client.subscribe("clusters", "*")
    client.in_step(resource_set("clusters", "3", good="1"))
    assert only(after).state is NackState.RESOLVED
    assert after.nack_log.take_changes(10).closed == [only(after).id]


def test_the_same_content_refused_again_counts_on_it(fleet: Fleet) -> None:
    Client(fleet).nack(response(SERVED))
    after = restarted(fleet)
    Client(after).nack(response(SERVED))
    assert (only(after).count, only(after).first) == (2, only(fleet).first)


def test_other_content_is_another_record_with_a_higher_id(fleet: Fleet) -> None:
    Client(fleet).nack(response(SERVED))
    after = restarted(fleet)
    Client(after).nack(response(resource_set("listeners", "2", other="x")))
    assert sorted(record.id for record in after.nack_log.select()) == [only(fleet).id, only(fleet).id + 1]


def test_a_loaded_record_is_resolved_with_its_node(fleet: Fleet) -> None:
    """The node does not return after the restart, and is forgotten in time."""
    Client(fleet, "n1").nack(response(SERVED))
    after = restarted(fleet)
    Client(after, "other")
    after.stream_opened(999, "peer", "ADS", "sotw", 1e9)
    assert only(after).state is NackState.RESOLVED
    assert after.nack_log.take_changes(10).closed == [only(fleet).id]


def test_a_node_that_leaves_for_good_takes_its_record_along(fleet: Fleet) -> None:
    client = Client(fleet)
    client.nack(response(SERVED))
    client.close()
    assert only(fleet).state is NackState.OPEN
    fleet.stream_opened(999, "peer", "ADS", "sotw", 1e9)
    assert only(fleet).state is NackState.RESOLVED


def test_stored_records_are_bounded(fleet: Fleet) -> None:
    names = {f"{number:04}" + "n" * 996: "x" for number in range(3000)}
    Client(fleet).nack(response(resource_set("clusters", "2", **names)), "m" * 100_000, guilty=tuple(names))
    (stand,), _ = fleet.nack_log.take_changes(10)
    assert len(encoded(stand)) < 2 * STORED_NAMES_CHARACTERS + STORED_MESSAGE_CHARACTERS + 2000
    assert len(only(restarted_of(stand)).message) == STORED_MESSAGE_CHARACTERS


def restarted_of(refusal: RefusedContent) -> Fleet:
    after = Fleet()
    after.restore([decoded(1, "n1", type_url_of("clusters"), encoded(refusal))], 0.0)
    return after


def test_unchanged_records_are_not_written_again(fleet: Fleet) -> None:
    client = Client(fleet)
    client.nack(response(SERVED))
    assert len(fleet.nack_log.take_changes(10).open) == 1
    assert fleet.nack_log.take_changes(10) == ([], [])
    client.nack(response(SERVED))
    assert len(fleet.nack_log.take_changes(10).open) == 1


def test_records_that_were_resolved_between_two_writes_are_not_written(fleet: Fleet) -> None:
    client = Client(fleet)
    client.nack(response(SERVED))
    client.ack(response(resource_set("clusters", "3", good="1", bad="fixed")))
    assert fleet.nack_log.take_changes(10) == ([], [])


def test_records_that_could_not_be_stored_are_written_again(fleet: Fleet) -> None:
    client = Client(fleet)
    client.nack(response(SERVED))
    log = fleet.nack_log
    first = log.take_changes(10)
    log.give_back(first)
    assert log.take_changes(10) == first
    client.ack(response(resource_set("clusters", "3", good="1", bad="fixed")))
    gone = log.take_changes(10)
    log.give_back(gone)
    assert log.take_changes(10) == gone == ([], [only(fleet).id])


def test_evicted_records_are_forgotten() -> None:
    log = NackLog(records_limit=1)
    fleet = Fleet()
    fleet.nack_log = log
    for number in range(3):
        Client(fleet, f"n{number}").nack(response(resource_set("clusters", str(number), bad=str(number))))
    stand, gone = log.take_changes(10)
    assert ([each.record.node for each in stand], gone) == (["n2"], [])


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"versions": [1]}', b"\xff"])
def test_an_invalid_record_is_reported(body: bytes) -> None:
    with pytest.raises(ValueError):
        decoded(1, "n", "type", body)
