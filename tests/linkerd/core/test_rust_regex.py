"""Only expressions that RE2 and the proxy read alike are told: one that it cannot read makes it fail every request."""

from __future__ import annotations

import re

import pytest

from xds.linkerd.core.route_terms import escaped
from xds.linkerd.core.rust_regex import anchored, full_match, is_readable


@pytest.mark.parametrize(
    "text",
    [
        "", "/a.*", "/(a|b)", "/(?:a|b)+?", "(?i)/a", "(?P<id>[0-9]+)", r"/\d{1,3}/\w+", "/[^/]+", r"[a\-z]", "a{2}",
        r"/\.well-known/", r"[\[\]]", "^/a$",
    ],
)  # fmt: skip
def test_common_expressions_are_translated(text: str) -> None:
    assert is_readable(text)


@pytest.mark.parametrize(
    "text",
    [
        r"\Qa.b\E", r"\pN", r"\C", "[[:alpha:]]", "[a&&b]", "[a[b]", "[]a]", "a{", "}", "]", "a{,3}", r"\x41",
        r"\bword",
        r"(\w{90}){90}", "\\<", "(?U)a", "(?=a)", "(", "a\n", "ä", "a" * 1_001, "x{1000}",
    ],
)  # fmt: skip
def test_ambiguous_expressions_are_not_translated(text: str) -> None:
    assert not is_readable(text)


def test_an_expression_is_over_the_whole_text() -> None:
    assert full_match("a|ab") == "^(?:a|ab)$"


def matches(text: str, path: str) -> bool:
    """Whether a route of a profile matches, as linkerd2-proxy does it (``service-profiles/src/proto.rs``)."""
    text = text.strip()
    head, tail = "" if text.startswith("^") else "^", "" if text.endswith("$") else "$"
    return re.search(f"{head}{text}{tail}", path) is not None


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("/a|/b", "/a", True), ("/a|/b", "/b", True), ("/a|/b", "/a/x", False), ("/a|/b", "/x/b", False),
        ("^/a|/b$", "/a/x", False), ("^/a|/b$", "/b", True), (escaped("/a$"), "/a$", True), ("/(a|b)", "/b", True),
        (escaped("/a$"), "/a$/x", False), ("/a.*", "/a/b", True), ("(?:/a)", "/x/a", False), ("/a ", "/a", False),
    ],
)  # fmt: skip
def test_a_path_of_a_profile_is_matched_whole(text: str, path: str, expected: bool) -> None:
    assert matches(anchored(text), path) is expected


def test_expressions_that_a_proxy_anchors_are_sent_unchanged() -> None:
    assert anchored("/private/.*") == "/private/.*"
