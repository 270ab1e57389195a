"""Text to plain values and back: strict JSON, the part of YAML 1.2 that JSON can express, and YAML output.

* JSON: duplicate keys, NaN and deep nesting are errors. The C parser of the standard library reads the text; where it
  gives no position for an error, the text is scanned once more for it.
* YAML: ``no``, ``012``, ``1:20`` and dates are strings or plain numbers, never what YAML 1.1 makes of them. Duplicate
  keys are errors. Keys tagged ``!ignore`` are left out, as Envoy leaves them out. Depth, size and the expansion of
  aliases are bounded, and nothing recurses, so hostile input ends in an error.
* Output: `to_yaml` writes YAML that `parse_yaml` reads as the same values. Readers of YAML 1.1 and 1.2 take different
  words for numbers (``12e03``, ``0o17``, ``08``): a string that either would read as something else is quoted. Text of
  several lines (PEM, Lua) is written as a block.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from xds.codec.effort import check_effort


class TextError(Exception):
    """Text that cannot be read. ``line`` and ``column`` count from 1; 0 where not known."""

    def __init__(self, detail: str, line: int = 0, column: int = 0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.line = line
        self.column = column


def place_of(text: str, offset: int) -> tuple[int, int]:
    """The line and column of a character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


# No valid push nests deeper (protobuf parsers stop at 100 messages); the JSON parser itself stops at about 1000.
JSON_DEPTH_LIMIT = 250

_TOKEN = re.compile(
    r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")(?P<colon>[ \t\r\n]*:)?'
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<word>-?(?:NaN|Infinity))|(?P<digits>[0-9]+)",
    re.DOTALL,
)


class _RefusedError(Exception):
    """Text that JSON, or this parser, does not allow; its position is not known yet."""


def parse_json(text: str) -> object:
    """The value of a JSON text. Raises ``TextError`` with the position of the error.

    The parser calls back for each object, so that other threads can run meanwhile.
    """
    try:
        return json.loads(text, object_pairs_hook=json_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise TextError(error.msg, error.lineno, error.colno) from None
    except RecursionError:
        raise _first_flaw(text, "nested too deeply") from None
    except (_RefusedError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise _first_flaw(text, str(error)) from None


def json_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """One object; a duplicate key is refused."""
    check_effort()
    built = dict(pairs)
    if len(built) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RefusedError(_twice(next(key for key, count in counts.items() if count > 1)))
    return built


def _constant(name: str) -> object:
    raise _RefusedError(f"{name} is not JSON")


def _twice(key: str) -> str:
    return f"duplicate key {key[:80]!r}"


def _first_flaw(text: str, detail: str) -> TextError:
    """The error for the first flaw of a text that follows the grammar of JSON."""
    first = next(_flaws(text), None) if len(text) <= YAML_TEXT_LIMIT else None
    if first is None:
        return TextError(detail)
    flaw, offset = first
    return TextError(flaw, *place_of(text, offset))


def _flaws(text: str) -> Iterator[tuple[str, int]]:
    """What ``parse_json`` refuses beyond the grammar, with offsets."""
    keys: list[set[str]] = []  # of the open objects and lists
    for token in _TOKEN.finditer(text):
        if token["colon"] and keys:
            key = json.loads(token["text"], strict=False)
            if key in keys[-1]:
                yield _twice(key), token.start()
            keys[-1].add(key)
        elif token["open"]:
            keys.append(set())
            if len(keys) > JSON_DEPTH_LIMIT:
                yield f"nested deeper than {JSON_DEPTH_LIMIT} levels", token.start()
        elif token["close"] and keys:
            keys.pop()
        elif token["word"]:
            yield f"{token['word']} is not JSON", token.start()
        elif token["digits"] and len(token["digits"]) > sys.get_int_max_str_digits() > 0:
            yield f"a number of {len(token['digits'])} digits", token.start()


YAML_DEPTH_LIMIT = 100
# Characters: some 5 s of parsing, 20 s for the most hostile text; JSON takes a fraction of that.
YAML_TEXT_LIMIT = 16 * 1024 * 1024
# What the aliases of a text may stand for together, in characters: so many times the text, within these bounds.
EXPANSION_FACTOR = 32
LEAST_EXPANSION, MOST_EXPANSION = 16 * 1024 * 1024, 64 * 1024 * 1024
_VALUE_COST = 16

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,22}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,5})?")
_LINE_END = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TAG_PREFIX = "tag:yaml.org,2002:"
# The text itself is not shown: it may be an unquoted password.
_QUOTE = "put text that begins with *, & or ! in quotes"
# The tag of keys that Envoy leaves out: only the anchors in their values are used.
IGNORE_TAG = "!ignore"
_QUOTED = re.compile(r"'[^'<]{2,}'")  # neither a character nor the name of a token, such as '<scalar>'
_STRING_TAGS = ("!", _TAG_PREFIX + "str")
_SCALAR_TAGS = (_TAG_PREFIX + "int", _TAG_PREFIX + "float", _TAG_PREFIX + "bool", _TAG_PREFIX + "null")
_COLLECTION_TAGS = ("!", _TAG_PREFIX + "map", _TAG_PREFIX + "seq")


@dataclass(slots=True)
class _OpenCollection:
    """A collection that is being read. ``key`` is the mapping key whose value comes next, to be kept or left out."""

    value: Any
    anchor: str | None
    cost: int = _VALUE_COST
    key: str | None = None
    keeps: bool = True


@dataclass(slots=True)
class _YamlReader:
    """Builds values from parser events; ``documents`` collects the finished ones.

    ``expanded`` is what the aliases so far stand for, in characters.
    """

    expansion_limit: int
    expanded: int = 0
    documents: list[object] = field(default_factory=list)
    stack: list[_OpenCollection] = field(default_factory=list)
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
        parent.keeps = event.tag != IGNORE_TAG
        if parent.keeps and event.value in parent.value:
            raise _yaml_error(f"duplicate key {event.value!r}", event)
        parent.key = event.value
        parent.cost += _VALUE_COST + len(event.value)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            opened = any(one.anchor == event.anchor for one in self.stack)
            raise _yaml_error(f"{'a recursive' if opened else 'an unknown'} alias: {_QUOTE}", event)
        if self._awaits_key():
            raise _yaml_error("an alias cannot be a key", event)
        value, cost = self.anchors[event.anchor]
        self.expanded += cost
        if self.expanded > self.expansion_limit:
            raise _yaml_error(f"aliases expand to more than {self.expansion_limit} characters", event)
        self._add(value, cost, event)

    def _open(self, event: Any) -> None:
        if self._awaits_key():
            raise _yaml_error("a key must be a string", event)
        if len(self.stack) >= YAML_DEPTH_LIMIT:
            raise _yaml_error(f"nested deeper than {YAML_DEPTH_LIMIT} levels", event)
        if event.tag is not None and event.tag not in _COLLECTION_TAGS:
            raise _yaml_error(f"a tag that is not supported: {_QUOTE}", event)
        self.stack.append(_OpenCollection({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))

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
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is not None:
            if parent.keeps:
                parent.value[parent.key] = value
            parent.key = None


def _resolve(event: Any) -> object:
    if event.tag in _STRING_TAGS or (event.tag is None and not event.implicit[0]):
        return event.value
    if event.tag is not None and event.tag not in _SCALAR_TAGS:
        raise _yaml_error(f"a tag that is not supported: {_QUOTE}", event)
    return plain_value(event.value)


def plain_value(text: str) -> object:
    """The value of a plain scalar by the core schema of YAML 1.2; anything else is a string."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text) if text.lstrip("-+").isdigit() else int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _yaml_error(detail: str, event: Any) -> TextError:
    return TextError(detail, event.start_mark.line + 1, event.start_mark.column + 1)


def place_at(text: str, offset: int) -> tuple[int, int]:
    """The line and column of a character, by the line ends of YAML, as its scanner counts."""
    before = _LINE_END.split(text[:offset])
    return len(before), len(before[-1]) + 1


def _characters(text: str, octets: int) -> int:
    """The number of characters before a byte offset of the text in UTF-8."""
    return len(text.encode(errors="replace")[:octets].decode(errors="ignore"))


def parse_yaml(text: str) -> list[object]:
    """The documents of a YAML stream as dicts, lists, strings, numbers, bools and None.

    Raises ``TextError`` with the position of the error.
    """
    if len(text) > YAML_TEXT_LIMIT:
        raise TextError(f"YAML of more than {YAML_TEXT_LIMIT} characters; JSON may be larger")
    reader = _YamlReader(min(max(EXPANSION_FACTOR * len(text), LEAST_EXPANSION), MOST_EXPANSION))
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            check_effort()
            reader.read(event)
    except yaml.MarkedYAMLError as error:
        raise yaml_fault(error) from None
    except yaml.reader.ReaderError as error:
        raise TextError(error.reason, *place_at(text, _characters(text, error.position))) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise TextError(str(error).replace("\n", " ")) from None
    return reader.documents


def yaml_fault(error: yaml.YAMLError) -> TextError:
    """What is wrong, and where, without the text there: PyYAML's own message shows the line, and quotes words of it."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return TextError("not YAML")
    mark = error.problem_mark or error.context_mark
    parts = [_QUOTED.sub("it", part) for part in (error.context, error.problem) if part]
    return TextError(", ".join(parts) or "not YAML", mark.line + 1 if mark else 0, mark.column + 1 if mark else 0)


# Text that a block keeps unchanged: it does not begin with a space, and no line ends with one.
_BLOCK = re.compile(r"[!-~\u00a1-\u2027\u202a-\ud7ff](?:[\t -~\u00a1-\u2027\u202a-\ud7ff]|\n)*")
_SPACE_AT_END = re.compile(r"[ \t](?:\n|\Z)")


# The emitter writes no tabs in a block, though YAML allows them: this character replaces a tab meanwhile.
_TAB = "\ue009"


class _TabTakenError(Exception):
    """The document itself contains the replacement for a tab."""


class _Quoting(yaml.CSafeDumper):
    """Quotes what `parse_yaml` would not read as a string; writes repeated values in full, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Dumper(_Quoting):
    """Keeps tabs in blocks, by `_TAB`."""


def to_yaml(document: object) -> str:
    """A value as YAML, keys in their order."""
    try:
        return _dumped(document, _Dumper).replace(_TAB, "\t")
    except _TabTakenError:
        return _dumped(document, _Quoting)


def _dumped(document: object, dumper: type[_Quoting]) -> str:
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def _string(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _string_with_tabs(dumper: Any, text: str) -> Any:
    if _TAB in text:
        raise _TabTakenError
    style = _style(text)
    shown = text.replace("\t", _TAB) if style == "|" else text
    return dumper.represent_scalar("tag:yaml.org,2002:str", shown, style=style)


def _style(text: str) -> str | None:
    """None leaves the choice to the emitter, which quotes what YAML 1.1 would not read as a string."""
    if "\n" in text:
        return "|" if _BLOCK.fullmatch(text) and not _SPACE_AT_END.search(text) else None
    return None if plain_value(text) is text else "'"


_Quoting.add_representer(str, _string)
_Dumper.add_representer(str, _string_with_tabs)
