"""The calls about config entries, discovery chains and upstreams, and transactions that write config entries too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from xds.calls.call import (
    ApiCall,
    CheckedArguments,
    EntryArguments,
    Json,
    PushArguments,
    ask,
    ask_items,
    flags,
    precondition,
    write,
)
from xds.calls.encoding import ResourceInput, encode_resources
from xds.calls.groups import transact_document
from xds.mesh import operations

if TYPE_CHECKING:
    from xds.admin.models.pushes import PushOutcome
    from xds.mesh.models.config_entries import (
        ComparedEntry,
        EntryContent,
        EntryOutcome,
        EntryRevision,
        EntryUndoProposal,
        StoredEntry,
        TransactionOutcome,
    )
    from xds.mesh.models.discovery_chains import ChainAnswer, WalkAnswer
    from xds.mesh.models.upstreams import GroupUpstreams, UpstreamsSummary


class UpstreamArguments(CheckedArguments, total=False):
    """Options of writes of upstreams: as those of pushes, without ``idempotency_key``."""

    message: str
    allow_empty: bool
    wait_s: float


class PatchInput(TypedDict, total=False):
    """A change of one group in a transaction: ``snapshot``, or ``put`` and ``delete`` (pairs of type and name)."""

    group: str
    snapshot: Sequence[ResourceInput]
    put: Sequence[ResourceInput]
    delete: Sequence[tuple[str, str]]
    if_match: str | int


def config_entries(kind: str = "") -> ApiCall[tuple[StoredEntry, ...]]:
    """Config entries by kind and name."""
    return ask_items(operations.LIST_CONFIG_ENTRIES, query=flags(kind=kind))


def config_entry(kind: str, name: str) -> ApiCall[StoredEntry]:
    """One config entry, and who modified it last."""
    return ask(operations.GET_CONFIG_ENTRY, kind, name)


def put_config_entries(
    entries: Sequence[Mapping[str, Any]], **options: Unpack[EntryArguments]
) -> ApiCall[EntryOutcome]:
    """Write several config entries, all or none. ``if_match`` is about all of them."""
    values = [dict(entry) if isinstance(entry, Mapping) else entry for entry in entries]
    return write(operations.PUT_CONFIG_ENTRIES, body=values, options=options, known=EntryArguments)


def put_config_entry(
    kind: str, name: str, entry: Mapping[str, Any], **options: Unpack[EntryArguments]
) -> ApiCall[EntryOutcome]:
    """Write one config entry. ``if_match`` is about this entry."""
    return write(operations.PUT_CONFIG_ENTRY, kind, name, body=dict(entry), options=options, known=EntryArguments)


def delete_config_entry(kind: str, name: str, **options: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Delete one config entry. ``if_match`` is about this entry."""
    return write(operations.DELETE_CONFIG_ENTRY, kind, name, options=options, known=EntryArguments)


def roll_back_config_entries(to: int, **options: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Make a new revision with the config entries of an earlier one; 0: none."""
    return write(operations.ROLL_BACK_CONFIG_ENTRIES, body={"to": to}, options=options, known=EntryArguments)


def config_entry_history() -> ApiCall[tuple[EntryRevision, ...]]:
    """The revisions of the config entries, the newest first."""
    return ask_items(operations.LIST_CONFIG_ENTRY_REVISIONS)


def config_entry_snapshot(revision: int) -> ApiCall[EntryContent]:
    """All config entries at a revision."""
    return ask(operations.GET_CONFIG_ENTRY_REVISION, revision)


def config_entry_difference(revision: int, base: int | None = None) -> ApiCall[tuple[ComparedEntry, ...]]:
    """The entries that a revision changed, compared with ``base``: by default the previous one."""
    return ask_items(operations.GET_CONFIG_ENTRY_DIFFERENCE, revision, query=flags(**{"from": base}))


def config_entry_undo_plan() -> ApiCall[EntryUndoProposal]:
    """The revision to go back to, to undo the last change of config entries."""
    return ask(operations.GET_CONFIG_ENTRY_UNDO)


def discovery_chain(
    service: str,
    *,
    datacenter: str = "",
    protocol: str = "",
    connect_timeout: str = "",
    mesh_gateway_mode: str = "",
) -> ApiCall[ChainAnswer]:
    """The discovery chain of a service; the options override what its config entries say."""
    query = flags(
        datacenter=datacenter,
        protocol=protocol,
        connect_timeout=connect_timeout,
        mesh_gateway_mode=mesh_gateway_mode,
    )
    return ask(operations.GET_DISCOVERY_CHAIN, service, query=query)


def walk_chain(
    service: str, *, path: str = "", method: str = "", headers: Sequence[str] = (), query: Sequence[str] = ()
) -> ApiCall[WalkAnswer]:
    """The path of a request through the chain of a service. Headers and query parameters are ``NAME=VALUE``."""
    asked = {**flags(path=path, method=method), "header": list(headers), "query": list(query)}
    return ask(operations.WALK_CHAIN, service, query=asked)


def upstreams() -> ApiCall[tuple[UpstreamsSummary, ...]]:
    """The groups with upstreams: the services that their proxies call."""
    return ask_items(operations.LIST_UPSTREAMS)


def group_upstreams(group: str) -> ApiCall[GroupUpstreams]:
    """The upstreams of a group, and the resources that they are lowered to."""
    return ask(operations.GET_UPSTREAMS, group)


def set_upstreams(
    group: str, upstreams: Mapping[str, Any], *, selector: str = "", **options: Unpack[UpstreamArguments]
) -> ApiCall[PushOutcome]:
    """Set the upstreams of a group. Its pushed resources stay. ``selector`` sets the nodes of the group."""
    body = dict(upstreams)
    return write(
        operations.PUT_UPSTREAMS, group, body=body, options=options, known=UpstreamArguments, selector=selector
    )


def delete_upstreams(group: str, **options: Unpack[UpstreamArguments]) -> ApiCall[PushOutcome]:
    """Delete the upstreams of a group, and the resources that they were lowered to."""
    return write(operations.DELETE_UPSTREAMS, group, options=options, known=UpstreamArguments)


def transact(
    changes: Iterable[PatchInput] = (),
    *,
    put_entries: Sequence[Mapping[str, Any]] = (),
    delete_entries: Sequence[tuple[str, str]] = (),
    force: bool = False,
    **options: Unpack[PushArguments],
) -> ApiCall[TransactionOutcome]:
    """Change several groups, and config entries, all or none. ``if_match`` is a member of each change.

    ``force`` allows deleting resources that others of the group name.
    """
    if "if_match" in options:
        raise TypeError("if_match is a member of each change of a transaction")
    body: Json = {"changes": [_change(change) for change in changes]}
    if put_entries or delete_entries:
        deleted = [{"kind": kind, "name": name} for kind, name in delete_entries]
        body["config_entries"] = {"put": [dict(entry) for entry in put_entries], "delete": deleted}
    return transact_document(body, force=force, **options)


def _change(change: PatchInput) -> Json:
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
