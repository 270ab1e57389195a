"""Figures that say how easy it is to find one's way: modules, importers, names, docstrings, walks."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median

from tools.house.names import LONG_LINES, duplicate_classes, duplicate_modules
from tools.house.source import Definition, Finding, Module, Repository
from tools.house.walks import walks

ENGINE = ("xds/protocol/", "xds/snapshots/")
SMALL_LINES = 60


def importers(repository: Repository) -> Mapping[str, frozenset[str]]:
    """For each module of the product the modules of the product that import it, both by path."""
    paths = {module.name: module.path for module in repository.product}
    found: dict[str, set[str]] = defaultdict(set)
    for module in repository.product:
        for name in _imported(module):
            if name in paths:
                found[paths[name]].add(module.path)
    return {path: frozenset(by - {path}) for path, by in found.items()}


def _imported(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def undocumented(repository: Repository) -> Iterator[Finding]:
    """Public classes, functions and methods of the product without a docstring.

    A method needs none if a base class of its class has a documented method of the same name; overloads are left out.
    """
    modules = {module.name: module for module in repository.product}
    for module in repository.product:
        yield from _undocumented(module.tree.body, module, frozenset(), modules)


def _undocumented(
    body: list[ast.stmt], module: Module, inherited: frozenset[str], modules: Mapping[str, Module]
) -> Iterator[Finding]:
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            if not ast.get_docstring(node) and node.name not in inherited and not _is_overload(node):
                yield Finding(module.path, node.lineno, f"{node.name} is public and has no docstring", node.name)
            if isinstance(node, ast.ClassDef):
                yield from _undocumented(node.body, module, _documented_by_bases(node, module, modules), modules)


def _is_overload(node: Definition) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def _documented_by_bases(of: ast.ClassDef, module: Module, modules: Mapping[str, Module]) -> frozenset[str]:
    """The methods that the base classes in the product document, at any distance."""
    found: set[str] = set()
    for base in of.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        for node, home in _definitions(name.id, module, modules) if isinstance(name, ast.Name) else ():
            found |= _documented_by_bases(node, home, modules)
            found |= {each.name for each in node.body if isinstance(each, Definition) and ast.get_docstring(each)}
    return frozenset(found)


def _definitions(name: str, module: Module, modules: Mapping[str, Module]) -> Iterator[tuple[ast.ClassDef, Module]]:
    """The class of this name that is defined in the module, or in the module of the product that it imports it from."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield node, module
        elif isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            home = modules.get(node.module or "")
            yield from _definitions(name, home, modules) if home is not None else ()


def figures(repository: Repository) -> dict[str, float]:
    """The figures by what they count."""
    sizes = [module.text.count("\n") for module in repository.product]
    by = importers(repository)
    modules = [module for module in repository.product if module.stem not in {"__init__", "__main__"}]
    return {
        "modules": len(repository.product),
        "lines": sum(sizes),
        "median lines of a module": median(sizes),
        f"modules under {SMALL_LINES} lines": sum(size < SMALL_LINES for size in sizes),
        f"modules over {LONG_LINES} lines": sum(size > LONG_LINES for size in sizes),
        "modules with one importer": sum(len(by.get(module.path, ())) == 1 for module in modules),
        "class names that occur twice": sum(1 for _ in duplicate_classes(repository, ())),
        "module names that occur twice": sum(1 for _ in duplicate_modules(repository, {})),
        "lines of the discovery engine": sum(
            module.text.count("\n") for module in repository.product if module.path.startswith(ENGINE)
        ),
        "public definitions without a docstring": sum(1 for _ in undocumented(repository)),
        **{f"files on the main line of a walk of a {walk.name}": len(walk.main_line) for walk in walks(repository)},
        **{
            f"files of a walk of a {walk.name}, with those beside the way": len(walk.every)
            for walk in walks(repository)
        },
    }
