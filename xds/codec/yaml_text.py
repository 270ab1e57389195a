"""YAML text to plain values, strictly: what JSON can say, read by the rules of YAML 1.2.

``no``, ``012``, ``1:20`` and dates are strings or plain numbers, never what YAML 1.1 makes of them. Duplicate keys are
errors. Depth, text size and what aliases expand to are bounded, and nothing recurses, so that hostile input ends in
an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from xds.codec.text_error import TextError

DEPTH_LIMIT = 100
# Characters: some 5 s of parsing, 20 s for the most hostile text; JSON takes a fraction of that.
TEXT_LIMIT = 16 * 1024 * 1024
# What a document may expand to through aliases, in characters of text.
EXPANSION_LIMIT = 64 * 1024 * 1024
_VALUE_COST = 16

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,22}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,5})?")
_LINE_END = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TAG = "tag:yaml.org,2002:"
# What follows is not told: it may be a password that stands unquoted.
_QUOTE = "text that begins with *, & or ! stands in quotes"
_STRING_TAGS = ("!", _TAG + "str")
_SCALAR_TAGS = (_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null")
_COLLECTION_TAGS = ("!", _TAG + "map", _TAG + "seq")


@dataclass(slots=True)
class _Open:
    """A collection that is being read. ``key`` is the mapping key that waits for its value."""

    value: Any
    anchor: str | None
    cost: int = _VALUE_COST
    key: str | None = None


@dataclass(slots=True)
class _Reader:
    """Builds values from parser events; ``documents`` collects the finished ones."""

    documents: list[object] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[object, int]] = field(default_factory=dict)

    def read(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.anchors.clear()
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(event)

    def _scalar(self, event: Any) -> None:
        if self._awaits_key():
            self._key(event)
            return
        value, cost = _resolve(event), _VALUE_COST + len(event.value)
        if event.anchor:
            self.anchors[event.anchor] = (value, cost)
        self._add(value, cost, event)

    def _awaits_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def _key(self, event: Any) -> None:
        """Keys are strings, as in JSON: ``80:`` is the key ``"80"``."""
        parent = self.stack[-1]
        if event.value in parent.value:
            raise _error(f"duplicate key {event.value!r}", event)
        parent.key = event.value
        parent.cost += _VALUE_COST + len(event.value)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            opened = any(one.anchor == event.anchor for one in self.stack)
            raise _error(f"{'a recursive' if opened else 'an unknown'} alias: {_QUOTE}", event)
        if self._awaits_key():
            raise _error("an alias cannot be a key", event)
        value, cost = self.anchors[event.anchor]
        self._add(value, cost, event)

    def _open(self, event: Any) -> None:
        if self._awaits_key():
            raise _error("a key must be a string", event)
        if len(self.stack) >= DEPTH_LIMIT:
            raise _error(f"nested deeper than {DEPTH_LIMIT} levels", event)
        if event.tag is not None and event.tag not in _COLLECTION_TAGS:
            raise _error(f"a tag that is not supported: {_QUOTE}", event)
        self.stack.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))

    def _close(self, event: Any) -> None:
        closed = self.stack.pop()
        if closed.anchor:
            self.anchors[closed.anchor] = (closed.value, closed.cost)
        self._add(closed.value, closed.cost, event)

    def _add(self, value: object, cost: int, event: Any) -> None:
        if not self.stack:
            self.documents.append(value)
            return
        parent = self.stack[-1]
        parent.cost += cost
        if parent.cost > EXPANSION_LIMIT:
            raise _error(f"aliases expand to more than {EXPANSION_LIMIT} characters", event)
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is not None:
            parent.value[parent.key] = value
            parent.key = None


def _resolve(event: Any) -> object:
    if event.tag in _STRING_TAGS or (event.tag is None and not event.implicit[0]):
        return event.value
    if event.tag is not None and event.tag not in _SCALAR_TAGS:
        raise _error(f"a tag that is not supported: {_QUOTE}", event)
    return plain_value(event.value)


def plain_value(text: str) -> object:
    """The value of a plain scalar by the core schema of YAML 1.2; what looks like nothing else is a string."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text) if text.lstrip("-+").isdigit() else int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _error(detail: str, event: Any) -> TextError:
    return TextError(detail, event.start_mark.line + 1, event.start_mark.column + 1)


def _place(text: str, offset: int) -> tuple[int, int]:
    """The line and column of a character, by what ends a line in YAML: as the scanner counts everywhere else."""
    before = _LINE_END.split(text[:offset])
    return len(before), len(before[-1]) + 1


def _characters(text: str, octets: int) -> int:
    """How many characters stand before an octet of the text in UTF-8."""
    return len(text.encode(errors="replace")[:octets].decode(errors="ignore"))


def parse_yaml(text: str) -> list[object]:
    """The documents of a YAML stream as dicts, lists, strings, numbers, bools and None.

    Raises ``TextError`` with the place of what cannot be read.
    """
    if len(text) > TEXT_LIMIT:
        raise TextError(f"YAML of more than {TEXT_LIMIT} characters; JSON may be larger")
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            reader.read(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        detail = ", ".join(part for part in (error.context, error.problem) if part)
        raise TextError(detail, mark.line + 1 if mark else 0, mark.column + 1 if mark else 0) from None
    except yaml.reader.ReaderError as error:
        raise TextError(error.reason, *_place(text, _characters(text, error.position))) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise TextError(str(error).replace("\n", " ")) from None
    return reader.documents
