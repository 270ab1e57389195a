"""docs/glossary.md has every term once."""

from __future__ import annotations

import re
from collections import Counter

from tests.support.process import REPOSITORY

SECTIONS = (REPOSITORY / "docs" / "glossary.md").read_text().split("\n## ")[1:]
TERM = re.compile(r"^\| ([^|]+?) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


def terms(section: str) -> list[str]:
    """The terms of a section in their order, without the head of its table."""
    return TERM.findall(section)[1:]


def test_every_term_is_explained_once() -> None:
    counted = Counter(term.lower() for section in SECTIONS for term in terms(section))
    assert counted
    assert not [term for term, count in counted.items() if count > 1]


def test_terms_are_in_alphabetical_order() -> None:
    for section in SECTIONS:
        assert terms(section) == sorted(terms(section), key=str.lower)
