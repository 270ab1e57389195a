"""Names and sizes: one public class of each name, one module of each name, no module over the limit."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from tools.house.source import Finding, Module, Repository

LINES_LIMIT = 500
# The admin API, its calls, the command line and the program present or join what lies below them, so their modules may
# carry its names.
FACES = (
    "xds/admin/routes/",
    "xds/admin/",
    "xds/calls/",
    "xds/cli/commands/",
    "xds/cli/",
    "xds/app/",
)
FEATURE = "/feature.py"  # a room with this module is a feature


def duplicate_classes(repository: Repository, allowed: Collection[str]) -> Iterator[Finding]:
    """Public classes of the product that share their name with another one."""
    places: dict[str, list[tuple[Module, int]]] = defaultdict(list)
    for module in repository.product:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((module, node.lineno))
    for name, found in sorted(places.items()):
        if len(found) > 1 and name not in allowed:
            others = ", ".join(module.path for module, _ in found[1:])
            yield Finding(found[0][0].path, found[0][1], f"class {name} is defined in {others} as well", name)


def duplicate_modules(repository: Repository, reasons: Mapping[str, str]) -> Iterator[Finding]:
    """Modules that share their name with another one, where no reason is listed."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    features = tuple(path.removesuffix("feature.py") for path in repository.modules if path.endswith(FEATURE))
    features = tuple(each for each in features if each != "xds/")  # that module says what a feature is
    for module in repository.product:
        if module.stem not in {"__init__", "__main__"}:
            places[_face(module.path, features), module.stem].append(module.path)
    for (_, stem), paths in sorted(places.items()):
        if len(paths) > 1 and not reasons.get(stem):
            yield Finding(paths[0], 1, f"there is a second module {stem!r}: {', '.join(paths[1:])}", stem)


def _face(path: str, features: tuple[str, ...]) -> str:
    """The folder within which a name stands once; empty for all folders that have no names of their own.

    The modules of a feature are named after what they are to it: each of its folders has names of its own.
    """
    if path.startswith(features):
        return path.rpartition("/")[0]
    return next((each for each in FACES if path.startswith(each)), "")


def large_modules(repository: Repository) -> Iterator[Finding]:
    """Modules that are too long. A module of tests may be longer than one of the product."""
    for module in repository.modules.values():
        lines = module.text.count("\n")
        if lines > LINES_LIMIT and not module.path.startswith("tests/"):
            yield Finding(module.path, LINES_LIMIT + 1, f"{lines} lines; a module has at most {LINES_LIMIT}")
