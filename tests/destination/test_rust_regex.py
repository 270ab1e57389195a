"""Only expressions that RE2 and the proxy read alike are told: one that it cannot read makes it fail every request."""

from __future__ import annotations

import pytest

from xds.destination.rust_regex import is_readable, whole


@pytest.mark.parametrize(
    "text",
    [
        "", "/a.*", "/(a|b)", "/(?:a|b)+?", "(?i)/a", "(?P<id>[0-9]+)", r"/\d{1,3}/\w+", "/[^/]+", r"[a\-z]", "a{2}",
        r"/\.well-known/", r"[\[\]]", "^/a$",
    ],
)  # fmt: skip
def test_common_expressions_are_told(text: str) -> None:
    assert is_readable(text)


@pytest.mark.parametrize(
    "text",
    [
        r"\Qa.b\E", r"\pN", r"\C", "[[:alpha:]]", "[a&&b]", "[a[b]", "[]a]", "a{", "}", "]", "a{,3}", r"\x41",
        r"\bword",
        r"(\w{90}){90}", "\\<", "(?U)a", "(?=a)", "(", "a\n", "ä", "a" * 1_001, "x{1000}",
    ],
)  # fmt: skip
def test_what_may_mean_something_else_is_not(text: str) -> None:
    assert not is_readable(text)


def test_an_expression_is_over_the_whole_text() -> None:
    assert whole("a|ab") == "^(?:a|ab)$"
