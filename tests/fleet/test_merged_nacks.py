"""Equal NACKs of several nodes are one."""

from __future__ import annotations

from xds.fleet.merged_nacks import merge_by_message
from xds.fleet.state import NackRecord, NackState


def record(number: int, node: str, guilty: tuple[str, ...] = (), last: float = 1.0, **more: object) -> NackRecord:
    about = f"about {guilty}"
    fields = {"message": about, "first": 1.0, "last": last, "guilty": guilty, **more}
    return NackRecord(number, node, "edge", "clusters", "CLUSTER", "1", "n1", 13, **fields)  # type: ignore[arg-type]


def test_equal_nacks_are_one_with_all_nodes_and_the_sum() -> None:
    many = [record(number, f"n{number}", last=float(number)) for number in range(20)]
    known, unknown = merge_by_message([*reversed(many), record(99, "x", ("b",))])
    assert (known.record.id, known.nodes) == (99, ("x",))
    assert (unknown.record.id, unknown.record.count, unknown.record.last) == (19, 20, 19.0)
    assert unknown.nodes[:3] == ("n0", "n1", "n2") and len(unknown.nodes) == 20


def test_open_ones_come_first_and_other_messages_stay_apart() -> None:
    resolved = record(1, "a", state=NackState.RESOLVED)
    merged = merge_by_message([resolved, record(2, "a"), record(3, "a", message="other")])
    assert [one.record.id for one in merged] == [2, 3, 1]
