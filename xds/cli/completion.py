"""Completion in the shell: names from the server that the command line, the environment or a context names.

If the server does not answer, there are no completions. Nothing is printed, because the shell shows a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import typer

from xds.calls import endpoints, fleet, groups, load
from xds.calls.call import ApiCall
from xds.cli.client import Client
from xds.cli.contexts import read_contexts
from xds.cli.errors import CommandError
from xds.cli.shared_options import Shared
from xds.model.node import DEFAULT_GROUP
from xds.model.resource_type import V3_TYPES

SHOWN = 200
ALIASES = tuple(rule.alias for rule in V3_TYPES)
NODE_ORDERS = ("id", "trouble")
_GROUPS, _NODES = frozenset({"group", "groups"}), frozenset({"node", "nodes"})


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Names of groups."""
    return complete_names(context, groups.groups(), "group", incomplete)


def complete_node(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of nodes."""
    return complete_names(context, fleet.nodes(text=incomplete).limited(SHOWN), "id", incomplete)


def complete_node_list(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of nodes, with commas between them: the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{id}" for id in complete_node(context, last)]


def complete_order(incomplete: str) -> list[str]:
    """Orders of nodes."""
    return _with_prefix(NODE_ORDERS, incomplete)


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
    kind = given_value(context, "kind", "target", "type")
    if kind in _GROUPS:
        return complete_group(context, incomplete)
    if kind in _NODES:
        return complete_node(context, incomplete)
    alias = next((alias for alias in ALIASES if kind in (alias, alias.removesuffix("s"))), kind)
    return complete_names(context, groups.resources(given_group(context), alias), "name", incomplete)


def complete_held_cluster(context: typer.Context, incomplete: str) -> list[str]:
    """Clusters that the node of the command has; all reported clusters if the node is not known while completing."""
    node = given_value(context, "node")
    if not node:
        return complete_reported(context, incomplete)
    return complete_names(context, fleet.node_resources(node, type="clusters"), "name", incomplete)


def complete_assignment(context: typer.Context, incomplete: str) -> list[str]:
    """Names of assignments of the group."""
    return complete_names(context, endpoints.assignments(given_group(context)), "name", incomplete)


def complete_reported(context: typer.Context, incomplete: str) -> list[str]:
    """Clusters that proxies report load of."""
    return complete_names(context, load.load(), "cluster", incomplete)


def complete_context(incomplete: str) -> list[str]:
    """Names of contexts."""
    try:
        return _with_prefix(read_contexts().named, incomplete)
    except CommandError:
        return []


def given_value(context: typer.Context, *names: str) -> str:
    """The value of the first of these parameters that the command line already has."""
    return next((str(context.params[name]) for name in names if context.params.get(name)), "")


def given_group(context: typer.Context) -> str:
    """The group of the command."""
    return given_value(context, "group") or DEFAULT_GROUP


def complete_names(context: typer.Context, call: ApiCall[Any], key: str, incomplete: str) -> list[str]:
    """The names in a list of the server: the member ``key`` of its items."""
    try:
        return _with_prefix((str(item[key]) for item in _connect(context).items(call)), incomplete)
    except CommandError:
        return []


def _connect(context: typer.Context) -> Client:
    given: Any = context.obj
    return (given if isinstance(given, Shared) else Shared()).connect()


def _with_prefix(names: Iterable[str], incomplete: str) -> list[str]:
    return list(islice((name for name in dict.fromkeys(names) if name.startswith(incomplete)), SHOWN))
