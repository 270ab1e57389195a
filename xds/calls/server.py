"""The calls about the server itself: its health, its audit list, backups, and callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from xds.admin import operations
from xds.calls.call import ApiCall, Json, ask, ask_items, flags

if TYPE_CHECKING:
    from xds.admin.models.access import AccessVerdict
    from xds.admin.models.audit import AuditedWrite
    from xds.admin.models.backups import RestoredBackup, StoreState
    from xds.admin.models.checks import CheckedRow
    from xds.admin.models.members import ServerMembers
    from xds.admin.models.server import CallerIdentity, ServerStatus, ServerVersions, WatchedFiles

TAR = "application/x-tar"


def alive() -> ApiCall[ServerStatus]:
    """Whether the server answers at all. Needs no token."""
    return ask(operations.LIVEZ)


def ready() -> ApiCall[ServerStatus]:
    """Whether the server is ready for clients. Needs no token."""
    return ask(operations.READYZ)


def version() -> ApiCall[ServerVersions]:
    """The version of the server."""
    return ask(operations.GET_VERSION)


def check() -> ApiCall[tuple[CheckedRow, ...]]:
    """The checks that the server makes of itself."""
    return ask_items(operations.CHECK)


def members() -> ApiCall[ServerMembers]:
    """The servers that share the store, and those that did not answer."""
    return ask(operations.LIST_MEMBERS)


def config() -> ApiCall[Json]:
    """The settings of the server, without secrets."""
    return ask(operations.GET_CONFIG)


def store() -> ApiCall[StoreState]:
    """The condition of the store."""
    return ask(operations.GET_STORE)


def watched_directory(*, group: str = "") -> ApiCall[WatchedFiles]:
    """The watched directory: its groups, and the files that cannot be applied."""
    return ask(operations.GET_WATCH, query=flags(group=group))


def whoami() -> ApiCall[CallerIdentity]:
    """The caller: its principal and scopes, as the server sees them."""
    return ask(operations.GET_CALLER)


def test_access(question: Mapping[str, Any]) -> ApiCall[AccessVerdict]:
    """Whether a certificate or token may be a node."""
    return ask(operations.TEST_ACCESS, body=dict(question))


def audit(
    *,
    since: str = "",
    group: str = "",
    actor: str = "",
    action: str = "",
    refused: bool | None = None,
    cursor: str = "",
) -> ApiCall[tuple[AuditedWrite, ...]]:
    """All writes and refused writes, oldest first; only those after ``cursor``. ``since`` is a time or an age."""
    refusals = "" if refused is None else str(refused).lower()
    query = flags(since=since, group=group, actor=actor, action=action, refused=refusals, cursor=cursor)
    return ask_items(operations.LIST_AUDIT, query=query)


def schema(type: str) -> ApiCall[Json]:
    """The JSON schema of a type of resource."""
    return ask(operations.GET_SCHEMA, type)


def bootstrap(
    node_id: str,
    *,
    cluster: str = "",
    mode: str = "",
    admin_port: int | None = None,
    address: str = "",
    region: str = "",
    zone: str = "",
    sub_zone: str = "",
    load_reports: bool = True,
    ca: str = "",
    certificate: str = "",
    private_key: str = "",
) -> ApiCall[Json]:
    """The bootstrap of a proxy or a gRPC library, which connects it to the server."""
    query = flags(
        node_id=node_id,
        cluster=cluster,
        mode=mode,
        admin_port=admin_port,
        address=address,
        region=region,
        zone=zone,
        sub_zone=sub_zone,
        load_reports="" if load_reports else "false",
        ca=ca,
        certificate=certificate,
        private_key=private_key,
    )
    return ask(operations.GET_BOOTSTRAP, query=query)


def backup(*, history: bool = True, redact: bool = False) -> ApiCall[None]:
    """All that the server holds, as an archive."""
    query = {"history": str(history).lower(), "redact": str(redact).lower()}
    return ask(operations.GET_BACKUP, query=query, headers={"Accept": "*/*"}, read=lambda _: None)


def restore(
    archive: IO[bytes], size_bytes: int, *, replace: bool = False, dry_run: bool = False, author: str = ""
) -> ApiCall[RestoredBackup]:
    """Restore a backup, all or nothing; ``replace``: instead of what the server holds."""
    query = flags(replace=replace, dry_run=dry_run, author=author)
    headers = {"Content-Type": TAR, "Content-Length": str(size_bytes)}
    return ask(operations.RESTORE, query=query, headers=headers, body=archive)
