"""docs/filter.md says what the language does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from xds.codec.node_json import decode_node
from xds.filter.expression import EvaluationError, FilterError
from xds.filter.filter import compile_filter
from xds.filter.values import NODE_SHAPE, node_record

PAGE = (Path(__file__).parents[2] / "docs" / "filter.md").read_text()
NODE = node_record(decode_node(json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])))
CELL = r"`{1,2} ?(.+?) ?`{1,2}"
ANSWERED = re.findall(rf"\| {CELL} \| (yes|no) \|$", PAGE, re.MULTILINE)
UNANSWERED = re.findall(rf"^\| {CELL} \| (node\..+) \|$", PAGE, re.MULTILINE)
REFUSED = re.findall(rf"^\| {CELL} \| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("text", "answer"), ANSWERED)
def test_an_example_is_answered_as_it_says(text: str, answer: str) -> None:
    compiled = compile_filter(text)
    compiled.check(NODE_SHAPE)
    assert compiled.matches(NODE) is (answer == "yes")


@pytest.mark.parametrize(("text", "why"), UNANSWERED)
def test_an_example_cannot_be_answered(text: str, why: str) -> None:
    with pytest.raises(EvaluationError, match=re.escape(why)):
        compile_filter(text).matches(NODE)


@pytest.mark.parametrize(("text", "column", "hint"), REFUSED)
def test_an_example_is_refused_with_its_hint(text: str, column: str, hint: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(text).check(NODE_SHAPE)
    assert (caught.value.column, caught.value.hint) == (int(column), hint)


def test_no_example_is_overlooked() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "==" in line]
    tried = {text for found in (ANSWERED, UNANSWERED, REFUSED) for text, *_ in found}
    assert all(any(text in row for text in tried) for row in rows)
    assert (len(ANSWERED), len(UNANSWERED), len(REFUSED)) == (32, 3, 5)
    compile_filter(re.findall(r"```\n(node\..*?)\n```", PAGE)[0]).check(NODE_SHAPE)
