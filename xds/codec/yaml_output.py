"""Plain values to YAML text that ``yaml_text`` reads as the very same values, and a person can read, too.

Readers of YAML 1.1 and of 1.2 take different words for numbers (``12e03``, ``0o17``, ``08``): what either takes for
anything but the string that it is stands in quotes. Text of several lines (PEM, Lua) is written as a block.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from xds.codec.yaml_text import plain_value

# What a block keeps as it is: it begins with no space, and no line ends with one.
_BLOCK = re.compile(r"[!-~\u00a1-\u2027\u202a-\ud7ff](?:[\t -~\u00a1-\u2027\u202a-\ud7ff]|\n)*")
_SPACE_AT_END = re.compile(r"[ \t](?:\n|\Z)")


# The emitter writes no tab in a block, though YAML allows it: this stands for one, until the text is written.
_TAB = "\ue009"


class _TabTakenError(Exception):
    """The document itself has the character that stands for a tab."""


class _Quoting(yaml.CSafeDumper):
    """Quotes what our reader would not take for a string; writes a value that occurs twice out twice."""

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
    """None leaves it to the emitter, which quotes what YAML 1.1 would take for something else."""
    if "\n" in text:
        return "|" if _BLOCK.fullmatch(text) and not _SPACE_AT_END.search(text) else None
    return None if plain_value(text) is text else "'"


_Quoting.add_representer(str, _string)
_Dumper.add_representer(str, _string_with_tabs)
