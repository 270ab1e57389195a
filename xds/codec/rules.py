"""The rules of protoc-gen-validate on single values, compiled from their JSON form to tests.

The semantics are those of the C++ code in Envoy: string lengths count code points, ``*_bytes`` count UTF-8; the
well-known patterns for HTTP headers are strict by default; ``ignore_empty`` accepts the default value.

Two rules on strings are not in the .proto files: ``ip`` (an address in digits) and ``regex`` (a pattern of RE2, the
engine that Envoy compiles it with).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

from google.protobuf import duration_pb2
from google.protobuf.descriptor import EnumDescriptor

from xds.codec.effort import present_effort
from xds.filter.regular_expressions import (
    COMPILED_INSTRUCTIONS,
    EFFORT_LIMIT,
    LargePatternError,
    effort_of,
    program_size,
)
from xds.proto.field_options import Rules


class BrokenRule(NamedTuple):
    """A rule that a value breaks; ``detail`` follows the field's name. ``is_warning``: Envoy accepts the value."""

    code: str
    detail: str
    hint: str = ""
    is_warning: bool = False


class Problem(NamedTuple):
    """A broken rule and its path. Paths are built from the inside out, so a valid message costs no bookkeeping.

    ``is_absence``: something is missing, perhaps because of an error in the text, which has a finding already.
    """

    path: tuple[str | int, ...]
    code: str
    detail: str
    hint: str = ""
    is_warning: bool = False
    is_absence: bool = False

    def below(self, *steps: str | int) -> Problem:
        """The same problem, of a value that is at ``steps``."""
        return self._replace(path=(*steps, *self.path))


def missing(path: tuple[str | int, ...], detail: str, hint: str = "") -> Problem:
    """The problem of a field that is not set."""
    return Problem(path, "missing_field", detail, hint, is_absence=True)


# Returns the problems of a message as a whole; an empty list for a valid one.
MessageRule = Callable[[Any], list[Problem]]
RuleTest = Callable[[Any], BrokenRule | None]
_Build = Callable[[Any], RuleTest]

NUMBERS = frozenset(
    (
        *("float", "double", "int32", "int64", "uint32", "uint64"),
        *("sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"),
    )
)
# Rules on the field as a whole, not on a value.
_OF_PRESENCE = frozenset(("ignore_empty", "required", "skip"))
_SHOWN = 80
_END = re.compile(r"\$(?=\||$)")

# Envoy's default of the runtime setting ``re2.max_program_size.error_level``, in RE2's instructions.
_PROGRAM_LIMIT = 100
_REMEMBERED = 4096  # addresses and patterns: pushes repeat them
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}")

_STRICT_NAME = r"^:?[0-9a-zA-Z!#$%&'*+-.^_|~\x60]+$"
_STRICT_VALUE = r"^[^\x00-\x08\x0a-\x1f\x7f]*$"
_LOOSE = r"^[^\x00\x0a\x0d]*$"


def compile_rules(kind: str, rules: Rules, enum: EnumDescriptor | None = None) -> RuleTest | None:
    """One test for the rules of a kind such as ``string``; None if they do not restrict its value.

    Durations are tested as nanoseconds. Raises ``ValueError`` for an unknown rule.
    """
    tests = [test for name, argument in rules.items() if (test := _test(kind, name, argument, rules, enum))]
    if not tests:
        return None
    test = tests[0] if len(tests) == 1 else _all(tests)
    return _unless_empty(test) if rules.get("ignore_empty") else test


def _test(kind: str, name: str, argument: Any, rules: Rules, enum: EnumDescriptor | None) -> RuleTest | None:
    if name in _OF_PRESENCE or name == "strict":
        return None
    if name == "well_known_regex":
        return _well_known(argument, is_strict=rules.get("strict", True))
    if name == "defined_only":
        assert enum is not None
        return _defined(enum) if argument else None
    build = _BUILDERS.get("number" if kind in NUMBERS else kind, {}).get(name)
    if build is None:
        raise ValueError(f"unknown rule {kind}.{name}")
    return build(argument)


def _all(tests: list[RuleTest]) -> RuleTest:
    def test(value: Any) -> BrokenRule | None:
        for one in tests:
            breach = one(value)
            if breach is not None:
                return breach
        return None

    return test


def _unless_empty(test: RuleTest) -> RuleTest:
    return lambda value: test(value) if value else None


def nanoseconds(duration: Any) -> int:
    """A ``google.protobuf.Duration`` as one number."""
    return int(duration.seconds) * 1_000_000_000 + int(duration.nanos)


def _of_text(text: str) -> int:
    duration = duration_pb2.Duration()
    duration.FromJsonString(text)
    return nanoseconds(duration)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _bound(holds: Callable[[Any, Any], bool], words: str, parse: Callable[[Any], Any], show: Any = str) -> _Build:
    def build(argument: Any) -> RuleTest:
        limit = parse(argument)
        detail = f"must be {words} {argument}, and is "
        return lambda value: None if holds(value, limit) else BrokenRule("out_of_range", detail + show(value))

    return build


def _seconds(value: int) -> str:
    return f"{value / 1e9:.9f}".rstrip("0").rstrip(".") + "s"


def _bounds(parse: Callable[[Any], Any], show: Callable[[Any], str] = str) -> dict[str, _Build]:
    return {
        "gt": _bound(operator.gt, "greater than", parse, show),
        "gte": _bound(operator.ge, "at least", parse, show),
        "lt": _bound(operator.lt, "less than", parse, show),
        "lte": _bound(operator.le, "at most", parse, show),
        "const": _constant(parse),
        "in": _among(parse),
        "not_in": _not_among(parse),
    }


def _number(argument: Any) -> Any:
    """64-bit integers are strings in JSON."""
    return int(argument) if isinstance(argument, str) else argument


def _constant(parse: Callable[[Any], Any]) -> _Build:
    def build(argument: Any) -> RuleTest:
        wanted = parse(argument)
        detail = f"must be {argument!r}" if not isinstance(argument, bool) else f"must be {str(argument).lower()}"
        return lambda value: None if value == wanted else BrokenRule("not_allowed", detail)

    return build


def _among(parse: Callable[[Any], Any]) -> _Build:
    def build(argument: Any) -> RuleTest:
        allowed = frozenset(parse(one) for one in argument)
        words = ", ".join(map(str, argument))
        return lambda value: (
            None if value in allowed else BrokenRule("not_allowed", f"must be one of {words}; not {_show(value)}")
        )

    return build


def _not_among(parse: Callable[[Any], Any]) -> _Build:
    def build(argument: Any) -> RuleTest:
        refused = frozenset(parse(one) for one in argument)
        return lambda value: BrokenRule("not_allowed", f"must not be {_show(value)}") if value in refused else None

    return build


def _count(value: int, noun: str) -> str:
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"


def _at_least(code: str, noun: str, measure: Callable[[Any], int]) -> _Build:
    def build(argument: Any) -> RuleTest:
        limit = int(argument)
        detail = f"must have at least {_count(limit, noun)}, and has "
        return lambda value: None if measure(value) >= limit else BrokenRule(code, f"{detail}{measure(value)}")

    return build


def _at_most(code: str, noun: str, measure: Callable[[Any], int]) -> _Build:
    def build(argument: Any) -> RuleTest:
        limit = int(argument)
        detail = f"must have at most {_count(limit, noun)}, and has "
        return lambda value: None if measure(value) <= limit else BrokenRule(code, f"{detail}{measure(value)}")

    return build


def _exactly(noun: str, measure: Callable[[Any], int]) -> _Build:
    def build(argument: Any) -> RuleTest:
        wanted = int(argument)
        detail = f"must have {_count(wanted, noun)}, and has "
        return lambda value: (
            None if measure(value) == wanted else BrokenRule("out_of_range", f"{detail}{measure(value)}")
        )

    return build


def _octets(value: str) -> int:
    return len(value.encode(errors="surrogatepass"))


def _pattern(pattern: str, words: str = "") -> RuleTest:
    """RE2's ``$`` is the very end, and its classes are ASCII. The patterns are anchored on both sides."""
    matches = re.compile(_END.sub(r"\\Z", pattern), re.ASCII).search
    detail = words or f"must match {pattern}"
    return lambda value: None if matches(value) else BrokenRule("pattern", f"{detail}; not {_show(value)}")


def _well_known(name: str, *, is_strict: bool) -> RuleTest:
    if name == "HTTP_HEADER_NAME":
        return _pattern(_STRICT_NAME if is_strict else _LOOSE, "must be an HTTP header name")
    if name == "HTTP_HEADER_VALUE":
        return _pattern(_STRICT_VALUE if is_strict else _LOOSE, "must be an HTTP header value")
    raise ValueError(f"unknown pattern {name}")


def _affix(words: str, holds: Callable[[Any, Any], bool]) -> _Build:
    def build(argument: Any) -> RuleTest:
        detail = f"must {words} {argument!r}"
        return lambda value: None if holds(value, argument) else BrokenRule("pattern", f"{detail}; not {_show(value)}")

    return build


@lru_cache(_REMEMBERED)
def is_ip(text: str) -> bool:
    """Whether Envoy reads a text as an IP address. IPv6 has no brackets, and may have a zone."""
    if _IPV4.match(text):
        return True
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return address.version == 6 and ("%" not in text or address.is_link_local)


def _ip(argument: Any) -> RuleTest:
    detail = "must be an IP address; not "
    return lambda value: None if is_ip(value) else BrokenRule("bad_address", detail + _show(value))


class _SpentError(Exception):
    """The work at hand may compile no further pattern of this size."""


def _regex(argument: Any) -> RuleTest:
    def test(pattern: str) -> BrokenRule | None:
        try:
            return _regex_fault(pattern)
        except _SpentError:
            return _UNCHECKED_REGEX

    return test


_UNCHECKED_REGEX = BrokenRule(
    "regex_not_checked",
    "was not checked: the regular expressions before it took all the work that one request may make",
    "push in several parts, or check with `xds validate`, which has no such limit",
    True,
)
_RAISE_LIMIT = "the runtime key re2.max_program_size.error_level raises it"


@lru_cache(_REMEMBERED)
def _regex_fault(pattern: str) -> BrokenRule | None:
    """What is wrong with a pattern; a warning where Envoy's runtime settings decide. Raises ``_SpentError``."""
    effort = present_effort()
    try:
        if effort is not None and not effort.take(min(effort_of(pattern), EFFORT_LIMIT)):
            raise _SpentError
        size = program_size(pattern)
    except LargePatternError:
        detail = (
            f"was not compiled: it needs more than {COMPILED_INSTRUCTIONS} instructions; Envoy refuses more than "
            f"{_PROGRAM_LIMIT} by default"
        )
        return BrokenRule("regex_too_large", detail, _RAISE_LIMIT, True)
    except ValueError as error:
        reason = str(error)
        hint = "RE2 has no look-around and no backreferences" if "perl operator" in reason or "escape" in reason else ""
        return BrokenRule("bad_regex", f"is not a regular expression of RE2: {reason}", hint)
    if size <= _PROGRAM_LIMIT:
        return None
    detail = f"compiles to {size} instructions; Envoy refuses more than {_PROGRAM_LIMIT} by default"
    return BrokenRule("regex_too_large", detail, _RAISE_LIMIT, True)


def _defined(enum: EnumDescriptor) -> RuleTest:
    numbers = frozenset(value.number for value in enum.values)
    detail = f"must be a value of {enum.name}; not "
    return lambda value: None if value in numbers else BrokenRule("unknown_enum_value", f"{detail}{value}")


def _unique(argument: Any) -> RuleTest:
    def test(value: Any) -> BrokenRule | None:
        seen: set[Any] = set()
        for item in value:
            if item in seen:
                return BrokenRule("duplicate_item", f"must not repeat {_show(item)}")
            seen.add(item)
        return None

    return test if argument else lambda value: None


_BUILDERS: Mapping[str, Mapping[str, _Build]] = {
    "number": _bounds(_number),
    "duration": _bounds(_of_text, _seconds),
    "bool": {"const": _constant(bool)},
    "enum": {"const": _constant(int), "in": _among(int), "not_in": _not_among(int)},
    "string": {
        "const": _constant(str),
        "in": _among(str),
        "not_in": _not_among(str),
        "len": _exactly("character", len),
        "min_len": _at_least("too_short", "character", len),
        "max_len": _at_most("too_long", "character", len),
        "len_bytes": _exactly("byte", _octets),
        "min_bytes": _at_least("too_short", "byte", _octets),
        "max_bytes": _at_most("too_long", "byte", _octets),
        "pattern": _pattern,
        "ip": _ip,
        "regex": _regex,
        "prefix": _affix("begin with", str.startswith),
        "suffix": _affix("end with", str.endswith),
        "contains": _affix("contain", operator.contains),
        "not_contains": _affix("not contain", lambda value, part: part not in value),
    },
    "bytes": {
        "len": _exactly("byte", len),
        "min_len": _at_least("too_short", "byte", len),
        "max_len": _at_most("too_long", "byte", len),
    },
    "repeated": {
        "min_items": _at_least("too_few", "item", len),
        "max_items": _at_most("too_many", "item", len),
        "unique": _unique,
    },
    "map": {
        "min_pairs": _at_least("too_few", "pair", len),
        "max_pairs": _at_most("too_many", "pair", len),
    },
}
