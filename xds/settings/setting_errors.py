"""Error messages for invalid settings: the path of the setting, the expected value, and the nearest name.

A message about a value names its place and its kind, never the value itself: a password may stand in any setting that
has a wrong shape, in a URL for instance, and messages are in the log, in events, and on the terminal of a build. Only
numbers and switches are shown, where a setting is one. What a validator of ours raises is shown, so its message obeys
the rule too: it may name scopes, names of tokens, patterns and addresses to listen on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from xds.filter.values import type_name

_TAG = "kind"  # the setting that distinguishes the sections of a mapping
_VALIDATOR_PREFIX = "Value error, "  # pydantic puts it before the message of our own validators


def explain_setting(detail: Mapping[str, Any], model: type[BaseModel]) -> str:
    """The message for one pydantic error about the settings of ``model``."""
    path = [str(part) for part in detail["loc"]]
    steps = _steps(path, model)
    where = ".".join(step for step, _ in steps)
    if detail["type"] == "extra_forbidden":
        return f"{where}: unknown setting{name_hint(path[-1], _names(steps[-2][1] if len(steps) > 1 else model))}"
    if detail["type"] in ("union_tag_not_found", "union_tag_invalid"):
        return f"{where}.{_TAG}: {_wrong_kind(detail, list(_kinds_below(steps[-1][1])))}"
    return f"{where}: {detail['msg'].removeprefix(_VALIDATOR_PREFIX)}{_got(detail['input'], steps[-1][1])}"


def _got(value: object, annotation: Any) -> str:
    """The value, where the setting is a number or a switch and so is the value; else its kind."""
    if isinstance(value, Mapping) or value is None:
        return ""
    is_plain = isinstance(value, int | float) and _is_plain(annotation)
    return f" (got {value!r})" if is_plain else f" (got {type_name(value)})"


def _is_plain(annotation: Any) -> bool:
    kinds = [each for each in _choices(annotation) if each is not type(None)]
    return bool(kinds) and all(issubclass(each, int | float) for each in kinds)


def _wrong_kind(detail: Mapping[str, Any], kinds: Sequence[str]) -> str:
    kind = detail.get("ctx", {}).get("tag")
    if kind is None:
        return f"Field required (one of {', '.join(kinds)})"
    return f"{kind!r} is not a kind of source{name_hint(str(kind), kinds)}"


def name_hint(word: str, choices: Sequence[str]) -> str:
    """A hint that names the choice that was probably meant, or else all choices."""
    close = get_close_matches(word, choices, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f" (one of {', '.join(choices)})" if choices else ""


def section_class(annotation: Any) -> type[BaseModel] | None:
    """The class of a section: ``TlsSettings`` for ``TlsSettings | None``; None for a setting that is not a section."""
    choices = get_args(annotation) or (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)), None)


def section_kinds(annotation: Any) -> dict[str, type[BaseModel]]:
    """The section classes by kind, for a setting that maps names to sections of several kinds; else empty."""
    return _kinds_below(get_args(annotation)[1]) if get_origin(annotation) is dict else {}


def _kinds_below(annotation: Any) -> dict[str, type[BaseModel]]:
    kinds: dict[str, type[BaseModel]] = {}
    for choice in _choices(annotation):
        if issubclass(choice, BaseModel) and _TAG in choice.model_fields:
            kinds |= dict.fromkeys(map(str, get_args(choice.model_fields[_TAG].annotation)), choice)
    return kinds


def _choices(annotation: Any) -> Iterator[type]:
    """The classes among the alternatives of an annotation, through ``Annotated`` and unions."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
        return
    for each in get_args(annotation):
        yield from _choices(each)


def _steps(path: Sequence[str], model: type[BaseModel]) -> list[tuple[str, Any]]:
    """The parts of a path that the operator wrote, each with the annotation of its setting.

    pydantic adds two kinds of parts: the kind of a section after its name, and ``[key]`` after an invalid name.
    """
    steps: list[tuple[str, Any]] = []
    annotation: Any = model
    kinds: dict[str, type[BaseModel]] = {}
    for part in path:
        if part in kinds:
            annotation = kinds[part]
            steps[-1] = (steps[-1][0], annotation)
        elif part != "[key]":
            kinds, annotation = section_kinds(annotation), _member(annotation, part)
            steps.append((part, annotation))
            continue
        kinds = {}
    return steps


def _member(annotation: Any, part: str) -> Any:
    """The annotation of a member; None if the member is unknown."""
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    section = section_class(annotation)
    if section is not None:
        return section.model_fields[part].annotation if part in section.model_fields else None
    return get_args(annotation)[0] if get_origin(annotation) is tuple else None


def _names(annotation: Any) -> list[str]:
    section = section_class(annotation)
    return list(section.model_fields) if section is not None else []
