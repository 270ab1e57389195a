"""Regular expressions: what a compilation costs is known before it, since it holds the interpreter."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from xds.filter.regular_expressions import EFFORT_LIMIT, LargePatternError, effort_of, program_size

LONGEST_S = 2.0  # 6 ms where a hundred thousand patterns were tried; what it replaces took up to minutes
TOKENS = (
    r"a . \w \W [a-z] [^a] \d é \pL \p{Greek} [\pL\pN] [[:alpha:]] \x{100} [\x{0}-\x{10ffff}] k (?i) (?i: (?s) \b ^ $ "
    r"\Qa(b\E [^\pL] \D \C [é-ü] []a] [^]a] (?P<a> [a\]b] \( { } {,5} [ ] \Q \E (?-i) (?U) (?: \\ \\pL | || *?"
)
ATOMS = TOKENS.split()
REPETITIONS = ("*", "+", "?", "{2}", "{1,30}", "{0,5}", "{3,}", "{1000}", "{1,1000}", "{0}")


def _compounds(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        inner.map("({})".format),
        st.tuples(inner, st.sampled_from(REPETITIONS)).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, st.integers(2, 40)).map(lambda pair: pair[0] * pair[1]),
    )


PATTERNS = st.recursive(st.sampled_from(ATOMS), _compounds, max_leaves=12).map(lambda text: text[: 2 * EFFORT_LIMIT])


@examples(200)
@given(pattern=PATTERNS)
def test_no_pattern_takes_long(pattern: str) -> None:
    began_s = time.thread_time()
    with suppress(ValueError):
        assert program_size.__wrapped__(pattern) >= 0
    assert time.thread_time() - began_s < LONGEST_S


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|b|c){1,500}N",
        r"\pL{1000}",
        r"(?i)\pL" * 300,
        r"\pL(?i){500}",
        "a" * 60_000,
        r"((\pL|x){1,1000}|y)",
        "[[:" * 20_000,
        r"\p{" * 20_000,
        r"x{1000}" * 140,
    ],
)
def test_expressions_that_take_long_are_not_compiled(pattern: str) -> None:
    began_s = time.thread_time()
    with pytest.raises(LargePatternError):
        program_size(pattern)
    assert time.thread_time() - began_s < LONGEST_S


@pytest.mark.parametrize("pattern", ["a{1001}", "((a{40}){40})", "(a{10}b{11}){100}", "a{1,2000}", "a{12345678}"])
def test_too_many_repetitions_are_reported_without_a_compilation(pattern: str) -> None:
    """As by RE2: at most 1,000, also of repetitions within each other."""
    with pytest.raises(ValueError, match="invalid repetition size") as told:
        program_size(pattern)
    assert not isinstance(told.value, LargePatternError)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("^/api/v[0-9]+/users/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/?$", 83),
        (r"a\\pL", 8),
        (r"\pL", 1200),
        ("a" * 100, 104),
    ],
)
def test_the_size_is_that_of_re2(pattern: str, size: int) -> None:
    assert program_size(pattern) == size
    assert effort_of(pattern) <= EFFORT_LIMIT
