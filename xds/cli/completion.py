"""Completion in the shell: names from the server that the command line, the environment or a context names.

If the server does not answer, there are no completions. Nothing is printed, because the shell shows a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from xds.model.node import DEFAULT_GROUP
from xds.model.resource_type import V3_TYPES

if TYPE_CHECKING:
    from xds.cli.client import Client

SHOWN = 200
ALIASES = tuple(rule.alias for rule in V3_TYPES)
_GROUPS, _NODES = frozenset({"group", "groups"}), frozenset({"node", "nodes"})


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Names of groups."""
    return _names(context, "/groups", "group", incomplete)


def complete_node(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of nodes."""
    return _names(context, "/nodes", "id", incomplete)


def complete_type(incomplete: str) -> list[str]:
    """Types of resources."""
    return _with_prefix(ALIASES, incomplete)


def complete_kind(incomplete: str) -> list[str]:
    """What ``get`` lists."""
    return _with_prefix(("groups", "snapshot", "resources", *ALIASES), incomplete)


def complete_subject(incomplete: str) -> list[str]:
    """What ``describe`` shows."""
    return _with_prefix(("group", "node", *(alias.removesuffix("s") for alias in ALIASES)), incomplete)


def complete_resource(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the kind in the argument before: resources of the group, groups or nodes."""
    kind = _given(context, "kind", "target", "type")
    if kind in _GROUPS:
        return complete_group(context, incomplete)
    if kind in _NODES:
        return complete_node(context, incomplete)
    alias = next((alias for alias in ALIASES if kind in (alias, alias.removesuffix("s"))), kind)
    return _names(context, f"{_group_path(context)}/resources/{quote(alias, safe='')}", "name", incomplete)


def complete_held_cluster(context: typer.Context, incomplete: str) -> list[str]:
    """Clusters that the node of the command has; all reported clusters if the node is not known while completing."""
    node = quote(_given(context, "node"), safe="")
    if not node:
        return complete_reported(context, incomplete)
    return _names(context, f"/nodes/{node}/resources", "name", incomplete, {"type": "clusters"})


def complete_assignment(context: typer.Context, incomplete: str) -> list[str]:
    """Names of assignments of the group."""
    return _names(context, f"{_group_path(context)}/endpoints", "name", incomplete)


def complete_policy(context: typer.Context, incomplete: str) -> list[str]:
    """Clusters of the group that have a policy of traffic assignment."""
    return _names(context, f"{_group_path(context)}/assignments", "cluster", incomplete)


def complete_reported(context: typer.Context, incomplete: str) -> list[str]:
    """Clusters that proxies report load of."""
    return _names(context, "/load", "cluster", incomplete)


def complete_service(context: typer.Context, incomplete: str) -> list[str]:
    """Services of the catalog."""
    return _names(context, "/services", "service", incomplete)


def complete_source(context: typer.Context, incomplete: str) -> list[str]:
    """Sources of instances."""
    return _names(context, "/sources", "name", incomplete)


def complete_entry(context: typer.Context, incomplete: str) -> list[str]:
    """Names of config entries of the kind in the argument before."""
    return _names(context, "/config-entries", "name", incomplete, {"kind": _given(context, "kind")})


def complete_context(incomplete: str) -> list[str]:
    """Names of contexts."""
    from xds.cli.contexts import read_contexts
    from xds.cli.errors import CommandError

    try:
        return _with_prefix(read_contexts().named, incomplete)
    except CommandError:
        return []


def _given(context: typer.Context, *names: str) -> str:
    """The value of the first of these parameters that the command line already has."""
    return next((str(context.params[name]) for name in names if context.params.get(name)), "")


def _group_path(context: typer.Context) -> str:
    return f"/groups/{quote(_given(context, 'group') or DEFAULT_GROUP, safe='')}"


def _names(
    context: typer.Context, path: str, key: str, incomplete: str, query: dict[str, str] | None = None
) -> list[str]:
    from xds.cli.errors import CommandError

    try:
        return _with_prefix((str(item[key]) for item in _connect(context).items(path, query or {})), incomplete)
    except CommandError:
        return []


def _connect(context: typer.Context) -> Client:
    from xds.cli.app import Shared

    given: Any = context.obj
    return (given if isinstance(given, Shared) else Shared()).connect()


def _with_prefix(names: Iterable[str], incomplete: str) -> list[str]:
    return list(islice((name for name in dict.fromkeys(names) if name.startswith(incomplete)), SHOWN))
