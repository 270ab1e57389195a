"""The rules of the filter language, each with the cases that show it."""

from __future__ import annotations

from typing import Any

import pytest

from xds.filter.expression import EvaluationError
from xds.filter.filter import compile_filter
from xds.filter.values import NODE_SHAPE, FixedRecord

VALUE = FixedRecord(
    id="edge-1",
    place=FixedRecord(region="eu", zone=""),
    meta={
        "role": "edge",
        "version": "2",
        "ratio": 0.5,
        "replicas": 3.0,
        "canary": True,
        "dark": False,
        "nothing": None,
        "tags": ["a", "b-1", 7.0],
        "none": [],
        "env": {"stage": "prod", "a b": "c", "empty": {}},
        "text": "",
        "checks": [{"status": "passing", "tags": ["x"]}, {"status": "critical"}],
        "grid": [[{"n": 1.0}], [{"n": 2.0}]],
        "true": "yes",
        "a/b": "slash",
    },
)

RULES: dict[str, list[tuple[str, bool]]] = {
    "an empty filter passes everything": [("", True), (" \n ", True)],
    "equal and not equal compare texts": [
        ("id == edge-1" if False else 'id == "edge-1"', True),
        ("meta.role == edge", True),
        ("meta.role == edg", False),
        ("meta.role != edge", False),
        ("meta.role != core", True),
        ("meta.role==edge", True),
    ],
    "numbers compared with texts act as their text": [
        ("meta.version == 2", True),
        ('meta.version == "2"', True),
        ("meta.version == 2.0", False),
        ("meta.version != 3", True),
    ],
    "numbers compared with numbers by what they are worth": [
        ("meta.replicas == 3", True),
        ("meta.replicas == 3.0", True),
        ('meta.replicas == "3"', True),
        ("meta.replicas == -3", False),
        ("meta.ratio == 0.5", True),
        ("meta.replicas == three", False),
        ("meta.replicas != three", True),
    ],
    "booleans are true or false": [
        ("meta.canary == true", True),
        ("meta.canary == false", False),
        ("meta.dark == false", True),
        ("meta.dark != true", True),
        ("meta.canary == maybe", False),
        ("meta.canary == 1", True),
    ],
    "in and contains on a list is membership": [
        ("a in meta.tags", True),
        ("meta.tags contains a", True),
        ('"b-1" in meta.tags', True),
        ("b in meta.tags", False),
        ("b not in meta.tags", True),
        ("meta.tags not contains a", False),
        ("7 in meta.tags", True),
        ("a in meta.none", False),
    ],
    "in and contains on a map asks for a key": [
        ("stage in meta.env", True),
        ("prod in meta.env", False),
        ("meta.env contains stage", True),
        ("meta.env not contains stage", False),
        ("region in place", True),
    ],
    "in and contains on a text is a part of it": [
        ('"dg" in meta.role', True),
        ("meta.role contains edge", True),
        ("meta.role not contains core", True),
        ("x not in meta.role", True),
    ],
    "is empty": [
        ("meta.none is empty", True),
        ("meta.tags is empty", False),
        ("meta.tags is not empty", True),
        ("meta.text is empty", True),
        ("place.zone is empty", True),
        ("meta.env.empty is empty", True),
        ("meta.role is not empty", True),
        ("meta.role is  not\n empty", True),
    ],
    "matches searches, unanchored": [
        ("meta.role matches dg", True),
        ('meta.role matches "^e.*e$"', True),
        ('meta.role matches "^d"', False),
        ('meta.role not matches "^d"', True),
        ("meta.role matches `^\\w+$`", True),
    ],
    "a missing key of a map": [
        ("meta.gone == x", False),
        ("x in meta.gone", False),
        ("meta.gone contains x", False),
        ("meta.gone is not empty", False),
        ("meta.gone matches x", False),
        ("meta.gone != x", True),
        ("x not in meta.gone", True),
        ("meta.gone not contains x", True),
        ("meta.gone is empty", True),
        ("meta.gone not matches x", True),
        ("meta.gone.deeper.still == x", False),
        ("meta.gone.deeper.still != x", True),
    ],
    "null is a missing key": [
        ("meta.nothing == x", False),
        ("meta.nothing != x", True),
        ("meta.nothing is empty", True),
        ("meta.nothing.below is empty", True),
    ],
    "through a list one element is enough": [
        ("meta.checks.status == passing", True),
        ("meta.checks.status == critical", True),
        ("meta.checks.status == unknown", False),
        ("meta.checks.status != passing", True),
        ("not meta.checks.status == passing", False),
        ("x in meta.checks.tags", True),
        ("meta.checks.tags is empty", True),
        ("meta.none.status == x", False),
        ("meta.none.status != x", False),
        ("meta.grid.n == 2", True),
        ("meta.grid.n == 3", False),
    ],
    "keys between brackets": [
        ('meta["role"] == edge', True),
        ("meta[`role`] == edge", True),
        ('meta.env["a b"] == c', True),
        ('meta["env"].stage == prod', True),
        ('meta["env"]["stage"] == prod', True),
        ("meta.a/b == slash", True),
    ],
    "or binds weaker than and, and weaker than not": [
        ("meta.role == edge or meta.role == x and meta.role == y", True),
        ("(meta.role == edge or meta.role == x) and meta.role == y", False),
        ("not meta.role == x and meta.role == edge", True),
        ("not (meta.role == x or meta.role == edge)", False),
        ("not not meta.role == edge", True),
        ("not meta.role == edge or meta.version == 2", True),
    ],
    "words of the language may begin, end or be a word elsewhere": [
        ("meta.true == yes", True),
        ("meta.notable == x", False),
        ("meta.order != and", True),
        ("in not in meta.tags", True),
        ("meta.role != not", True),
    ],
    "values": [
        ("meta.role == `edge`", True),
        ('meta.role == "\\u0065\\x64g\\U00000065"', True),
        ('meta.role == "a\\"b\\\\\\n"', False),
        ("meta.role == a.b.c", False),
        ('meta.role != ""', True),
        ('meta.text == ""', True),
    ],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [pytest.param(*case, id=f"{rule}: {case[0]}") for rule, cases in RULES.items() for case in cases],
)
def test_rule(text: str, expected: bool) -> None:
    assert compile_filter(text).matches(VALUE) is expected


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("plaice.region == eu", 1, 'did you mean "place"?'),
        ("meta.role == x or place.regoin == eu", 19, 'did you mean "region"?'),
        ("place.size is empty", 1, "there are: region, zone"),
        ("meta.role.deeper == x", 1, "meta.role is a text and has no members"),
        ("meta.ratio is empty", 1, "a number"),
        ("x in meta.ratio", 6, "a number"),
        ("meta.tags == a", 1, 'use "contains" or "in"'),
        ("meta.env != a", 1, "a map"),
        ("meta.tags matches a", 1, "a list"),
        ("meta.canary matches a", 1, "a boolean"),
        ("meta.tags.role == x", 1, "a text and has no members"),
    ],
)
def test_operands_that_cannot_be_compared(text: str, column: int, told: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        compile_filter(text).matches(VALUE)
    assert (caught.value.column, told in str(caught.value)) == (column, True), caught.value


def test_an_operand_that_decides_hides_a_later_error() -> None:
    assert compile_filter("meta.role == edge or place.size == 1").matches(VALUE)
    assert not compile_filter("meta.role == core and place.size == 1").matches(VALUE)


def test_a_filter_is_checked_against_a_shape() -> None:
    shape = FixedRecord(place=FixedRecord(region="", zone=""), meta={}, id="", list=[])
    for fine in ("", "place.region == eu", "meta.anything.at.all == x", "not id == x or list.name == y"):
        compile_filter(fine).check(shape)
    for wrong in ("place.regoin == eu", "id == x or (meta.a == b and not there == 1)", "id.part == x"):
        with pytest.raises(EvaluationError):
            compile_filter(wrong).check(shape)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('node.locality == "eu"', "there are: node.locality.region, node.locality.sub_zone, node.locality.zone"),
        ("node.locality != eu", "there are: node.locality.region"),
        ("node.user_agent matches envoy", "there are: node.user_agent.name, node.user_agent.version"),
        ("node.metadata == edge", "name one of its keys: node.metadata.KEY"),
        ("node.id == a or node == b", "there are: node.cluster, node.id"),
        ('node.user_agent_version == "1.40.0"', 'did you mean "user_agent.version"?'),
        ("node.locality_zone == a", 'did you mean "locality.zone"?'),
    ],
)
def test_a_map_that_is_compared_with_a_text_is_refused(text: str, hint: str) -> None:
    """It would match no node, whatever its values."""
    with pytest.raises(EvaluationError) as caught:
        compile_filter(text).check(NODE_SHAPE)
    assert hint in caught.value.hint


def test_a_list_that_is_compared_with_a_text_is_refused() -> None:
    with pytest.raises(EvaluationError, match='use "contains" or "in"'):
        compile_filter("list == a").check(FixedRecord(list=[]))
    compile_filter("a in list and list is not empty").check(FixedRecord(list=[]))


def test_a_deep_value_needs_no_recursion() -> None:
    value: Any = {"n": "x"}
    for _ in range(100_000):
        value = [value]
    assert compile_filter("list.n == x").matches({"list": value})
    while isinstance(value, list):  # taken apart by hand: freeing it at once would recurse
        value = value.pop()
