"""Options that several commands take together, and get as one argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Run = Callable[..., None]


def takes(options: Callable[..., Any], name: str) -> Callable[[Run], Run]:
    """A command with the parameters of ``options`` as options, in place of its argument ``name``: their result.

    An option that the command has itself is passed to both.
    """
    added = inspect.signature(options, eval_str=True).parameters

    def extend(command: Run) -> Run:
        own = inspect.signature(command, eval_str=True).parameters
        shown: dict[str, inspect.Parameter] = {}
        for each, parameter in own.items():
            shown |= {each: parameter} if each != name else {one: added[one] for one in added if one not in own}

        @wraps(command)
        def run(**values: Any) -> None:
            made = options(**{each: values[each] for each in added})
            command(**{each: made if each == name else values[each] for each in own})

        run.__signature__ = inspect.Signature(list(shown.values()))  # type: ignore[attr-defined]  # read by typer
        run.__annotations__ = {each: parameter.annotation for each, parameter in shown.items()}
        return run

    return extend
