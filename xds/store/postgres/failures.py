"""What errors of PostgreSQL mean for a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg
from psycopg import errors

from xds.model.errors import ValidationError, Violation
from xds.store.base import CorruptError, OutOfSpaceError, SilentError, UnavailableError
from xds.store.sql.connection import ContradictionError

SHOWN = 100  # characters of a long text
# The server ends or was demoted, or a transaction met another one: a new attempt may succeed.
_PASSING = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,
    errors.SerializationFailure,
    errors.DeadlockDetected,
)
# The same at a connection, where libpq gives no code.
_PASSING_REFUSALS = ("starting up", "shutting down", "recovery", "not accepting", "too many", "remaining connection")
# What other errors mean, by their class: the first that fits. Their texts have a place and a reason.
_MEANINGS: Sequence[tuple[tuple[type[psycopg.Error], ...], type[Exception], str]] = (
    (
        (errors.InsufficientPrivilege,),
        UnavailableError,
        "the user may not write in {place}: {reason}. Grant it the schema and its tables",
    ),
    (
        (errors.DiskFull, errors.OutOfMemory),
        OutOfSpaceError,
        "no space left in {place}; nothing was written. Free or add space, then push again",
    ),
    ((errors.LockNotAvailable, errors.QueryCanceled), SilentError, "{place} did not answer in time: {reason}"),
    ((errors.DataCorrupted, errors.IndexCorrupted), CorruptError, "{place} is damaged: {reason}"),
    ((psycopg.IntegrityError,), ContradictionError, "{reason}"),
    ((psycopg.OperationalError,), UnavailableError, "{place} cannot be used now: {reason}"),
)


def is_passing(error: psycopg.Error, connection: psycopg.Connection) -> bool:
    """Whether a new attempt on a new connection may succeed."""
    return connection.closed or isinstance(error, _PASSING)


def failure(error: psycopg.Error, place: str) -> Exception:
    """The exception of a store for an error of the database ``place`` that a new attempt would meet again."""
    for classes, meaning, text in _MEANINGS:
        if isinstance(error, classes):
            return meaning(text.format(place=place, reason=reason(error)))
    bug: Exception = error
    return bug


def check_texts(error: psycopg.Error, values: Iterable[object]) -> None:
    """Raises ``ValidationError`` if a statement with these values failed since PostgreSQL cannot hold one of them."""
    texts = [value for value in values if isinstance(value, str)]
    if isinstance(error, errors.ProgramLimitExceeded):
        longest = _shown(max(texts, key=len, default=""))
        detail = f"the name {longest} is longer than PostgreSQL can hold, which is some 2,600 bytes"
        raise ValidationError([Violation("too_large", detail)]) from error
    for text in texts if isinstance(error, psycopg.DataError) else ():
        if "\0" in text:
            detail = f"the text {_shown(text)} contains the character NUL, which PostgreSQL cannot store"
            raise ValidationError([Violation("unsupported_character", detail)]) from error


def _shown(text: str) -> str:
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}... ({len(text.encode())} bytes)"


def is_refusal(message: str) -> bool:
    """Whether a connection failed because the server refuses it for good, as for a wrong name or password."""
    return "FATAL:" in message and not any(passing in message for passing in _PASSING_REFUSALS)


def reason(error: psycopg.Error) -> str:
    """The message of an error in one line, without what it was about: that may be secret."""
    return error.diag.message_primary or " ".join(str(error).split())
