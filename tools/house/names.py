"""Names and sizes: one public class of each name, one module of each name, a reason for each long module."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from tools.house.source import Finding, Module, Repository

LONG_LINES = 500
REASON = "One idea: "  # begins the sentence in the head of a long module that says why it is not several
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
# The products whose clients or interfaces the features serve, and the rooms that may name them besides the features.
PRODUCTS = re.compile(r"consul|linkerd|kubernetes", re.IGNORECASE)
ABOVE_FEATURES = ("consul", "app", "client", "embed", "cli")


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
    features = _features(repository)
    for module in repository.product:
        if module.stem not in {"__init__", "__main__"}:
            places[_face(module.path, features), module.stem].append(module.path)
    for (_, stem), paths in sorted(places.items()):
        if len(paths) > 1 and not reasons.get(stem):
            yield Finding(paths[0], 1, f"there is a second module {stem!r}: {', '.join(paths[1:])}", stem)


def named_products(repository: Repository, reasons: Mapping[str, str]) -> Iterator[Finding]:
    """Modules of the kernel that name a product of a feature, where no reason is listed. ``reasons`` is by path."""
    rooms = (*_features(repository), *(f"xds/{room}/" for room in ABOVE_FEATURES))
    for module in repository.product:
        if (
            not module.path.startswith(rooms)
            and (found := PRODUCTS.search(module.text))
            and not reasons.get(module.path)
        ):
            line = module.text.count("\n", 0, found.start()) + 1
            yield Finding(module.path, line, f"the kernel names {found[0]}, which is a feature's", module.path)


def _features(repository: Repository) -> tuple[str, ...]:
    """The folders of the features."""
    folders = (path.removesuffix("feature.py") for path in repository.modules if path.endswith(FEATURE))
    return tuple(each for each in folders if each != "xds/")  # that module says what a feature is


def _face(path: str, features: tuple[str, ...]) -> str:
    """The folder within which a name stands once; empty for all folders that have no names of their own.

    The modules of a feature are named after what they are to it: each of its folders has names of its own.
    """
    if path.startswith(features):
        return path.rpartition("/")[0]
    return next((each for each in FACES if path.startswith(each)), "")


def long_modules(repository: Repository) -> Iterator[Finding]:
    """Long modules whose head does not say why they are one idea. A module of tests needs no reason."""
    for module in repository.modules.values():
        lines = module.text.count("\n")
        is_long = lines > LONG_LINES and not module.path.startswith("tests/")
        if is_long and REASON not in (ast.get_docstring(module.tree) or ""):
            detail = f"{lines} lines; over {LONG_LINES}, the head says why they belong together: `{REASON}...`"
            yield Finding(module.path, 1, detail)
