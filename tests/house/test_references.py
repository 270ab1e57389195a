"""The check on references finds what leads nowhere."""

from __future__ import annotations

import pytest

from tests.house.conftest import MakeRepository
from tools.house.references import broken_references, repoint

PAGES = {
    "docs/protocol.md": "# Protocol\n\n## Order of things\n\n| 7 | seven |\n| LRS 3 | three |\n",
    "docs/design.md": "# Design\n\n## Push path\n\n```\n# not a heading\n```\n",
    "xds/engine.py": "LIMIT = 1\n\n\nclass Stream:\n    def receive(self): ...\n",
}


@pytest.mark.parametrize(
    "comment",
    [
        "see docs/design.md",
        "see docs/design.md#push-path.",
        'docs/design.md#push-path: "not a heading"',
        'rule 7: "seven".',
        'LRS rule 3: "three"',
        '"not a heading" (docs/design.md#push-path)',
        "see protocol.md#order-of-things",
        "rule 7: so it is",
        "LRS rule 3, LRS 3",
        "`xds/engine.py` and docs/ have it, xds/*.py and xds/<name>.py are patterns",
    ],
)
def test_an_existing_target_is_no_finding(make: MakeRepository, comment: str) -> None:
    assert not list(broken_references(make({**PAGES, "xds/a.py": f'"""Module.\n\n{comment}\n"""\n# {comment}\n'}), []))


@pytest.mark.parametrize(
    ("comment", "detail"),
    [
        ("see docs/gone.md", "there is no page docs/gone.md"),
        ("see docs/design.md#gone", "docs/design.md has no heading #gone"),
        ("see docs/design.md#not-a-heading", "docs/design.md has no heading #not-a-heading"),
        ("rules 7 and 8", "docs/protocol.md has no rule 8"),
        ('"the heading" (docs/design.md#push-path)', "docs/design.md does not say 'the heading'"),
        ('docs/design.md: "the heading".', "docs/design.md does not say 'the heading'"),
        ('rule 7: "eight".', "docs/protocol.md does not say 'eight' in rule 7"),
        ('LRS rule 3: "seven".', "docs/protocol.md does not say 'seven' in rule LRS 3"),
        ("LRS rule 7", "docs/protocol.md has no rule LRS 7"),
        ("as in xds/gone.py", "there is no file xds/gone.py"),
        ("LEGEND 3.2", "'LEGEND' is not in the repository"),
    ],
)
def test_broken_references_in_comments_and_docstrings_are_found(
    make: MakeRepository, comment: str, detail: str
) -> None:
    for text in (f"x = 1  # {comment}\n", f'def f():\n    """{comment}"""\n'):
        findings = list(broken_references(make({**PAGES, "xds/a.py": text}), [r"\bLEGEND\b"]))
        assert [(finding.path, finding.detail) for finding in findings] == [("xds/a.py", detail)]


def test_a_quotation_may_be_of_several_lines(make: MakeRepository) -> None:
    text = '"""Module. docs/design.md#push-path: "Push\npath". Rule 7:\n"eight"."""\n'
    findings = [finding.detail for finding in broken_references(make({**PAGES, "xds/a.py": text}), [])]
    assert findings == ["docs/protocol.md does not say 'eight' in rule 7"]


def test_quotations_of_rules_match_the_page(make: MakeRepository) -> None:
    findings = list(broken_references(make({**PAGES, "tests/a.py": '"""Rule 7: "eight"."""\n'}), []))
    assert [finding.detail for finding in findings] == ["docs/protocol.md does not say 'eight' in rule 7"]


def test_a_docstring_that_begins_with_a_quotation_names_its_page(make: MakeRepository) -> None:
    text = '"""\\"Not a heading\\" is said there."""\n'
    findings = [finding.detail for finding in broken_references(make({**PAGES, "tests/a.py": text}), [])]
    assert findings == ["no page is named that says 'Not a heading'"]


def test_strings_may_name_what_does_not_exist(make: MakeRepository) -> None:
    assert not list(broken_references(make({**PAGES, "tests/a.py": 'page = "gone.md", "rule 99"\n'}), []))


@pytest.mark.parametrize(
    ("link", "detail"),
    [
        ("[a](gone.md)", "there is no file docs/gone.md"),
        ("[a](design.md#gone)", "docs/design.md has no heading #gone"),
        ("[a](#gone)", "docs/page.md has no heading #gone"),
        ("`xds/gone.py`", "there is no file xds/gone.py"),
        ("[`Stream.offer`](../xds/engine.py)", "xds/engine.py defines no Stream.offer"),
        ("[`receive`](../xds/engine.py)", "xds/engine.py defines no receive"),
    ],
)
def test_links_of_pages_that_lead_nowhere_are_found(make: MakeRepository, link: str, detail: str) -> None:
    findings = list(broken_references(make({**PAGES, "docs/page.md": f"# Page\n\n{link}\n"}), []))
    assert [finding.detail for finding in findings] == [detail]


def test_links_of_pages_that_lead_somewhere_are_no_finding(make: MakeRepository) -> None:
    links = "[a](#page) [b](design.md#push-path) [`Stream.receive`, `LIMIT`](../xds/engine.py) [c](https://example.org)"
    assert not list(broken_references(make({**PAGES, "docs/page.md": f"# Page\n\n{links}\n"}), []))


def test_links_to_a_function_that_moved_are_led_there(make: MakeRepository) -> None:
    page = "[`Stream.receive`](../xds/old.py), [`Gone`](../xds/old.py), [`LIMIT`](../xds/engine.py)"
    text, moved = repoint(make({**PAGES, "docs/page.md": page}), "docs/page.md")
    assert (text, moved) == (
        page.replace("[`Stream.receive`](../xds/old.py)", "[`Stream.receive`](../xds/engine.py)"),
        1,
    )
