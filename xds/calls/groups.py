"""The calls about groups: pushes, history, settings, content."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from xds.admin import operations
from xds.admin.models.reading import read_object
from xds.admin.operations import Operation
from xds.calls.call import (
    ApiCall,
    Json,
    PushArguments,
    ask,
    ask_items,
    check_options,
    flags,
    precondition,
    write,
)
from xds.calls.encoding import ResourceInput, encode_resource, encode_resources
from xds.calls.failures import AdminApiError, NothingToUndoError

if TYPE_CHECKING:
    from xds.admin.models.groups import GroupSnapshot, GroupState, PushedResource, ValidationOutcome
    from xds.admin.models.nodes import ReleasedNodes
    from xds.admin.models.pushes import GroupRollout, PushOutcome, PushProgress
    from xds.admin.models.revisions import GroupRevision, ResourceDifference, UndoProposal
    from xds.admin.models.rollouts import CarefulRollout


def _push(
    operation: Operation,
    *values: str | int,
    options: PushArguments,
    body: object = None,
    force: bool = False,
) -> ApiCall[PushOutcome]:
    check_options(options, PushArguments)
    given: Json = dict(options)
    rollout = {name: value for name in ("rollout", "retry") if (value := given.pop(name, None)) not in (None, False)}
    if not rollout or operation in _PLAN_IN_BODY:
        body = {**body, **rollout} if rollout and isinstance(body, dict) else body
        return write(operation, *values, options=given, known=PushArguments, body=body, force=force)
    plan = rollout.get("rollout")
    query = {**rollout, "rollout": plan if plan is None or isinstance(plan, str) else json.dumps(plan)}
    call = write(operation, *values, options=given, known=PushArguments, body=body, force=force, **query)

    def after_version(value: object) -> ApiCall[PushOutcome]:
        from xds.admin.models.server import ServerVersions

        if not read_object(ServerVersions, value).rollouts:
            raise AdminApiError("this server knows no careful rollouts, and would push to all nodes at once")
        return call

    return ask(operations.GET_VERSION, read=after_version)


# Their bodies have members for a plan, which a server refuses that does not know them. It may ignore parameters.
_PLAN_IN_BODY = frozenset({operations.PUT_SNAPSHOT, operations.ROLLBACK, operations.TRANSACT})


def apply(
    group: str,
    resources: Iterable[ResourceInput],
    *,
    version: str = "",
    versions: Mapping[str, str] | None = None,
    **options: Unpack[PushArguments],
) -> ApiCall[PushOutcome]:
    """Replace all resources of a group.

    A resource is a dictionary with ``@type``, a protobuf message, or a message of envoy-data-plane. ``version`` is
    served as version_info; ``versions`` by type alias.
    """
    body: Json = {"resources": encode_resources(resources)}
    if version:
        body["version"] = version
    if versions:
        body["versions"] = dict(versions)
    return apply_document(group, body, **options)


def apply_document(group: str, snapshot: Json, **options: Unpack[PushArguments]) -> ApiCall[PushOutcome]:
    """As `apply`, of a document that has the members of a snapshot. The server checks it."""
    return _push(operations.PUT_SNAPSHOT, group, body=snapshot, options=options)


def put(
    group: str, type: str, name: str, resource: ResourceInput, **options: Unpack[PushArguments]
) -> ApiCall[PushOutcome]:
    """Add or replace one resource; the others stay. ``type`` is an alias (``clusters``) or a type URL."""
    return _push(operations.PUT_RESOURCE, group, type, name, body=encode_resource(resource), options=options)


def delete(
    group: str, type: str, name: str, *, force: bool = False, **options: Unpack[PushArguments]
) -> ApiCall[PushOutcome]:
    """Remove one resource; the others stay. ``force`` allows deleting one that others of the group name."""
    return _push(operations.DELETE_RESOURCE, group, type, name, options=options, force=force)


def transact_document(transaction: Json, *, force: bool = False, **options: Unpack[PushArguments]) -> ApiCall[Any]:
    """A transaction of a document, which the server checks."""
    return _push(operations.TRANSACT, options=options, body=transaction, force=force)


def validate(
    resources: Iterable[ResourceInput], *, strict: bool = False, envoy: bool = False
) -> ApiCall[ValidationOutcome]:
    """Check a snapshot without pushing it; ``envoy``: also by an Envoy of the server's machine.

    Raises ``InvalidInputError`` with all findings.
    """
    body = {"resources": encode_resources(resources)}
    query = flags(strict=strict, envoy=envoy)
    return ask(operations.VALIDATE, query=query, body=body)


def rollback(
    group: str, to: int, *, keep_endpoints: bool = False, **options: Unpack[PushArguments]
) -> ApiCall[PushOutcome]:
    """Make a new revision with the content of an old one."""
    body = {"to": to, "keep_endpoints": keep_endpoints}
    return _push(operations.ROLLBACK, group, body=body, options=options)


def undo_plan(group: str) -> ApiCall[UndoProposal]:
    """What ``undo`` would do."""
    return ask(operations.GET_UNDO, group)


def undo(group: str, **options: Unpack[PushArguments]) -> ApiCall[PushOutcome]:
    """Undo the last configuration change, unless something changes meanwhile.

    Clusters that exist before and after keep their current endpoints, as with ``xds rollout undo``. Raises
    ``NothingToUndoError`` or ``AbsentError`` if there is nothing to go back to.
    """
    check_options(options, PushArguments)  # an unknown option is an error before anything is sent

    def planned(value: object) -> ApiCall[PushOutcome]:
        from xds.admin.models.revisions import UndoProposal

        plan = read_object(UndoProposal, value)
        if plan.to is None:
            raise NothingToUndoError(plan)
        given = options.copy()
        given["if_match"] = plan.etag
        return rollback(plan.group, plan.to, keep_endpoints=True, **given)

    return ask(operations.GET_UNDO, group, read=planned)


def progress(group: str, revision: int, *, wait_s: float = 0.0) -> ApiCall[PushProgress]:
    """How many of the nodes that were connected at a recent push have it."""
    return ask(
        operations.GET_PROGRESS, group, revision, query=flags(wait=f"{wait_s:g}" if wait_s else ""), wait_s=wait_s
    )


def rollout(group: str) -> ApiCall[GroupRollout]:
    """How many of the connected nodes have what they are to have, in all and by type; and the careful rollout."""
    return ask(operations.GET_ROLLOUT, group)


def rollouts() -> ApiCall[tuple[CarefulRollout, ...]]:
    """The careful rollouts that have not ended, by group."""
    return ask_items(operations.LIST_ROLLOUTS)


def change_rollout(
    group: str, action: str, *, message: str = "", head: int = 0, author: str = ""
) -> ApiCall[CarefulRollout]:
    """``pause``, ``resume``, ``promote`` or ``abort`` the careful rollout of a group.

    ``head`` is the revision whose rollout is meant; 0: whichever is open.
    """
    body = {"action": action, "message": message, **({"head": head} if head else {})}
    return ask(operations.CHANGE_ROLLOUT, group, query=flags(author=author), body=body)


def release_group(group: str, *, author: str = "") -> ApiCall[ReleasedNodes]:
    """End the lingering of removed resources of all nodes of a group."""
    return ask(operations.RELEASE_GROUP, group, query=flags(author=author))


def groups() -> ApiCall[tuple[GroupState, ...]]:
    """All groups by name."""
    return ask_items(operations.LIST_GROUPS)


def group(name: str) -> ApiCall[GroupState]:
    """One group."""
    return ask(operations.GET_GROUP, name)


def configure_group(
    name: str,
    *,
    selector: str | None = None,
    priority: int | None = None,
    on_nack: str | None = None,
    removal_delay_s: float | None = None,
    listener_drain_s: float | None = None,
    rollout: Mapping[str, Any] | str | None = None,
    if_match: str | int | None = None,
    author: str = "",
    dry_run: bool = False,
    allow_empty: bool = False,
) -> ApiCall[GroupState]:
    """Create a group, or set its settings. Settings that are left out are reset.

    ``rollout`` is the plan of all pushes of configuration, as of one push. ``if_match`` is the ``settings_etag`` that
    was read, or 0: there must be no settings yet.
    """
    settings = {
        "selector": selector,
        "priority": priority,
        "on_nack": on_nack,
        "removal_delay_s": removal_delay_s,
        "listener_drain_s": listener_drain_s,
        "rollout": rollout,
    }
    body = {key: value for key, value in settings.items() if value is not None}
    query = flags(author=author, dry_run=dry_run, allow_empty=allow_empty)
    return ask(operations.PUT_GROUP, name, query=query, headers=precondition(if_match, "s-"), body=body)


def delete_group(name: str, **options: Unpack[PushArguments]) -> ApiCall[PushOutcome]:
    """Delete a group with its settings; ``moves`` of the result counts its nodes by the group that they move to."""
    return _push(operations.DELETE_GROUP, name, options=options)


def delete_snapshot(group: str, **options: Unpack[PushArguments]) -> ApiCall[PushOutcome]:
    """Delete the content of a group; its settings stay."""
    return _push(operations.DELETE_SNAPSHOT, group, options=options)


def snapshot(
    group: str, *, revision: int | None = None, show_secrets: bool = False, lowered: bool = False
) -> ApiCall[GroupSnapshot]:
    """All resources of a group, now or at a revision; ``lowered``: also those that its upstreams are lowered to."""
    query = flags(show_secrets=show_secrets, lowered=lowered)
    if revision is None:
        return ask(operations.GET_SNAPSHOT, group, query=query)
    return ask(operations.GET_REVISION, group, revision, query=query)


def resource(group: str, type: str, name: str, *, show_secrets: bool = False) -> ApiCall[Json]:
    """One resource as a document."""
    return ask(operations.GET_RESOURCE, group, type, name, query=flags(show_secrets=show_secrets))


def resources(group: str, type: str, *, show_secrets: bool = False) -> ApiCall[tuple[PushedResource, ...]]:
    """The resources of one type by name, without their content."""
    return ask_items(operations.LIST_RESOURCES, group, type, query=flags(show_secrets=show_secrets))


def history(group: str, *, endpoints: bool = True) -> ApiCall[tuple[GroupRevision, ...]]:
    """The revisions of a group, the newest first. ``endpoints=False`` omits those that changed only endpoints."""
    query = {} if endpoints else {"endpoints": "false"}
    return ask_items(operations.LIST_REVISIONS, group, query=query)


def difference(
    group: str,
    revision: int,
    base: int | None = None,
    *,
    show_secrets: bool = False,
    max_bytes: int | None = None,
) -> ApiCall[tuple[ResourceDifference, ...]]:
    """The resources that a revision changed, compared with ``base``: by default the previous one, 0: nothing.

    The contents of resources that are larger than ``max_bytes`` are left out.
    """
    query = flags(**{"from": base, "show_secrets": show_secrets, "max_bytes": max_bytes})
    return ask_items(operations.GET_DIFFERENCE, group, revision, query=query, member="resources")
