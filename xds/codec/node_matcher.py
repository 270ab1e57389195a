"""``envoy.type.matcher.v3.NodeMatcher``: which nodes a client of the status service asks for.

A node matches if it matches any of the matchers; a matcher, if its id and all of its metadata match. Regexes match the
whole text, as in Envoy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from xds.filter.values import Pattern
from xds.model.errors import ValidationError, Violation
from xds.model.node import Node

MATCHERS_LIMIT = 1_000
DEPTH_LIMIT = 16

Matches = Callable[[Any], bool]

_ABSENT = object()


def read_node_matchers(matchers: Iterable[Any]) -> Callable[[Node], bool]:
    """A predicate for nodes from ``NodeMatcher`` messages; without any it is true. Raises ``ValidationError``."""
    given = list(matchers)
    if len(given) > MATCHERS_LIMIT:
        raise _invalid(f"at most {MATCHERS_LIMIT} matchers", "")
    tests = [_node(each, f"/node_matchers/{index}") for index, each in enumerate(given)]
    return (lambda node: any(test(node) for test in tests)) if tests else (lambda node: True)


def _node(matcher: Any, place: str) -> Callable[[Node], bool]:
    by_id = _string(matcher.node_id, f"{place}/node_id") if matcher.HasField("node_id") else None
    metadata = [_struct(each, f"{place}/node_metadatas/{at}") for at, each in enumerate(matcher.node_metadatas)]

    def test(node: Node) -> bool:
        return (by_id is None or by_id(node.id)) and all(each(node.metadata) for each in metadata)

    return test


def _struct(matcher: Any, place: str) -> Callable[[Mapping[str, Any]], bool]:
    keys = [segment.key for segment in matcher.path]
    if not keys or not all(keys):
        raise _invalid("a path needs keys", f"{place}/path")
    matches = _value(matcher.value, f"{place}/value", 0)
    return lambda metadata: matches(_find(metadata, keys))


def _find(value: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _value(matcher: Any, place: str, depth: int) -> Matches:
    kind = matcher.WhichOneof("match_pattern")
    if kind is None or depth > DEPTH_LIMIT:
        raise _invalid("expected a pattern" if kind is None else "nested too deeply", place)
    inner = getattr(matcher, kind)
    return _VALUES[kind](inner, f"{place}/{kind}", depth + 1)


def _null(matcher: Any, place: str, depth: int) -> Matches:
    return lambda value: value is None


def _double(matcher: Any, place: str, depth: int) -> Matches:
    kind = matcher.WhichOneof("match_pattern")
    if kind is None:
        raise _invalid("expected range or exact", place)
    if kind == "exact":
        return lambda value: _is_number(value) and value == matcher.exact
    return lambda value: _is_number(value) and matcher.range.start <= value < matcher.range.end


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(matcher: Any, place: str, depth: int) -> Matches:
    test = _string(matcher, place)
    return lambda value: isinstance(value, str) and test(value)


def _bool(matcher: Any, place: str, depth: int) -> Matches:
    return lambda value: isinstance(value, bool) and value is bool(matcher)


def _present(matcher: Any, place: str, depth: int) -> Matches:
    return lambda value: (value is not _ABSENT) is bool(matcher)


def _list(matcher: Any, place: str, depth: int) -> Matches:
    one = _value(matcher.one_of, f"{place}/one_of", depth)
    return lambda value: isinstance(value, list) and any(map(one, value))


def _or(matcher: Any, place: str, depth: int) -> Matches:
    tests = [_value(each, f"{place}/value_matchers/{at}", depth) for at, each in enumerate(matcher.value_matchers)]
    return lambda value: any(test(value) for test in tests)


_VALUES: Mapping[str, Callable[[Any, str, int], Matches]] = {
    "null_match": _null,
    "double_match": _double,
    "string_match": _text,
    "bool_match": _bool,
    "present_match": _present,
    "list_match": _list,
    "or_match": _or,
}


def _string(matcher: Any, place: str) -> Callable[[str], bool]:
    kind = matcher.WhichOneof("match_pattern")
    if kind == "safe_regex":
        return _regex(matcher.safe_regex.regex, place)
    if kind not in _TEXTS:
        raise _invalid("expected exact, prefix, suffix, contains or safe_regex", place)
    compare, wanted = _TEXTS[kind], getattr(matcher, kind)
    if matcher.ignore_case:
        return lambda text: compare(text.lower(), wanted.lower())
    return lambda text: compare(text, wanted)


_TEXTS: Mapping[str | None, Callable[[str, str], bool]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": str.__contains__,
}


def _regex(text: str, place: str) -> Callable[[str], bool]:
    try:
        return Pattern(rf"\A(?:{text})\z").search
    except ValueError as error:
        raise _invalid(str(error), f"{place}/safe_regex") from None


def _invalid(detail: str, place: str) -> ValidationError:
    return ValidationError([Violation("invalid_matcher", f"{place}: {detail}" if place else detail, pointer=place)])
