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


def read(connection: SqlConnection) -> list[ObservedRecord]:
    """``Store.observed``."""
    rows = connection.execute("SELECT source, service, body FROM observed ORDER BY source, service")
    return [ObservedRecord(*row) for row in rows]
