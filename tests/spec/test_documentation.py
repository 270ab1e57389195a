"""docs/protocol.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from xds.model.resource_type import V3_TYPES, ResourceType, alias_of

TESTS = Path(__file__).parent.parent
DOCUMENT = TESTS.parent / "docs" / "protocol.md"
RULES = range(1, 84)
LRS_RULES = range(1, 23)


def rows() -> dict[int, list[str]]:
    """Rule number to the cells of its row."""
    found = re.findall(r"^\| (\d+) \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    return {int(number): [cell.strip() for cell in cells.split("|")] for number, cells in found}


def type_table() -> str:
    """The rules of all types, as the document shows them."""
    columns = "type, SotW, empty first request, missing name, in tree, after listeners, lingers, led to, warms behind"
    head = f"| {columns.replace(', ', ' | ')} |"
    return "\n".join([head, "|---" * 9 + "|", *map(_row, sorted(V3_TYPES, key=lambda type: type.rank))])


def _row(type: ResourceType) -> str:
    empty = "everything" if type.legacy_wildcard else "nothing"
    cells = [
        type.alias,
        "full state" if type.full_state else "partial",
        f"everything under the {alias_of(type.narrowed_by)}" if type.narrowed_by else empty,
        type.missing.value.replace("_", " "),
        *("yes" if each else "-" for each in (type.in_tree, type.after_listeners, type.lingers, type.is_route_target)),
        ", ".join(map(alias_of, type.parents)) or "-",
    ]
    return f"| {' | '.join(cells)} |"


def test_every_rule_has_a_row_with_a_state_and_a_test() -> None:
    assert list(rows()) == list(RULES)
    for number, (_about, state, tests, note) in rows().items():
        assert "test_" in tests, f"rule {number} names no test"
        assert state == "obeyed" or note, f"rule {number}: {state}, but why?"


def test_every_test_that_is_named_exists() -> None:
    defined = {name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    defined |= set(re.findall(r"def (test_\w+)", (TESTS / "store" / "contract.py").read_text()))
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text()))
    assert named <= defined


def test_every_test_named_after_a_rule_is_in_its_row() -> None:
    for path in (TESTS / "spec").glob("test_*.py"):
        for name, number in re.findall(r"def (test_rule_(\d+)_\w+)", path.read_text()):
            assert f"`{name}`" in rows()[int(number)][2], f"{name} is missing in the row of rule {number}"


def test_every_rule_of_load_reports_has_a_row_with_all_its_tests() -> None:
    found = dict(re.findall(r"^\| LRS (\d+) \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE))
    assert list(map(int, found)) == list(LRS_RULES)
    assert all("`test_" in row for row in found.values())
    for path in TESTS.rglob("test_*.py"):
        for name, number in re.findall(r"def (test_lrs_rule_(\d+)_\w+)", path.read_text()):
            assert f"`{name}`" in found[number], f"{name} is missing in the row of LRS {number}"


def test_the_type_table_is_that_of_the_code() -> None:
    shown = re.search(r"<!-- types.*?-->\n(.*?)\n<!-- end of types -->", DOCUMENT.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == type_table()
