"""The calls about config entries, discovery chains and upstreams, and transactions that write config entries too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from xds.admin.operations import Operation
from xds.calls.call import (
    ENTRY_ARGUMENTS,
    ApiCall,
    EntryArguments,
    Json,
    PushArguments,
    WriteArguments,
    ask,
    ask_items,
    document,
    documents,
    flags,
    precondition,
    write_parts,
)
from xds.calls.encoding import ResourceInput, encode_resources
from xds.calls.groups import transact_document
from xds.mesh import operations

if TYPE_CHECKING:
    from xds.admin.models.pushes import PushOutcome
    from xds.mesh.models.config_entries import EntryOutcome, StoredEntry, TransactionOutcome


class UpstreamArguments(WriteArguments, total=False):
    """Options of writes of upstreams: as those of pushes, and ``selector``, which sets the nodes of the group."""

    message: str
    allow_empty: bool
    wait_s: float
    selector: str


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
    return _write(operations.PUT_CONFIG_ENTRIES, body=values, **options)


def put_config_entry(
    kind: str, name: str, entry: Mapping[str, Any], **options: Unpack[EntryArguments]
) -> ApiCall[EntryOutcome]:
    """Write one config entry. ``if_match`` is about this entry."""
    return _write(operations.PUT_CONFIG_ENTRY, kind, name, body=dict(entry), **options)


def delete_config_entry(kind: str, name: str, **options: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Delete one config entry. ``if_match`` is about this entry."""
    return _write(operations.DELETE_CONFIG_ENTRY, kind, name, **options)


def roll_back_config_entries(to: int, **options: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Make a new revision with the config entries of an earlier one; 0: none."""
    return _write(operations.ROLL_BACK_CONFIG_ENTRIES, body={"to": to}, **options)


def config_entry_history() -> ApiCall[tuple[Json, ...]]:
    """The revisions of the config entries, the newest first."""
    return ask(operations.LIST_CONFIG_ENTRY_REVISIONS, read=documents)


def config_entry_snapshot(revision: int) -> ApiCall[Json]:
    """All config entries at a revision."""
    return ask(operations.GET_CONFIG_ENTRY_REVISION, revision, read=document)


def config_entry_difference(revision: int, base: int | None = None) -> ApiCall[tuple[Json, ...]]:
    """The entries that a revision changed, compared with ``base``: by default the previous one."""
    return ask(operations.GET_CONFIG_ENTRY_DIFFERENCE, revision, query=flags(**{"from": base}), read=documents)


def config_entry_undo_plan() -> ApiCall[Json]:
    """The revision to go back to, to undo the last change of config entries."""
    return ask(operations.GET_CONFIG_ENTRY_UNDO, read=document)


def discovery_chain(
    service: str,
    *,
    datacenter: str = "",
    protocol: str = "",
    connect_timeout: str = "",
    mesh_gateway_mode: str = "",
) -> ApiCall[Json]:
    """The discovery chain of a service; the options override what its config entries say."""
    query = flags(
        datacenter=datacenter,
        protocol=protocol,
        connect_timeout=connect_timeout,
        mesh_gateway_mode=mesh_gateway_mode,
    )
    return ask(operations.GET_DISCOVERY_CHAIN, service, query=query, read=document)


def walk_chain(
    service: str, *, path: str = "", method: str = "", headers: Sequence[str] = (), query: Sequence[str] = ()
) -> ApiCall[Json]:
    """The path of a request through the chain of a service. Headers and query parameters are ``NAME=VALUE``."""
    asked = {**flags(path=path, method=method), "header": list(headers), "query": list(query)}
    return ask(operations.WALK_CHAIN, service, query=asked, read=document)


def upstreams() -> ApiCall[tuple[Json, ...]]:
    """The groups with upstreams: the services that their proxies call."""
    return ask(operations.LIST_UPSTREAMS, read=documents)


def group_upstreams(group: str) -> ApiCall[Json]:
    """The upstreams of a group, and the resources that they are lowered to."""
    return ask(operations.GET_UPSTREAMS, group, read=document)


def set_upstreams(
    group: str, upstreams: Mapping[str, Any], **options: Unpack[UpstreamArguments]
) -> ApiCall[PushOutcome]:
    """Set the upstreams of a group. Its pushed resources stay."""
    return _write_upstreams(operations.PUT_UPSTREAMS, group, dict(upstreams), options)


def delete_upstreams(group: str, **options: Unpack[UpstreamArguments]) -> ApiCall[PushOutcome]:
    """Delete the upstreams of a group, and the resources that they were lowered to."""
    return _write_upstreams(operations.DELETE_UPSTREAMS, group, None, options)


def _write_upstreams(operation: Operation, group: str, body: object, given: UpstreamArguments) -> ApiCall[PushOutcome]:
    query, headers = write_parts(given, UpstreamArguments.__optional_keys__)
    return ask(operation, group, query=query, headers=headers, body=body, wait_s=given.get("wait_s", 0.0))


def _write(
    operation: Operation, *values: str, body: object = None, **given: Unpack[EntryArguments]
) -> ApiCall[EntryOutcome]:
    query, headers = write_parts(given, ENTRY_ARGUMENTS)
    return ask(operation, *values, query=query, headers=headers, body=body)


def transact(
    changes: Iterable[PatchInput] = (),
    *,
    put_entries: Sequence[Mapping[str, Any]] = (),
    delete_entries: Sequence[tuple[str, str]] = (),
    **options: Unpack[PushArguments],
) -> ApiCall[TransactionOutcome]:
    """Change several groups, and config entries, all or none. ``if_match`` is a member of each change."""
    if "if_match" in options:
        raise TypeError("if_match is a member of each change of a transaction")
    body: Json = {"changes": [_change(change) for change in changes]}
    if put_entries or delete_entries:
        deleted = [{"kind": kind, "name": name} for kind, name in delete_entries]
        body["config_entries"] = {"put": [dict(entry) for entry in put_entries], "delete": deleted}
    return transact_document(body, **options)


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
