"""Checks that a regular expression means the same to RE2 and to the proxy, which uses Rust's ``regex``.

A proxy rejects a policy with an expression that it cannot read: then every request fails. In a profile's route by path
and method it ignores such a path, and matches by the method alone. So only expressions with surely equal meaning are
sent. A few expressions that do have equal meaning are left out as well.
"""

from __future__ import annotations

import re

from xds.filter.values import Pattern

_REPEATED_LIMIT = 100  # product of all counted repetitions: \\w has a thousand states
_LENGTH_LIMIT = 1_000
_GROUP = re.compile(r"\((\?(:|[ims]+[:)]|P<[A-Za-z]\w*>))?")
_COUNTED = re.compile(r"\{(\d{1,3})(,(\d{0,3}))?\}")
_ESCAPED = frozenset(r"dDwWsSntrfv.+*?()|[]{}^$\/-#&~:;,=!@%'\" _")
_CLASS_CONFUSING = ("[", "&&", "--", "~~")


def full_match(text: str) -> str:
    """The expression that matches a whole text. The proxy only checks whether its leftmost match is the whole text."""
    return f"^(?:{text})$"


def anchored(text: str) -> str:
    """The expression for the path of a profile. The proxy strips spaces from it, and adds ``^`` and ``$`` if missing.

    An expression whose meaning this does not change is returned unchanged.
    """
    is_plain = text == text.strip() and "|" not in text and not text.startswith("^") and not text.endswith("$")
    return text if is_plain else full_match(text)


def is_readable(text: str) -> bool:
    """Whether the proxy accepts an expression and reads it as RE2 does."""
    if len(text) > _LENGTH_LIMIT or not text.isascii() or not text.isprintable():
        return False
    try:
        Pattern(text)
    except ValueError:
        return False
    return _is_common(text)


def _is_common(text: str) -> bool:
    at, repeated = 0, 1
    while at < len(text):
        length = _token_length(text, at)
        if not length:
            return False
        counted = _COUNTED.match(text, at) if text[at] == "{" else None
        if counted is not None:
            repeated *= max(int(counted[1]), int(counted[3] or 0), 1)
        at += length
    return repeated <= _REPEATED_LIMIT


def _token_length(text: str, at: int) -> int:
    """The length of the token at ``at``; 0 for a token that may mean something else to the proxy."""
    match text[at]:
        case "\\":
            return 2 if at + 1 < len(text) and text[at + 1] in _ESCAPED else 0
        case "(":
            group = _GROUP.match(text, at)
            is_plain = group is not None and (group[1] is not None or text[at + 1 : at + 2] != "?")
            return len(group[0]) if group is not None and is_plain else 0
        case "[":
            return _class_length(text, at)
        case "{":
            counted = _COUNTED.match(text, at)
            return len(counted[0]) if counted is not None else 0
        case "}" | "]":
            return 0
    return 1


def _class_length(text: str, at: int) -> int:
    """The length of a character class; 0 for a class with nested sets, which RE2 does not support."""
    end = at + 1
    if text[end : end + 1] == "^":
        end += 1
    begin = end
    while end < len(text) and text[end] != "]":
        if text[end] == "\\" and text[end + 1 : end + 2] not in _ESCAPED:
            return 0
        end += 2 if text[end] == "\\" else 1
    content = text[begin:end]
    if end >= len(text) or not content or any(each in content.replace("\\[", "") for each in _CLASS_CONFUSING):
        return 0
    return end + 1 - at
