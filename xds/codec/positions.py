"""Lines and columns of findings in the text: the position of a key, or of an item of a list.

Values are read without positions, which is fast. Only when there are findings the text is scanned once more: JSON with
its own parser, YAML event by event. The scan builds no values, does not follow aliases, and descends only towards
findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from xds.codec.effort import check_effort
from xds.codec.findings import normalized_name, parse_pointer
from xds.codec.text import IGNORE_TAG, json_object
from xds.model.errors import Violation

_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,:]*")
_KEY = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# A hint at another resource by its position in the push.
_OTHER = re.compile(r"resources\[(\d+)\]$")
_DECODER = json.JSONDecoder(object_pairs_hook=json_object)


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """One document of a text and its resources: a list of ``count`` at ``path``, or a single one there."""

    document: int
    path: tuple[str, ...] = ()
    count: int = 1
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class TextLayout:
    """A text that was read: ``source`` names its file, ``parts`` are the paths of its resources, in order."""

    text: str = ""
    is_json: bool = False
    source: str = ""
    parts: Sequence[DocumentPart] = ()

    def path(self, index: int) -> tuple[int, tuple[str, ...]]:
        """The document of a resource and the path to it; for no resource (-1), the first document itself."""
        left = index
        for part in self.parts if index >= 0 else ():
            if left < part.count:
                return part.document, (*part.path, str(left)) if part.is_list else part.path
            left -= part.count
        return 0, ()


def locate(layout: TextLayout, violations: Iterable[Violation], document: int = 0) -> list[Violation]:
    """The violations with ``source`` as ``file:line:column``; an absent field has the position of its parent.

    In a named source, hints that end with ``resources[3]`` end with the place of that resource.
    ``document`` is the one that findings without a resource refer to.
    """
    placed = list(violations)
    root = _Node()
    nodes = []
    others: dict[int, _Node] = {}
    for place, violation in enumerate(placed):
        number, path = layout.path(violation.index) if violation.index >= 0 else (document, ())
        nodes.append(root.at((str(number), *path, *parse_pointer(violation.pointer))))
        if layout.source and (other := other_resource(violation.hint)) is not None:
            number, path = layout.path(other)
            others[place] = root.at((str(number), *path))
    if layout.is_json:
        _JsonWalk(layout.text).run(root)
    else:
        _walk_yaml(layout.text, root)
    located = [replace(one, source=_source(layout, node)) for one, node in zip(placed, nodes, strict=True)]
    for place, node in others.items():
        located[place] = with_other(located[place], _source(layout, node))
    return located


def other_resource(hint: str) -> int | None:
    """The position of the resource that a hint ends with (``resources[3]``); None for other hints."""
    match = _OTHER.search(hint)
    return None if match is None else int(match[1])


def with_other(violation: Violation, source: str) -> Violation:
    """The violation with a place in its hint instead of ``resources[3]``."""
    return replace(violation, hint=_OTHER.sub("", violation.hint) + source)


def _source(layout: TextLayout, node: _Node) -> str:
    place = node.nearest()
    return ":".join(str(part) for part in (layout.source, *(place or ())) if part)


@dataclass(slots=True, eq=False)
class _Node:
    """One step of the paths of the findings; ``alike`` holds the child steps by their normalized names.

    ``place`` is the best position so far; ``score`` counts the keys on its path that are spelt exactly.
    """

    above: _Node | None = None
    below: dict[str, _Node] = field(default_factory=dict)
    alike: dict[str, list[_Node]] = field(default_factory=dict)
    place: tuple[int, int] | None = None
    score: int = -1

    def at(self, path: Iterable[str]) -> _Node:
        node = self
        for part in path:
            if part not in node.below:
                node.below[part] = _Node(node)
                node.alike.setdefault(normalized_name(part), []).append(node.below[part])
            node = node.below[part]
        return node

    def nearest(self) -> tuple[int, int] | None:
        node: _Node | None = self
        while node is not None and node.place is None:
            node = node.above
        return None if node is None else node.place


# The nodes that a position of the text may belong to, each with its score.
_Active = list[tuple[_Node, int]]


def _entered(active: _Active, key: str) -> _Active:
    """The nodes of a key's value. Keys match in either spelling; the exact one scores higher."""
    return [
        (node, score + (above.below.get(key) is node))
        for above, score in active
        for node in above.alike.get(normalized_name(key), ())
    ]


def _single(active: _Active) -> _Active:
    """A value that is not a list may stand for a list of one."""
    return active + [(node.below["0"], score) for node, score in active if "0" in node.below]


def _mark(active: _Active, place: tuple[int, int]) -> None:
    for node, score in active:
        if score > node.score:
            node.place, node.score = place, score


class _JsonWalk:
    """Scans a text that is known to be JSON, and descends towards the findings."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._marks: list[tuple[int, _Active]] = []

    def run(self, root: _Node) -> None:
        start = self._skip(_SPACE, 0)
        active = _entered([(root, 0)], "0")
        self._mark(start, active)
        self._value(start, active)
        self._place()

    def _mark(self, at: int, active: _Active) -> None:
        if active:
            self._marks.append((at, active))

    def _skip(self, pattern: re.Pattern[str], at: int) -> int:
        match = pattern.match(self._text, at)
        return at if match is None else match.end()

    def _value(self, at: int, active: _Active) -> int:
        """Scan a value and return the offset behind it."""
        opened = self._text[at]
        if opened != "[":
            active = _single(active)
        if opened not in "[{" or not any(node.below for node, _ in active):
            return int(_DECODER.raw_decode(self._text, at)[1])
        return self._object(at + 1, active) if opened == "{" else self._list(at + 1, active)

    def _object(self, at: int, active: _Active) -> int:
        while self._text[at := self._skip(_BETWEEN, at)] != "}":
            after = self._skip(_KEY, at)
            entered = _entered(active, json.loads(self._text[at:after]))
            self._mark(at, entered)
            at = self._value(self._skip(_BETWEEN, after), entered)
        return at + 1

    def _list(self, at: int, active: _Active) -> int:
        index = 0
        while self._text[at := self._skip(_BETWEEN, at)] != "]":
            entered = [(node.below[str(index)], score) for node, score in active if str(index) in node.below]
            self._mark(at, entered)
            at = self._value(at, entered)
            index += 1
        return at + 1

    def _place(self) -> None:
        """Offsets to lines and columns, counting each line once."""
        line = start = last = 0
        for offset, active in self._marks:
            line += self._text.count("\n", last, offset)
            start = self._text.rfind("\n", last, offset) + 1 or start
            _mark(active, (line + 1, offset - start + 1))
            last = offset


@dataclass(slots=True)
class _Open:
    """An open YAML collection: ``entered`` are the nodes of the key whose value comes next."""

    is_list: bool
    active: _Active
    entered: _Active | None = None
    index: int = 0


def _walk_yaml(text: str, root: _Node) -> None:
    walk = _YamlWalk([(root, 0)])
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        check_effort()
        walk.read(event)


class _YamlWalk:
    """Follows parser events; in a subtree without findings it only counts the depth."""

    def __init__(self, active: _Active) -> None:
        self._root = active
        self._documents = 0
        self._stack: list[_Open] = []
        self._passing = 0

    def read(self, event: Any) -> None:
        if isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif self._passing:
            self._passing += isinstance(event, yaml.CollectionStartEvent)
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)

    def _close(self) -> None:
        if self._passing:
            self._passing -= 1
        else:
            self._stack.pop()

    def _node(self, event: Any) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and not top.is_list and top.entered is None:
            entered = [] if event.tag == IGNORE_TAG else _entered(top.active, event.value)
            top.entered = self._marked(entered, event)
            return
        active = self._value(top, event)
        if not isinstance(event, yaml.CollectionStartEvent):
            return
        is_list = isinstance(event, yaml.SequenceStartEvent)
        active = active if is_list else _single(active)
        if any(node.below for node, _ in active):
            self._stack.append(_Open(is_list, active))
        else:
            self._passing = 1

    def _value(self, top: _Open | None, event: Any) -> _Active:
        """The nodes of a value: of the key before it, the next item of its list, or the next document."""
        if top is None:
            self._documents += 1
            return self._marked(_entered(self._root, str(self._documents - 1)), event)
        if top.entered is not None:
            active, top.entered = top.entered, None
            return active
        top.index += 1
        index = str(top.index - 1)
        return self._marked([(node.below[index], score) for node, score in top.active if index in node.below], event)

    @staticmethod
    def _marked(active: _Active, event: Any) -> _Active:
        _mark(active, (event.start_mark.line + 1, event.start_mark.column + 1))
        return active
