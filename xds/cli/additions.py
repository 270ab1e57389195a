"""What features add to the answers of the kernel's commands. The module of a feature's commands registers it.

A function that is registered imports what it needs when it is called: all commands register at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xds.cli.checks import Checked, Checks
    from xds.cli.table import Style
    from xds.model.errors import Violation

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExplanationPart:
    """A part of ``xds explain`` about a node.

    ``text`` makes it from the explanation; empty: there is nothing to say. ``without_group`` is said of such a node if
    no group matches.
    """

    text: Callable[[Json, Style], str]
    without_group: str


@dataclass(frozen=True, slots=True)
class Additions:
    """All additions.

    ``node_notes`` make a short text about a node, as in ``xds nodes``; empty: none. ``checks`` are those of ``xds
    validate``, after all others of a group.
    """

    node_notes: list[Callable[[Json], str]] = field(default_factory=list)
    explanation_parts: list[ExplanationPart] = field(default_factory=list)
    checks: list[Callable[[Checked, Checks], Iterable[Violation]]] = field(default_factory=list)


ADDITIONS = Additions()
