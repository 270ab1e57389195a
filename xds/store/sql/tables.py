"""The tables, one text for both databases (docs/internals/design.md#storage).

The present content of a group is in ``entry``, one row per resource. A row that is replaced or removed moves to
``past`` with the revision that ended it. The content at a revision consists of the rows that began by then and had not
ended. So an update of one resource writes one row, and reading an older revision costs the head plus the changes since.
Deleting history means deleting rows of ``past`` that ended by the ``floor`` of the group, then the blobs in ``doomed``
that neither table names (``collection``).

Rows name blobs by hash, without a foreign key: reading a manifest does not touch the blobs, and the check would need an
index over both tables that every push pays for.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from xds.store.base import CorruptError, UnavailableError
from xds.store.sql import sequences
from xds.store.sql.connection import SqlConnection

SCHEMA_VERSION = 5


class ColumnTypes(NamedTuple):
    """How a database names the types of columns.

    ``row_id`` is a key that the database counts; ``keyed`` ends a table whose rows are kept in the order of its key.
    """

    row_id: str
    integer: str
    number: str
    flag: str
    text: str
    octets: str
    keyed: str


_TABLES = """
CREATE TABLE meta (k {text} PRIMARY KEY, v {text} NOT NULL){keyed};
CREATE TABLE seq (name {text} PRIMARY KEY, v {integer} NOT NULL){keyed};
CREATE TABLE type (id {row_id}, url {text} NOT NULL UNIQUE);
CREATE TABLE grp (
    id {row_id},
    name {text} NOT NULL UNIQUE,
    revision {integer} NOT NULL,
    live {flag} NOT NULL,
    last_rank {integer} NOT NULL,
    floor {integer} NOT NULL DEFAULT 1 -- the lowest revision whose content is kept
);
-- Not keyed by its hash: that took 8 times the time and 4 times the space in SQLite.
CREATE TABLE blob (id {row_id}, h {octets} NOT NULL UNIQUE, codec {integer} NOT NULL, data {octets} NOT NULL);
CREATE TABLE revision (
    grp {integer} NOT NULL REFERENCES grp,
    revision {integer} NOT NULL,
    live {flag} NOT NULL,
    resources {integer} NOT NULL,
    versions {text} NOT NULL,
    author {text} NOT NULL,
    message {text} NOT NULL,
    time_s {number} NOT NULL,
    actor {text} NOT NULL,
    kind {text} NOT NULL,
    content_of {integer} NOT NULL, -- target of a rollback
    keeps_endpoints {flag} NOT NULL,
    endpoints_only {flag} NOT NULL,
    content {flag} NOT NULL DEFAULT TRUE, -- FALSE where it was collected above the floor
    nodes {integer} NOT NULL DEFAULT 0,
    refused {integer} NOT NULL DEFAULT 0,
    PRIMARY KEY (grp, revision)
){keyed};
CREATE INDEX rollbacks ON revision (grp, revision) WHERE content_of > 0;
CREATE TABLE entry (
    grp {integer} NOT NULL REFERENCES grp,
    type {integer} NOT NULL REFERENCES type,
    name {text} NOT NULL,
    h {octets} NOT NULL,
    rank {integer} NOT NULL,
    born {integer} NOT NULL,
    PRIMARY KEY (grp, type, name)
){keyed};
CREATE TABLE past (
    grp {integer} NOT NULL REFERENCES grp,
    died {integer} NOT NULL,
    type {integer} NOT NULL REFERENCES type,
    name {text} NOT NULL,
    h {octets} NOT NULL,
    rank {integer} NOT NULL,
    born {integer} NOT NULL,
    PRIMARY KEY (grp, died, type, name)
){keyed};
CREATE TABLE push (
    id {row_id},
    grp {integer} NOT NULL REFERENCES grp,
    push_id {text} NOT NULL,
    revision {integer} NOT NULL,
    changed {flag} NOT NULL,
    time_s {number} NOT NULL,
    digest {octets} NOT NULL, -- of the request; empty: not known
    UNIQUE (grp, push_id)
);
CREATE TABLE doc (
    id {row_id},
    kind {text} NOT NULL,
    name {text} NOT NULL,
    body {octets},
    revision {integer} NOT NULL,
    UNIQUE (kind, name)
);
-- kind '' is a commit to the group ``name``; else a document of that kind.
CREATE TABLE event (
    cursor {integer} PRIMARY KEY,
    kind {text} NOT NULL,
    name {text} NOT NULL,
    revision {integer} NOT NULL,
    live {flag} NOT NULL,
    body {octets}
);
-- Contains every blob that no row names, across a crash during a collection; it may contain blobs that are named.
CREATE TABLE doomed (h {octets} PRIMARY KEY){keyed};
-- Open NACKs, so that rejected resources are not re-sent after a restart.
CREATE TABLE nack (id {integer} PRIMARY KEY, node {text} NOT NULL, type {text} NOT NULL, body {octets} NOT NULL);
-- Observed state: the last good set of each source and service. Not keyed, since its rows are large.
CREATE TABLE observed (
    id {row_id}, source {text} NOT NULL, service {text} NOT NULL, body {octets} NOT NULL, UNIQUE (source, service)
);
CREATE TABLE audit (
    position {integer} PRIMARY KEY,
    id {integer} NOT NULL,
    lane {integer} NOT NULL,
    key {text} NOT NULL,
    grp {text} NOT NULL,
    actor {text} NOT NULL,
    action {text} NOT NULL,
    count {integer} NOT NULL,
    first_s {number} NOT NULL,
    time_s {number} NOT NULL,
    size {integer} NOT NULL,
    body {text} NOT NULL
);
CREATE INDEX audit_lanes ON audit (lane, position);
CREATE INDEX audit_keys ON audit (key) WHERE key <> '';
"""


def create(connection: SqlConnection, types: ColumnTypes) -> None:
    """Create the tables of an empty store, in the caller's transaction."""
    for statement in _TABLES.strip().split(";\n"):  # a comment holds no semicolon at the end of its line
        connection.execute(statement.format(**types._asdict()))
    # The epoch distinguishes cursors of the audit lists of different stores.
    connection.executemany(
        "INSERT INTO meta (k, v) VALUES (?, ?)",
        [("schema", str(SCHEMA_VERSION)), ("audit_epoch", secrets.token_hex(4))],
    )
    connection.executemany("INSERT INTO seq (name, v) VALUES (?, 0)", [(name,) for name in sequences.NAMES])


def schema_of(connection: SqlConnection) -> int:
    """The schema of a store. Raises ``UnavailableError`` for that of a newer release, ``CorruptError``."""
    (text,) = connection.execute("SELECT v FROM meta WHERE k = 'schema'").fetchone() or ("0",)
    if not str(text).isdecimal():
        raise CorruptError("the number of its schema is damaged")
    if not 0 < int(text) <= SCHEMA_VERSION:
        raise UnavailableError(
            f"the data has schema {text}, this release supports {SCHEMA_VERSION}; use a newer release"
        )
    return int(text)
