"""The operations of the admin API: what routes serve, calls ask for, and the description describes.

The table knows nothing of the server, because clients read it too. Each feature has one of its own operations.
"""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Any
from urllib.parse import quote

PREFIX = "/api/v1"


class Trait(Enum):
    """What the responses of an operation have."""

    ETAG = "the header ETag"
    ABSENT = "404, although no path names an object"
    HISTORY = "410, because retention deletes content"
    OWNED = "409, because another owner has the name"
    PRECONDITION = "412 and 428, because its body has preconditions"
    CONDITIONAL = "304, by If-None-Match"
    YAML = "YAML, if it is accepted"


class Operation:
    """One operation: ``GET /groups/{group}``, below the prefix of the API.

    * ``answer``: the class of the answer, as `admin.groups.GroupState` of the module `xds.admin.models.groups`; empty:
      any document. It is imported when it is needed, because commands start without the classes of answers;
    * ``scope``: the scope that the caller needs; empty: it follows from the method (`xds.admin.routing`);
    * ``conflict``: why it is answered with 409, where its traits do not say it.
    """

    __slots__ = ("_answer", "conflict", "method", "path", "scope", "traits")

    def __init__(
        self, request: str, answer: str = "", *traits: Trait, scope: str = "", conflict: str = "", prefix: str = PREFIX
    ) -> None:
        self.method, path = request.split()
        self.path = prefix + path
        self._answer = answer
        self.traits = frozenset(traits)
        self.scope = scope
        self.conflict = conflict

    @property
    def has_class(self) -> bool:
        """Whether the answer is of a class, and not any document."""
        return bool(self._answer)

    def answer(self) -> Any:
        """The class of the answer; None if it is any document."""
        if not self._answer:
            return None
        room, _, name = self._answer.partition(".")
        module, _, kind = f"models.{name}".rpartition(".")
        return getattr(import_module(f"xds.{room}.{module}"), kind)

    def place(self, *values: str | int) -> str:
        """The path with the values of its parameters, in their order, percent-encoded."""
        parts = iter(values)
        return "/".join(
            quote(str(next(parts)), safe="") if part.startswith("{") else part for part in self.path.split("/")
        )


ETAG, ABSENT, HISTORY, OWNED, PRECONDITION, CONDITIONAL, YAML = Trait
ANY = "any"  # a scope: a valid credential is enough; the route itself checks scopes
READ = "read"

_PUSHED = "admin.pushes.PushOutcome"
_CHANGED = "admin.endpoints.ChangedAssignment"

# Health
LIVEZ = Operation("GET /livez", "admin.server.ServerStatus", prefix="")
READYZ = Operation("GET /readyz", "admin.server.ServerStatus", prefix="")
METRICS = Operation("GET /metrics", prefix="")

# Groups
LIST_GROUPS = Operation("GET /groups", "admin.groups.GroupPage")
GET_GROUP = Operation("GET /groups/{group}", "admin.groups.GroupState", ETAG)
DELETE_GROUP = Operation("DELETE /groups/{group}", _PUSHED, ETAG)
GET_SNAPSHOT = Operation("GET /groups/{group}/snapshot", "admin.groups.GroupSnapshot", ETAG, CONDITIONAL, YAML)
PUT_SNAPSHOT = Operation("PUT /groups/{group}/snapshot", _PUSHED, ETAG)
DELETE_SNAPSHOT = Operation("DELETE /groups/{group}/snapshot", _PUSHED, ETAG)
LIST_RESOURCES = Operation("GET /groups/{group}/resources/{type}", "admin.groups.ResourcePage")
GET_RESOURCE = Operation("GET /groups/{group}/resources/{type}/{name:path}", "", ETAG, CONDITIONAL, YAML)
PUT_RESOURCE = Operation("PUT /groups/{group}/resources/{type}/{name:path}", _PUSHED, ETAG)
DELETE_RESOURCE = Operation("DELETE /groups/{group}/resources/{type}/{name:path}", _PUSHED, ETAG)
VALIDATE = Operation("POST /validate", "admin.groups.ValidationOutcome", scope=READ)
PUT_GROUP = Operation("PUT /groups/{group}", "admin.groups.GroupState", ETAG)
# Served by the feature with config entries, which a transaction may change too.
TRANSACT = Operation(
    "POST /transactions", "mesh.config_entries.TransactionOutcome", ABSENT, OWNED, PRECONDITION, scope=ANY
)
LIST_CERTIFICATES = Operation("GET /certificates", "admin.certificates.CertificatePage", ABSENT)

# Revisions
LIST_REVISIONS = Operation("GET /groups/{group}/revisions", "admin.revisions.RevisionPage")
GET_REVISION = Operation(
    "GET /groups/{group}/revisions/{revision}", "admin.groups.GroupSnapshot", ETAG, HISTORY, CONDITIONAL, YAML
)
GET_PROGRESS = Operation("GET /groups/{group}/revisions/{revision}/progress", "admin.pushes.PushProgress")
GET_ROLLOUT = Operation("GET /groups/{group}/rollout", "admin.pushes.GroupRollout")
CHANGE_ROLLOUT = Operation(
    "POST /groups/{group}/rollout",
    "admin.rollouts.CarefulRollout",
    ABSENT,
    conflict="there is no rollout that has not ended, or its state does not permit the action",
)
LIST_ROLLOUTS = Operation("GET /rollouts", "admin.rollouts.RolloutPage", ABSENT)
ROLLBACK = Operation("POST /groups/{group}/rollback", _PUSHED, ETAG, HISTORY)
GET_UNDO = Operation("GET /groups/{group}/undo", "admin.revisions.UndoProposal", ETAG)
GET_DIFFERENCE = Operation(
    "GET /groups/{group}/revisions/{revision}/diff", "admin.revisions.RevisionDifference", HISTORY, YAML
)

# Endpoints
LIST_ENDPOINTS = Operation("GET /groups/{group}/endpoints", "admin.endpoints.AssignmentSummaryPage")
GET_ENDPOINTS = Operation("GET /groups/{group}/endpoints/{name:path}", "admin.endpoints.ServedAssignment", ETAG)
PUT_ENDPOINTS = Operation("PUT /groups/{group}/endpoints/{name:path}", _CHANGED, ETAG, OWNED)
PATCH_ENDPOINTS = Operation("PATCH /groups/{group}/endpoints/{name:path}", _CHANGED, ETAG, OWNED)
DELETE_ENDPOINTS = Operation("DELETE /groups/{group}/endpoints/{name:path}", _CHANGED, OWNED)

# Fleet
RELEASE_NODE = Operation("POST /nodes/{id}/release", "admin.nodes.ReleasedNodes", scope=ANY)
RELEASE_GROUP = Operation("POST /groups/{group}/release", "admin.nodes.ReleasedNodes")
LIST_NODES = Operation("GET /nodes", "admin.nodes.NodePage")
GET_NODE = Operation("GET /nodes/{id:path}", "admin.nodes.NodeStatus")
DISCONNECT_NODE = Operation("DELETE /nodes/{id:path}", "admin.nodes.DisconnectedNode")
LIST_NACKS = Operation("GET /nacks", "admin.nacks.NackPage")
GET_BOOTSTRAP = Operation("GET /bootstrap", "", YAML)
EXPLAIN_NODE = Operation("GET /nodes/{id}/explain", "admin.explanations.NodeExplanation")
EXPLAIN_DOCUMENT = Operation("POST /explain", "admin.explanations.NodeExplanation", scope=READ)
GET_TIMELINE = Operation("GET /nodes/{id}/timeline", "admin.timeline.NodeTimeline")
LIST_HELD = Operation("GET /nodes/{id}/resources", "admin.holdings.HeldResourcePage")
LIST_REFUSED_STREAMS = Operation("GET /streams/refused", "admin.streams.RefusedPeers")
LIST_LOAD = Operation("GET /load", "admin.load.LoadPage")
GET_LOAD = Operation("GET /load/{cluster}", "admin.load.LoadDetail")
GET_LOAD_SERIES = Operation("GET /load/{cluster}/series", "admin.load.LoadLines")
GET_EVENTS = Operation("GET /events")
LIST_AUDIT = Operation("GET /audit", "admin.audit.AuditedWrites")


# Load, events, and the server
CHECK = Operation("GET /check", "admin.checks.CheckedServer")
GET_VERSION = Operation("GET /version", "admin.server.ServerVersions", scope=ANY)
GET_CALLER = Operation("GET /whoami", "admin.server.CallerIdentity", scope=ANY)
GET_CONFIG = Operation("GET /config")
GET_SCHEMA = Operation("GET /schema/{type}")
LIST_MEMBERS = Operation("GET /members", "admin.members.ServerMembers")
GET_WATCH = Operation("GET /watch", "admin.server.WatchedFiles")
TEST_ACCESS = Operation("POST /auth/test", "admin.access.AccessVerdict", ABSENT, scope=READ)
GET_STORE = Operation("GET /store", "admin.backups.StoreState")
GET_BACKUP = Operation("GET /backup", scope="backup")
RESTORE = Operation("POST /restore", "admin.backups.RestoredBackup", scope="admin")
