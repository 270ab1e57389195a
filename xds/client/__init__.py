"""The client library of the admin API: `Client` and `AsyncClient`, their results and errors (docs/python.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xds.admin.models.endpoints import (
    AssignedEndpoint,
    AssignmentOwner,
    AssignmentSummary,
    ChangedAssignment,
    ServedAssignment,
)
from xds.admin.models.events import ServerEvent
from xds.admin.models.findings import Finding
from xds.admin.models.groups import GroupSnapshot, GroupState, ValidationOutcome
from xds.admin.models.nacks import Nack
from xds.admin.models.nodes import HeldOnNode, NodeStatus, NodeStream, NodeTypeStatus
from xds.admin.models.pushes import ChangedNames, PushOutcome, PushProgress
from xds.admin.models.revisions import GroupRevision, ResourceDifference, UndoChoice, UndoProposal
from xds.admin.models.values import NodeLocality
from xds.calls.call import EntryArguments, PushArguments
from xds.calls.encoding import ResourceInput
from xds.calls.endpoints import EndpointArguments
from xds.calls.failures import (
    AbsentError,
    AccessError,
    AdminApiError,
    InvalidInputError,
    NothingToUndoError,
    NotTakenError,
    PartialAnswerWarning,
    ServerBusyError,
    UnexpectedAnswerError,
    UnreachableServerError,
    WriteConflictError,
    check_taken,
)
from xds.client.blocking import Client
from xds.mesh.calls import PatchInput
from xds.mesh.models.config_entries import EntryChanged, EntryOutcome, StoredEntry, TransactionOutcome

if TYPE_CHECKING:
    from xds.client.asynchronous import AsyncClient

__all__ = [
    "AbsentError",
    "AccessError",
    "AdminApiError",
    "AssignedEndpoint",
    "AssignmentOwner",
    "AssignmentSummary",
    "AsyncClient",
    "ChangedAssignment",
    "ChangedNames",
    "Client",
    "EndpointArguments",
    "EntryArguments",
    "EntryChanged",
    "EntryOutcome",
    "Finding",
    "GroupRevision",
    "GroupSnapshot",
    "GroupState",
    "HeldOnNode",
    "InvalidInputError",
    "Nack",
    "NodeLocality",
    "NodeStatus",
    "NodeStream",
    "NodeTypeStatus",
    "NotTakenError",
    "NothingToUndoError",
    "PartialAnswerWarning",
    "PatchInput",
    "PushArguments",
    "PushOutcome",
    "PushProgress",
    "ResourceDifference",
    "ResourceInput",
    "ServedAssignment",
    "ServerBusyError",
    "ServerEvent",
    "StoredEntry",
    "TransactionOutcome",
    "UndoChoice",
    "UndoProposal",
    "UnexpectedAnswerError",
    "UnreachableServerError",
    "ValidationOutcome",
    "WriteConflictError",
    "check_taken",
]


def __getattr__(name: str) -> Any:
    """`AsyncClient`, when it is asked for: `Client` does not need httpx."""
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xds.client.asynchronous import AsyncClient

    return AsyncClient
