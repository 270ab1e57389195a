"""The rows of observed state: the last good set of each source and service."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xds.store.audit_entries import AuditNote
from xds.store.base import ObservedRecord
from xds.store.sql import audit_rows
from xds.store.sql.connection import SqlConnection

_PUT = (
    "INSERT INTO observed (source, service, body) VALUES (?, ?, ?)"
    " ON CONFLICT (source, service) DO UPDATE SET body = excluded.body"
)

_ALL = "SELECT source, service, body FROM observed WHERE :source IN ('', source) ORDER BY source, service"
_ONE = "SELECT source, service, body FROM observed WHERE source = ? AND service = ?"


def put(
    connection: SqlConnection,
    records: Sequence[ObservedRecord],
    delete: Collection[tuple[str, str]],
    notes: Sequence[AuditNote],
) -> None:
    """``Store.put_observed``."""
    connection.executemany("DELETE FROM observed WHERE source = ? AND service = ?", list(delete))
    connection.executemany(_PUT, [(record.source, record.service, record.body) for record in records])
    audit_rows.write(connection, notes)


def read(connection: SqlConnection, source: str, services: Sequence[str] | None) -> list[ObservedRecord]:
    """``Store.observed``."""
    if services is not None:
        found = (connection.execute(_ONE, (source, service)).fetchone() for service in services)
        return [ObservedRecord(*row) for row in found if row is not None]
    rows = connection.execute(_ALL, {"source": source})
    return [ObservedRecord(*row) for row in rows]
