"""The calls of the admin API as values: the request, and how to read its answer. No I/O.

`Client` and `AsyncClient` send the same calls, so that they behave alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar, Unpack
from urllib.parse import quote

from xds.client.encoding import ResourceInput, encode_resource, encode_resources
from xds.client.failures import NothingToUndoError
from xds.client.reading import read_value
from xds.client.results import (
    GroupRevision,
    GroupSnapshot,
    GroupState,
    PushOutcome,
    PushProgress,
    ResourceDifference,
    TransactionOutcome,
    UndoProposal,
    ValidationOutcome,
)

Json = dict[str, Any]
T = TypeVar("T")

PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """One request, and a function that makes the result from its JSON. The server may wait ``wait_s`` on request."""

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    wait_s: float = 0.0

    @property
    def is_repeatable(self) -> bool:
        """Whether the request may be sent again after its answer was lost."""
        return self.method == "GET" or "Idempotency-Key" in self.headers


class EntryArguments(TypedDict, total=False):
    """Options of writes of config entries, all optional.

    ``message`` and ``author`` go into the history; the server also records the authenticated caller. ``if_match`` is an
    etag, or a revision as a number, that must still be the current one; 0 means that there must be nothing yet. A
    repeated call with the same ``idempotency_key`` gets the first answer again. ``dry_run`` checks and compares, and
    changes nothing; with ``strict``, warnings are errors.
    """

    message: str
    author: str
    if_match: str | int
    idempotency_key: str
    dry_run: bool
    strict: bool


class PushArguments(EntryArguments, total=False):
    """Options of pushes: those of config entries, and two of the fleet.

    ``wait_s``: wait until all connected nodes have ACKed or rejected the push, but at most this many seconds (up to
    300); the result then has ``progress``. ``allow_empty`` allows a push that takes all resources from connected nodes.
    ``force`` (of ``delete`` and ``transact``) allows deleting resources that others of the group name.
    """

    allow_empty: bool
    force: bool
    wait_s: float


PUSH_ARGUMENTS = PushArguments.__optional_keys__
ENTRY_ARGUMENTS = EntryArguments.__optional_keys__


class PatchInput(TypedDict, total=False):
    """A change of one group in a transaction: ``snapshot``, or ``put`` and ``delete`` (pairs of type and name)."""

    group: str
    snapshot: Sequence[ResourceInput]
    put: Sequence[ResourceInput]
    delete: Sequence[tuple[str, str]]
    if_match: str | int


def place(*parts: str) -> str:
    """A path below the prefix of the API; each part is percent-encoded."""
    return PREFIX + "".join(f"/{quote(part, safe='')}" for part in parts)


def reader(kind: Any) -> Callable[[Any], Any]:
    """Reads an answer as a value of a type."""
    return lambda value: read_value(kind, value)


def flags(**given: object) -> dict[str, str]:
    """Query parameters, without those that are None, False or empty."""
    return {
        name: "true" if value is True else str(value)
        for name, value in given.items()
        if value is not None and value is not False and value != ""
    }


def precondition(if_match: str | int | None, prefix: str = "r") -> dict[str, str]:
    """The headers of a precondition: an etag, a revision number, or 0: the object must not exist."""
    if if_match is None or if_match == "":
        return {}
    if if_match == 0:
        return {"If-None-Match": "*"}
    return {"If-Match": if_match if isinstance(if_match, str) else f"{prefix}{if_match}"}


def write_parts(given: Mapping[str, Any], known: frozenset[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Query and headers of the options of a write. Raises ``TypeError`` for an option that is not ``known``."""
    unknown = sorted(given.keys() - known)
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}; expected some of {', '.join(sorted(known))}")
    names = ("message", "author", "dry_run", "strict", "allow_empty", "force")
    headers = precondition(given.get("if_match"))
    if given.get("idempotency_key"):
        headers["Idempotency-Key"] = given["idempotency_key"]
    if given.get("wait_s"):
        headers["Prefer"] = f"wait={max(1, round(given['wait_s']))}"
    return flags(**{name: given.get(name) for name in names}), headers


def push(method: str, path: str, body: object = None, **given: Unpack[PushArguments]) -> ApiCall[PushOutcome]:
    """A call that pushes."""
    query, headers = write_parts(given, PUSH_ARGUMENTS)
    return ApiCall(method, path, reader(PushOutcome), query, headers, body, given.get("wait_s", 0.0))


def apply(
    group: str,
    resources: Iterable[ResourceInput],
    version: str = "",
    versions: Mapping[str, str] | None = None,
    **given: Unpack[PushArguments],
) -> ApiCall[PushOutcome]:
    """Replace all resources of a group."""
    body: Json = {"resources": encode_resources(resources)}
    if version:
        body["version"] = version
    if versions:
        body["versions"] = dict(versions)
    return push("PUT", place("groups", group, "snapshot"), body, **given)


def put(
    group: str, type: str, name: str, resource: ResourceInput, **given: Unpack[PushArguments]
) -> ApiCall[PushOutcome]:
    """Add or replace one resource."""
    return push("PUT", place("groups", group, "resources", type, name), encode_resource(resource), **given)


def delete(group: str, type: str, name: str, **given: Unpack[PushArguments]) -> ApiCall[PushOutcome]:
    """Remove one resource."""
    return push("DELETE", place("groups", group, "resources", type, name), **given)


def transact(
    changes: Iterable[PatchInput],
    put_entries: Sequence[Mapping[str, Any]] = (),
    delete_entries: Sequence[tuple[str, str]] = (),
    **given: Unpack[PushArguments],
) -> ApiCall[TransactionOutcome]:
    """Change several groups, and config entries, at once. ``if_match`` is a member of each change."""
    if "if_match" in given:
        raise TypeError("if_match is a member of each change of a transaction")
    query, headers = write_parts(given, PUSH_ARGUMENTS)
    body: Json = {"changes": [_change(change, index) for index, change in enumerate(changes)]}
    if put_entries or delete_entries:
        deleted = [{"kind": kind, "name": name} for kind, name in delete_entries]
        body["config_entries"] = {"put": [dict(entry) for entry in put_entries], "delete": deleted}
    wait_s = given.get("wait_s", 0.0)
    return ApiCall("POST", place("transactions"), reader(TransactionOutcome), query, headers, body, wait_s)


def _change(change: PatchInput, index: int) -> Json:
    body: Json = {"group": change["group"]}
    if "snapshot" in change:
        body["snapshot"] = {"resources": encode_resources(change["snapshot"])}
    if "put" in change:
        body["put"] = encode_resources(change["put"])
    if "delete" in change:
        body["delete"] = [{"type": type, "name": name} for type, name in change["delete"]]
    headers = precondition(change.get("if_match"))
    if "If-Match" in headers:
        body["if_match"] = headers["If-Match"]
    elif headers:
        body["if_none_match"] = "*"
    return body


def validate(resources: Iterable[ResourceInput], strict: bool = False) -> ApiCall[ValidationOutcome]:
    """Check a snapshot without pushing it."""
    body = {"resources": encode_resources(resources)}
    return ApiCall("POST", place("validate"), reader(ValidationOutcome), flags(strict=strict), body=body)


def groups() -> ApiCall[tuple[GroupState, ...]]:
    """A page of groups."""
    return ApiCall("GET", place("groups"), items(GroupState))


def items(kind: type[T]) -> Callable[[Any], tuple[T, ...]]:
    """Reads the items of a page."""
    return lambda value: tuple(read_value(kind, each) for each in value["items"])


def group(name: str) -> ApiCall[GroupState]:
    """One group."""
    return ApiCall("GET", place("groups", name), reader(GroupState))


def configure_group(
    name: str, settings: Mapping[str, Any], if_match: str | int | None, author: str, dry_run: bool, allow_empty: bool
) -> ApiCall[GroupState]:
    """Set the settings of a group; those that are None are reset."""
    body = {key: value for key, value in settings.items() if value is not None}
    query = flags(author=author, dry_run=dry_run, allow_empty=allow_empty)
    return ApiCall("PUT", place("groups", name), reader(GroupState), query, precondition(if_match, "s-"), body)


def snapshot(name: str, revision: int | None, show_secrets: bool) -> ApiCall[GroupSnapshot]:
    """The resources of a group, now or at a revision."""
    parts = ("snapshot",) if revision is None else ("revisions", str(revision))
    query = flags(show_secrets=show_secrets)
    return ApiCall("GET", place("groups", name, *parts), reader(GroupSnapshot), query)


def resource(group: str, type: str, name: str, show_secrets: bool) -> ApiCall[Json]:
    """One resource as a document."""
    path = place("groups", group, "resources", type, name)
    return ApiCall("GET", path, reader(dict[str, Any]), flags(show_secrets=show_secrets))


def history(group: str, endpoints: bool) -> ApiCall[tuple[GroupRevision, ...]]:
    """A page of revisions, the newest first."""
    query = {} if endpoints else {"endpoints": "false"}
    return ApiCall("GET", place("groups", group, "revisions"), items(GroupRevision), query)


def difference(
    group: str, revision: int, base: int | None, show_secrets: bool
) -> ApiCall[tuple[ResourceDifference, ...]]:
    """A page of the resources that differ between two revisions."""
    query = flags(**{"from": base, "show_secrets": show_secrets})
    path = place("groups", group, "revisions", str(revision), "diff")
    return ApiCall("GET", path, lambda value: read_value(tuple[ResourceDifference, ...], value["resources"]), query)


def progress(group: str, revision: int, wait_s: float) -> ApiCall[PushProgress]:
    """How many nodes have a recent push."""
    path = place("groups", group, "revisions", str(revision), "progress")
    return ApiCall("GET", path, reader(PushProgress), flags(wait=wait_s or None), wait_s=wait_s)


def rollback(group: str, to: int, keep_endpoints: bool, **given: Unpack[PushArguments]) -> ApiCall[PushOutcome]:
    """Make a new revision with the content of an old one."""
    body = {"to": to, "keep_endpoints": keep_endpoints}
    return push("POST", place("groups", group, "rollback"), body, **given)


def undo_plan(group: str) -> ApiCall[UndoProposal]:
    """What an undo would do."""
    return ApiCall("GET", place("groups", group, "undo"), reader(UndoProposal))


def undo(plan: UndoProposal, given: PushArguments) -> ApiCall[PushOutcome]:
    """Roll back as planned, unless something changed since. Raises ``NothingToUndoError``.

    Clusters that exist before and after keep their current endpoints, as with ``xds rollout undo``.
    """
    if plan.to is None:
        raise NothingToUndoError(plan)
    options = given.copy()
    options["if_match"] = plan.etag
    return rollback(plan.group, plan.to, True, **options)
