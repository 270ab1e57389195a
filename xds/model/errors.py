"""The error hierarchy: what can go wrong, and whose fault it is.

``XdsError`` is the root. A NACK is not an error but an event (``xds.protocol.events.Nacked``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class XdsError(Exception):
    """Root of all errors this project raises on purpose."""


class StatusCode(Enum):
    """gRPC status codes the engine may close a stream with, by their wire number."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class RemoteProtocolError(XdsError):
    """The client broke a rule of the protocol; its stream ends with ``code``. The engine's state is unchanged."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class LimitError(RemoteProtocolError):
    """The client exceeded ``limit``; the refusal is counted under that name."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, message)
        self.limit = limit


class LocalProtocolError(XdsError):
    """An invariant of the engine is broken: a bug in this server."""


ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class Violation:
    """One finding in pushed input.

    ``resource`` names the resource as ``alias/name`` (or ``resources[3]`` where it has no name),
    ``pointer`` is a JSON pointer within that resource, ``source`` is ``file:line:column`` where known. ``hint`` says
    how to correct it, ``index`` is the position among the pushed resources (-1: no resource), ``severity`` is ``error``
    or ``warning``.
    """

    code: str
    detail: str
    resource: str = ""
    pointer: str = ""
    source: str = ""
    severity: str = ERROR
    hint: str = ""
    index: int = -1

    def __str__(self) -> str:
        place = " ".join(part for part in (self.source, self.resource, self.pointer) if part)
        text = f"{self.detail}; {self.hint}" if self.hint else self.detail
        return f"{place}: {text}" if place else text


@dataclass(eq=False)
class ValidationError(XdsError):
    """Pushed input is invalid; nothing was applied. Carries every finding."""

    violations: list[Violation] = field(default_factory=list)

    def __str__(self) -> str:
        return "; ".join(str(violation) for violation in self.violations) or "invalid input"


class MalformedError(ValidationError):
    """Pushed input cannot be parsed (syntax, encoding): HTTP 400, not 422."""


class NotFoundError(XdsError):
    """The requested object does not exist."""


class ConflictError(XdsError):
    """Compare-and-set failed: the group has another revision. ``revision`` is its head (0: there is no such group).

    ``group`` is empty where a document changed, not a group.
    """

    def __init__(self, message: str, revision: int, group: str = "") -> None:
        super().__init__(message)
        self.revision = revision
        self.group = group
