"""The error hierarchy. The class of an error says whose fault it is.

``XdsError`` is the root. A NACK is not an error, but an event (``xds.protocol.events.Nacked``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class XdsError(Exception):
    """The root of all errors that this project raises on purpose."""


class StatusCode(Enum):
    """The gRPC status codes with which the server may close a stream, by their number on the wire."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class RemoteProtocolError(XdsError):
    """The client broke a rule of the protocol. Its stream ends with ``code``; the state of the engine is unchanged."""

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class LimitError(RemoteProtocolError):
    """The client exceeded the limit with the name ``limit``, under which refusals are counted."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, message)
        self.limit = limit


class LocalProtocolError(XdsError):
    """An invariant of the engine does not hold: a bug in this server."""


ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class Violation:
    """One finding in pushed input.

    * ``resource``: ``alias/name`` of the resource, or ``resources[3]`` if it has no name;
    * ``pointer``: a JSON pointer within the resource;
    * ``source``: ``file:line:column`` if it is known, else empty;
    * ``severity``: ``error`` or ``warning``; ``hint``: how to correct the input;
    * ``index``: the position among the pushed resources; -1 for no resource.
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
    """Pushed input is invalid, and nothing of it was applied. ``violations`` has all findings."""

    violations: list[Violation] = field(default_factory=list)

    def __str__(self) -> str:
        return "; ".join(str(violation) for violation in self.violations) or "invalid input"


class MalformedError(ValidationError):
    """Pushed input cannot be parsed (syntax, encoding): HTTP 400, not 422."""


class InvalidRequestError(XdsError):
    """A request makes no sense, whatever the state is: HTTP 400."""


class NotFoundError(XdsError):
    """The requested object does not exist."""


class ConflictError(XdsError):
    """A compare-and-set failed, because the group has another revision.

    ``revision`` is the head of the group; 0 if there is no such group. ``group`` is empty if the conflict is about a
    document, not a group.
    """

    def __init__(self, message: str, revision: int, group: str = "") -> None:
        super().__init__(message)
        self.revision = revision
        self.group = group


class GuardedError(XdsError):
    """A change that is likely a mistake is refused. The option ``override`` permits it."""

    override = ""


class EmptyingError(GuardedError):
    """A change would leave connected nodes without any resource, or a cluster without a serving endpoint."""

    override = "allow_empty"
