"""The rows of observed state: the last good set of each source and service, and open NACKs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xds.store.audit_entries import AuditNote
from xds.store.base import ObservedRecord, OpenNack
from xds.store.sql import audit_rows
from xds.store.sql.connection import SqlConnection

_PUT = (
    "INSERT INTO observed (source, service, body) VALUES (?, ?, ?)"
    " ON CONFLICT (source, service) DO UPDATE SET body = excluded.body"
)

_PUT_NACK = (
    "INSERT INTO nack (id, node, type, body) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET node = excluded.node, type = excluded.type, body = excluded.body"
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


def put_nacks(connection: SqlConnection, put: Sequence[OpenNack], delete: Collection[int]) -> None:
    """``Store.put_nacks``."""
    connection.executemany("DELETE FROM nack WHERE id = ?", [(id,) for id in delete])
    connection.executemany(_PUT_NACK, [(nack.id, nack.node, nack.type_url, nack.body) for nack in put])


def nacks(connection: SqlConnection) -> list[OpenNack]:
    """``Store.nacks``."""
    return [OpenNack(*row) for row in connection.execute("SELECT id, node, type, body FROM nack ORDER BY id")]
