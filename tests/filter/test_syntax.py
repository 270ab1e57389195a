"""What is not a filter is refused with the column and a hint, and nothing takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.filter.expression import DEPTH_LIMIT, PATTERNS_LIMIT, TEXT_LIMIT, EvaluationError, FilterSyntaxError
from xds.filter.filter import compile_filter
from xds.filter.values import PATTERN_LIMIT, SEARCHED_LIMIT


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("a = b", 3, 'write "=="'),
        ("a == b && c == d", 8, 'write "and"'),
        ("a == b || c == d", 8, 'write "or"'),
        ("!a == b", 1, 'write "not"'),
        ("a =~ b", 3, 'write "matches"'),
        ("a == b AND c == d", 8, 'in lower case: "and"'),
        ("a IN b", 3, 'in lower case: "in"'),
        ("a == 'x'", 6, 'quoted with " or `'),
        ('a == "x', 6, "does not end"),
        ("a == 1.2.3", 6, 'quote the value: "1.2.3"'),
        ("a == v1-2", 8, 'quote the value: "v1-2"'),
        ("a.my-role == x", 5, 'write a["my-role"]'),
        ("a[key] == x", 3, 'quote the key: ["key"]'),
        ('a["key" == x', 9, 'expected "]"'),
        ("a", 2, "found the end"),
        ("not", 4, "found the end"),
        ("a ==  ", 5, "expected a value, found the end"),
        ("(a == b", 8, 'expected "and", "or" or ")", found the end'),
        ("a == b)", 7, "found ')'"),
        ("a == b c == d", 8, "found 'c'"),
        ("a is emptyish", 3, "found 'is'"),
        ("x in y in z", 8, "found 'in'"),
        ("1 == a", 3, "found '=='"),
        ('a == "\\q"', 7, "unknown escape \\q"),
        ('a == "\\Uffffffff"', 7, "unknown escape"),
        ('a matches "("', 11, "missing )"),
        ('a matches "(?=x)"', 11, "no look-around"),
        ('a matches "(a)\\\\1"', 11, "no back references"),
        ("é == x", 1, "found 'é'"),
        ("a == b and\n\nc =", 15, "write"),
        ("\x00", 1, "expected"),
    ],
)
def test_an_invalid_filter_is_reported_with_its_column(text: str, column: int, told: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_filter(text)
    assert caught.value.column == column, caught.value
    assert told in str(caught.value)


def test_length_depth_and_patterns_are_bounded() -> None:
    deep = DEPTH_LIMIT
    compile_filter("(" * deep + "a == b" + ")" * deep)
    compile_filter(" or ".join(["a matches x"] * PATTERNS_LIMIT))
    compile_filter(" and ".join(["not a == b"] * (DEPTH_LIMIT + 10)))
    for text in (
        "a == " + "b" * TEXT_LIMIT,
        "(" * (deep + 1) + "a == b" + ")" * (deep + 1),
        "not " * (deep + 1) + "a == b",
        "(" * 2000 + "a == b" + ")" * 2000,
        f"a matches {'x' * (PATTERN_LIMIT + 1)}",
        'a matches "((x{100}){10}){10}"',
        'a matches "([a-z]{1,30}[0-9]?){1,30}"',
        " or ".join(["a matches x"] * (PATTERNS_LIMIT + 1)),
    ):
        with pytest.raises(FilterSyntaxError):
            compile_filter(text)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}$", "([a-z]+)*=", "a{900}b|(x+x+)+y", "(a?){90}a{90}$"]
)
def test_no_pattern_hangs(pattern: str) -> None:
    """Each of these takes a backtracking engine longer than the universe is old on the text below."""
    assert not compile_filter(f"a matches `{pattern}`").matches({"a": "a" * (SEARCHED_LIMIT - 1) + "!"})


def test_a_text_too_long_to_be_searched_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="are searched at most"):
        compile_filter("a matches x").matches({"a": "x" * (SEARCHED_LIMIT + 1)})


def test_a_text_that_is_not_unicode_is_searched_all_the_same() -> None:
    assert compile_filter("a matches `^x.y$`").matches({"a": "x\udc80y"})
    with pytest.raises(FilterSyntaxError, match="not valid Unicode"):
        compile_filter("a matches `\udc80`")


TOKENS = ["a", "==", "!=", "(", ")", "not", "and", "or", "in", "is", "empty", '"x"', "`", ".", "[", "1", "matches"]


@given(st.text(max_size=60) | st.lists(st.sampled_from(TOKENS)).map(" ".join))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        compiled = compile_filter(text)
    except FilterSyntaxError as error:
        assert 1 <= error.column <= len(text) + 1
        return
    assert compiled.matches({}) in {True, False}


def test_lark_is_loaded_with_the_first_filter() -> None:
    """Commands that filter nothing must start fast."""
    code = (
        "import sys, xds.filter.filter as f; assert not {'lark', 're2'} & set(sys.modules);"
        "f.compile_filter(''); assert 'lark' not in sys.modules;"
        "f.compile_filter('a == b'); assert 'lark' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
