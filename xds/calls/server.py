"""The calls about the server itself: its health, its audit list, backups, and callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from xds.calls.call import ApiCall, Json, document, documents, flags, place

TAR = "application/x-tar"


def alive() -> ApiCall[Json]:
    """Whether the server answers at all. Needs no token."""
    return ApiCall("GET", "/livez", document)


def ready() -> ApiCall[Json]:
    """Whether the server is ready for clients. Needs no token."""
    return ApiCall("GET", "/readyz", document)


def version() -> ApiCall[Json]:
    """The version of the server."""
    return ApiCall("GET", place("version"), document)


def check() -> ApiCall[tuple[Json, ...]]:
    """The checks that the server makes of itself."""
    return ApiCall("GET", place("check"), documents)


def config() -> ApiCall[Json]:
    """The settings of the server, without secrets."""
    return ApiCall("GET", place("config"), document)


def store() -> ApiCall[Json]:
    """The condition of the store."""
    return ApiCall("GET", place("store"), document)


def watched_directory(*, group: str = "") -> ApiCall[Json]:
    """The watched directory: its groups, and the files that cannot be applied."""
    return ApiCall("GET", place("watch"), document, flags(group=group))


def whoami() -> ApiCall[Json]:
    """The caller: its principal and scopes, as the server sees them."""
    return ApiCall("GET", place("whoami"), document)


def test_access(question: Mapping[str, Any]) -> ApiCall[Json]:
    """Whether a certificate or token may be a node."""
    return ApiCall("POST", place("auth", "test"), document, body=dict(question))


def audit(
    *,
    since: str = "",
    group: str = "",
    actor: str = "",
    action: str = "",
    refused: bool | None = None,
    cursor: str = "",
) -> ApiCall[tuple[Json, ...]]:
    """All writes and refused writes, oldest first; only those after ``cursor``. ``since`` is a time or an age."""
    refusals = "" if refused is None else str(refused).lower()
    query = flags(since=since, group=group, actor=actor, action=action, refused=refusals, cursor=cursor)
    return ApiCall("GET", place("audit"), documents, query)


def schema(type: str) -> ApiCall[Json]:
    """The JSON schema of a type of resource."""
    return ApiCall("GET", place("schema", type), document)


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
    return ApiCall("GET", place("bootstrap"), document, query)


def backup(*, history: bool = True, redact: bool = False) -> ApiCall[None]:
    """All that the server holds, as an archive."""
    query = {"history": str(history).lower(), "redact": str(redact).lower()}
    return ApiCall("GET", place("backup"), lambda _: None, query, {"Accept": "*/*"})


def restore(
    archive: IO[bytes], size_bytes: int, *, replace: bool = False, dry_run: bool = False, author: str = ""
) -> ApiCall[Json]:
    """Restore a backup, all or nothing; ``replace``: instead of what the server holds."""
    query = flags(replace=replace, dry_run=dry_run, author=author)
    headers = {"Content-Type": TAR, "Content-Length": str(size_bytes)}
    return ApiCall("POST", place("restore"), document, query, headers, archive)
