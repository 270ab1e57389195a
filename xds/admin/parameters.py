"""Query parameters that a route does not know, or that are given twice, and NUL in any: 400, before anything is done.

A misspelt parameter would have no effect otherwise: ``?dryrun=true`` would push. What a route knows is what it and
its dependencies declare, so a new route is checked without further code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import get_origin
from urllib.parse import unquote

from fastapi import Request
from fastapi.dependencies.models import Dependant

from xds.model.errors import MalformedError, Violation
from xds.model.text_flaws import CODE, flaw_of

CODE_UNKNOWN, CODE_REPEATED = "unknown_parameter", "repeated_parameter"
SHOWN = 80  # characters of a parameter's name in an error
CLOSE = 0.6  # how similar a known name is to be suggested


def check_known(request: Request, more: Collection[str] = (), repeated: Collection[str] = ()) -> None:
    """Raises ``MalformedError`` unless the route knows all parameters. It reads ``more`` itself, those ``repeated``
    more than once.
    """
    _check_texts(request)
    if request.scope["query_string"]:
        names, lists = _declared(request)
        _check(request, names.union(more), lists.union(repeated))


def _check_texts(request: Request) -> None:
    """Not every store can hold NUL. Half of a surrogate pair has no percent-encoding."""
    if b"%00" not in request.scope["raw_path"] + request.scope["query_string"]:
        return
    texts = [(name, unquote(str(text)), "path") for name, text in request.path_params.items()]
    texts += [(name, text, "query") for name, text in request.query_params.multi_items()]
    if flawed := [(name, flaw_of(text), source) for name, text, source in texts if flaw_of(text)]:
        raise MalformedError(
            [Violation(CODE, flaw, pointer=f"/{name}", source=source) for name, flaw, source in flawed]
        )


def _declared(request: Request) -> tuple[set[str], set[str]]:
    """The query parameters that the route knows, and those among them that may be repeated."""
    names: set[str] = set()
    repeated: set[str] = set()
    for dependant in _with_dependencies(request.scope["route"].dependant):
        for field in dependant.query_params:
            names.add(field.alias)
            kind = get_origin(field.field_info.annotation)
            if isinstance(kind, type) and issubclass(kind, Sequence):
                repeated.add(field.alias)
    return names, repeated


def _with_dependencies(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for each in dependant.dependencies:
        yield from _with_dependencies(each)


def _check(request: Request, known: Collection[str], repeated: Collection[str]) -> None:
    given = Counter(name for name, _ in request.query_params.multi_items())
    findings = [finding for name, times in given.items() if (finding := _finding(name, times, known, repeated))]
    if findings:
        raise MalformedError(findings)


def _finding(name: str, times: int, known: Collection[str], repeated: Collection[str]) -> Violation | None:
    shown = name[:SHOWN]
    if name not in known:
        detail, hint = f"there is no query parameter {shown!r} here", _hint(shown, known)
        return Violation(CODE_UNKNOWN, detail, pointer=f"/{shown}", source="query", hint=hint)
    if times > 1 and name not in repeated:
        detail = f"the query parameter {shown!r} is given {times} times"
        return Violation(CODE_REPEATED, detail, pointer=f"/{shown}", source="query", hint="give it once")
    return None


def _hint(name: str, known: Collection[str]) -> str:
    """``did you mean 'dry_run'?``, or all that there are. Case, hyphens and underscores do not matter."""
    spelt = {_plain(each): each for each in sorted(known)}
    close = get_close_matches(_plain(name), spelt, n=1, cutoff=CLOSE)
    if close:
        return f"did you mean {spelt[close[0]]!r}?"
    return f"known are {', '.join(sorted(known))}" if known else "this path takes none"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
