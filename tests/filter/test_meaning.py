"""Random filters and values: what is compiled agrees with a plain reading of the rules."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from xds.filter.expression import EvaluationError
from xds.filter.filter import compile_filter

KEYS = ["a", "b", "c"]
WORDS = ["x", "y", "a", "ab", "1", "2.5", "true", "no"]

scalars = st.sampled_from(["x", "ab", "1", "", "true", 1.0, 2.5, 0.0, True, False, None])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=12,
)
roots = st.dictionaries(st.sampled_from(KEYS), values, max_size=3)


@dataclass(frozen=True)
class Ask:
    path: tuple[str, ...]
    operator: str
    word: str

    def text(self) -> str:
        selector = ".".join(self.path)
        if self.operator.endswith("empty"):
            return f"{selector} {self.operator}"
        if self.operator.endswith("in"):
            return f'"{self.word}" {self.operator} {selector}'
        return f'{selector} {self.operator} "{self.word}"'


asks = st.builds(
    Ask,
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3).map(tuple),
    st.sampled_from(
        ["==", "!=", "contains", "not contains", "in", "not in", "is empty", "is not empty", "matches", "not matches"]
    ),
    st.sampled_from(WORDS),
)
trees: st.SearchStrategy[Any] = st.recursive(
    asks,
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    max_leaves=6,
)


def written(tree: Any) -> str:
    if isinstance(tree, Ask):
        return tree.text()
    if tree[0] == "not":
        return f"not ({written(tree[1])})"
    return f"({written(tree[1])}) {tree[0]} ({written(tree[2])})"


def evaluate(tree: Any, value: Any) -> bool:
    if isinstance(tree, Ask):
        return answer(tree, tree.path, value)
    if tree[0] == "not":
        return not evaluate(tree[1], value)
    if tree[0] == "and":
        return evaluate(tree[1], value) and evaluate(tree[2], value)
    return evaluate(tree[1], value) or evaluate(tree[2], value)


def answer(ask: Ask, path: tuple[str, ...], value: Any) -> bool:
    if value is None:
        return ask.operator in {"!=", "not contains", "not in", "is empty", "not matches"}
    if not path:
        return leaf(ask, value)
    if isinstance(value, dict):
        return answer(ask, path[1:], value.get(path[0]))
    if isinstance(value, list):
        return any(answer(ask, path, item) for item in value)
    raise LookupError


def leaf(ask: Ask, value: Any) -> bool:
    operator = ask.operator.replace("not ", "")
    operator = {"!=": "==", "in": "contains"}.get(operator, operator)
    positive: bool = POSITIVE[operator](ask.word, value)
    return positive != ("not " in ask.operator or ask.operator == "!=")


def same(word: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value is {"true": True, "1": True}.get(word)
    if isinstance(value, float):
        return re.fullmatch(r"[0-9.]+", word) is not None and float(word) == value
    return isinstance(value, str) and word == value


def contains(word: str, value: Any) -> bool:
    if isinstance(value, str | dict):
        return word in value
    if isinstance(value, list):
        return any(same(word, item) for item in value)
    raise LookupError


def only(kinds: type | tuple[type, ...], test: Any) -> Any:
    def check(word: str, value: Any) -> bool:
        if not isinstance(value, kinds):
            raise LookupError
        return bool(test(word, value))

    return check


POSITIVE = {
    "==": only((str, float, bool), same),
    "contains": contains,
    "is empty": only((str, list, dict), lambda word, value: not value),
    "matches": only(str, lambda word, value: re.search(word, value) is not None),
}


@given(trees, roots)
def test_the_compiled_filter_agrees_with_a_plain_reading(tree: Any, value: dict[str, Any]) -> None:
    compiled = compile_filter(written(tree))
    expected: bool | None = None
    with suppress(LookupError):
        expected = evaluate(tree, value)
    try:
        found: bool | None = compiled.matches(value)
    except EvaluationError:
        found = None
    assert found is expected, written(tree)


def test_a_filter_is_compiled_once() -> None:
    """Thousands of lowered assignments have the same few."""
    text = "Service.Meta.version == v1"
    assert compile_filter(text) is compile_filter(text)
