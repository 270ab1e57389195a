"""Replacements of deprecated fields, as the comments in Envoy's .proto files name them.

Descriptors have no comments; envoy-data-plane keeps them as the docstrings of its fields.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Sentences that speak of a replacement, and the names that they refer to: :ref:`shown <target>` and ``literal``.
_SENTENCE = re.compile(r"(?<=[.!:])\s+(?=[A-Z])")
_OF_REPLACEMENT = re.compile(r"\b(deprecated|in favou?r of|replaced|superseded|instead|prefer|please use)\b", re.I)
_NAME = re.compile(r":ref:`([\w.]+)\s*<[^>]*>`|``([\w.]+)``")
_NAMES_LIMIT = 3


def add_advice(messages: Mapping[str, Any], classes: Mapping[str, Any]) -> None:
    """Add ``advice`` to the entries of deprecated fields; ``classes`` are envoy-data-plane's, by full name."""
    for name, entry in messages.items():
        deprecated = {field: one["deprecated"] for field, one in entry.get("fields", {}).items() if "deprecated" in one}
        if deprecated and name in classes:
            comments = dict(_comments(classes[name]))
            for field, deprecation in deprecated.items():
                if found := _advice(field, comments.get(field, "")):
                    deprecation["advice"] = found


def classes_by_name() -> Mapping[str, Any]:
    """Message classes by full name, from modules that are imported already."""
    pool = importlib.import_module("envoy_data_plane.message_pool").default_message_pool
    return {url.partition("/")[2]: cls for cls, url in pool.type_to_url.items()}


def _comments(cls: Any) -> Iterator[tuple[str, str]]:
    """Fields, each with the docstring after it."""
    (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    for one, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(following, ast.Expr):
            yield one.target.id, str(ast.literal_eval(following.value))


def _advice(field: str, comment: str) -> str:
    """The replacement that a comment names. Sentences from the first "deprecated" on are read before the others."""
    sentences = _SENTENCE.split(" ".join(comment.split()))
    start = next((index for index, sentence in enumerate(sentences) if "deprecated" in sentence.lower()), 0)
    for sentence in filter(_OF_REPLACEMENT.search, [*sentences[start:], *sentences[:start]]):
        names = dict.fromkeys(shown or literal for shown, literal in _NAME.findall(sentence))
        others = [name for name in names if name.rpartition(".")[2] not in (field, "true", "false")]
        if others:
            return f"see {', '.join(others[:_NAMES_LIMIT])}"
    return ""
