"""Selectors of nodes in documents: a selector that cannot be used is a finding with its place."""

from __future__ import annotations

from xds.filter.expression import EvaluationError, FilterError
from xds.filter.filter import Filter, compile_filter
from xds.filter.values import NODE_SHAPE, FixedRecord
from xds.model.errors import ValidationError, Violation


def read_selector(text: str, pointer: str) -> Filter:
    """The compiled selector. This may take long, so call it in a thread.

    Raises ``ValidationError`` with the column in the selector and a hint.
    """
    try:
        selector = compile_filter(text)
        selector.check(NODE_SHAPE)
    except FilterError as error:
        detail = f"selector, column {error.column}: {error.detail}"
        before = text[: error.column - 1]
        source = f"selector:{before.count(chr(10)) + 1}:{error.column - before.rfind(chr(10)) - 1}"
        hint = error.hint or "docs/filter.md describes the language"
        raise ValidationError(
            [Violation("invalid_selector", detail, pointer=pointer, source=source, hint=hint)]
        ) from None
    return selector


def selects(selector: str, record: FixedRecord) -> bool:
    """Whether a selector that was read matches a node; one that fails on a node does not match it."""
    try:
        return compile_filter(selector).matches(record)
    except EvaluationError:
        return False
