"""Errors of calls: one class for each reason that a program may need to distinguish."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xds.admin.models.reading import read_value

if TYPE_CHECKING:
    from xds.admin.models.findings import Finding
    from xds.admin.models.pushes import PushOutcome
    from xds.admin.models.revisions import UndoProposal

FINDINGS_SHOWN = 10  # in the text of an error


class AdminApiError(Exception):
    """The admin API could not be reached, or it refused the request. The message says why, and what to do.

    ``status`` is the HTTP status, 0 without an answer. ``findings`` has every error that the server found in the input;
    ``problem`` is the whole answer (RFC 9457). ``request_id`` finds the request in the server's log.
    """

    def __init__(self, message: str, status: int = 0, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem or {}
        self.request_id = str(self.problem.get("request_id", ""))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Every error that the server found in the input."""
        from xds.admin.models.findings import Finding

        violations: tuple[Finding, ...] = read_value(tuple[Finding, ...], self.problem.get("errors", ()))
        return violations

    def __str__(self) -> str:
        """The message, and a line for each of the first findings, with place and hint."""
        shown, left_out = self.findings[:FINDINGS_SHOWN], len(self.findings[FINDINGS_SHOWN:])
        more = (f"and {left_out} more in findings",) if left_out else ()
        return "\n  ".join((super().__str__(), *map(str, shown), *more))


class PartialAnswerWarning(UserWarning):
    """An answer lacks what some servers know, because they did not answer the server that was asked."""


# What an argument that is missing would be good for.
_WANTED = {
    "cacert": "; cacert or XDS_CACERT names the authorities to trust",
    "cert": "; the server may ask for a client certificate: cert, key",
}


class UnreachableServerError(AdminApiError):
    """No answer: no server, a lost connection, or a timeout. A write may have happened.

    ``is_lost``: the connection was lost after the request. ``wants`` is ``cacert`` or ``cert`` if a credential of this
    kind may be what is missing.
    """

    def __init__(self, message: str, *, is_lost: bool = False, wants: str = "") -> None:
        super().__init__(message)
        self.is_lost = is_lost
        self.wants = wants

    def __str__(self) -> str:
        return f"{self.args[0]}{_WANTED.get(self.wants, '')}"


class UnexpectedAnswerError(AdminApiError):
    """The answer is not one of the admin API of an xDS server."""


class InvalidInputError(AdminApiError):
    """The configuration or a parameter is invalid (400, 413, 415, 422). ``findings`` has the places."""


class AccessError(AdminApiError):
    """No credential, an invalid one, or one without the scope (401, 403)."""


class AbsentError(AdminApiError):
    """No such group, resource, revision or node (404), or its content was deleted (410)."""


class WriteConflictError(AdminApiError):
    """The precondition failed, or the server requires a confirmation (409, 412, 428). Nothing was changed."""


class ServerBusyError(AdminApiError):
    """The server cannot answer at the moment (429, 5xx): starting, draining, or its store cannot write."""


class NothingToUndoError(AdminApiError):
    """No earlier revision can be chosen automatically. ``plan.candidates`` has reasons; see ``Client.rollback``."""

    def __init__(self, plan: UndoProposal) -> None:
        super().__init__(f"group {plan.group!r}: no earlier revision to go back to; choose one and roll back to it")
        self.plan = plan


class NotTakenError(AdminApiError):
    """A push was committed, but proxies rejected it or did not ACK it in time: see ``outcome.progress``."""

    def __init__(self, outcome: PushOutcome) -> None:
        super().__init__(_explain_outcome(outcome))
        self.outcome = outcome


def check_taken(outcome: PushOutcome) -> PushOutcome:
    """Return the outcome if all proxies have the push. Raises ``NotTakenError`` otherwise, also without ``wait_s``."""
    if outcome.progress is None or outcome.progress.verdict != "done":
        raise NotTakenError(outcome)
    return outcome


def _explain_outcome(outcome: PushOutcome) -> str:
    place = f"group {outcome.group!r}, revision {outcome.revision}"
    progress = outcome.progress
    if progress is None:
        return f"{place}: the push did not wait for the proxies; give wait_s"
    if not progress.nacks:
        return f"{place}: {progress.pending} nodes have not ACKed it yet"
    first = progress.nacks[0]
    return f"{place}: {progress.nacked} nodes rejected it; {first.node}: {first.message}"


_CLASSES: Mapping[int, type[AdminApiError]] = {
    400: InvalidInputError,
    401: AccessError,
    403: AccessError,
    404: AbsentError,
    409: WriteConflictError,
    410: AbsentError,
    412: WriteConflictError,
    413: InvalidInputError,
    415: InvalidInputError,
    422: InvalidInputError,
    428: WriteConflictError,
    429: ServerBusyError,
}


def failure_of(status: int, problem: Mapping[str, Any] | None) -> AdminApiError:
    """The error for an answer that is not a success; ``problem`` is None if it has no problem document."""
    if problem is None:
        return UnexpectedAnswerError(f"HTTP {status}: this is not the admin API of an xDS server", status)
    kind = _CLASSES.get(status, ServerBusyError if status >= 500 else AdminApiError)
    detail = str(problem.get("detail") or problem.get("title") or f"HTTP {status}")
    return kind(detail, status, problem)
