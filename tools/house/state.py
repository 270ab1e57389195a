"""Pure packages keep no process-wide state: an object that the server makes and hands in keeps it.

Caches of pure functions (`functools.cache`, `functools.lru_cache`) do not count as state.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from tools.house.source import Finding, Module, Repository

# Called without arguments, these make an empty container, which is filled later.
_CONTAINERS = frozenset({"dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict", "bytearray"})
_COUNTERS = frozenset({"count", "cycle", "Memo", "WeakKeyDictionary", "WeakValueDictionary"})
_READ_ONLY = frozenset({"Mapping", "Sequence", "Collection", "Set", "AbstractSet"})


def shared_state(repository: Repository, pure: Collection[str], reasons: Mapping[str, str]) -> Iterator[Finding]:
    """Names of modules of pure packages that are bound to something that changes, where no reason is listed."""
    for module in repository.product:
        if module.name.startswith(tuple(f"{package}." for package in pure)):
            for line, name in _changing(module):
                if not reasons.get(name):
                    yield Finding(module.path, line, f"{name} is state of the process in a pure package", name)


def _changing(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield from ((node.lineno, name) for name in node.names)
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_filled_later(value):
                yield node.lineno, name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=ast.expr() as value):
                if _is_filled_later(value) and not _is_read_only(kind):
                    yield node.lineno, name


def _is_read_only(annotation: ast.expr) -> bool:
    kind = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return isinstance(kind, ast.Name) and kind.id in _READ_ONLY


def _is_filled_later(value: ast.expr) -> bool:
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)), args=args, keywords=named):
            return name in _COUNTERS or (name in _CONTAINERS and not named and (not args or name == "defaultdict"))
    return False
