"""Tables read only members that the classes of answers have: a field that is renamed is found here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from xds.admin.models.writing import member_of
from xds.cli.table import TableLayout, cell_text

# The tables of items of answers, by the module of the class: where it stands, and the class of its items.
TABLES = {
    "xds.cli.commands.access.RULES": "admin.models.access.TriedRule",
    "xds.cli.commands.events.AUDIT": "admin.models.audit.AuditedWrite",
    "xds.cli.commands.events.HISTORY": "admin.models.audit.AuditedWrite",
    "xds.cli.commands.group.SETTINGS": "admin.models.groups.GroupState",
    "xds.cli.health.CHECKS": "admin.models.checks.CheckedRow",
    "xds.cli.commands.load.CLUSTERS": "admin.models.load.LoadSummary",
    "xds.cli.commands.members.MEMBERS": "admin.models.members.ServerMember",
    "xds.cli.commands.nodes.HELD": "admin.models.holdings.HeldResource",
    "xds.cli.node_table.NODES": "admin.models.nodes.NodeStatus",
    "xds.cli.rollout_tables.HISTORY": "admin.models.revisions.GroupRevision",
    "xds.cli.commands.describe.CERTIFICATES": "admin.models.certificates.CertificateExpiry",
    "xds.cli.commands.describe.STREAMS": "admin.models.nodes.NodeStream",
    "xds.cli.commands.endpoints.ASSIGNMENTS": "admin.models.endpoints.AssignmentSummary",
    "xds.cli.commands.endpoints.ENDPOINTS": "admin.models.endpoints.AssignedEndpoint",
    "xds.cli.commands.explain.ANSWERS": "admin.models.explanations.ExplainedResource",
    "xds.cli.commands.explain.CANDIDATES": "admin.models.explanations.TriedGroup",
    "xds.cli.commands.explain.ORIGINS": "admin.models.explanations.EndpointSource",
    "xds.cli.lingering.LINGERING": "admin.models.nodes.LingeringNames",
    "xds.cli.nack_table.MERGED_NACKS": "admin.models.nacks.Nack",
    "xds.cli.nack_table.NACKS": "admin.models.nacks.Nack",
    "xds.cli.resources.GROUPS": "admin.models.groups.GroupState",
    "xds.cli.resources.RESOURCES": "admin.models.groups.PushedResource",
    "xds.linkerd.tables.DESTINATIONS": "admin.models.nodes.StreamAnswer",
    "xds.mesh.commands.entry_files.HISTORY": "mesh.models.config_entries.EntryRevision",
    "xds.mesh.commands.entry_files.LIST": "mesh.models.config_entries.StoredEntry",
    "xds.mesh.commands.upstreams.LOWERED": "mesh.models.upstreams.LoweredName",
    "xds.mesh.commands.upstreams.SUMMARIES": "mesh.models.upstreams.UpstreamsSummary",
    "xds.services.commands.bindings.BINDINGS": "services.models.services.BindingState",
    "xds.services.commands.registrations.INSTANCES": "services.models.registrations.RegisteredInstance",
    "xds.services.commands.services.INSTANCES": "services.models.services.CatalogInstance",
    "xds.services.commands.services.SERVICES": "services.models.services.ServiceSummary",
    "xds.services.commands.sources.FINDINGS": "services.models.sources.SourceFinding",
    "xds.services.commands.sources.SOURCES": "services.models.sources.SourceState",
    "xds.steering.tables.HISTORY": "steering.models.ChangedShares",
}
# Values that functions of columns look up.
VALUES = {"state": "ok", "change": "added"}


class Members(dict[str, Any]):
    """An item: all members of its class. Another one is an error, also where the reader has a default."""

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __contains__(self, name: object) -> bool:
        return self[str(name)] is not None

    def __missing__(self, name: str) -> Any:
        raise AssertionError(f"no member {name!r} among {sorted(self)}")


def value_of(kind: Any, name: str = "") -> Any:
    """A JSON value of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return value_of(next(each for each in arguments if each is not NoneType), name)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return Members({member_of(each): value_of(hints[each.name], each.name) for each in dataclasses.fields(kind)})
    if origin is tuple:
        return [value_of(arguments[0])]
    if origin in (Mapping, dict):
        return {"clusters": value_of(arguments[1])}
    if kind is datetime:
        return "2026-01-02T03:04:05.678Z"
    return VALUES.get(name, "text") if kind is str else {int: 1, float: 1.0, bool: True}.get(kind)


def found(name: str) -> Any:
    module, _, member = name.rpartition(".")
    return getattr(import_module(module), member)


@pytest.mark.parametrize("name", TABLES)
def test_columns_read_members_of_the_answer(name: str) -> None:
    layout: TableLayout = found(name)
    item = value_of(found(f"xds.{TABLES[name]}"))
    for column in layout.columns:
        cell_text(column.cell, item)
        column.style(item)
    assert cell_text(layout.name, item)
